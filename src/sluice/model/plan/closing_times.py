"""Which columns of a relation say when its groups are closed: no row to come has an earlier time in them than the
watermark."""

from __future__ import annotations

from sluice.model.plan.join import JoinSpec
from sluice.model.plan.relation import Applied, Relation
from sluice.model.plan.steps import Step, TableJoin
from sluice.model.plan.stream import Filter, plain_column


def closing_times(relation: Relation) -> frozenset[str]:
    """The columns with a time that is never earlier than the event time of their row, besides that one itself: of a
    join's results, that until which one of the rows has partners."""
    origin = relation.origin
    if not isinstance(origin, Applied) or not isinstance(origin.spec, JoinSpec) or origin.spec.closing_time is None:
        return frozenset()
    columns = frozenset([origin.spec.closing_time])
    for step in relation.steps:
        columns = _names_after(step, columns)
    return columns


def _names_after(step: Step, columns: frozenset[str]) -> frozenset[str]:
    """What columns are called after a step that leaves their values as they are."""
    if isinstance(step, Filter):
        return columns
    if isinstance(step, TableJoin):
        return frozenset(name for name, before in step.columns if before in columns)
    return frozenset(name for name, expression in step.columns if plain_column(expression) in columns)
