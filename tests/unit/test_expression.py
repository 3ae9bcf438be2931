"""Expressions: what they read and yield, which rows a part of them sees, and how mistakes are refused."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.expressions import EvaluationError, Expression, compile_condition, compile_expression
from sluice.expressions.kernels import text as text_kernels
from sluice.model.errors import FlowError

NEW_YORK = "America/New_York"
INSTANT = pa.timestamp("us", "UTC")
TRADES = {
    "trades_symbol": pa.array(["a", "b", None, "Straße"]),
    "trades_price": pa.array([1.5, 2.5, None, float("nan")]),
    "trades_size": pa.array([0, 2, 5, None], pa.int32()),
    "trades_ts": pa.array([datetime(2020, 3, 8, 6, 30, tzinfo=timezone.utc)] * 4, INSTANT),
    "trades_info": pa.array([{"City": "Bonn", "floor": {"no": 3}}, {"City": None, "floor": None}, None, None]),
    "trades_tags": pa.array([["x", "y"], ["z"], None, []]),
    "quotes_ask": pa.array([2.0, 2.0, 2.0, 2.0]),
    "quotes_size": pa.array([100, 50, 200, 100], pa.int64()),
    "quotes_day": pa.array([date(2020, 3, 8)] * 4),
    "quotes_fee": pa.array([Decimal("1.50")] * 4, pa.decimal128(10, 2)),
}
TABLE = pa.table(TRADES)


def resolve(stream: str | None, column: str) -> str:
    if stream is not None:
        name = f"{stream}_{column}"
        if name in TRADES:
            return name
        raise FlowError(f"stream '{stream}' has no column '{column}'")
    found = [name for name in TRADES if name.split("_")[1] == column]
    if len(found) != 1:
        raise FlowError(f"column '{column}' is in {len(found)} streams")
    return found[0]


def compiled(text: str, **options: Any) -> Expression:
    return compile_expression(text, resolve, TABLE.schema, **options)


def values(text: str, table: pa.Table = TABLE, **options: Any) -> list[Any]:
    return compile_expression(text, resolve, table.schema, **options).evaluate(table).to_pylist()


@pytest.mark.parametrize(
    ("text", "spark_says"),
    [
        ("exp(1)", 2.7182818284590455),
        ("exp(101.04D)", 7.605266754196341e43),
        ("ln(3)", 1.0986122886681096),
        ("ln(0.39D)", -0.9416085398584448),
        ("log10(0.58D)", -0.23657200643706272),
        ("log(9.58D, 3)", 0.48618098996331804),
        ("power(2, -0.5)", 0.7071067811865475),
        ("power(558.47D, 3)", 174180505.130423),
        ("power(7779.8D, 2)", 60525288.04),
    ],
)
def test_the_last_digit_is_sparks_where_the_c_library_has_another(text: str, spark_says: float) -> None:
    assert values(text) == [spark_says] * 4


@pytest.mark.parametrize(
    ("text", "spark_says"),
    [
        ("replace('a.b.a', 'a', 'xy')", "xy.b.xy"),
        ("replace('a.b.a', 'a')", ".b."),
        ("replace('ab', '')", "ab"),
        ("split_part('a/b/c', '/', 2)", "b"),
        ("split_part('a/b/c', '/', -1)", "c"),
        ("split_part('a/b/c', '/', 4)", ""),
        ("split_part(CAST(NULL AS string), '/', 1)", None),
        ("regexp_extract('?q=1&channel_id=17&x', '(&|^)channel_id=([^&]*)', 2)", "17"),
        ("regexp_extract('aabcd', '(a|b)+(c?)')", "b"),
        ("regexp_extract('aabcd', 'b.', 0)", "bc"),
        ("regexp_extract('abc', '(z)?b', 1)", ""),
        ("regexp_extract('abc', 'z(.)', 1)", ""),
    ],
)
def test_parts_of_texts(text: str, spark_says: str | None) -> None:
    assert values(text) == [spark_says] * 4


@pytest.mark.parametrize(
    "pattern", ["(a|b)+(c?)", "(^|a)([^b]*)b", r"\((a|[(\]])(b)?", r"(?:a)(b|c)(\()", "((a)(b))", r"[^\]a]*(\\)", "a|b"]
)
@given(st.lists(st.one_of(st.none(), st.text("abc(]\\ é", max_size=12)), max_size=20))
def test_every_group_is_that_of_the_first_match(pattern: str, texts: list[str | None]) -> None:
    regex, _ = text_kernels.java_regex(pattern)
    assert text_kernels.count_groups(regex) == re.compile(pattern).groups
    for group in range(re.compile(pattern).groups + 1):
        found = [None if t is None else re.search(pattern, t) for t in texts]
        expected = [None if t is None else (m[group] or "") if m else "" for t, m in zip(texts, found, strict=True)]
        assert (
            text_kernels.extract_group(pa.array(texts, pa.string()), regex=regex, group=group).to_pylist() == expected
        )


@pytest.mark.parametrize(
    "text", ["split_part(symbol, '/', 0)", "regexp_extract(symbol, '(a)', 2)", "regexp_extract(symbol, '(a)$')"]
)
def test_parts_that_there_are_not_are_refused(text: str) -> None:
    with pytest.raises(FlowError):
        compiled(text)


class TestCompiled:
    def test_names_its_columns_in_the_order_of_use(self) -> None:
        condition = compiled("quotes.ask < trades.price AND symbol = 'b' AND trades.price > 1")
        assert condition.columns == ("quotes_ask", "trades_price", "trades_symbol")
        assert condition.type == pa.bool_()
        assert condition.evaluate(TABLE).to_pylist() == [False, True, None, False]

    def test_yields_an_array_of_its_type_for_tables_batches_and_no_rows(self) -> None:
        expression = compiled("ask * 2 + 1")
        batch = TABLE.to_batches()[0]
        chunked = pa.concat_tables([TABLE, TABLE.slice(1, 2)])
        assert expression.evaluate(batch).equals(expression.evaluate(TABLE))
        assert len(expression.evaluate(chunked)) == 6
        assert expression.evaluate(TABLE.slice(0, 0)).type == pa.float64()
        assert values("1 + 1") == [2, 2, 2, 2]
        assert values("NULL") == [None] * 4

    def test_can_be_sent_to_the_sites(self) -> None:
        text = """CASE WHEN symbol RLIKE '^[a-c]' AND trades.ts - INTERVAL 1 DAY > '2020-01-01' THEN round(price, 1)
                  WHEN trades.info.floor.no IN (1, 3) THEN year(quotes.day) / 4 ELSE greatest(quotes.fee, 0) END"""
        expression = compiled(text, time_zone=NEW_YORK)
        assert pickle.loads(pickle.dumps(expression)).evaluate(TABLE).equals(expression.evaluate(TABLE))

    def test_needs_no_parser_there(self) -> None:
        texts = [
            "quotes.day + INTERVAL 1 DAY",
            "trades.tags[0] = 'x'",
            "CAST(symbol AS timestamp)",
            "length(symbol) = 1",
        ]
        sent = pickle.dumps([compiled(text) for text in texts])
        there = "import pickle, sys; pickle.load(sys.stdin.buffer); sys.exit('sqlglot' in sys.modules)"
        subprocess.run([sys.executable, "-c", there], input=sent, check=True, env={"PYTHONPATH": ":".join(sys.path)})

    def test_may_be_long_but_not_deep(self) -> None:
        many = " OR ".join(f"trades.size = {number}" for number in range(1000))
        assert pickle.loads(pickle.dumps(compiled(many))).evaluate(TABLE).to_pylist() == [True, True, True, None]
        with pytest.raises(FlowError, match="nested too deeply"):
            compiled("(" * 2000 + "1" + ")" * 2000)

    @pytest.mark.parametrize(
        "stored",
        [
            pa.array(["b", None]).dictionary_encode(),
            pa.array(["b", None], pa.large_string()),
            pa.array(["b", None], pa.string_view()),
        ],
    )
    def test_takes_columns_as_they_are_stored(self, stored: pa.Array) -> None:
        assert values("upper(symbol)", pa.table({"trades_symbol": stored})) == ["B", None]

    def test_takes_unsigned_integers_as_the_wider_type_spark_reads_them_as(self) -> None:
        table = pa.table({"trades_size": pa.array([255], pa.uint8())})
        assert compile_expression("trades.size + 1", resolve, table.schema).evaluate(table).to_pylist() == [256]

    def test_refuses_nanoseconds_rather_than_cut_them_off(self) -> None:
        schema = pa.schema({"trades_ts": pa.timestamp("ns", "UTC")})
        with pytest.raises(FlowError, match=r"timestamp\[ns.*withColumn"):
            compile_expression("ts > '2020-01-01'", resolve, schema)


class TestRowsThatGetThere:
    """Spark looks at a part of an expression only for the rows that need it, so only those can fail."""

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("trades.size <> 0 AND 10 / trades.size > 3", [False, True, False, None]),
            ("trades.size = 0 OR 10 / trades.size > 3", [True, True, False, None]),
            ("CASE WHEN trades.size = 0 THEN -1 ELSE 10 / trades.size END", [-1, 5, 2, None]),
            ("CASE WHEN trades.size > 0 THEN 10 / trades.size WHEN 1 / trades.size IS NULL THEN 7 END", None),
            ("if(trades.size = 0, NULL, 10 % trades.size)", [None, 0, 0, None]),
            ("coalesce(nullif(trades.size, 0), 1 / 0)", None),
            ("coalesce(trades.size, 1 / 1)", [0, 2, 5, 1]),
            ("coalesce(price, 1 / trades.size) > 0", [True] * 4),
            ("price IS NULL AND 1 / trades.size > 0", [False, False, True, False]),
            ("trades.size IN (0, 1 / trades.size)", [True, False, False, None]),
            ("CAST(NULL AS int) + 1 / trades.size", [None] * 4),
            ("symbol > 'a' AND CAST(substring(symbol, 1, 0) AS int) > 0", None),
        ],
    )
    def test_only_those_can_fail(self, text: str, expected: list[Any] | None) -> None:
        if expected is None:
            with pytest.raises(EvaluationError):
                values(text)
        else:
            assert values(text) == expected

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("10 / trades.size > 3", r'division by zero, in "10 / trades\.size" \(line 1, column 1 of'),
            ("trades.size * 2147483647", "overflow"),
            ("quotes.size % trades.size", "division by zero"),
            ("date_add(quotes.day, 2147400000) - quotes.day < INTERVAL 1 DAY", "overflow"),
            ("CAST(quotes.size AS tinyint)", "200"),
            ("CAST(symbol AS int)", r"cannot read 'a' as int, in \"CAST\(symbol AS INT\)\""),
            ("CAST(symbol AS timestamp)", "cannot read 'a' as timestamp; write it as yyyy-MM-dd"),
            ("trades.tags[1]", "too short"),
            ("CAST(price AS int)", "does not fit"),
        ],
    )
    def test_a_row_without_a_value_is_named_by_its_place_in_the_text(self, text: str, message: str) -> None:
        with pytest.raises(EvaluationError, match=message):
            values(text)


class TestTheEndsOfTime:
    def at(self, text: str, **columns: pa.Array) -> list[Any]:
        table = pa.table(columns)
        return compile_expression(text, lambda stream, column: column, table.schema).evaluate(table).to_pylist()

    def test_the_calendar_goes_on(self) -> None:
        days = pa.array([2**31 - 2, 0, -(2**31) + 1], pa.int32()).cast(pa.date32())
        assert self.at("weekofyear(day)", day=days)[:2] == [28, 1]
        assert self.at("year(day)", day=days) == [5_881_580, 1970, -5_877_641]

    def test_a_moment_is_cut_down_to_one_that_there_is(self) -> None:
        times = pa.array([-(2**63) + 2]).cast(INSTANT)
        for unit in ("WEEK", "MONTH", "YEAR", "HOUR", "SECOND"):
            with pytest.raises(EvaluationError, match="overflow"):
                self.at(f"date_trunc('{unit}', ts)", ts=times)

    def test_seconds_beyond_all_times_are_the_last_one(self) -> None:
        counts = pa.array([2**53, -(2**53), 1])
        table = pa.table({"n": counts})
        cast = compile_expression("CAST(n AS timestamp)", lambda stream, column: column, table.schema).evaluate(table)
        assert cast.cast(pa.int64()).to_pylist() == [2**63 - 1, -(2**63), 1_000_000]

    def test_a_difference_of_days_goes_round(self) -> None:
        days = pa.array([-(2**31) + 1], pa.int32()).cast(pa.date32())
        assert self.at("datediff(DATE'9999-12-31', day)", day=days) == [-2_144_550_753]


class TestRefused:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "empty"),
            ("price >", r'cannot read "price >" as a Spark SQL expression: syntax error near \'>\''),
            ("price > 'x", "syntax error"),
            ("price > 1 AND AND 2", r"near 'AND'"),
            ("price; ask", "not available"),
            ("price cost", "not available"),
            ("trades.cost > 1", r"stream 'trades' has no column 'cost', in \"trades\.cost\" \(line 1, column 1 of"),
            ("1 < 2\n  AND cost > 1", r"'cost' is in 0 streams, in \"cost\" \(line 2, column 7"),
            ("size > 1", "'size' is in 2 streams"),
            ("trades.info.town = 'x'", "no fields 'town'; the fields are City, floor"),
            ("trades.price.x = 1", "'x' is asked of double, which has no fields"),
            ("trades.info['town'] = 'x'", "no fields 'town'; the fields are City, floor"),
            ("trades.info[0] = 'x'", "struct is given where an array is expected"),
            ("trades.info = 'x'", "cannot compare struct with string"),
            ("trades.tags > 1", "cannot compare array with int"),
            ("quotes.day > 5", "cannot compare date with int"),
            ("price > true", "cannot compare double with boolean"),
            ("price > 1 AND price > true", r"\"price > TRUE\" \(line 1, column 15 of"),
            ("price AND true", r"double is given where boolean is expected.*in \"price\""),
            ("symbol + 1", r"string \+ int is not available; use CAST"),
            ("quotes.day + symbol", r"date \+ string"),
            ("trades.ts > 'yesterday'", "'yesterday' cannot be read as timestamp"),
            ("trades.size = 'two'", "'two' cannot be read as bigint"),
            ("coalesce(price, quotes.day)", "double and date have no common type"),
            (
                "frobnicate(price) > 1",
                r"'frobnicate' is not available; .*withColumn.*\"frobnicate\(price\)\"",
            ),
            ("rand() > 0.5", "'rand' is not available"),
            ("sum(price) > 1", "'sum' is not available"),
            ("abs(price, 2)", "'abs' takes 1 arguments, not 2"),
            ("symbol LIKE symbol", "the pattern must be a literal"),
            ("symbol LIKE 'a\\\\b'", "escape character"),
            ("symbol RLIKE '(?i)a'", r"'\(\?i' is not available"),
            ("symbol RLIKE '(a'", "parentheses do not match"),
            ("symbol RLIKE 'a++'", "another repetition"),
            ("date_trunc('eon', trades.ts)", "the unit must be one of YEAR"),
            ("trades.ts + INTERVAL 1 FORTNIGHT", "an interval is written like"),
            ("INTERVAL 1 MONTH 2 DAYS + trades.ts", "mix months with days"),
            ("INTERVAL 1 MONTH", "an interval of months is no value"),
            ("CAST(price AS string)", "a cast from double to string is not available"),
            ("TRY_CAST(symbol AS int)", "TRY_CAST"),
            ("price IN (SELECT 1)", "not available"),
            ("price IN ()", "IN takes a list"),
            ("price > ANY (1, 2)", "not available"),
            ("EXISTS (SELECT 1)", "not available"),
            ("trades.*", "not the name of a column"),
            ("CAST(quotes.fee AS decimal(38,30)) * CAST(quotes.fee AS decimal(38,30))", "too long to compute"),
        ],
    )
    def test_with_the_users_words_and_what_to_do(self, text: str, message: str) -> None:
        with pytest.raises(FlowError, match=f"(?s){message}"):
            compiled(text)

    @pytest.mark.parametrize("text", ["1 | 2 & 3", "symbol || 'x' + 1", "1 = 2 < 3", "price = 1 IN (true)"])
    def test_where_spark_would_group_operators_in_another_way(self, text: str) -> None:
        with pytest.raises(FlowError, match="put parentheses"):
            compiled(text)

    def test_a_condition_that_is_none(self) -> None:
        with pytest.raises(FlowError, match=r'"price \+ 1" yields double'):
            compile_condition("price + 1", resolve, TABLE.schema)

    def test_a_time_zone_nobody_knows(self) -> None:
        with pytest.raises(FlowError, match=r"'Mars/Olympus' is not known; use a region"):
            compiled("ts > '2020-01-01'", time_zone="Mars/Olympus")


class TestMeaning:
    """A few results to read; Spark itself is the measure in test_expression_on_spark.py."""

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("trades.info.city", ["Bonn", None, None, None]),
            ("trades.info['city']", ["Bonn", None, None, None]),
            ("trades.info.floor.no + 1", [4, None, None, None]),
            ("trades.info['floor']['no'] + 1", [4, None, None, None]),
            ("info.floor.no", [3, None, None, None]),
            ("size(trades.tags)", [2, 1, None, 0]),
            ("price = price", [True, True, None, True]),
            ("price > 1e308", [False, False, None, True]),
            ("price <=> NULL", [False, False, True, False]),
            ("upper(symbol)", ["A", "B", None, "STRASSE"]),
            ("quotes.fee * 2", [Decimal("3.00")] * 4),
            ("quotes.fee / 2", [Decimal("0.75000000")] * 4),
            ("trades.size / 2", [0.0, 1.0, 2.5, None]),
            ("symbol = 'it''s' OR symbol LIKE 'Stra_e'", [False, False, None, True]),
            ("contains('xay', symbol)", [True, False, None, False]),
        ],
    )
    def test_of_an_expression(self, text: str, expected: list[Any]) -> None:
        assert values(text) == expected

    def test_days_and_clocks_are_those_of_the_time_zone(self) -> None:
        assert values("hour(trades.ts)", time_zone=NEW_YORK)[0] == 1
        assert values("hour(trades.ts + INTERVAL 1 DAY)", time_zone=NEW_YORK)[0] == 1  # across a clock change
        assert values("trades.ts < quotes.day")[0] is False
        assert values("trades.ts < quotes.day", time_zone="+05:30")[0] is False
        assert values("trades.ts - INTERVAL 2 HOURS < quotes.day", time_zone=NEW_YORK)[0] is True
        assert values("trades.ts = '2020-03-08 12:00:00'", time_zone="+05:30")[0] is True
