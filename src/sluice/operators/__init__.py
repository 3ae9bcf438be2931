"""Stateful steps: state transitions on batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sluice.model.plan.deduplication import Deduplication
from sluice.model.plan.group_by import LastRows, SessionWindows, TimeGroups, TimeWindows
from sluice.model.plan.join import JoinSpec
from sluice.model.plan.plan import OperatorSpec
from sluice.model.plan.running_groups import RunningGroups
from sluice.model.plan.table_lookup import TableLookup
from sluice.model.plan.top_rows import TopRows
from sluice.operators.deduplication import DropDuplicates
from sluice.operators.last_rows import LastRowsGroupBy
from sluice.operators.outer_join import OuterJoin
from sluice.operators.protocol import Operator
from sluice.operators.running_groups import RunningGroupBy
from sluice.operators.session_windows import SessionWindowsGroupBy
from sluice.operators.table_lookup import LookupInTable
from sluice.operators.time_windows import TimeWindowsGroupBy
from sluice.operators.top_rows import TopRowsOfGroups
from sluice.operators.window_join import WindowJoin

_OPERATORS: dict[type, Callable[[Any], Operator]] = {
    Deduplication: DropDuplicates,
    JoinSpec: lambda spec: WindowJoin(spec) if spec.is_inner else OuterJoin(spec),
    LastRows: LastRowsGroupBy,
    RunningGroups: RunningGroupBy,
    SessionWindows: SessionWindowsGroupBy,
    TableLookup: LookupInTable,
    TimeGroups: TimeWindowsGroupBy,
    TimeWindows: TimeWindowsGroupBy,
    TopRows: TopRowsOfGroups,
}


def operator(spec: OperatorSpec) -> Operator:
    """The operator that a specification describes."""
    return _OPERATORS[type(spec)](spec)
