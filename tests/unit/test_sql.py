"""SQL text becomes the calls a user would write, exactly or not at all; what is refused is shown at its place."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.model.durations import LONGEST, UNBOUNDED, microseconds
from sluice.model.errors import FlowError
from sluice.sql import translate

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "sql.md"
TYPES = {"symbol": pa.string(), "price": pa.float64(), "size": pa.int64(), "at": pa.timestamp("us", "UTC")}
BANK = ("offerCurrency", "offer", "timestamp")


@dataclass(frozen=True)
class Handle:
    """A relation that remembers the calls that made it."""

    name: str
    columns: tuple[str, ...]
    event_time: str
    calls: tuple[Any, ...] = ()

    @property
    def column_types(self) -> dict[str, pa.DataType]:
        return {name: TYPES[name] for name in self.columns if name in TYPES}

    def _then(self, *call: Any, **changes: Any) -> Handle:
        return replace(self, calls=(*self.calls, call), **changes)

    def alias(self, name: str) -> Handle:
        return self._then("alias", name, name=name)

    def filter(self, condition: str) -> Handle:
        if "explode" in condition:
            raise FlowError("the function 'explode' is not available")
        return self._then("filter", condition)

    def select(self, *columns: str) -> Handle:
        return self._then("select", *columns, columns=tuple(c.split(" AS ")[-1].strip("`") for c in columns))

    def withColumn(self, name: str, expression: str) -> Handle:
        return self._then("withColumn", name, expression, columns=(*self.columns, name))

    def join(self, other: Handle, **options: Any) -> Handle:
        names = tuple(f"{side.name}_{column}" for side in (self, other) for column in side.columns)
        return self._then("join", made(other), options, columns=names, event_time="__time")

    def union(self, other: Handle) -> Handle:
        if len(self.columns) != len(other.columns):
            raise FlowError("union takes columns by their places")
        return self._then("union", made(other))

    def groupBy(self, *columns: str) -> Grouped:
        return Grouped(self, columns)

    def dropDuplicates(self, columns: list[str]) -> Handle:
        return self._then("dropDuplicates", *columns)

    def distinct(self) -> Handle:
        return self._then("distinct")


@dataclass(frozen=True)
class Grouped:
    handle: Handle
    groups: tuple[str, ...]
    window_: tuple[Any, ...] = ("groups",)

    def last(self, rows: int) -> Grouped:
        return replace(self, window_=("last", rows))

    def window(self, *durations: str, **by: str) -> Grouped:
        return replace(self, window_=("window", *durations, *by.items()))

    def session_window(self, gap: str) -> Grouped:
        return replace(self, window_=("session_window", gap))

    def top(self, count: int, *order: str, number: str) -> Handle:
        call = ("groupBy", *self.groups), ("top", count, *order), {"number": number}
        return self.handle._then(*call, columns=(*self.handle.columns, number))

    def agg(self, **aggregates: tuple[str, str]) -> Handle:
        kind, time = self.window_[0], self.handle.event_time
        times = {"last": (time,), "groups": ()}.get(kind, ("window_start", "window_end"))
        return self.handle._then(
            ("groupBy", *self.groups),
            self.window_,
            aggregates,
            columns=(*self.groups, *times, *aggregates),
            event_time=times[-1] if times else time,
        )


def join_many(handles: list[Handle], **options: Any) -> Handle:
    names = tuple(f"{h.name}_{column}" for h in handles for column in h.columns)
    return Handle("", names, "__time", (("flow.join", [made(h) for h in handles], options),))


def made(handle: Handle) -> list[Any]:
    """How a relation came to be, from the stream's name on."""
    return [*handle.calls]


STREAMS = {
    "trades": Handle("trades", ("symbol", "price", "size", "ts"), "ts"),
    "quotes": Handle("quotes", ("symbol", "bid", "ask", "ts"), "ts"),
    "news": Handle("news", ("sym", "headline", "info", "at"), "at"),
    "bank1": Handle("bank1", ("brokerName", "price", *BANK), "timestamp"),
    "bank2": Handle("bank2", BANK, "timestamp"),
    "bank3": Handle("bank3", BANK, "timestamp"),
}

TABLES = {"symbols": Handle("symbols", ("symbol", "sector"), "")}


def calls(text: str, within: str | None = None) -> list[Any]:
    return list(translate(text, STREAMS, join_many, within).calls)


def refused(text: str) -> tuple[str, int, int]:
    """The message, and the line and column it points to; the caret must stand there too."""
    with pytest.raises(FlowError) as caught:
        translate(text, STREAMS, join_many)
    message, line, caret = str(caught.value).rsplit("\n", 2)
    place = re.search(r" \(line (\d+), column (\d+)\)$", message)
    assert place, message
    number, column = int(place[1]), int(place[2])
    assert line == f"    {text.splitlines()[number - 1].rstrip()}"
    assert caret == " " * (column + 3) + "^"
    return message[: place.start()], number, column


ON = "FROM trades t JOIN quotes q ON t.symbol = q.symbol"
NEAR = f"{ON} AND q.ts BETWEEN t.ts - INTERVAL 30 SECONDS AND t.ts"
AROUND = f"{ON} AND q.ts BETWEEN t.ts - INTERVAL 3 SECONDS AND t.ts + INTERVAL 3 SECONDS"
OVER = "OVER (PARTITION BY symbol ORDER BY ts ROWS BETWEEN 99 PRECEDING AND CURRENT ROW)"
PER_MINUTE = "FROM trades GROUP BY symbol, window(ts, '1 minute')"


class TestOneStream:
    def test_everything_is_the_stream_itself(self) -> None:
        assert calls("SELECT * FROM trades") == []
        assert calls("(SELECT * FROM TRADES);") == []

    def test_where_filters_and_the_list_selects(self) -> None:
        found = calls("SELECT t.symbol, price * 2 AS twice, Size FROM Trades t WHERE t.price > 3 OR t.size = 1")
        assert found == [("filter", "price > 3 OR size = 1"), ("select", "symbol", "price * 2 AS twice", "size")]

    def test_stars_beside_other_columns(self) -> None:
        assert calls("SELECT t.*, price / size AS unit FROM trades t") == [
            ("select", "symbol", "price", "size", "ts", "price / size AS unit")
        ]

    @pytest.mark.parametrize(
        ("written", "expected"),
        [
            ("price IS NOT NULL", "NOT price IS NULL"),
            ("ts - INTERVAL 1 MINUTE 30 SECONDS", "ts - (INTERVAL '1' MINUTE + INTERVAL '30' SECONDS)"),
            ("DATE '2020-01-01'", "CAST('2020-01-01' AS DATE)"),
            ("CASE WHEN price > 1 THEN 'it''s' END", "CASE WHEN price > 1 THEN 'it\\'s' END"),
            ("date_trunc('hour', trades.ts)", "date_trunc('hour', ts)"),
            ("a_function(symbol -- of the trade\n, 1)", "a_function(symbol, 1)"),
        ],
    )
    def test_expressions_keep_their_meaning(self, written: str, expected: str) -> None:
        assert calls(f"SELECT {written} AS x FROM trades") == [("select", f"{expected} AS x")]

    def test_fields_of_columns(self) -> None:
        assert calls("SELECT n.info.city, info.floor.no AS no FROM news n") == [
            ("select", "info.city AS city", "info.floor.no AS no")
        ]

    def test_names_that_need_quotes_keep_them(self) -> None:
        assert calls("SELECT symbol AS `a b`, price AS `select` FROM trades") == [
            ("select", "symbol AS `a b`", "price AS `select`")
        ]


