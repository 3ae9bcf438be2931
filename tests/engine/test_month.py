"""A month of epochs: rows, runs, files, the journal's entries and the driver's memory are as many at its end as in its
middle, whatever happens to units meanwhile.

`MONTH_EPOCHS=2000` makes the month shorter.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from group_by_oracle import source
from month import EPOCHS_A_MONTH, MonthlyQuery, check_flat, rows_of_epoch, samples_of
from specs import SECOND

from sluice.api.stream import DataStream
from sluice.model.plan.plan import Plan
from sluice.model.plan.planning import plan_of
from sluice.policies import policy
from sluice.policies.planning.freezing import Freezing
from sluice.testing.local_query import EpochRows
from sluice.verbs.freeze import Freeze
from sluice.verbs.move import Move
from sluice.verbs.scale import Scale
from sluice.verbs.split import Merge, Split

EPOCHS = int(os.environ.get("MONTH_EPOCHS", EPOCHS_A_MONTH))
FAST = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
pytestmark = pytest.mark.slow


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=FAST) as directory:
        yield Path(directory)


def streams(names: str) -> list[DataStream]:
    return [source(name, delay=10 * SECOND) for name in names]


def plan(*results: DataStream) -> Plan:
    return plan_of([result.relation for result in results])


def arriving(flow: Plan, counts: dict[str, int]) -> Callable[[int], EpochRows]:
    """New rows of every stream, so many an epoch."""
    rng = np.random.default_rng(7)
    return lambda epoch: [rows_of_epoch(rng, epoch, s.schema, counts[s.name]) for s in flow.sources]


@pytest.mark.parametrize("beside", ["windows", "windows and a short join"])
def test_one_frozen_unit_beside_other_operators(root, beside):
    """A join with an unbounded side and others on its level: units of the first are frozen by hand."""
    a, b, c = streams("abc")
    kept = a.join(b, on="k", within=("unbounded", "30 minutes"))
    bars = c.groupBy("k").window("30 minutes").agg(n=("*", "count"))
    short = [] if beside == "windows" else [a.join(c, on="k", within="3 minutes")]
    flow = plan(kept, bars, *short)
    query = MonthlyQuery(flow, root)
    kept_for_good = flow.inputs_of(0)[1]
    watched = tuple(i for node in range(len(flow.nodes)) for i in flow.inputs_of(node) if i != kept_for_good)

    def freeze_now_and_then(epoch: int) -> None:
        if epoch % 997 == 20:
            for unit in range(0, 16, 5):
                query.ask(Freeze(unit, "to see"))

    counts = {"a": 30, "b": 1, "c": 30}
    check_flat(list(samples_of(query, EPOCHS, arriving(flow, counts), freeze_now_and_then, watched)))
    query.close()


def test_state_that_cannot_be_frozen_above_the_limit(root):
    """`lazy-disk` in too little memory, beside newest rows that cannot be frozen."""
    a, b = streams("ab")
    pairs, newest = a.join(b, on="k", within="100 minutes"), a.groupBy("k").last(50).agg(n=("*", "count"))
    flow = plan(pairs, newest)
    query = MonthlyQuery(flow, root, memory=20_000, freezing=Freezing(0.3), wanted="lazy-disk")
    check_flat(list(samples_of(query, EPOCHS, arriving(flow, {"a": 30, "b": 30}))))
    query.close()


@pytest.mark.parametrize("by", ["static", "elastic"])
def test_sites_that_never_come(root, by):
    """More sites are asked for again and again, by the user or a policy, and no executor comes."""
    a, b = streams("ab")
    flow = plan(a.join(b, on="k", within="100 minutes"))
    query = MonthlyQuery(flow, root, partitions=256, wanted=policy(by), most_sites=4, seconds=1e9, interval=2.0)
    query.follow = lambda: len(query.site_keys)

    def ask_for_sites(epoch: int) -> None:
        if by == "static" and epoch % 50 == 10:
            query.ask(Scale(4, "to see"))

    check_flat(list(samples_of(query, EPOCHS, arriving(flow, {"a": 40, "b": 40}), ask_for_sites)))
    query.close()


def test_all_that_a_user_can_ask_for(root):
    """Moves, freezes, splits and merges at random, a few in an hour, on two fragments."""
    a, b = streams("ab")
    pairs = a.join(b, on="k", within="100 minutes")
    flow = plan(pairs, pairs.groupBy("b_v").window("50 minutes").agg(n=("*", "count")))
    query = MonthlyQuery(flow, root, memory=200_000, most_sites=4)
    rng = np.random.default_rng(11)

    def ask(epoch: int) -> None:
        query.follow()
        units, sites = query.epochs.record.routing.units, query.epochs.record.routing.sites
        unit = int(rng.integers(units))
        if rng.random() < 0.1:
            query.ask(Scale(int(rng.integers(1, 5)), "to see"))
        if rng.random() < 0.3:
            split = Split(unit, "to see") if units < 40 else Merge(unit, "to see")
            query.ask([Move(unit, int(rng.integers(sites)), "to see"), Freeze(unit, "to see"), split][rng.integers(3)])

    check_flat(list(samples_of(query, EPOCHS, arriving(flow, {"a": 30, "b": 30}), ask)))
    query.close()
