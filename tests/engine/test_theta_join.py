"""Joins without an equality: the answer is that of the batch query, whatever the condition, the epochs, the memory, the
moves and freezes of the one unit, and the restarts."""

from __future__ import annotations

import numpy as np
import pytest
from disturbed import check as check_disturbed
from engine_harness import limits
from holders import sharing_by_hand
from hypothesis import given
from hypothesis import strategies as st
from specs import SECOND
from theta import CONDITIONS, rows, stream, theta_join

from sluice.kernels import near
from sluice.model.plan.join import JoinSpec
from sluice.operators import condition_search
from sluice.policies.planning.freezing import Freezing
from sluice.verbs.freeze import CleanUp, Freeze

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
    limited = limits(data) | {"freezing": data.draw(st.none() | st.just(Freezing(0.5)))}
    if limited["freezing"]:
        limited["spill"] = "unit"
    rng = np.random.default_rng(data.draw(st.integers(0, 10**9)))
    frozen = st.lists(st.sampled_from([Freeze(0, "to see"), CleanUp(0, "to see")]), max_size=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(near, "_WORTH_A_SEARCH", data.draw(st.sampled_from([-1, 0, 16])))
        patch.setattr(condition_search, "CANDIDATES_AT_ONCE", data.draw(st.sampled_from([1, 7, 1 << 17])))
        check_disturbed(
            data,
            spec,
            lambda _, around, spread: rows(rng, data.draw(st.integers(0, 25)), around, spread),
            lambda query: [*data.draw(frozen), *sharing_by_hand(data, query)],
            limited,
            where,
            epochs,
        )


@given(st.data(), st.sampled_from(CONDITIONS), windows, delays, delays)
def test_two_streams(data, where, within, delay_a, delay_b):
    check(data, theta_join([stream("a", delay_a), stream("b", delay_b)], within, where), where)


@given(st.data(), st.sampled_from(CONDITIONS), windows, delays)
def test_a_stream_with_itself(data, where, within, delay):
    check(data, theta_join([stream("s", delay)], within, where), where)