class TestTwoStreams:
    def test_bound_key_and_names(self) -> None:
        assert calls(f"SELECT t.price, q.ask - t.price AS gap {NEAR}") == [
            ("alias", "t"),
            ("join", [("alias", "q")], {"on": "symbol", "within": ("30 seconds", "0 seconds")}),
            ("select", "t_price AS price", "q_ask - t_price AS gap"),
        ]

    def test_conditions_go_where_they_belong(self) -> None:
        found = calls(
            f"SELECT bid {NEAR} AND (q.bid > 1 OR t.size = 2) WHERE t.size > 3 AND price < ask AND q.bid <> 4"
        )
        assert found == [
            ("filter", "size > 3"),
            ("alias", "t"),
            (
                "join",
                [("filter", "bid <> 4"), ("alias", "q")],
                {
                    "on": "symbol",
                    "within": ("30 seconds", "0 seconds"),
                    "where": "(q.bid > 1 OR t.size = 2) AND t.price < q.ask",
                },
            ),
            ("select", "q_bid AS bid"),
        ]

    def test_streams_under_their_own_names_need_no_alias(self) -> None:
        found = calls("SELECT price FROM trades, news WHERE sym = symbol AND at = trades.ts")
        on = {"trades": "symbol", "news": "sym"}
        assert found == [("join", [], {"on": on, "within": "0 seconds"}), ("select", "trades_price AS price")]

    def test_a_stream_with_itself(self) -> None:
        text = "SELECT a.price FROM trades a JOIN trades b ON a.symbol = b.symbol AND a.size = b.size AND a.ts = b.ts"
        (_, join, _) = calls(text)
        assert join == ("join", [("alias", "b")], {"on": ["symbol", "size"], "within": "0 seconds"})

    def test_a_second_equality_of_a_key_column_is_a_condition(self) -> None:
        text = "SELECT t.price FROM trades t JOIN news n ON t.symbol = n.sym AND n.headline = t.symbol AND n.at = t.ts"
        (_, join, _) = calls(text)
        options = {"on": {"t": "symbol", "n": "sym"}, "within": "0 seconds", "where": "n.headline = t.symbol"}
        assert join == ("join", [("alias", "n")], options)

    @pytest.mark.parametrize(
        ("condition", "where"),
        [
            ("t.price > q.ask", "t.price > q.ask"),
            ("(t.price > q.ask OR q.bid > 1)", "(t.price > q.ask OR q.bid > 1)"),
            ("lower(t.symbol) = q.symbol AND t.price > q.ask", "lower(t.symbol) = q.symbol AND t.price > q.ask"),
            ("TRUE", "true"),
        ],
    )
    def test_a_join_without_an_equality_of_columns(self, condition: str, where: str) -> None:
        near = "t.ts BETWEEN q.ts - INTERVAL 5 SECONDS AND q.ts + INTERVAL 5 SECONDS"
        (_, join, _) = calls(f"SELECT q.bid FROM trades t JOIN quotes q ON {condition} AND {near}")
        assert join == ("join", [("alias", "q")], {"within": "5 seconds", "where": where})

    def test_sides_with_an_equality_are_joined_first_then_those_with_any_condition(self) -> None:
        near = "t.ts = q.ts AND t.ts = n.at AND t.ts = o.ts"
        sides = "trades t, trades o, quotes q, news n"
        text = f"SELECT q.bid FROM {sides} WHERE q.bid > t.price AND n.sym = t.symbol AND {near}"
        found = [(call[1], call[2]) for call in calls(text) if call[0] == "join"]
        assert [other for other, _ in found] == [[("alias", "n")], [("alias", "q")], [("alias", "o")]]
        assert [("on" in options, options.get("where")) for _, options in found] == [
            (True, None),
            (False, "q.bid > t_n.t_price"),
            (False, "true"),
        ]

    @pytest.mark.parametrize(
        ("bound", "within", "where"),
        [
            (
                "q.ts BETWEEN t.ts - INTERVAL 30 SECONDS AND t.ts + INTERVAL 10 SECONDS",
                ("30 seconds", "10 seconds"),
                None,
            ),
            ("t.ts <= q.ts + INTERVAL 1 MINUTE AND t.ts >= q.ts - INTERVAL 2 MINUTES", ("1 minute", "2 minutes"), None),
            ("t.ts - q.ts <= INTERVAL '1' MINUTE AND q.ts - INTERVAL 1 MINUTE <= t.ts", "1 minute", None),
            (
                "q.ts < t.ts + INTERVAL 30 SECONDS AND q.ts > t.ts",
                ("0 seconds", "29999999 microseconds"),
                "t.ts <= q.ts - INTERVAL 1 MICROSECONDS",
            ),
            (
                "q.ts - t.ts BETWEEN INTERVAL 5 SECONDS AND INTERVAL 10 SECONDS",
                ("0 seconds", "10 seconds"),
                "t.ts <= q.ts - INTERVAL 5 SECONDS",
            ),
            (
                "q.ts BETWEEN t.ts - INTERVAL 3 DAYS AND t.ts - INTERVAL 1 DAY",
                ("3 days", "0 seconds"),
                "q.ts <= t.ts - INTERVAL 12 HOURS - INTERVAL 12 HOURS",
            ),
            ("q.ts = t.ts + INTERVAL 2 SECONDS", ("0 seconds", "2 seconds"), "t.ts <= q.ts - INTERVAL 2 SECONDS"),
            (
                "(q.ts BETWEEN (t.ts) AND t.ts - (-INTERVAL '1 minute 2.5 seconds'))",
                ("0 seconds", "62500 milliseconds"),
                None,
            ),
        ],
    )
    def test_spellings_of_a_bound(self, bound: str, within: Any, where: str | None) -> None:
        (_, join, _) = calls(f"SELECT t.price {ON} AND {bound}")
        assert join[2] == {"on": "symbol", "within": within, **({"where": where} if where else {})}

    def test_times_that_are_not_the_event_time_are_conditions(self) -> None:
        text = "SELECT t.price FROM trades t JOIN news n ON t.symbol = n.sym AND t.ts = n.at AND n.info < t.ts"
        assert calls(text)[1][2]["where"] == "n.info < t.ts"


class TestUsing:
    BOUND = "q.ts BETWEEN t.ts - INTERVAL 30 SECONDS AND t.ts"

    def test_it_is_an_equality_and_bounds_stand_in_where(self) -> None:
        text = f"SELECT symbol, price, q.bid FROM trades t JOIN quotes q USING (symbol) WHERE {self.BOUND} AND ask > 1"
        assert calls(text) == [
            ("alias", "t"),
            (
                "join",
                [("filter", "ask > 1"), ("alias", "q")],
                {"on": "symbol", "within": ("30 seconds", "0 seconds")},
            ),
            ("select", "t_symbol AS symbol", "t_price AS price", "q_bid AS bid"),
        ]

    def test_a_star_has_the_keys_once_and_first(self) -> None:
        (*_, selected) = calls("SELECT * FROM trades JOIN quotes USING (ts, symbol)")
        names = ["ts", "symbol", "price", "size", "bid", "ask"]
        assert [column.split("_")[-1] for column in selected[1:]] == [f"{name} AS {name}" for name in names]

    def test_event_times_are_a_bound(self) -> None:
        how = {"on": {"t": ["symbol"], "q": ["symbol"]}, "within": "0 seconds", "how": "right"}
        text = "SELECT symbol, ts, t.symbol AS traded FROM trades t RIGHT JOIN quotes q USING (symbol, ts)"
        assert calls(text)[1:] == [
            ("join", [("alias", "q")], how),
            ("select", "q_symbol AS symbol", "q_ts AS ts", "t_symbol AS traded"),
        ]

    def test_of_a_full_join_the_key_is_that_of_either_side(self) -> None:
        text = "SELECT Symbol, count(*) AS n FROM trades t FULL JOIN quotes q USING (symbol, ts)"
        made = calls(f"{text} GROUP BY symbol, window(ts, '1 minute') HAVING symbol > 'a'")
        assert made[2:] == [
            ("withColumn", "using_symbol", "coalesce(t_symbol, q_symbol)"),
            ("withColumn", "using_ts", "coalesce(t_ts, q_ts)"),
            (("groupBy", "using_symbol"), ("window", "1 minute"), {"n": ("*", "count")}),
            ("filter", "using_symbol > 'a'"),
            ("select", "using_symbol AS Symbol", "n"),
        ]

    def test_that_key_is_one_of_the_next_join(self) -> None:
        joined = "trades t FULL JOIN quotes q USING (symbol, ts) FULL JOIN symbols USING (symbol)"
        text = f"SELECT symbol, sector FROM {joined.replace('FULL JOIN symbols', 'LEFT JOIN symbols')}"
        *_, (_, _, options), selected = translate(text, STREAMS, join_many, tables=TABLES).calls
        assert options == {"on": {"t_q": ["using_symbol"], "symbols": ["symbol"]}, "how": "left"}
        assert selected == ("select", "t_q_using_symbol AS symbol", "symbols_sector AS sector")

    def test_names_of_three_streams(self) -> None:
        text = "SELECT symbol, b.price FROM trades a JOIN trades b USING (symbol, ts) JOIN trades c USING (ts, symbol)"
        assert calls(text)[0][2] == {"on": "symbol", "within": "0 seconds"}

    @pytest.mark.parametrize("name", ["q.symbol", "t.symbol"])
    def test_the_column_of_either_side_has_its_table(self, name: str) -> None:
        text = f"SELECT {name}, count(*) AS n FROM trades t LEFT JOIN quotes q USING (symbol, ts)"
        made = calls(f"{text} GROUP BY {name}, window(ts, '1 minute')")
        assert made[-1] == ("select", f"{name.replace('.', '_')} AS symbol", "n")


class TestMoreStreams:
    def near(self, *pairs: tuple[str, str]) -> str:
        return " AND ".join(f"{a} BETWEEN {b} - INTERVAL 9 SECONDS AND {b} + INTERVAL 9 SECONDS" for a, b in pairs)

    def test_one_key_and_one_bound_is_one_join(self) -> None:
        text = "SELECT t.price FROM trades t, quotes q, news n "
        text += "WHERE t.symbol = q.symbol AND n.sym = q.symbol AND bid < price AND "
        assert calls(text + self.near(("t.ts", "q.ts"), ("q.ts", "n.at"), ("n.at", "t.ts"))) == [
            (
                "flow.join",
                [[("alias", "t")], [("alias", "q")], [("alias", "n")]],
                {
                    "on": {"t": "symbol", "q": "symbol", "n": "sym"},
                    "within": "9 seconds",
                    "where": "q.bid < t.price",
                },
            ),
            ("select", "t_price AS price"),
        ]

    def test_other_bounds_are_a_chain(self) -> None:
        text = "SELECT t.price, n.headline FROM trades t JOIN quotes q ON t.symbol = q.symbol "
        text += "JOIN news n ON n.sym = t.symbol AND bid < price AND headline > ask WHERE "
        assert calls(text + self.near(("t.ts", "q.ts"), ("t.ts", "n.at"))) == [
            ("alias", "t"),
            ("join", [("alias", "q")], {"on": "symbol", "within": "9 seconds", "where": "q.bid < t.price"}),
            ("alias", "t_q"),
            (
                "join",
                [("alias", "n")],
                {
                    "on": {"t_q": "t_symbol", "n": "sym"},
                    "within": ("18 seconds", "9 seconds"),
                    "where": "n.at <= t_q.t_ts + INTERVAL 9 SECONDS AND t_q.t_ts <= n.at + INTERVAL 9 SECONDS"
                    " AND n.headline > t_q.q_ask",
                },
            ),
            ("select", "t_q_t_price AS price", "n_headline AS headline"),
        ]

    def test_a_side_waits_until_it_is_connected(self) -> None:
        text = "SELECT b.price FROM trades a, news n, trades b "
        text += "WHERE a.symbol = b.symbol AND a.size = b.size AND b.price = n.sym AND "
        found = calls(text + self.near(("a.ts", "b.ts"), ("b.ts", "n.at")))
        assert [call[0] for call in found] == ["alias", "join", "alias", "join", "select"]
        assert found[1][1:] == ([("alias", "b")], {"on": ["symbol", "size"], "within": "9 seconds"})
        assert found[3][2]["on"] == {"a_b": "b_price", "n": "sym"}


