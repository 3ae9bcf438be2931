"""Windowed group-bys and chains of operators equal the batch query: random streams, epoch cuts, delays, restarts."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from engine_harness import DirectQuery
from group_by_oracle import last_of, sessions_of, source, windows_of
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import connect_duckdb, multiset, on_time
from random_epochs import Oracle, assert_equal, check
from specs import KEYS, SECOND, TIME, handle, stream

from examples import one_in
from sluice.kernels import grouping
from sluice.model.errors import FlowError
from sluice.model.plan.planning import plan_of
from sluice.operators import last_rows, row_hashing, time_windows

FAST = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
EVERYTHING = {
    "n": ("*", "count"),
    "have": ("v", "count"),
    "total": ("v", "sum"),
    "mean": ("v", "avg"),
    "low": ("v", "min"),
    "high": ("w", "max"),
    "sd": ("w", "stddev"),
    "spread": ("w", "var_pop"),
    "oldest": ("w", "first"),
    "newest": ("v", "last"),
}


delays = st.sampled_from([0, 2, SECOND, 60 * SECOND])


@given(st.data(), st.sampled_from(sorted(KEYS)), st.integers(1, 6), delays)
def test_the_newest_rows_of_each_group(data, kind, count, delay):
    key, values = KEYS[kind]
    a = source("a", key, delay)
    result = a.groupBy("k").last(count).agg(**EVERYTHING)
    check(data, [result], [(a, values)], [lambda db, marks: last_of("a", count, EVERYTHING, marks["a"])])


@given(st.data(), st.sampled_from([(10, 10), (10, 5), (10, 4), (3, 7), (60, 10)]), st.sampled_from([1, SECOND]), delays)
def test_windows_of_event_time(data, window, unit, delay):
    length, slide = (w * unit for w in window)
    a = source("a", pa.string(), delay)
    result = a.groupBy("k").window(f"{length} microseconds", f"{slide} microseconds").agg(**EVERYTHING)
    oracle = lambda db, marks: windows_of("a", length, slide, EVERYTHING, marks["a"])  # noqa: E731
    check(data, [result], [(a, KEYS["string"][1])], [oracle])


@given(
    st.data(),
    st.sampled_from(sorted(KEYS)),
    st.sampled_from([1, 2, 5, SECOND, 10 * SECOND, 40 * 60 * SECOND]),
    delays,
)
def test_sessions(data, kind, gap, delay):
    key, values = KEYS[kind]
    a = source("a", key, delay)
    result = a.groupBy("k").session_window(f"{gap} microseconds").agg(**EVERYTHING)
    check(data, [result], [(a, values)], [lambda db, marks: sessions_of("a", gap, EVERYTHING, marks["a"])])


@given(st.data(), delays)
def test_one_group_of_all_rows(data, delay):
    a = source("a", delay=delay)
    some = {"n": ("*", "count"), "total": ("v", "sum")}
    results = [
        a.groupBy().last(3).agg(**some),
        a.groupBy().window("5 seconds").agg(**some),
        a.groupBy().session_window("5 seconds").agg(**some),
    ]
    check(
        data,
        results,
        [(a, KEYS["long"][1])],
        [
            lambda db, m: (
                f"SELECT * EXCLUDE (one) FROM ({last_of('(SELECT *, 1 AS one FROM a)', 3, some, m['a'], 'one')})"
            ),
            lambda db, m: windows_of("a", 5 * SECOND, 5 * SECOND, some, m["a"], ""),
            lambda db, m: sessions_of("a", 5 * SECOND, some, m["a"], ""),
        ],
    )


@given(st.data(), delays)
def test_groups_that_share_a_hash(data, delay):
    """All groups under one hash: every lookup meets rows of other groups."""
    with pytest.MonkeyPatch.context() as patch:
        same = lambda columns, *, rows=None: last_rows.np.zeros(rows or len(columns[0]), dtype="uint32")  # noqa: E731
        patch.setattr(row_hashing, "hash_group_keys", same)
        patch.setattr(time_windows, "hash_group_keys", same)
        patch.setattr(grouping, "hash_group_keys", same)
        a = source("a", pa.string(), delay)
        some = {"n": ("*", "count"), "total": ("v", "sum")}
        results = [
            a.groupBy("k").last(2).agg(**some),
            a.groupBy("k").window("5 seconds").agg(**some),
            a.groupBy("k").session_window("5 seconds").agg(**some),
        ]
        oracles = [
            lambda db, m: last_of("a", 2, some, m["a"]),
            lambda db, m: windows_of("a", 5 * SECOND, 5 * SECOND, some, m["a"]),
            lambda db, m: sessions_of("a", 5 * SECOND, some, m["a"]),
        ]
        check(data, results, [(a, KEYS["string"][1])], oracles)


BARS = {"n": ("*", "count"), "high": ("w", "max")}
windows = st.sampled_from([(10, 10), (10, 5), (3, 7), (60, 20)])


@given(st.data(), windows, st.sampled_from([1, SECOND]), delays)
def test_windows_over_windows_by_their_own_columns(data, window, unit, delay):
    """What comes of the windows that end in an epoch comes in the same one, however deep."""
    length, slide = (w * unit for w in window)
    a = source("a", pa.string(), delay)
    bars = a.groupBy("k").window(f"{length} microseconds", f"{slide} microseconds").agg(**BARS)
    most = bars.groupBy("window_start", "window_end").agg(most=("n", "max"), groups=("*", "count"))
    again = most.filter("groups > 1").groupBy("window_end").agg(total=("most", "sum"))

    def grouped(db: duckdb.DuckDBPyConnection, marks: dict[str, int]) -> str:
        bars = windows_of("a", length, slide, BARS, marks["a"])
        by = "window_start, window_end"
        return f"SELECT {by}, max(n) AS most, count(*) AS groups FROM ({bars}) GROUP BY {by}"

    def grouped_again(db: duckdb.DuckDBPyConnection, marks: dict[str, int]) -> str:
        return f"SELECT window_end, most::BIGINT AS total FROM ({grouped(db, marks)}) WHERE groups > 1"

    check(data, [most, again], [(a, KEYS["string"][1])], [grouped, grouped_again])


@given(st.data(), st.sampled_from([(10, 10), (10, 5), (60, 20)]), st.sampled_from([1, SECOND]), st.booleans(), delays)
def test_longer_windows_over_windows(data, window, unit, over_groups, delay):
    """By the last microsecond of the windows, by their starts and by their ends."""
    length, slide = (w * unit for w in window)
    a = source("a", pa.string(), delay)
    bars = a.groupBy("k").window(f"{length} microseconds", f"{slide} microseconds").agg(n=("*", "count"))
    below = bars.groupBy("k", "window_end").agg(n=("n", "sum")) if over_groups else bars
    total, outer = {"total": ("n", "sum"), "rows": ("*", "count")}, 4 * length
    shifts = {"window_time": 1, "window_start": length, "window_end": 0}
    results = [below.groupBy("k").window(f"{outer} microseconds", by=by).agg(**total) for by in shifts]
    wider = results[0].groupBy("k").window(f"{8 * length} microseconds", by="window_time").agg(total=("total", "sum"))

    def longer(shift: int) -> Oracle:
        def oracle(db: duckdb.DuckDBPyConnection, marks: dict[str, int]) -> str:
            bars = windows_of("a", length, slide, {"n": ("*", "count")}, marks["a"])
            timed = f"(SELECT k, n, make_timestamptz(epoch_us(window_end) - {shift}) AS ts, 0 AS epoch FROM ({bars}))"
            final = marks["a"] - shift + 1 if shift else marks["a"]
            return windows_of(timed, outer, outer, total, final).replace("sum(n)", "sum(n)::BIGINT")

        return oracle

    def widest(db: duckdb.DuckDBPyConnection, marks: dict[str, int]) -> str:
        below = longer(1)(db, marks)
        timed = f"(SELECT *, make_timestamptz(epoch_us(window_end) - 1) AS ts, 0 AS epoch FROM ({below}))"
        named = {"total": ("total", "sum")}
        text = windows_of(timed, 8 * length, 8 * length, named, marks["a"])
        return text.replace("sum(total)", "sum(total)::BIGINT")

    oracles = [*(longer(shift) for shift in shifts.values()), widest]
    check(data, [*results, wider], [(a, KEYS["string"][1])], oracles)


@given(st.data(), st.sampled_from(sorted(KEYS)), delays)
def test_groups_of_one_event_time(data, kind, delay):
    """Rows of a stream may have just the time of the watermark still, so their groups end when it has passed."""
    key, values = KEYS[kind]
    a = source("a", key, delay)
    some = {"n": ("*", "count"), "total": ("v", "sum")}
    result = a.groupBy("ts", "k").agg(**some)
    text = "SELECT ts, k, count(*) AS n, sum(v)::BIGINT AS total FROM a WHERE epoch_us(ts) < {} GROUP BY ts, k"
    check(data, [result], [(a, values)], [lambda db, marks: text.format(marks["a"])])


@given(st.data(), windows, st.sampled_from([1, SECOND]), st.integers(1, 3), delays)
def test_the_first_rows_of_each_window(data, window, unit, count, delay):
    length, slide = (w * unit for w in window)
    a = source("a", pa.string(), delay)
    bars = a.groupBy("k").window(f"{length} microseconds", f"{slide} microseconds").agg(**BARS)
    results = [
        bars.groupBy("window_start", "window_end").top(count, "n DESC", "high", "k"),
        bars.groupBy("window_end", "n").top(count, "high DESC NULLS FIRST", "k DESC NULLS FIRST", number="place"),
    ]

    def ranked(by: str, order: str, name: str) -> Oracle:
        def oracle(db: duckdb.DuckDBPyConnection, marks: dict[str, int]) -> str:
            bars = windows_of("a", length, slide, BARS, marks["a"])
            place = f"row_number() OVER (PARTITION BY {by} ORDER BY {order})::INT AS {name}"
            return f"SELECT * FROM (SELECT *, {place} FROM ({bars})) WHERE {name} <= {count}"

        return oracle

    oracles = [
        ranked("window_end", "n DESC, high NULLS FIRST, k NULLS FIRST", "row_number"),
        ranked("window_end, n", "high DESC NULLS FIRST, k DESC NULLS FIRST", "place"),
    ]
    check(data, results, [(a, KEYS["string"][1])], oracles)


@given(st.data(), st.integers(1, 3), delays)
def test_the_first_rows_of_each_event_time(data, count, delay):
    """Epochs that repeat a time bring more rows of a group that has begun."""
    a = source("a", delay=delay)
    result = a.select("ts", "k", "v").groupBy("ts").top(count, "v DESC", "k")
    text = (
        "SELECT * FROM (SELECT ts, k, v, row_number() OVER (PARTITION BY ts ORDER BY v DESC NULLS LAST, k NULLS FIRST)"
        "::INT AS row_number FROM a) WHERE row_number <= {} AND epoch_us(ts) < {}"
    )
    check(data, [result], [(a, KEYS["long"][1])], [lambda db, marks: text.format(count, marks["a"])])


@given(st.data(), st.integers(0, 20), delays)
def test_a_join_then_windows_and_the_newest_rows(data, within, delay):
    a, b = source("a", delay=delay), source("b", delay=delay)
    pairs = a.join(b, on="k", within=f"{within} seconds", where="a.v >= b.v").filter("b_w IS NOT NULL")
    some = {"n": ("*", "count"), "total": ("a_v", "sum")}
    results = [
        pairs,
        pairs.groupBy("a_k").window("10 seconds", "5 seconds").agg(**some),
    ]
    joined = f"""
        SELECT a.k AS a_k, a.ts AS a_ts, a.v AS a_v, a.w AS a_w, b.k AS b_k, b.ts AS b_ts, b.v AS b_v, b.w AS b_w
        FROM a JOIN b ON a.k = b.k AND abs(epoch_us(a.ts) - epoch_us(b.ts)) <= {within * SECOND} AND a.v >= b.v
        WHERE b.w IS NOT NULL"""

    def grouped(db: duckdb.DuckDBPyConnection, marks: dict[str, int]) -> str:
        timed = f"(SELECT *, greatest(a_ts, b_ts) AS ts, a_k AS k, a_v AS v FROM ({joined}))"
        named = {"n": ("*", "count"), "total": ("v", "sum")}
        return windows_of(timed, 10 * SECOND, 5 * SECOND, named, min(marks.values()))

    values = st.integers(0, 2)
    check(data, results, [(a, values), (b, values)], [lambda db, m: joined, grouped])


@given(st.data(), delays)
def test_a_group_by_joined_and_grouped_again(data, delay):
    """Three deep: windows of one stream, joined with another stream, the newest rows of the result."""
    a, b = source("a", delay=delay), source("b", delay=delay)
    bars = a.groupBy("k").window("4 seconds").agg(high=("v", "max"), n=("*", "count")).alias("bars")
    near = bars.join(b.filter("v IS NOT NULL"), on="k", within=("6 seconds", "2 seconds"))
    chosen = near.select("bars_k AS k", "bars_n * 2 AS twice", "b_v AS v")
    results = [chosen, chosen.groupBy("k").window("3 seconds").agg(total=("twice", "sum"), low=("v", "min"))]
    first = {"high": ("v", "max"), "n": ("*", "count")}

    def joined(db: duckdb.DuckDBPyConnection, marks: dict[str, int]) -> str:
        bars = windows_of("a", 4 * SECOND, 4 * SECOND, first, marks["a"])
        return f"""
            SELECT bars.k, bars.n * 2 AS twice, b.v, greatest(window_end, b.ts) AS ts
            FROM ({bars}) bars JOIN b ON bars.k = b.k AND b.v IS NOT NULL
             AND epoch_us(b.ts) - epoch_us(window_end) BETWEEN {-6 * SECOND} AND {2 * SECOND}"""

    def grouped(db: duckdb.DuckDBPyConnection, marks: dict[str, int]) -> str:
        names = {"total": ("twice", "sum"), "low": ("v", "min")}
        return windows_of(f"({joined(db, marks)})", 3 * SECOND, 3 * SECOND, names, min(marks.values()))

    values = st.integers(0, 2)
    oracles = [lambda db, m: f"SELECT * EXCLUDE (ts) FROM ({joined(db, m)})", grouped]
    check(data, results, [(a, values), (b, values)], oracles)


@given(st.data(), delays)
def test_the_newest_rows_of_a_join_in_windows(data, delay):
    """The event time is hidden all the way: that of the pair, the greatest of its rows'."""
    a, b = source("a", delay=delay), source("b", delay=delay)
    pairs = a.join(b, on="k", within="5 seconds").select("a_k AS k", "b_v AS v")
    counted = pairs.groupBy("k").last(1000).agg(n=("*", "count"))
    result = counted.groupBy("k").window("2 seconds").agg(most=("n", "max"), rows=("*", "count"))

    def oracle(db: duckdb.DuckDBPyConnection, marks: dict[str, int]) -> str:
        joined = f"""SELECT a.k, greatest(a.ts, b.ts) AS ts, 0 AS epoch FROM a JOIN b
            ON a.k = b.k AND abs(epoch_us(a.ts) - epoch_us(b.ts)) <= {5 * SECOND}"""
        counted = f"SELECT *, row_number() OVER (PARTITION BY k ORDER BY ts) AS n FROM ({joined})"
        names = {"most": ("n", "max"), "rows": ("*", "count")}
        return windows_of(f"({counted})", 2 * SECOND, 2 * SECOND, names, min(marks.values()))

    values = st.integers(0, 2)
    check(data, [result], [(a, values), (b, values)], [oracle])


