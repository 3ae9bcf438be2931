"""Which fragments a query that is added can join, after an epoch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sluice.model.ids import Unit
from sluice.model.plan.assignment import Assignment
from sluice.model.plan.recorded_plan import RecordedPlan
from sluice.model.routing.unit_ranges import numbers
from sluice.record.epoch import EpochRecord


def assignment_after(plan: RecordedPlan, record: EpochRecord, changing_units: Iterable[Unit] = ()) -> Assignment:
    """Where the operators of a plan are after an epoch that went by it.

    No other operator joins a fragment of which some units are frozen, shared, or about to be split, merged or shared:
    what is there of their state could not be found by it, or not at one place. How long rows are kept is judged by how
    far units have come.
    """
    if record.number < 0:
        return plan.assignment
    routing = record.routing
    frozen = (unit for cold in record.frozen for unit in routing.units_at(numbers(cold.units)))
    units = {*frozen, *(sharing.unit for sharing in routing.shared), *filter(routing.has_unit, changing_units)}
    closed = {plan.layout.fragments[routing.fragment_of(unit)].label for unit in units}
    times = (record.newest, *record.reached, *(late.newest for late in record.lagging))
    return replace(plan.assignment, closed=frozenset(closed), begun=tuple(dict.fromkeys(times)))