class TestWithoutAWindow:
    """`within="unbounded"` is for what the conditions leave open, and for nothing else."""

    @pytest.mark.parametrize(
        ("bound", "within", "where"),
        [
            ("1 = 1", "unbounded", None),
            ("q.ts <= t.ts", ("unbounded", "0 seconds"), None),
            ("t.ts >= q.ts - INTERVAL 5 SECONDS", ("unbounded", "5 seconds"), None),
            ("q.ts >= t.ts - INTERVAL 1 MINUTE", ("1 minute", "unbounded"), None),
            ("t.ts >= q.ts + INTERVAL 1 MINUTE", ("unbounded", "0 seconds"), "q.ts <= t.ts - INTERVAL 1 MINUTE"),
            ("q.ts = t.ts", "0 seconds", None),
        ],
    )
    def test_what_is_bounded_stays_so(self, bound: str, within: Any, where: str | None) -> None:
        text = f"SELECT t.price {ON}" if bound == "1 = 1" else f"SELECT t.price {ON} AND {bound}"
        (_, join, _) = calls(text, UNBOUNDED)
        assert join[2] == {"on": "symbol", "within": within, **({"where": where} if where else {})}

    def test_several_streams_with_one_key_are_one_join(self) -> None:
        text = (
            "SELECT t.price FROM trades t, quotes q, news n WHERE t.symbol = q.symbol AND n.sym = t.symbol AND bid < 3"
        )
        assert calls(text, UNBOUNDED) == [
            (
                "flow.join",
                [[("alias", "t")], [("filter", "bid < 3"), ("alias", "q")], [("alias", "n")]],
                {"on": {"t": "symbol", "q": "symbol", "n": "sym"}, "within": "unbounded"},
            ),
            ("select", "t_price AS price"),
        ]

    def test_bounded_sides_are_joined_first(self) -> None:
        text = "SELECT t.price FROM trades t, quotes q, news n WHERE t.symbol = q.symbol AND n.sym = t.symbol "
        found = calls(text + "AND n.at BETWEEN t.ts - INTERVAL 3 SECONDS AND t.ts", UNBOUNDED)
        assert found[1][2]["within"] == ("3 seconds", "0 seconds")
        assert found[3] == ("join", [("alias", "q")], {"on": {"t_n": "t_symbol", "q": "symbol"}, "within": "unbounded"})

    def test_in_queries_in_queries(self) -> None:
        text = f"SELECT x.price, n.at FROM (SELECT t.price, t.symbol {ON}) x JOIN news n ON n.sym = x.symbol"
        assert [call[2]["within"] for call in calls(text, UNBOUNDED) if call[0] == "join"] == ["unbounded"] * 2

    def test_the_event_time_is_known_from_one_sided_bounds(self) -> None:
        text = f"SELECT max(ask) AS high {ON} AND q.ts <= t.ts GROUP BY window(t.ts, '1 minute')"
        assert calls(text, UNBOUNDED)[2][1] == ("window", "1 minute")
        with pytest.raises(FlowError, match=r"write greatest\(t.ts, q.ts\)"):
            calls(text.replace("AND q.ts <= t.ts ", ""), UNBOUNDED)

    def test_it_has_to_be_said(self) -> None:
        message, *_ = refused(f"SELECT bid {ON}")
        assert message.endswith('or say that it may: flow.sql(..., within="unbounded")')

    def test_a_condition_is_needed_all_the_same(self) -> None:
        with pytest.raises(FlowError, match="every row of q would be joined with all others, whenever they came"):
            calls("SELECT bid FROM trades t, quotes q", UNBOUNDED)

    @pytest.mark.parametrize("within", ["30 seconds", "", 30, ("unbounded", "1 second")])
    def test_any_other_bound_is_a_condition(self, within: Any) -> None:
        with pytest.raises(FlowError, match=r"can only say 'unbounded'.*condition of the query"):
            calls(f"SELECT bid {NEAR}", within)

    def test_long_bounds_that_have_to_be_checked(self) -> None:
        text = "SELECT t.price FROM trades t, quotes q, news n WHERE t.symbol = q.symbol AND n.sym = t.symbol "
        with pytest.raises(FlowError, match=r"no join's `within`, such as one that leaves out zero, .* 32 days"):
            calls(text + "AND q.ts <= t.ts AND n.at <= q.ts + INTERVAL 50 DAYS", UNBOUNDED)


class TestColumnBounds:
    @pytest.mark.parametrize(
        ("condition", "within", "where"),
        [
            ("n.at BETWEEN t.ts AND t.expires", ("0 seconds", "t.expires"), None),
            ("n.at >= t.ts - INTERVAL 1 MINUTE AND t.expires >= n.at", ("1 minute", "t.expires"), None),
            ("t.ts <= n.at AND n.at < t.expires", ("0 seconds", "t.expires"), "n.at < t.expires"),
            ("t.ts BETWEEN n.at AND n.until", ("n.until", "0 seconds"), None),
        ],
    )
    def test_a_column_in_place_of_a_duration(self, condition: str, within: Any, where: str | None) -> None:
        streams = {
            "trades": Handle("trades", ("symbol", "ts", "expires"), "ts"),
            "news": Handle("news", ("sym", "at", "until"), "at"),
        }
        text = f"SELECT t.symbol FROM trades t JOIN news n ON n.sym = t.symbol AND {condition}"
        *_, (_, _, options), _ = made(translate(text, streams, join_many))
        assert options["within"] == within
        assert options.get("where") == where

    def test_what_is_unbounded_stays_so(self) -> None:
        text = "SELECT bid FROM trades t JOIN quotes q ON t.symbol = q.symbol AND q.ts <= t.size AND q.ts >= t.ts"
        *_, (_, _, options), _ = calls(text, UNBOUNDED)
        assert options["within"] == ("0 seconds", "unbounded")
        assert options["where"] == "q.ts <= t.size"


class TestTimeWindows:
    def test_aggregates_of_columns_and_expressions(self) -> None:
        text = """
            SELECT symbol, window.start, window.end AS till, count(*) AS n, max(price * size) - min(size * 2) AS span
            FROM trades WHERE size > 0 GROUP BY symbol, window(ts, '1 minute', '10 seconds')
            HAVING n > 3 AND mean(price) < 2"""
        assert calls(text) == [
            ("filter", "size > 0"),
            ("withColumn", "value_1", "price * size"),
            ("withColumn", "value_2", "size * 2"),
            (
                ("groupBy", "symbol"),
                ("window", "1 minute", "10 seconds"),
                {
                    "n": ("*", "count"),
                    "max_value_1": ("value_1", "max"),
                    "min_value_2": ("value_2", "min"),
                    "avg_price": ("price", "avg"),
                },
            ),
            ("filter", "n > 3 AND avg_price < 2"),
            ("select", "symbol", "window_start", "window_end AS till", "n", "max_value_1 - min_value_2 AS span"),
        ]

    @pytest.mark.parametrize(
        ("call", "function"),
        [("sum", "sum"), ("AVG", "avg"), ("stddev_samp", "stddev"), ("var_samp", "variance"), ("std", "stddev"),
         ("first_value", "first"), ("last", "last"), ("count", "count"), ("var_pop", "var_pop")],
    )  # fmt: skip
    def test_functions(self, call: str, function: str) -> None:
        found = calls(f"SELECT symbol, window.start, window.end, {call}(price) AS x {PER_MINUTE}")
        assert found == [(("groupBy", "symbol"), ("window", "1 minute"), {"x": ("price", function)})]

    def test_all_rows_as_one_group(self) -> None:
        found = calls(
            "SELECT window(ts, '1 hour').end AS till, count(1) AS n FROM trades GROUP BY window(ts, '1 hour')"
        )
        assert found[0] == (("groupBy",), ("window", "1 hour"), {"n": ("*", "count")})
        assert found[1] == ("select", "window_end AS till", "n")

    def test_sessions(self) -> None:
        text = """
            SELECT symbol, session_window.start, session_window(ts, '5 minutes').end AS till, count(*) AS n
            FROM trades GROUP BY symbol, session_window(ts, '5 minutes') HAVING session_window.end > '2020'"""
        assert calls(text) == [
            (("groupBy", "symbol"), ("session_window", "5 minutes"), {"n": ("*", "count")}),
            ("filter", "window_end > '2020'"),
            ("select", "symbol", "window_start", "window_end AS till", "n"),
        ]

    def test_groups_by_expressions_and_their_names(self) -> None:
        for group in ("upper(symbol)", "UPPER(t.symbol)", "up"):
            found = calls(
                f"SELECT upper(symbol) AS up, last(ts) AS x FROM trades t GROUP BY {group}, window(ts, '1 day')"
            )
            assert found[0][:2] == ("withColumn", "group_1")
            assert found[1:] == [
                (("groupBy", "group_1"), ("window", "1 day"), {"x": ("ts", "last")}),
                ("select", "group_1 AS up", "x"),
            ]

    @pytest.mark.parametrize(
        ("selected", "grouped"),
        [
            ("price + size", "size + price"),
            ("price * t.size", "(size * price)"),
            ("price > size AND symbol = 'x' AND size > 1", "1 < size AND ('x' = symbol AND size < price)"),
            ("greatest(price, size)", "GREATEST(size, price)"),
            ("price + size * 2", "2 * size + price"),
        ],
    )
    def test_operands_may_stand_in_another_order(self, selected: str, grouped: str) -> None:
        made = calls(f"SELECT {selected} AS x, count(*) AS n FROM trades t GROUP BY {grouped}")
        assert made[1:] == [
            (("groupBy", "group_1"), ("groups",), {"n": ("*", "count")}),
            ("select", "group_1 AS x", "n"),
        ]

    def test_aggregates_without_names_have_those_of_spark(self) -> None:
        found = calls(f"SELECT t.symbol, sum(t.price), COUNT(*), sum(size) / 2 {PER_MINUTE.replace(' G', ' t G')}")
        aggregates = {"sum(price)": ("price", "sum"), "count(1)": ("*", "count"), "sum_size": ("size", "sum")}
        assert found == [
            (("groupBy", "symbol"), ("window", "1 minute"), aggregates),
            ("select", "symbol", "`sum(price)`", "`count(1)`", "sum_size / 2 AS `(sum(size) / 2)`"),
        ]

    def test_names_of_spark_are_columns_of_the_query_around(self) -> None:
        inner = f"SELECT symbol, sum(size) {PER_MINUTE}"
        assert calls(f"SELECT symbol, `SUM(size)` * 2 AS twice FROM ({inner}) WHERE `sum(size)` > 3")[-2:] == [
            ("filter", "`sum(size)` > 3"),
            ("select", "symbol", "`sum(size)` * 2 AS twice"),
        ]

    def test_over_a_join(self) -> None:
        for time in ("greatest(q.ts, t.ts)", "t.ts"):
            text = f"SELECT t.symbol, max(ask) AS high {NEAR} GROUP BY t.symbol, window({time}, '1 minute')"
            assert calls(text)[2:] == [
                (("groupBy", "t_symbol"), ("window", "1 minute"), {"high": ("q_ask", "max")}),
                ("select", "t_symbol AS symbol", "high"),
            ]

    def test_having_may_use_names_groups_and_the_window(self) -> None:
        text = (
            f"SELECT symbol, sum(size) + 1 AS s {PER_MINUTE} HAVING s * 2 > 4 AND symbol <> 'x' AND window.end > '2020'"
        )
        assert calls(text)[1] == ("filter", "(sum_size + 1) * 2 > 4 AND symbol <> 'x' AND window_end > '2020'")

    @pytest.mark.parametrize(
        ("selected", "having", "condition"),
        [
            ("symbol, sum(size) AS size", "size > 10", "size > 10"),
            ("symbol, sum(size) AS size", "SIZE > 10 AND sum(size) < 99", "size > 10 AND size < 99"),
            ("symbol, last(trades.size) AS size", "size > 10 AND sum(size) > 9", "size > 10 AND sum_size > 9"),
            ("symbol, sum(size) - 1 AS less", "less * 2 > 10", "(sum_size - 1) * 2 > 10"),
            ("sum(size) AS symbol", "symbol = 'x'", "symbol = 'x'"),
            ("sum(size) AS symbol", "trades.symbol = 'x'", "symbol = 'x'"),
        ],
    )
    def test_a_name_in_having_is_a_group_s_else_one_of_the_select_list(
        self, selected: str, having: str, condition: str
    ) -> None:
        made = calls(f"SELECT {selected} {PER_MINUTE} HAVING {having}")
        assert ("filter", condition) in made

    def test_a_name_in_having_that_both_sides_of_a_join_have(self) -> None:
        text = f"SELECT t.symbol, count(*) AS n {NEAR} GROUP BY t.symbol, window(t.ts, '1 minute') HAVING symbol = 'x'"
        assert calls(text)[-2:] == [("filter", "t_symbol = 'x'"), ("select", "t_symbol AS symbol", "n")]


