"""Event times over the whole range, the years 1 to 9999: the answer is exact for any two of them and any bound, and
times outside of it are dropped and counted."""

from __future__ import annotations

import os
import tempfile
from collections import Counter, defaultdict
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from engine_harness import DirectQuery, single
from hypothesis import given
from hypothesis import strategies as st
from specs import SECOND, TIME, handle, join, stream

from sluice.api.progress import _iso
from sluice.kernels.order import TimeScale, order_key, sorting
from sluice.kernels.probe import Run, pairs
from sluice.model.durations import LONGEST, microseconds
from sluice.model.plan.plan import Plan
from sluice.model.plan.planning import plan_of
from sluice.model.plan.stream import EARLIEST, LATEST, Stream
from sluice.record.epoch import EpochRecord

FAST = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
LEAST, MOST = -(2**63), 2**63 - 1
YEAR = 365 * 86_400 * SECOND

edges = st.sampled_from([EARLIEST, -1, 0, 1, 1_767_000_000 * SECOND, LATEST])
offsets = st.sampled_from([0, 1, -1, SECOND, -SECOND, YEAR, -YEAR, 4000 * YEAR, -4000 * YEAR])
in_range = st.builds(lambda edge, offset: min(max(edge + offset, EARLIEST), LATEST), edges, offsets) | st.integers(
    EARLIEST, LATEST
)
outside = st.sampled_from([LEAST, LEAST + 1, EARLIEST - 1, LATEST + 1, MOST - 1, MOST]) | st.integers(LATEST + 1, MOST)
durations = st.sampled_from([0, 1, SECOND, YEAR, 5000 * YEAR, LONGEST - 1, LONGEST]) | st.integers(0, LONGEST)
Row = tuple[int, int, int]
"""Key, time, value."""


@st.composite
def epochs(draw: st.DrawFn) -> list[list[Row]]:
    """Rows of a few epochs, no two at one time; some of them out of range."""
    times = draw(st.lists(in_range | in_range | outside, max_size=30, unique=True))
    rows = [(draw(st.integers(0, 2)), t, i) for i, t in enumerate(times)]
    cuts = sorted(draw(st.lists(st.integers(0, len(rows)), min_size=3, max_size=3)))
    return [rows[a:b] for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]


def table(s: Stream, rows: list[Row]) -> pa.Table:
    keys, times, values = ([row[i] for row in rows] for i in range(3))
    return pa.table([pa.array(keys, pa.int64()), pa.array(times, TIME), pa.array(values, pa.int64())], schema=s.schema)


def on_time(new: list[list[Row]], delay: int | None) -> tuple[list[Row], int, int, int | None]:
    """The rows that count, how many are late, how many out of range, and the watermark at last."""
    kept, late, outside, newest = [], 0, 0, None
    for rows in new:
        good = [row for row in rows if EARLIEST <= row[1] <= LATEST]
        outside += len(rows) - len(good)
        mark = None if newest is None or delay is None else newest - delay
        kept += [row for row in good if mark is None or row[1] >= mark]
        late += sum(mark is not None and row[1] < mark for row in good)
        newest = max([row[1] for row in good] + ([] if newest is None else [newest]), default=None)
    return kept, late, outside, None if newest is None or delay is None else newest - delay


DROPPED = ("late_rows", "out_of_range_rows", "null_rows")


def found(plan: Plan, new: list[list[list[Row]]]) -> tuple[Counter, EpochRecord, dict[str, int]]:
    """The engine's results as numbers, its last record, and its counts of dropped rows."""
    with tempfile.TemporaryDirectory(dir=FAST) as root:
        query = DirectQuery(plan, Path(root))
        dropped: Counter = Counter()
        for rows in zip(*new, strict=True):
            query.run([table(s, some) for s, some in zip(plan.sources, rows, strict=True)])
            dropped.update({name: getattr(query.epochs.record.stats, name) for name in DROPPED})
        results = query.results()
        columns = [c.cast(pa.int64()).to_pylist() for c in results.columns]
        query.close()
        return Counter(zip(*columns, strict=True)), query.epochs.record, dict(dropped)


@given(epochs(), epochs(), durations, durations, durations | st.none(), durations | st.none())
def test_joins_are_exact_over_the_whole_range(a, b, before, after, delay_a, delay_b):
    spec = join([stream("a", delay=delay_a), stream("b", delay=delay_b)], (before, after))
    results, record, dropped = found(single(spec), [a, b])
    left, late_a, outside_a, _ = on_time(a, delay_a)
    right, late_b, outside_b, _ = on_time(b, delay_b)
    expected = Counter((*x, *y) for x in left for y in right if x[0] == y[0] and -before <= y[1] - x[1] <= after)
    assert results == expected
    assert dropped == {"late_rows": late_a + late_b, "out_of_range_rows": outside_a + outside_b, "null_rows": 0}
    assert [s.out_of_range for s in record.stats.streams] == [
        sum(not EARLIEST <= row[1] <= LATEST for row in rows[-1]) for rows in (a, b)
    ]


