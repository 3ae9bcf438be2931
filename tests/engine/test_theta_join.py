"""Joins without an equality: the answer is that of the batch query, whatever the condition, the epochs, the memory, the
moves and freezes of the one unit, and the restarts."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from engine_harness import DirectQuery, limits
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import batch_join, multiset, on_time
from specs import SECOND
from theta import CONDITIONS, rows, stream, theta_join
from wandering import Wanderer

from sluice.kernels import near
from sluice.model.actions import CleanUp, Freeze
from sluice.model.join import JoinSpec
from sluice.operators import condition_search
from sluice.policies.freezing import Freezing

FAST = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
delays = st.sampled_from([0, 5 * SECOND, 60 * SECOND, None])
windows = st.sampled_from(
    [
        "0 seconds",
        "10 seconds",
        "1 hour",
        "unbounded",
        ("0 seconds", "20 seconds"),
        ("unbounded", "5 seconds"),
        ("30 seconds", "unbounded"),
    ]
)


def check(data: st.DataObject, spec: JoinSpec, where: str, epochs: int = 5) -> None:
    """Run random epochs through the engine, disturbed at will, and compare with DuckDB."""
    spread = data.draw(st.sampled_from([2 * SECOND, 40 * SECOND, 100 * 60 * SECOND]))
    step = data.draw(st.sampled_from([SECOND, 20 * SECOND, 50 * 60 * SECOND]))
    limited = limits(data) | {"freezing": data.draw(st.none() | st.just(Freezing(0.5)))}
    if limited["freezing"]:
        limited["spill"] = "unit"
    wander, rng = data.draw(st.booleans()), np.random.default_rng(data.draw(st.integers(0, 10**9)))
    seen: list[list[pa.Table]] = [[] for _ in spec.streams]
    with tempfile.TemporaryDirectory(dir=FAST) as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(near, "_WORTH_A_SEARCH", data.draw(st.sampled_from([-1, 0, 16])))
        patch.setattr(condition_search, "CANDIDATES_AT_ONCE", data.draw(st.sampled_from([1, 7, 1 << 17])))

        def start() -> DirectQuery:
            sites = data.draw(st.integers(1, 3))
            wanted = Wanderer(sites, sites) if wander else "static"
            return DirectQuery(spec, Path(directory), sites, 4, wanted=wanted, **limited)

        query = start()
        for epoch in range(data.draw(st.integers(1, epochs))):
            new = [rows(rng, data.draw(st.integers(0, 25)), epoch * step, spread) for _ in spec.streams]
            for kept, table in zip(seen, new, strict=True):
                kept.append(table)
            for action in data.draw(st.lists(st.sampled_from([Freeze(0, "to see"), CleanUp(0, "to see")]), max_size=2)):
                query.epochs.settings.controller.ask(action)
            query.run(new)
            if data.draw(st.integers(0, 3)) == 0:
                query.catch_up()
            if data.draw(st.integers(0, 3)) == 0:
                query.close()
                query = start()
        query.drain()
        good = [on_time(tables, s.event_time, s.delay)[0] for tables, s in zip(seen, spec.streams, strict=True)]
        assert multiset(query.results()) == multiset(batch_join(spec, good, where))
        query.close()


@settings(max_examples=60)
@given(st.data(), st.sampled_from(CONDITIONS), windows, delays, delays)
def test_two_streams(data, where, within, delay_a, delay_b):
    check(data, theta_join([stream("a", delay_a), stream("b", delay_b)], within, where), where)


@given(st.data(), st.sampled_from(CONDITIONS), windows, delays)
def test_a_stream_with_itself(data, where, within, delay):
    check(data, theta_join([stream("s", delay)], within, where), where)