BARS = """(SELECT symbol, window.start AS since, window.end AS till, sum(size) AS volume
    FROM trades GROUP BY symbol, window(ts, '1 minute')) AS bars"""
MADE_OF_BARS = [
    (("groupBy", "symbol"), ("window", "1 minute"), {"volume": ("size", "sum")}),
    ("select", "symbol", "window_start AS since", "window_end AS till", "volume", "window_end"),
]


class TestWindowsOverWindows:
    @pytest.mark.parametrize("by", ["since, till", "since, bars.till"])
    def test_groups_by_the_windows_own_columns(self, by: str) -> None:
        assert calls(f"SELECT till, max(volume) AS most FROM {BARS} GROUP BY {by}") == [
            *MADE_OF_BARS,
            (("groupBy", "since", "till", "window_end"), ("groups",), {"most": ("volume", "max")}),
            ("select", "till", "most"),
        ]

    @pytest.mark.parametrize("column", ["window.start", "window_time(window)"])
    def test_any_time_of_a_window_will_do(self, column: str) -> None:
        bars = f"(SELECT {column} AS t, sum(size) AS volume {PER_MINUTE}) AS bars"
        grouped = calls(f"SELECT t, max(volume) AS most FROM {bars} GROUP BY t")[-2]
        assert grouped == (("groupBy", "t", "window_end"), ("groups",), {"most": ("volume", "max")})

    def test_the_event_time_of_a_join_is_no_column(self) -> None:
        text = f"SELECT t.ts, count(*) AS n {NEAR} GROUP BY t.ts"
        message, _, column = refused(text)
        assert "GROUP BY window(t.ts, '1 microsecond') instead" in message
        assert column == text.rindex("t.ts") + 1
        made = calls(text.replace("GROUP BY t.ts", "GROUP BY t.ts, window(t.ts, '1 microsecond')"))
        assert made[-2][1] == ("window", "1 microsecond")

    def test_the_result_can_be_grouped_again(self) -> None:
        inner = f"(SELECT till AS done, max(volume) AS most FROM {BARS} GROUP BY since, till) AS x"
        made = calls(f"SELECT count(*) AS n FROM {inner} GROUP BY done HAVING n > 1")
        assert made[-3] == (("groupBy", "done", "window_end"), ("groups",), {"n": ("*", "count")})

    @pytest.mark.parametrize(
        ("column", "by"),
        [
            ("window_time(window) AS t", [("by", "window_time")]),
            ("window_time(window(ts, '1 minute')) AS t", [("by", "window_time")]),
            ("window.start AS t", [("by", "window_start")]),
            ("window.end AS t", []),
        ],
    )
    def test_longer_windows_go_by_a_time_of_the_shorter_ones(self, column: str, by: list[Any]) -> None:
        bars = f"(SELECT {column}, sum(size) AS volume {PER_MINUTE}) AS bars"
        filtered = f"(SELECT t, volume FROM {bars} WHERE volume > 1) AS some"
        made = calls(f"SELECT sum(volume) AS total FROM {filtered} GROUP BY window(t, '1 hour')")
        assert made[-2][1] == ("window", "1 hour", *by)

    def test_the_last_time_in_a_window(self) -> None:
        made = calls(f"SELECT symbol, window_time(window), count(*) AS n {PER_MINUTE}")
        assert made[-1] == ("select", "symbol", "(window_end - INTERVAL '1' MICROSECOND) AS window_time", "n")
        message, *_ = refused(f"SELECT window_time(ts) AS t, count(*) AS n {PER_MINUTE}")
        assert "window_time takes the window: window_time(window)" in message

    def test_windows_can_be_joined_with_what_was_made_of_them(self) -> None:
        most = f"(SELECT till, max(volume) AS most FROM {BARS} GROUP BY since, till) AS m"
        text = f"SELECT b.symbol, b.till FROM {BARS.replace('AS bars', 'AS b')} JOIN {most} "
        *_, (_, _, options), _ = calls(text + "ON b.till = m.till AND b.volume = m.most")
        assert options["on"] == {"b": "volume", "m": "most"}
        assert options["within"] == "0 seconds"


class TestTopRows:
    @pytest.mark.parametrize(
        ("bound", "most"),
        [("place <= 3", 3), ("place < 3", 2), ("3 >= best.place", 3), ("place = 1 AND volume > 2", 1),
         ("place BETWEEN 2 AND 5", 5), ("(place <= 4) AND place <= 2", 2)],
    )  # fmt: skip
    def test_of_windows(self, bound: str, most: int) -> None:
        over = "PARTITION BY till ORDER BY volume DESC, upper(symbol) ASC NULLS LAST"
        inner = f"(SELECT *, row_number() OVER ({over}) AS place FROM {BARS}) AS best"
        *made, computed, first, columns, where, shown = calls(f"SELECT symbol, place FROM {inner} WHERE {bound}")
        assert made == MADE_OF_BARS
        assert computed == ("withColumn", "order_1", "upper(symbol)")
        order = ("volume DESC NULLS LAST", "order_1 ASC NULLS LAST")
        assert first == (("groupBy", "till", "window_end"), ("top", most, *order), {"number": "place"})
        assert columns == ("select", "symbol", "since", "till", "volume", "place", "window_end")
        assert where[0] == "filter"
        assert shown == ("select", "symbol", "place")

    def test_in_with(self) -> None:
        over = "PARTITION BY ts ORDER BY price DESC"
        text = f"WITH t AS (SELECT *, row_number() OVER ({over}) AS n FROM trades) SELECT symbol FROM t WHERE n <= 2"
        assert (("groupBy", "ts"), ("top", 2, "price DESC NULLS LAST"), {"number": "n"}) in calls(text)

    def test_read_twice_it_has_as_many_as_either_needs(self) -> None:
        inner = "SELECT *, row_number() OVER (PARTITION BY ts ORDER BY price) AS n FROM trades"
        twice = f"WITH t AS ({inner}) SELECT a.price FROM t a JOIN t b ON b.ts = a.ts AND a.n = b.n"
        made = calls(f"{twice} WHERE a.n <= 2 AND b.n < 6")
        assert (("groupBy", "ts"), ("top", 5, "price ASC NULLS FIRST"), {"number": "n"}) in made

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("SELECT * FROM (SELECT *, {} AS n FROM trades) AS t", "needs a bound in the query around it"),
            ("SELECT * FROM (SELECT *, {} AS n FROM trades) AS t WHERE n <= 3 OR size > 1", "needs a bound"),
            ("SELECT * FROM (SELECT *, {} AS n FROM trades) AS t WHERE -n <= 3", "needs a bound"),
            ("SELECT t.price FROM (SELECT *, {} AS n FROM trades) AS t JOIN quotes q ON q.ts = t.ts WHERE q.n <= 3",
             "needs a bound"),
            ("SELECT q.n FROM quotes q LEFT SEMI JOIN (SELECT *, {} AS n FROM trades) AS t ON q.ts = t.ts WHERE n <= 3",
             "needs a bound"),
            ("WITH t AS (SELECT *, {} AS n FROM trades) SELECT a.n FROM t a JOIN t b ON b.ts = a.ts WHERE a.n <= 3",
             "needs a bound"),
            ("WITH t AS (SELECT size, {} AS n FROM trades) SELECT n FROM t AS u(n, m) WHERE n <= 3", "needs a bound"),
            ("SELECT * FROM (SELECT {} AS n, {} AS m FROM trades) AS t WHERE n <= 3", "no other OVER"),
            (
                "SELECT * FROM (SELECT sum(size) AS s, {} AS n FROM trades GROUP BY window(ts, '1 day')) t WHERE n = 1",
                "put the GROUP BY into a query in FROM",
            ),
        ],
    )  # fmt: skip
    def test_refusals(self, text: str, says: str) -> None:
        """A bound on a column of the same name of another table is none."""
        message, *_ = refused(text.format(*["row_number() OVER (PARTITION BY ts ORDER BY price)"] * 2))
        assert says in message

    @pytest.mark.parametrize(
        ("over", "says"),
        [("(PARTITION BY ts)", "needs ORDER BY"), ("(ORDER BY ts ROWS 3 PRECEDING)", "takes no frame")],
    )
    def test_what_row_number_is_over(self, over: str, says: str) -> None:
        message, *_ = refused(f"SELECT * FROM (SELECT row_number() OVER {over} AS n FROM trades) AS t WHERE n = 1")
        assert says in message