@given(epochs(), durations, st.sampled_from([1, SECOND, YEAR, LONGEST]) | st.integers(1, LONGEST), st.integers(1, 4))
def test_windows_are_exact_over_the_whole_range(new, delay, length, parts):
    slide = max(1, length // parts)
    bars = handle(stream("a", delay=delay)).groupBy("k").window(_micros(length), _micros(slide)).agg(n=("*", "count"))
    results, _, _ = found(plan_of([bars.relation]), [new])
    rows, _, _, mark = on_time(new, delay)
    counts: Counter = Counter()
    for key, time, _ in rows:
        for i in range((time - length) // slide + 1, time // slide + 1):
            if mark is not None and i * slide + length <= mark:
                counts[key, i * slide, i * slide + length] += 1
    assert results == Counter((*window, n) for window, n in counts.items())


@given(epochs(), durations, st.integers(1, 4))
def test_the_newest_rows_are_exact_over_the_whole_range(new, delay, k):
    means = handle(stream("a", delay=delay)).groupBy("k").last(k).agg(n=("*", "count"), total=("v", "sum"))
    results, _, _ = found(plan_of([means.relation]), [new])
    rows, _, _, mark = on_time(new, delay)
    groups: dict[int, list[Row]] = defaultdict(list)
    expected: Counter = Counter()
    for row in sorted(rows, key=lambda row: row[1]):
        groups[row[0]].append(row)
        newest = groups[row[0]][-k:]
        if mark is not None and row[1] <= mark:
            expected[row[0], row[1], len(newest), sum(r[2] for r in newest)] += 1
    assert results == expected


@given(epochs(), durations)
def test_a_window_over_a_join_is_exact_over_the_whole_range(new, within):
    a, b = (handle(stream(name)) for name in "ab")
    counts = a.join(b, on="k", within=_micros(within)).groupBy("a_k").window("365 days").agg(n=("*", "count"))
    results, _, _ = found(plan_of([counts.relation]), [new, new])
    rows, _, _, mark = on_time(new, 0)
    expected: Counter = Counter()
    for x in rows:
        for y in rows:
            start = max(x[1], y[1]) // YEAR * YEAR
            if x[0] == y[0] and abs(x[1] - y[1]) <= within and mark is not None and start + YEAR <= mark:
                expected[x[0], start, start + YEAR] += 1
    assert results == Counter((*window, n) for window, n in expected.items())


@given(st.lists(in_range, min_size=1, max_size=20), in_range, durations, durations)
def test_rows_are_found_in_a_run_that_spans_all_of_time(times, around, before, after):
    hashes = np.zeros(len(times) + 2, dtype=np.uint32)
    all_times = np.array([EARLIEST, *times, LATEST])
    order = sorting(hashes, all_times)
    sorted_times = all_times[order]
    scale = TimeScale.for_span(EARLIEST, LATEST)
    key = order_key(hashes, sorted_times, scale)
    assert np.all(key[1:] >= key[:-1])
    run = Run(key, sorted_times, pa.record_batch({"t": sorted_times}), scale, EARLIEST, LATEST)
    low, high = np.array([around - before]), np.array([around + after])
    places = [at for _, some in pairs(run, np.zeros(1, np.uint32), low, high) for at in some.tolist()]
    assert sorted(places) == [i for i, t in enumerate(sorted_times) if around - before <= t <= around + after]


def test_one_absurd_time_costs_nobody_else_a_match(tmp_path):
    a, b = stream("a"), stream("b")
    rows = [(i, 1_767_000_000 * SECOND + i, i) for i in range(200)]
    query = DirectQuery(join([a, b], 10 * SECOND), tmp_path)
    query.run([table(a, [*rows, (7, LEAST, 0), (8, MOST, 0)]), table(b, rows)])
    assert query.results().num_rows == 200
    assert query.epochs.record.stats.out_of_range_rows == 2
    query.run([table(a, []), table(b, [(i, t + SECOND, i) for i, t, _ in rows])])
    assert query.results().num_rows == 400
    query.close()


def test_the_range_is_that_of_the_calendar():
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    first, last = (epoch + timedelta(microseconds=t) for t in (EARLIEST, LATEST))
    assert first == datetime.min.replace(tzinfo=timezone.utc) and last == datetime.max.replace(tzinfo=timezone.utc)
    assert (_iso(EARLIEST), _iso(LATEST)) == ("0001-01-01T00:00:00+00:00", "9999-12-31T23:59:59.999999+00:00")
    assert _iso(EARLIEST - LONGEST) == f"{EARLIEST - LONGEST} microseconds after 1970"


@pytest.mark.parametrize("length", [2**53 + 1, LONGEST - 1, LATEST])
def test_long_durations_are_exact_to_the_microsecond(length):
    assert microseconds(_micros(length), "within") == length
    assert microseconds(timedelta(microseconds=2**53 + 1), "within") == 2**53 + 1


def _micros(length: int) -> str:
    return f"{length} microseconds"