@settings(max_examples=one_in(3))  # each has as many epochs as three of other tests
@given(st.data(), st.integers(1, 3), st.sampled_from([0, 3, 50]), st.booleans())
def test_many_epochs_and_merges(data, count, delay, one_hash):
    """Three levels of merges, with rows that wait, ancient rows, and perhaps all groups under one hash."""
    a = source("a", delay=delay)
    some = {"n": ("*", "count"), "total": ("v", "sum")}
    results = [
        a.groupBy("k").last(count).agg(**some),
        a.groupBy("k").window("10 microseconds").agg(**some),
        a.groupBy("k").session_window("7 microseconds").agg(**some),
    ]
    plan = plan_of([r.relation for r in results])
    seed = data.draw(st.integers(0, 1000))
    rng = np.random.default_rng(seed)
    seen = []
    with tempfile.TemporaryDirectory(dir=FAST) as directory, pytest.MonkeyPatch.context() as patch:
        if one_hash:
            same = lambda columns, *, rows=None: np.zeros(rows or len(columns[0]), dtype="uint32")  # noqa: E731
            patch.setattr(row_hashing, "hash_group_keys", same)
            patch.setattr(time_windows, "hash_group_keys", same)
            patch.setattr(grouping, "hash_group_keys", same)
        query = DirectQuery(plan, Path(directory), sites=2, partitions=4)
        for epoch in range(26):
            size = int(rng.integers(0, 6))
            times = rng.choice(np.arange(epoch * 7, epoch * 7 + 40), size, replace=False)
            if epoch == 0 and size:
                times[0] = -(10**10)  # a span of more than 71 minutes
            table = [rng.integers(0, 4, size), pa.array(times, TIME), rng.integers(0, 9, size), np.zeros(size)]
            seen.append(pa.table(table, schema=a.stream.schema))
            query.run([seen[-1]])
        with connect_duckdb() as db:
            numbered = [t.append_column("epoch", pa.array([i] * len(t), pa.int64())) for i, t in enumerate(seen)]
            db.register("a", on_time(numbered, "ts", delay)[0])
            times = [t for table in seen for t in table["ts"].cast(pa.int64()).to_pylist()]
            mark = max(times, default=-(10**18)) - delay
            texts = (
                last_of("a", count, some, mark),
                windows_of("a", 10, 10, some, mark),
                sessions_of("a", 7, some, mark),
            )
            for output, text in enumerate(texts):
                assert_equal(query.results(output), db.sql(text).to_arrow_table())
        stats = query.epochs.record.stats.sites
        assert sum(s.rows for s in stats) < 26 * 6
        query.close()