class TestRowWindows:
    def test_a_row_keeps_its_own_columns(self) -> None:
        text = (
            f"SELECT ts, price, avg(price) {OVER} AS mean, price - avg(price) {OVER} AS off FROM trades WHERE size > 0"
        )
        assert calls(text) == [
            ("filter", "size > 0"),
            (("groupBy", "symbol"), ("last", 100), {"price": ("price", "last"), "mean": ("price", "avg")}),
            ("select", "ts", "price", "mean", "price - mean AS off"),
        ]

    @pytest.mark.parametrize(
        ("frame", "rows"),
        [("ROWS 9 PRECEDING", 10), ("rows between 9 preceding and current row", 10),
         ("ROWS BETWEEN CURRENT ROW AND CURRENT ROW", 1)],
    )  # fmt: skip
    def test_named_windows_and_frames(self, frame: str, rows: int) -> None:
        window = f"WINDOW w AS (PARTITION BY symbol ORDER BY ts ASC {frame})"
        text = f"SELECT *, sum(size) OVER w AS volume FROM trades {window}"
        aggregates = {"price": ("price", "last"), "size": ("size", "last"), "volume": ("size", "sum")}
        assert calls(text) == [
            (("groupBy", "symbol"), ("last", rows), aggregates),
            ("select", "symbol", "price", "size", "ts", "volume"),
        ]

    def test_a_name_may_be_that_of_a_column(self) -> None:
        text = "SELECT ts AS at, count(*) OVER (ORDER BY ts ROWS 1 PRECEDING) AS ts FROM trades"
        assert calls(text) == [
            (("groupBy",), ("last", 2), {"ts_2": ("*", "count")}),
            ("select", "ts AS at", "ts_2 AS ts"),
        ]


class TestQueriesInQueries:
    def test_a_chain_in_sql(self) -> None:
        text = f"""
            WITH pairs AS (SELECT t.symbol, t.ts, t.price {NEAR}),
                 bars AS (SELECT symbol, window.end AS ts, max(price) AS high FROM pairs
                          GROUP BY symbol, window(ts, '1 minute'))
            SELECT n.headline, b.high FROM (SELECT * FROM bars WHERE high > 1) b
            JOIN news n ON n.sym = b.symbol AND n.at BETWEEN b.ts AND b.ts + INTERVAL 1 HOUR"""
        assert calls(text) == [
            ("alias", "t"),
            ("join", [("alias", "q")], {"on": "symbol", "within": ("30 seconds", "0 seconds")}),
            ("select", "t_symbol AS symbol", "t_ts AS ts", "t_price AS price"),
            (("groupBy", "symbol"), ("window", "1 minute"), {"high": ("price", "max")}),
            ("select", "symbol", "window_end AS ts", "high", "window_end"),
            ("filter", "high > 1"),
            ("alias", "b"),
            ("join", [("alias", "n")], {"on": {"b": "symbol", "n": "sym"}, "within": ("0 seconds", "1 hour")}),
            ("select", "n_headline AS headline", "b_high AS high"),
        ]

    def test_a_name_of_a_query_hides_the_stream(self) -> None:
        assert calls("WITH quotes AS (SELECT price FROM trades) SELECT price FROM quotes")[-1] == ("select", "price")

    def test_the_event_time_goes_along_though_not_selected(self) -> None:
        text = "SELECT symbol FROM (SELECT symbol, ts AS time FROM trades) x"
        assert calls(text) == [("select", "symbol", "ts AS time", "ts"), ("select", "symbol")]

    def test_a_query_in_from_needs_no_name(self) -> None:
        assert calls("SELECT symbol FROM (SELECT * FROM trades)") == [("select", "symbol")]
        text = (
            "SELECT price, headline FROM (SELECT * FROM trades) JOIN (SELECT * FROM news) ON symbol = sym AND ts = at"
        )
        assert calls(text)[:2] == [
            ("alias", "_subquery"),
            (
                "join",
                [("alias", "_subquery2")],
                {"on": {"_subquery": "symbol", "_subquery2": "sym"}, "within": "0 seconds"},
            ),
        ]

    def test_columns_may_be_named_behind_the_name(self) -> None:
        named = [("select", "symbol AS s", "price * 2 AS p"), ("select", "s")]
        assert calls("WITH x(s, p) AS (SELECT symbol, price * 2 FROM trades) SELECT s FROM x") == named
        assert calls("SELECT s FROM (SELECT symbol, price * 2 FROM trades) AS x(s, p)") == named
        assert calls("SELECT s FROM trades AS t(s, p, n, at)")[-1] == ("select", "s")


class TestUnions:
    def test_columns_go_by_their_places(self) -> None:
        text = "SELECT symbol, ts FROM trades UNION ALL (SELECT sym, at FROM news WHERE info > 'x')"
        assert calls(text) == [
            ("select", "symbol", "ts"),
            ("union", [("filter", "info > 'x'"), ("select", "sym AS symbol", "at AS ts")]),
        ]

    def test_without_all_each_row_comes_once(self) -> None:
        text = "SELECT symbol FROM trades UNION SELECT sym FROM news"
        assert calls(text) == [("select", "symbol"), ("union", [("select", "sym AS symbol")]), ("distinct",)]

    def test_several_in_a_query_with_names(self) -> None:
        text = """WITH quoted AS (SELECT symbol, ts FROM quotes),
            told AS (SELECT symbol, ts FROM trades UNION ALL SELECT * FROM quoted UNION ALL SELECT sym, at FROM news)
            SELECT symbol, count(*) AS n FROM told GROUP BY symbol, window(ts, '1 minute')"""
        assert calls(text) == [
            ("select", "symbol", "ts"),
            ("union", [("select", "symbol", "ts")]),
            ("union", [("select", "sym AS symbol", "at AS ts")]),
            (("groupBy", "symbol"), ("window", "1 minute"), {"n": ("*", "count")}),
            ("select", "symbol", "n"),
        ]

    def test_a_time_that_one_side_alone_has_is_no_event_time(self) -> None:
        text = (
            "SELECT count(*) AS n FROM (SELECT ts FROM trades UNION ALL SELECT ts + INTERVAL 1 DAY AS ts FROM quotes)"
        )
        assert "does not have its event time among its columns" in refused(f"{text} GROUP BY window(ts, '1 minute')")[0]


class TestQueriesInWhere:
    NEWS = "at BETWEEN ts - INTERVAL 1 MINUTE AND ts"

    def test_in_is_a_semi_join(self) -> None:
        inner = f"SELECT sym FROM news WHERE info = 'x' AND {self.NEWS}"
        text = f"SELECT price FROM trades WHERE size > 3 AND symbol IN ({inner})"
        how = {"on": {"trades": ["symbol"], "news": ["sym"]}, "how": "semi", "within": ("1 minute", "0 seconds")}
        assert calls(text) == [
            ("filter", "size > 3"),
            ("alias", "trades"),
            ("join", [("filter", "info = 'x'"), ("alias", "news")], how),
            ("select", "trades_price AS price"),
        ]

    def test_not_exists_is_an_anti_join_and_names_are_the_query_s_own_first(self) -> None:
        inner = "SELECT 1 FROM trades WHERE symbol = t.symbol AND ts > t.ts AND ts <= t.ts + INTERVAL 1 MINUTE"
        found = calls(f"SELECT symbol FROM trades t WHERE NOT EXISTS ({inner})")
        how = {"on": {"t": ["symbol"], "trades": ["symbol"]}, "how": "anti", "within": ("0 seconds", "1 minute")}
        bound = "t.ts <= trades.ts - INTERVAL 1 MICROSECONDS"
        assert found[:2] == [("alias", "t"), ("join", [], {**how, "where": bound})]

    def test_a_query_that_groups_is_run_by_itself(self) -> None:
        busy = "SELECT symbol FROM quotes GROUP BY symbol, window(ts, '1 minute') HAVING count(*) > 9"
        found = calls(f"SELECT price FROM trades WHERE symbol IN ({busy})", within="unbounded")
        assert found[0][0] == "join" and found[0][2]["how"] == "semi" and found[0][2]["within"] == UNBOUNDED
        assert [call[0] for call in found[0][1]][1:] == ["filter", "select", "alias"]


