"""What an epoch costs follows its batch: not the state, and not how many rows a window may hold."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from specs import SECOND, TIME, handle, stream

from sluice.kernels.probe import Run
from sluice.model.epoch.segments import SegmentRef
from sluice.model.plan.planning import plan_of
from sluice.model.routing.directory import Directory
from sluice.operators import operator
from sluice.operators.protocol import Operator
from sluice.state.segment import Layout, decode, encode, parts, sort_run

MINUTE = 60 * SECOND


def stored(layout: Layout, run: Run) -> Run:
    """A run as it comes back from its segment."""
    data = encode(layout, run)
    times = run.earliest, run.earliest, run.latest
    ref = SegmentRef("s", "f", 0, len(data), 0, len(run), *times, run.scale.base, run.scale.shift, 0, (), (), 0)
    return decode(layout, ref, data)


class State:
    """An operator's state in memory: one run."""

    def __init__(self, layout: Layout, run: Run | None = None) -> None:
        self.layout, self.run = layout, run

    def runs(self, input_: int, span: tuple[int, int] | None) -> list[Run]:
        return [] if self.run is None else [stored(self.layout, self.run)]

    def stage(self, input_: int, run: Run) -> None:
        self.run = run


def batch(mine: Operator, rows: int, groups: int, start: int, stop: int) -> Run:
    """New rows, times spread evenly, as they come to a site."""
    numbers = np.arange(rows)
    times = start + numbers * (stop - start) // rows
    columns = [numbers * 7919 % groups, pa.array(times, TIME), numbers]
    sent = mine.prepare_input(0, pa.record_batch(columns, schema=stream("s").schema))
    return sort_run(Layout(mine.exchange_schema(0), mine.state_layout(0).event_time), sent.hashes, sent.rows)


def largest_arrays(mine: Operator, state_rows: int) -> tuple[int, int, int]:
    """An epoch of 500 rows after one of many, half of which have had their turn: the largest array that numpy sorts or
    scans, how many results there are, and in how many pieces."""
    state = State(mine.state_layout(0))
    many = batch(mine, state_rows, state_rows // 12, 0, 20 * MINUTE)
    list(mine.epoch(0, [many], state, (None,), (0,)))
    sizes = [0]

    def watched(function: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            sizes.extend(len(a) for a in arguments if isinstance(a, np.ndarray) and a.ndim)
            return function(*arguments, **named)

        return call

    some = batch(mine, 500, state_rows // 12, 20 * MINUTE, 20 * MINUTE + SECOND)
    names = ("argsort", "sort", "flatnonzero", "lexsort", "cumsum")
    before = state.runs(0, None)
    with (
        mock.patch.multiple(np, **{name: watched(getattr(np, name)) for name in names}),
        mock.patch.object(state, "runs", lambda input_, span: before),
    ):
        out = list(mine.epoch(1, [some], state, (10 * MINUTE,), (10 * MINUTE + SECOND,)))
    return max(sizes), sum(results.num_rows for _, results in out), len(out)


@pytest.mark.parametrize("kind", ["last", "window"])
def test_rows_that_have_to_wait_are_found_without_a_look_at_the_others(kind):
    grouped = handle(stream("s", delay=10 * MINUTE)).groupBy("k")
    over = grouped.last(10) if kind == "last" else grouped.window("1 second")
    mine = operator(plan_of([over.agg(total=("v", "sum")).relation]).nodes[0].spec)
    largest, results, _ = largest_arrays(mine, 60_000)
    assert 0 < results <= 60
    assert largest <= 2000


def test_windows_that_could_hold_millions_of_rows_cost_what_they_hold():
    relation = handle(stream("s")).groupBy("k").last(5_000_000).agg(total=("v", "sum")).relation
    _, results, pieces = largest_arrays(operator(plan_of([relation]).nodes[0].spec), 30_000)
    assert results > 20 and pieces == 1


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(-50, 50)), min_size=1), st.integers(-60, 60), st.integers(0, 99)
)
def test_rows_are_found_by_time_in_a_run_and_in_its_parts(rows, low, length):
    hashes = np.array([key << 29 for key, _ in rows], dtype=np.uint32)
    times = np.array([time for _, time in rows]) * 10
    columns = [hashes.astype(np.int64), pa.array(times, TIME), times]
    layout = Layout(stream("s").schema, "ts", time_step=10)
    run = stored(layout, sort_run(layout, hashes, pa.record_batch(columns, schema=layout.schema)))
    assert run.by_time is not None
    for part in [run, *parts(run, ((1, 3), (4, 5)), Directory(8))]:
        found = part.places_between(low * 10, (low + length) * 10)
        expected = np.flatnonzero((part.times >= low * 10) & (part.times < (low + length) * 10))
        assert found.tolist() == expected.tolist()