@given(st.lists(st.integers(-300, 300), min_size=1, max_size=20), st.integers(1, 60), st.integers(1, 25), st.data())
def test_the_ends_of_windows_that_hold_a_pane(starts, length, slide, data):
    spec = source("a").groupBy("k").window(f"{length} us", f"{slide} us").agg(n=("*", "count")).relation.origin.spec
    panes = np.unique([s - s % spec.pane for s in starts])
    now = data.draw(st.integers(-300, 400))
    done = data.draw(st.none() | st.integers(-400, now))
    found = time_windows.TimeWindowsGroupBy(spec)._ends(panes.astype(np.int64), done, now)
    ends = {i * slide + length for i in range(-700, 700)}
    holding = {e for e in ends if any(e - length <= p < e for p in panes) and e <= now and (done is None or e > done)}
    assert found.tolist() == sorted(holding)


def test_state_of_the_newest_rows_does_not_grow(tmp_path):
    """What newer rows have pushed out goes when runs are merged; no epoch reads more than it needs."""
    a = source("a")
    result = a.groupBy("k").last(5).agg(n=("*", "count"))
    query = DirectQuery(plan_of([result.relation]), tmp_path, sites=1)
    for epoch in range(150):
        times = [epoch * SECOND + i for i in range(200)]
        table = [[i % 20 for i in range(200)], pa.array(times, TIME), range(200), [0.0] * 200]
        query.run([pa.table([pa.array(c) for c in table], schema=a.stream.schema)])
    stats = query.epochs.record.stats.sites[0]
    assert stats.rows <= 4 * 20 * stats.segments
    assert stats.segments <= 16
    assert query.results()["n"].to_pylist().count(5) == 150 * 200 - 4 * 20