class TestQuery1:
    """Of the paper on lazy and active disk, over the offers of three banks."""

    text = """
        SELECT brokerName, min(price) AS price
        FROM bank1, bank2, bank3
        WHERE bank1.offerCurrency = bank2.offerCurrency AND bank2.offerCurrency = bank3.offerCurrency
          AND bank1.offer = bank2.offer AND bank2.offer = bank3.offer
          AND bank1.timestamp >= bank2.timestamp + INTERVAL 1 MINUTE
          AND bank1.timestamp >= bank3.timestamp + INTERVAL 1 MINUTE
    """

    def test_where_offers_are_forgotten(self) -> None:
        bounds = " ".join(f"AND bank1.timestamp <= bank{n}.timestamp + INTERVAL 10 MINUTES" for n in (2, 3))
        text = f"{self.text} {bounds} GROUP BY brokerName, window(bank1.timestamp, '10 minutes')"
        second = {
            "on": {"bank1_bank2": ["bank1_offerCurrency", "bank1_offer"], "bank3": ["offerCurrency", "offer"]},
            "within": ("10 minutes", "0 seconds"),
            "where": "bank3.timestamp <= bank1_bank2.bank1_timestamp - INTERVAL 1 MINUTE",
        }
        assert calls(text) == [
            (
                "join",
                [],
                {
                    "on": ["offerCurrency", "offer"],
                    "within": ("10 minutes", "0 seconds"),
                    "where": "bank2.timestamp <= bank1.timestamp - INTERVAL 1 MINUTE",
                },
            ),
            ("alias", "bank1_bank2"),
            ("join", [], second),
            (
                ("groupBy", "bank1_bank2_bank1_brokerName"),
                ("window", "10 minutes"),
                {"price": ("bank1_bank2_bank1_price", "min")},
            ),
            ("select", "bank1_bank2_bank1_brokerName AS brokerName", "price"),
        ]

    def test_with_its_own_conditions_alone(self) -> None:
        """Offers of the second and third bank are kept for good; those of the first are not."""
        text = f"{self.text} GROUP BY brokerName, window(bank1.timestamp, '1 day')"
        first, second = (call[2] for call in calls(text, UNBOUNDED) if call[0] == "join")
        assert first["within"] == second["within"] == ("unbounded", "0 seconds")
        assert first["where"] == "bank2.timestamp <= bank1.timestamp - INTERVAL 1 MINUTE"
        assert second["where"] == "bank3.timestamp <= bank1_bank2.bank1_timestamp - INTERVAL 1 MINUTE"


def sql_blocks() -> list[str]:
    return re.findall(r"```sql\n(.*?)```", DOCS.read_text(), re.DOTALL)


@pytest.mark.parametrize("text", sql_blocks())
def test_every_example_of_the_page_is_understood(text: str) -> None:
    assert translate(text, STREAMS, join_many, tables=TABLES).columns


class TestDistinct:
    def test_the_rows_of_the_select_list(self) -> None:
        text = "SELECT DISTINCT symbol, size * 2 AS twice FROM trades WHERE price > 1"
        assert calls(text)[1:] == [
            ("select", "symbol", "size * 2 AS twice"),
            ("dropDuplicates", "symbol", "twice"),
        ]

    def test_inside_a_query_the_event_time_goes_along(self) -> None:
        text = "SELECT symbol FROM (SELECT DISTINCT symbol FROM trades) AS x WHERE symbol > 'a'"
        assert calls(text)[:2] == [("select", "symbol", "ts"), ("dropDuplicates", "symbol")]

    def test_groups_without_an_aggregate(self) -> None:
        text = "SELECT upper(symbol) AS name FROM trades GROUP BY symbol, size HAVING size > 3"
        assert calls(text) == [
            ("select", "symbol", "size"),
            ("distinct",),
            ("filter", "size > 3"),
            ("select", "upper(symbol) AS name"),
        ]

    def test_windows_without_an_aggregate(self) -> None:
        text = f"SELECT symbol, window.end AS ts {PER_MINUTE}"
        assert calls(text)[0] == (("groupBy", "symbol"), ("window", "1 minute"), {})


class TestGroupsWithoutEnd:
    def test_groups_that_never_end(self) -> None:
        text = "SELECT symbol, sum(size) AS total FROM trades GROUP BY symbol HAVING count(*) > 3"
        assert calls(text) == [
            (("groupBy", "symbol"), ("groups",), {"total": ("size", "sum"), "count": ("*", "count")}),
            ("filter", "count > 3"),
            ("select", "symbol", "total"),
        ]

    def test_one_group_of_all_rows(self) -> None:
        assert calls("SELECT count(*) AS n FROM trades") == [(("groupBy",), ("groups",), {"n": ("*", "count")})]


