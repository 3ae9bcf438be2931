"""The plans of the D-CAPE proposal's evaluation: joins 1:1 and n:m, more and more of them.

The proposal gives no numbers but selectivities (0.9 or more, above 1 for n:m) and the thresholds' ranges. Memory is
chosen so that the smallest plan of each kind is just large enough to make four machines remiss in the end: without
limits it would fill 118 MB (three joins, 1:1) and 121 MB (two joins, n:m) of 104 MB.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sluice.sim.hardware import MB
from sluice.sim.worlds.replication.scenario import BinaryJoin, ReplicationScenario
from sluice.sim.worlds.replication.world import ReplicationOutcome

ReplicationOutcomes = Mapping[str, ReplicationOutcome]

_WINDOWS = (240.0, 60.0, 120.0)
"""Seconds, in turn: operators need a wide range of memory, as the proposal has it."""
_MEMORY = 26 * MB


def _one_to_one(joins: int) -> ReplicationScenario:
    chain = tuple(BinaryJoin(_WINDOWS[number % 3], 10.0, 0.95, 0.95) for number in range(joins))
    return ReplicationScenario(f"{joins} joins, 1:1", joins=chain, memory=_MEMORY)


def _many_to_many(joins: int) -> ReplicationScenario:
    chain = tuple(BinaryJoin(_WINDOWS[number % 3], None, 1.05, 0.95) for number in range(joins))
    return ReplicationScenario(f"{joins} joins, n:m", joins=chain, memory=_MEMORY)


ONE_TO_ONE = tuple(map(_one_to_one, (3, 5, 7)))
MANY_TO_MANY = tuple(map(_many_to_many, (2, 3, 4)))
PLANS = (*ONE_TO_ONE, *MANY_TO_MANY)

_PEAK_MB = dict(zip([plan.name for plan in PLANS], (118, 189, 265, 121, 325, 1755), strict=True))
"""All state of a plan at its peak, from a run without limits."""
FILLED_AT_PEAK = 0.9
ENOUGH = {
    plan.name: replace(
        plan,
        name=f"{plan.name}, enough memory",
        memory=round(_PEAK_MB[plan.name] / FILLED_AT_PEAK / plan.sites * MB),
    )
    for plan in PLANS
}
"""The same plans on machines whose memory is, all together, filled to 0.9 at the peak."""