def test_state_of_a_session_that_never_ends_does_not_grow(tmp_path):
    """It is written anew each time it gets rows; what was written before expires, or goes when runs are merged."""
    a = source("a", delay=2 * SECOND)
    result = a.groupBy("k").session_window("10 seconds").agg(n=("*", "count"))
    query = DirectQuery(plan_of([result.relation]), tmp_path, sites=1)
    rows, epochs = [], 120
    for epoch in range(epochs):
        times = [epoch * SECOND + i for i in range(50)]
        table = [[i % 10 for i in range(50)], pa.array(times, TIME), range(50), [0.0] * 50]
        query.run([pa.table([pa.array(c) for c in table], schema=a.stream.schema)])
        stats = query.epochs.record.stats.sites[0]
        rows.append(stats.rows)
        assert stats.rows <= 10 * stats.segments
        assert stats.segments <= 16
    assert max(rows[80:]) <= max(rows[40:80])
    assert len(query.results()) == 0
    end = [[0], pa.array([(epochs + 60) * SECOND], TIME), [0], [0.0]]
    query.run([pa.table([pa.array(c) for c in end], schema=a.stream.schema)])
    assert query.results()["n"].to_pylist() == [epochs * 5] * 10
    query.close()


@pytest.mark.parametrize(("apart", "sessions"), [(30, 1), (31, 2)])
def test_rows_that_are_a_gap_apart_are_one_session_as_in_spark(tmp_path, apart, sessions):
    """Also if the watermark is at the end of the session already: a row of that very time can come still."""
    a = source("a")
    result = a.groupBy("k").session_window("30 microseconds").agg(n=("*", "count"))
    query = DirectQuery(plan_of([result.relation]), tmp_path, sites=1)
    for at in (0, apart, 1000):
        table = [[1, 2], pa.array([at, at], TIME), [1, 1], [0.0, 0.0]]
        query.run([pa.table([pa.array(c) for c in table], schema=a.stream.schema)])
    assert query.results()["n"].to_pylist() == [2 // sessions] * 2 * sessions
    query.close()


def test_an_epoch_that_ends_no_window_looks_at_no_state(tmp_path):
    a = source("a")
    query = DirectQuery(plan_of([a.groupBy("k").window("1 minute").agg(n=("*", "count")).relation]), tmp_path, sites=1)
    probed = []
    for epoch in range(14):
        table = [[1], pa.array([epoch * 10 * SECOND], TIME), [1], [0.0]]
        query.run([pa.table([pa.array(c) for c in table], schema=a.stream.schema)])
        probed.append(query.epochs.record.stats.sites[0].probed)
    assert [epoch for epoch, runs in enumerate(probed) if runs] == [6, 12]  # at one and at two minutes
    assert query.results()["n"].to_pylist() == [6, 6]
    query.close()


def test_a_column_is_replaced_under_any_spelling():
    assert source("a").withColumn("V", "v + 1").columns == ["k", "ts", "V", "w"]


def test_the_event_time_stays_a_column_under_any_spelling():
    a = source("a")
    for spelling in ("ts", "a.ts", "TS", "`ts`"):
        assert a.select("k", spelling).groupBy("k").last(2).agg(n=("*", "count")).columns == ["k", "ts", "n"]
    assert a.select("k").groupBy("k").last(2).agg(n=("*", "count")).columns == ["k", "n"]


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda a: a.groupBy("nope").last(3), r"stream 'a' has no column 'nope' to group by; it has k, ts, v, w"),
        (lambda a: a.groupBy("k").last(0), "last takes a whole number of rows, at least 1, not 0"),
        (lambda a: a.groupBy("k").window("0 seconds"), "must be longer than nothing"),
        (lambda a: a.groupBy("k").session_window("0 seconds"), "a session's gap must be longer than nothing"),
        (lambda a: a.groupBy("k").session_window(3), "session's gap"),
        (lambda a: a.groupBy("k").window("1 hour", by="window_time"), "is for the results of windows; stream 'a'"),
        (
            lambda a: (
                a.groupBy("k")
                .session_window("1 hour")
                .agg(n=("*", "count"))
                .groupBy("k")
                .window("1 day", by="window_start")
            ),
            "windows over these can go by 'window_time' or 'window_end'",
        ),
        (lambda a: a.groupBy("ts").top(0, "v"), "top takes a whole number of rows, at least 1, not 0"),
        (lambda a: a.groupBy("ts").top(3), r"top needs an order: top\(3, 'price DESC'\)"),
        (lambda a: a.groupBy("ts").top(3, "v upwards"), "top is by columns, such as 'price DESC'"),
        (lambda a: a.groupBy("ts").top(3, "x DESC"), "stream 'a' has no column 'x' to order by"),
        (lambda a: a.groupBy("ts").top(3, "v", number="K"), "cannot be named 'K'"),
        (lambda a: a.groupBy("k").last(3).agg(), "agg needs at least one aggregate"),
        (lambda a: a.groupBy("k").last(3).agg(n="count"), r"aggregate 'n' must be \(column, function\)"),
        (lambda a: a.groupBy("k").last(3).agg(n=("v", "median")), "there is no function 'median'; known: count, sum"),
        (lambda a: a.groupBy("k").last(3).agg(K=("v", "sum")), "cannot be named 'K'"),
        (
            lambda a: a.withColumn("window_end", "ts").groupBy("window_end").window("1 hour"),
            "the result of a window has a column 'window_end' of its own",
        ),
        (lambda a: a.groupBy("k").last(3).agg(n=("*", "sum")), r"only count takes '\*'"),
        (lambda a: a.groupBy("k").last(3).agg(n=("x", "sum")), "has no column 'x' to compute 'n' from"),
        (lambda a: a.groupBy("k").last(3).agg(n=("ts", "sum")), "sum does not take column 'ts' of stream 'a'"),
        (lambda a: a.groupBy("k", "K").last(3), "groupBy names 'k' twice"),
        (lambda a: source("b", delay=None).groupBy("k").last(3).agg(n=("*", "count")), "stream 'b' has delay=None"),
        (lambda a: a.filter("v"), 'a condition is true or false, but "v" yields'),
        (lambda a: a.filter("b.v > 1"), "b.v is not a column of stream 'a'"),
        (lambda a: a.select("v * 2"), r"the expression 'v \* 2' needs a name"),
        (lambda a: a.select("v", "w AS v"), "would have two columns 'v'"),
        (lambda a: a.withColumn("__time", "v"), "'__time' cannot be the name of a column"),
        (lambda a: a.select("nope"), "stream 'a' has no column 'nope'"),
        (
            lambda a: a.groupBy("k").last(3).agg(n=("*", "count")).join(a, on="k", within="1 second"),
            r"a result needs a name before it can be joined: result.alias\('name'\)",
        ),
    ],
)
def test_mistakes_are_named_in_the_users_words(build, words):
    with pytest.raises(FlowError, match=words):
        build(source("a"))