class TestRefusals:
    @pytest.mark.parametrize(
        ("text", "says", "line", "column"),
        [
            ("SELECT DISTINCT ON (symbol) symbol FROM trades", "DISTINCT ON", 1, 8),
            ("SELECT symbol FROM trades\nORDER BY ts", "ORDER BY", 2, 1),
            ("SELECT symbol FROM trades\n  LIMIT 3", "LIMIT", 2, 3),
            ("SELECT symbol FROM trades OFFSET 3", "OFFSET", 1, 27),
            ("SELECT symbol FROM trades\nEXCEPT\nSELECT symbol FROM quotes", "LEFT ANTI JOIN", 2, 1),
            ("SELECT ts FROM trades UNION ALL SELECT ts FROM quotes\nLIMIT 3", "LIMIT", 2, 1),
            ("SELECT symbol, ts FROM trades\nUNION ALL SELECT at FROM news", "by their places", 2, 18),
            ("SELECT symbol FROM trades WHERE\nsymbol NOT IN (SELECT sym FROM news)", "write NOT EXISTS", 2, 1),
            (
                "SELECT symbol FROM trades WHERE price > 1 OR\nEXISTS (SELECT 1 FROM news)",
                "joined to the rest by AND",
                2,
                16,
            ),
            ("SELECT symbol FROM trades WHERE symbol IN (SELECT sym, at FROM news)", "has one column", 1, 51),
            ("SELECT symbol FROM trades WHERE symbol IN (SELECT sym FROM news)", "how far apart news.at", 1, 60),
            (f"SELECT t.symbol {NEAR} WHERE t.symbol IN (SELECT sym FROM news)", "put the join into a query", 1, 127),
            ("SELECT symbol FROM trades LATERAL VIEW explode(x) y AS z", "LATERAL VIEW", 1, 27),
            ("SELECT symbol FROM trades QUALIFY rank() OVER (ORDER BY ts) = 1", "QUALIFY", 1, 27),
            ("INSERT INTO a SELECT symbol FROM trades", "only SELECT", 1, 1),
            ("SELECT symbol FROM trades;\nSELECT symbol FROM quotes", "one query", 2, 1),
            ("WITH RECURSIVE x AS (SELECT symbol FROM trades) SELECT symbol FROM x", "RECURSIVE", 1, 6),
            (
                "WITH x AS (SELECT symbol FROM trades),\nX AS (SELECT sym FROM news) SELECT * FROM x",
                "two queries 'x'",
                2,
                1,
            ),
            ("SELECT 1 AS x", "FROM", 1, 1),
            ("SELECT FROM trades", "SELECT needs columns", 1, 1),
            ("SELECT symbol FROM (SELECT) x", "SELECT needs columns", 1, 21),
            ("SELECT symbol FROM", "read", 1, 15),
            ("SELECT (symbol\nFROM trades", "expecting )", 2, 1),
            ("SELECT symbol FROM trades\nWHERE symbol = 'a", "never closed", 2, 16),
            ("SELECT symbol FROM trades TABLESAMPLE (10 PERCENT)", "TABLESAMPLE", 1, 20),
            ("SELECT symbol FROM db.trades", "plain names", 1, 20),
            ("SELECT x FROM range(10)", "plain names", 1, 15),
            ("SELECT a FROM trades AS t(a)", "1 names for 4 columns: symbol, price, size, ts", 1, 27),
            ("SELECT symbol FROM trades, trades", "stands twice", 1, 28),
        ],
    )
    def test_clauses(self, text: str, says: str, line: int, column: int) -> None:
        message, *place = refused(text)
        assert says in message
        assert place == [line, column]

    @pytest.mark.parametrize(
        ("text", "says", "line", "column"),
        [
            ("SELECT symbol\nFROM tradez", "no stream or table 'tradez' in this flow; it has bank1, bank2", 2, 6),
            ("SELECT\n  prise FROM trades", "no column 'prise'; trades has symbol, price, size, ts", 2, 3),
            ("SELECT t.prise FROM trades t", "'t' has no column 'prise'; it has symbol, price, size, ts", 1, 8),
            ("SELECT x.price FROM trades t", "neither a relation nor a column 'x'", 1, 8),
            ("SELECT symbol FROM trades\nWHERE trades.prise > 1", "'trades' has no column 'prise'", 2, 7),
            ("SELECT at + 2 FROM news", "needs a name", 1, 8),
            ("SELECT symbol, sum(price), SUM( price ) FROM trades", "two columns would be named 'sum(price)'", 1, 28),
            ("SELECT symbol, price AS Symbol FROM trades", "two columns would be named 'Symbol'", 1, 25),
            (f"SELECT t.ts, q.ts {NEAR}", "two columns would be named 'ts'; name one of them with AS", 1, 14),
            (f"SELECT * {NEAR}", "two columns would be named 'symbol'", 1, 8),
            (f"SELECT symbol {NEAR}", "write t.symbol or q.symbol", 1, 8),
            ("SELECT z.* FROM trades t", "no 'z' in FROM", 1, 8),
            ("SELECT symbol FROM trades WHERE price > (SELECT 1)", "a query inside an expression", 1, 49),
            (
                "SELECT symbol, count(*) AS n FROM trades GROUP BY symbol\nHAVING count(*) > (SELECT 1)",
                "a query inside an expression",
                2,
                27,
            ),
            ("SELECT symbol FROM trades WHERE sum(price) > 1", "an aggregate cannot stand here", 1, 33),
            ("SELECT symbol FROM trades WHERE price BETWEEN SYMMETRIC 2 AND 1", "cannot be taken over", 1, 57),
            ("SELECT symbol FROM trades WHERE\n explode(symbol)", "the function 'explode' is not available", 2, 2),
            ("SELECT time FROM (SELECT symbol, price AS ts FROM trades) x", "name of the event time", 1, 43),
        ],
    )
    def test_names_and_expressions(self, text: str, says: str, line: int, column: int) -> None:
        message, *place = refused(text)
        assert says in message
        assert place == [line, column]

    @pytest.mark.parametrize(
        ("text", "says", "at"),
        [
            (f"SELECT bid {ON}", "how far apart q.ts and t.ts may be", "quotes q"),
            (f"SELECT bid {ON} AND q.ts > t.ts", "how much later q.ts may be than t.ts", "quotes q"),
            (f"SELECT bid {ON} AND q.ts <= t.ts", "how much earlier q.ts may be than t.ts", "quotes q"),
            (
                f"SELECT bid {ON} AND q.ts BETWEEN t.ts AND t.ts + INTERVAL 1 MONTH",
                "months and years",
                "t.ts + INTERVAL",
            ),
            (f"SELECT bid {NEAR} AND q.ts > t.ts", "contradict each other", "q.ts > t.ts"),
            (
                f"SELECT bid {ON} AND q.ts BETWEEN t.ts + INTERVAL 40 DAYS AND t.ts + INTERVAL 50 DAYS",
                "32 days",
                "q.ts BETWEEN",
            ),
            (f"SELECT price {NEAR.replace('JOIN', 'RIGHT SEMI JOIN')}", "RIGHT SEMI JOIN cannot be run", "RIGHT"),
            (f"SELECT bid {NEAR.replace('JOIN', 'LEFT SEMI JOIN')}", "there is no column 'bid'", "bid"),
            (f"SELECT bid {ON.replace('JOIN', 'LEFT JOIN')}", "how far apart q.ts and t.ts may be", "quotes q"),
            (
                f"SELECT bid {NEAR.replace('JOIN', 'LEFT JOIN')} AND q.ts > t.ts",
                "contradict each other",
                "q.ts > t.ts",
            ),
            ("SELECT bid FROM trades NATURAL JOIN quotes", "NATURAL JOIN cannot be run", "NATURAL"),
            (
                "SELECT bid FROM trades t LEFT JOIN quotes q USING (symbol)",
                "write ON in place of USING, with one like q.ts BETWEEN",
                "quotes q",
            ),
            ("SELECT bid FROM trades JOIN quotes USING (size)", "'size', which is no column of quotes", "size"),
            ("SELECT bid FROM trades JOIN quotes USING (bid)", "'bid', which is no column of the joins", "bid)"),
            ("SELECT bid FROM trades JOIN quotes USING (ts, Ts)", "USING names 'Ts' twice", "Ts)"),
            (
                "SELECT bid FROM trades t, quotes q JOIN bank1 b USING (price)",
                "USING cannot stand behind a comma or CROSS JOIN",
                "price)",
            ),
            (
                "SELECT t.price FROM trades t JOIN quotes q USING (symbol, ts) JOIN trades b ON symbol = b.symbol",
                "'symbol' is a column of more than one side; write t.symbol or b.symbol",
                "symbol = b",
            ),
        ],
    )
    def test_joins(self, text: str, says: str, at: str) -> None:
        message, _, column = refused(text)
        assert says in message
        assert column == text.index(at) + 1

    @pytest.mark.parametrize(
        ("text", "says", "at"),
        [
            ("SELECT symbol, count(*) AS n FROM trades GROUP BY ALL", "ALL, ROLLUP and CUBE", "GROUP"),
            (
                "SELECT count(*) AS n FROM trades GROUP BY window(ts, '1 day'), window(ts, '2 days')",
                "one window",
                "window(ts, '2",
            ),
            ("SELECT count(*) AS n FROM trades GROUP BY 1, window(ts, '1 day')", "by name", "1,"),
            (f"SELECT price, count(*) AS n {PER_MINUTE}", "'price' is neither in GROUP BY", "price"),
            (
                "SELECT (price + size) + 1 AS x, count(*) AS n FROM trades GROUP BY price + (size + 1)",
                "'price' is in GROUP BY only within price + (size + 1); write that expression as it stands there",
                "price",
            ),
            (f"SELECT *, count(*) AS n {PER_MINUTE}", "name the columns", "*"),
            (f"SELECT window, count(*) AS n {PER_MINUTE}", "window.start and window.end", "window"),
            (f"SELECT symbol, median(price) {PER_MINUTE}", "needs a name", "median"),
            (f"SELECT count(DISTINCT price) AS n {PER_MINUTE}", "DISTINCT inside", "count"),
            (f"SELECT median(price) AS n {PER_MINUTE}", "median cannot be computed", "median"),
            (f"SELECT first(price, true) AS n {PER_MINUTE}", "one argument", "first"),
            (f"SELECT sum(price) FILTER (WHERE size > 1) AS n {PER_MINUTE}", "CASE WHEN", "sum"),
            (f"SELECT sum(*) AS n {PER_MINUTE}", "* is for count", "*"),
            (f"SELECT sum(size) {OVER} AS n {PER_MINUTE}", "together with GROUP BY", "sum"),
            ("SELECT count(*) AS n FROM trades GROUP BY window(price, '1 day')", "write ts", "price"),
            ("SELECT count(*) AS n FROM trades GROUP BY window(ts, '1 blink')", "not a duration", "'1 blink'"),
            ("SELECT count(*) AS n FROM trades GROUP BY window(ts, '1 day', '2 days')", "step", "'2 days'"),
            ("SELECT count(*) AS n FROM trades GROUP BY window(ts)", "window takes", "window(ts)"),
            (
                "SELECT count(*) AS n FROM trades GROUP BY session_window(ts, '1 day', '1 hour')",
                "session_window takes the event time and a gap",
                "session_window(",
            ),
            (
                "SELECT count(*) AS n FROM trades GROUP BY session_window(ts, price)",
                "the gap of sessions is a text",
                "price",
            ),
            (
                "SELECT session_window, count(*) AS n FROM trades GROUP BY session_window(ts, '1 day')",
                "session_window.start and session_window.end",
                "session_window",
            ),
            (
                "SELECT count(*) AS n FROM trades GROUP BY session_window(ts, '1 day'), window(ts, '2 days')",
                "one window",
                "window(ts, '2 days')",
            ),
            (f"SELECT count(*) AS n {AROUND} GROUP BY window(t.ts, '1 day')", "write greatest(t.ts, q.ts)", "t.ts, '1"),
            ("SELECT symbol FROM trades HAVING price > 1", "HAVING is for GROUP BY", "HAVING"),
            (
                f"SELECT avg(size) AS size {PER_MINUTE} HAVING size > 1.5",
                "write avg(size) here, or give it another name",
                "size > 1",
            ),
            (f"SELECT sum(size * 2) AS size {PER_MINUTE} HAVING size > 1", "write sum(size * 2) here", "size > 1"),
            (f"SELECT count(*) AS size {PER_MINUTE} HAVING size > 1", "write count(*) here", "size > 1"),
        ],
    )
    def test_time_windows(self, text: str, says: str, at: str) -> None:
        message, _, column = refused(text)
        assert says in message
        assert column == text.index(at) + 1

    @pytest.mark.parametrize(
        ("over", "says", "at"),
        [
            ("(ORDER BY ts)", "how many rows", "ts)"),
            ("(PARTITION BY symbol)", "needs ORDER BY", "OVER"),
            ("(ORDER BY price ROWS 3 PRECEDING)", "write ts", "price ROWS"),
            ("(ORDER BY ts, size ROWS 3 PRECEDING)", "event time alone", "size ROWS"),
            ("(ORDER BY ts DESC ROWS 3 PRECEDING)", "leave DESC out", "ts DESC"),
            ("(ORDER BY ts RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW)", "frames of rows", "RANGE"),
            ("(ORDER BY ts ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)", "grow for ever", "ROWS"),
            ("(ORDER BY ts ROWS BETWEEN 3 PRECEDING AND 1 FOLLOWING)", "end with the current row", "ROWS"),
            ("(ORDER BY ts ROWS BETWEEN 3 FOLLOWING AND CURRENT ROW)", "rows before the current one", "ROWS"),
            ("other", "needs WINDOW other AS", "other"),
            (
                "(ORDER BY ts ROWS 3 PRECEDING) AS x, max(price) OVER (ORDER BY ts ROWS 4 PRECEDING)",
                "must be the same",
                "max",
            ),
            (
                "(ORDER BY ts ROWS 3 PRECEDING) AS x, lag(price) OVER (ORDER BY ts ROWS 3 PRECEDING)",
                "lag is not there",
                "lag",
            ),
            ("(ORDER BY ts ROWS 3 PRECEDING) + min(price)", "without OVER", "min"),
        ],
    )
    def test_row_windows(self, over: str, says: str, at: str) -> None:
        text = f"SELECT sum(price) OVER {over} AS n FROM trades"
        message, _, column = refused(text)
        assert says in message
        assert column == text.index(at) + 1

    @pytest.mark.parametrize(
        ("text", "says", "at"),
        [
            (
                "SELECT lag(bid, 2) OVER (ORDER BY ts) AS b FROM quotes",
                "CASE WHEN count(*) OVER w = 3 THEN first(bid) OVER w END, with WINDOW w AS (PARTITION BY ... ORDER BY "
                "ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)",
                "lag",
            ),
            ("SELECT lead(bid) OVER (ORDER BY ts) AS b FROM quotes", "at the later row", "lead"),
            (
                "SELECT row_number() OVER (PARTITION BY symbol ORDER BY ts DESC) AS n FROM trades",
                "row_number needs a bound in the query around it",
                "row_number",
            ),
            ("SELECT rank() OVER (ORDER BY price) AS n FROM trades", "ROWS BETWEEN 99 PRECEDING", "rank"),
            (
                "SELECT p FROM (SELECT lag(price) OVER (ORDER BY ts) AS p, ts FROM trades) AS t",
                "ROWS BETWEEN 1 PRECEDING",
                "lag",
            ),
        ],
    )
    def test_functions_get_advice_that_helps(self, text: str, says: str, at: str) -> None:
        message, _, column = refused(text)
        assert says in message
        assert column == text.index(at) + 1

    def test_what_is_advised_instead_of_lag_can_be_run(self) -> None:
        over = "PARTITION BY symbol ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW"
        previous = "CASE WHEN count(*) OVER w = 2 THEN first(price) OVER w END"
        made = translate(f"SELECT symbol, {previous} AS p FROM trades WINDOW w AS ({over})", STREAMS, join_many)
        assert made.calls[-1] == ("select", "symbol", "CASE WHEN count = 2 THEN first_price END AS p")

    @pytest.mark.parametrize("word", ["unbounded", "UNBOUNDED", " Unbounded "])
    def test_unbounded_in_any_case(self, word: str) -> None:
        text = "SELECT t.price FROM trades t JOIN quotes q ON t.symbol = q.symbol"
        assert translate(text, STREAMS, join_many, word) == translate(text, STREAMS, join_many, UNBOUNDED)

    @pytest.mark.parametrize("text", ["", "  ", "-- nothing", None])
    def test_no_query_at_all(self, text: Any) -> None:
        with pytest.raises(FlowError, match="sql takes"):
            translate(text, STREAMS, join_many)

    def test_nesting_without_end(self) -> None:
        with pytest.raises(FlowError):
            translate(f"SELECT {'(' * 5000}1{')' * 5000} AS x FROM trades", STREAMS, join_many)


@dataclass(frozen=True)
class Computed:
    """A relation with the meaning the face gives to each call, computed by DuckDB over rows it holds."""

    rows: str
    columns: tuple[str, ...]
    event_time: str
    name: str = ""

    def alias(self, name: str) -> Computed:
        return replace(self, name=name)

    def filter(self, condition: str) -> Computed:
        return replace(self, rows=f"(SELECT * FROM {self.rows} WHERE {condition})")

    def select(self, *columns: str) -> Computed:
        hidden = "" if self.event_time in columns else f", {self.event_time}"
        names = tuple(c.split(" AS ")[-1] for c in columns)
        return replace(self, rows=f"(SELECT {', '.join(columns)}{hidden} FROM {self.rows})", columns=names)

    def join(self, other: Computed, on: Any, within: Any, where: str = "TRUE") -> Computed:
        earlier, later = map(in_microseconds, within if isinstance(within, tuple) else (within, within))
        apart = f"epoch_us({other.name}.{other.event_time}) - epoch_us({self.name}.{self.event_time})"
        return combined([self, other], on, f"({apart} BETWEEN {-earlier} AND {later}) AND ({where})")


def in_microseconds(within: str) -> int:
    return LONGEST if within == UNBOUNDED else microseconds(within, "")


def combined(sides: list[Computed], on: Any, condition: str) -> Computed:
    keys = on if isinstance(on, dict) else {side.name: on for side in sides}
    lists = [[keys[s.name]] if isinstance(keys[s.name], str) else keys[s.name] for s in sides]
    equal = [
        f"{sides[0].name}.{a} = {side.name}.{b}"
        for side, mine in zip(sides, lists, strict=True)
        for a, b in zip(lists[0], mine, strict=True)
    ]
    named = [(f"{s.name}.{c}", f"{s.name}_{c}") for s in sides for c in s.columns]
    newest = f"greatest({', '.join(f'{s.name}.{s.event_time}' for s in sides)}) AS __time"
    outputs = ", ".join([*(f"{column} AS {name}" for column, name in named), newest])
    tables = ", ".join(f"{s.rows} AS {s.name}" for s in sides)
    rows = f"(SELECT {outputs} FROM {tables} WHERE {' AND '.join(equal)} AND ({condition}))"
    return Computed(rows, tuple(name for _, name in named), "__time")


def computed_together(sides: list[Computed], on: Any, within: str, where: str = "TRUE") -> Computed:
    times = ", ".join(f"epoch_us({s.name}.{s.event_time})" for s in sides)
    return combined(sides, on, f"greatest({times}) - least({times}) <= {in_microseconds(within)} AND ({where})")


SIDES = ("a", "b", "c")
PAIRS = [
    [("a", "b"), ("a", "c")],
    [("a", "b"), ("b", "c")],
    [("a", "c"), ("c", "b")],
    [("a", "b"), ("a", "c"), ("b", "c")],
]
OTHERS = ["a.v <= b.v", "a.v = b.v", "b.v > 0", "(a.v = 1 OR b.v = 1)", "a.k = b.v"]


@st.composite
def bounds(draw: Any, left: str, right: str, ends: int = 2) -> str:
    """A condition that bounds two event times from both sides, in some spelling; it may be empty of rows. With fewer
    `ends` from one side, or not at all."""
    low = draw(st.integers(-6, 4))
    high = low + draw(st.integers(0, 6))

    def shifted(side: str, by: int) -> str:
        if by == 0 and draw(st.booleans()):
            return f"{side}.ts"
        unit = draw(st.sampled_from(["MICROSECONDS", "MICROSECOND"]))
        sign = draw(st.sampled_from("+-"))
        interval = f"INTERVAL '{by if sign == '+' else -by}' {unit}"
        return f"{side}.ts {sign} {interval}"

    def compared(a: str, b: str, by: int) -> str:
        """a.ts <= b.ts + by, somehow"""
        strict = draw(st.booleans())
        by, less, more = by + strict, "<" if strict else "<=", ">" if strict else ">="
        moved = draw(st.integers(-3, 3))
        first, second = shifted(a, moved), shifted(b, by + moved)
        return draw(st.sampled_from([f"{first} {less} {second}", f"{second} {more} {first}"]))

    if not ends:
        return "TRUE"
    if ends == 1:
        return draw(st.sampled_from([compared(right, left, high), compared(left, right, -low)]))
    if draw(st.booleans()):
        return f"{right}.ts BETWEEN {shifted(left, low)} AND {shifted(left, high)}"
    return f"{compared(right, left, high)} AND {compared(left, right, -low)}"


@st.composite
def joins(draw: Any, within: str | None) -> str:
    """A join of two or three streams, bounded along a tree or between all pairs; as far as they need to be."""
    sides = SIDES[: draw(st.integers(2, 3))]
    pairs = [("a", "b")] if len(sides) == 2 else draw(st.sampled_from(PAIRS))
    if len(pairs) == 3 and draw(st.booleans()):
        w = draw(st.integers(0, 5))
        near = [
            f"{p}.ts BETWEEN {q}.ts - INTERVAL '{w}' MICROSECONDS AND {q}.ts + INTERVAL '{w}' MICROSECONDS"
            for p, q in pairs
        ]
    else:
        near = [draw(bounds(*pair, draw(st.integers(0, 2)) if within else 2)) for pair in pairs]
    equal = [f"{p}.k = {q}.k" for p, q in pairs if draw(st.booleans()) or len(pairs) < 3] or ["a.k = b.k", "c.k = b.k"]
    if len(sides) == 3 and len(equal) == 1:
        equal = ["a.k = b.k", "b.k = c.k"]
    others = draw(st.lists(st.sampled_from(OTHERS), max_size=2))
    conditions = draw(st.permutations(equal + near + others))
    columns = ", ".join(f"{s}.id AS {s}" for s in sides)
    tables = ", ".join(f"s{s} {s}" for s in sides)
    return f"SELECT {columns}, {sides[-1]}.v * 2 AS twice FROM {tables} WHERE {' AND '.join(conditions)}"


rows = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 14)), max_size=8)


@given(st.data(), st.sampled_from([None, UNBOUNDED]), rows, rows, rows)
def test_joins_give_what_the_sql_gives(data: st.DataObject, within: str | None, a: Any, b: Any, c: Any) -> None:
    text = data.draw(joins(within))
    database = duckdb.connect()
    streams = {}
    for name, content in zip(SIDES, (a, b, c), strict=True):
        database.execute(f"CREATE TABLE s{name} (id INT, k INT, v INT, ts TIMESTAMP)")
        for number, (k, v, time) in enumerate(content):
            database.execute(f"INSERT INTO s{name} VALUES ({number}, {k}, {v}, make_timestamp({time}))")
        streams[f"s{name}"] = Computed(f"s{name}", ("id", "k", "v", "ts"), "ts", f"s{name}")
    expected = sorted(database.execute(text).fetchall())
    try:
        result = translate(text, streams, computed_together, within)
    except FlowError as error:
        assert "contradict" in str(error)
        assert expected == []
        return
    found = database.execute(f"SELECT {', '.join(result.columns)} FROM {result.rows}").fetchall()
    assert sorted(found) == expected


class TestOuterJoins:
    @pytest.mark.parametrize(
        ("words", "how"),
        [
            ("LEFT", "left"),
            ("LEFT OUTER", "left"),
            ("RIGHT OUTER", "right"),
            ("FULL", "full"),
            ("FULL OUTER", "full"),
            ("LEFT SEMI", "semi"),
            ("SEMI", "semi"),
            ("LEFT ANTI", "anti"),
        ],
    )
    def test_the_word_becomes_how(self, words: str, how: str) -> None:
        (alias, join, _) = calls(f"SELECT t.price {NEAR.replace('JOIN', f'{words} JOIN')}")
        assert alias == ("alias", "t")
        options = {"within": ("30 seconds", "0 seconds"), "how": how, "on": {"t": ["symbol"], "q": ["symbol"]}}
        assert join == ("join", [("alias", "q")], options)

    def test_on_says_who_is_a_partner_and_where_filters_what_came_out(self) -> None:
        left = NEAR.replace("JOIN", "LEFT JOIN")
        made_by = calls(f"SELECT t.price {left} AND t.size > 1 AND q.bid > 2 AND q.ask > t.price WHERE q.bid IS NULL")
        _, (_, other, options), (_, where), _ = made_by
        assert other == [("filter", "bid > 2"), ("alias", "q")], "of the side that may be null a filter is as good"
        assert options["where"] == "t.size > 1 AND q.ask > t.price"
        assert where == "q_bid IS NULL"

    def test_a_bound_on_a_side_that_may_be_null_is_always_checked(self) -> None:
        text = f"""SELECT t.price {NEAR.replace("JOIN", "LEFT JOIN")}
            LEFT JOIN news n ON n.sym = t.symbol AND n.at BETWEEN q.ts AND q.ts + INTERVAL 10 SECONDS"""
        *_, (_, _, options), _ = calls(text)
        assert options["within"] == ("30 seconds", "10 seconds")
        assert options["where"].count("t_q.q_ts") == 2

    def test_columns_of_a_semi_join_are_those_of_its_left_side(self) -> None:
        made_by = calls(f"SELECT * {NEAR.replace('JOIN', 'LEFT SEMI JOIN')}")
        assert made_by[-1] == ("select", *(f"t_{c} AS {c}" for c in ("symbol", "price", "size", "ts")))