def test_what_is_described_names_filters_and_computed_columns():
    a, b = source("a"), source("b")
    joined = a.filter("v > 1").join(b.withColumn("x", "v * 2"), on="k", within="1 second")
    described = plan_of([joined.filter("b_x > 10").select("a_k", "a_ts").relation]).describe().splitlines()
    assert described[-6:] == [
        "  a: where v > 1",
        "  a: of it k, ts",
        "  b: with v * 2 as x",
        "  b: of it k, ts, x",
        "Result: where b_x > 10",
        "Result: of it a_k, a_ts",
    ]


def test_results_of_a_join_wait_for_units_that_have_seen_nothing_of_a_stream(tmp_path):
    """As long as one unit below has not taken in the first rows of b, nothing above is due; then all of it is."""
    a, b = handle(stream("a")), handle(stream("b"))
    schema = a.stream.schema
    pairs = a.join(b, on="k", within="100 seconds")
    newest = pairs.groupBy("a_k").last(3).agg(n=("*", "count"))
    plan = plan_of([newest.relation])

    def some(at: int) -> pa.Table:
        return pa.table([list(range(40)), pa.array([at * SECOND] * 40, TIME), [1] * 40], schema=schema)

    found = []
    for seconds in (None, 1e-6):
        query = DirectQuery(plan, tmp_path / str(seconds), partitions=8, seconds=seconds)
        query.run([some(1), schema.empty_table()])
        for at in (2, 9, 20):
            query.run([some(at), some(at)])
        query.drain()
        found.append(multiset(query.results()))
        query.close()
    assert found[0] == found[1]
    assert sum(found[0].values()) > 100
