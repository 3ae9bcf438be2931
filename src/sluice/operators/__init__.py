"""Stateful steps: state transitions on batches."""

from __future__ import annotations

from sluice.model.group_by import LastRows, TimeWindows
from sluice.model.plan import OperatorSpec
from sluice.operators.last_rows import LastRowsGroupBy
from sluice.operators.protocol import Operator
from sluice.operators.time_windows import TimeWindowsGroupBy
from sluice.operators.window_join import WindowJoin


def operator(spec: OperatorSpec) -> Operator:
    """The operator that a specification describes."""
    if isinstance(spec, LastRows):
        return LastRowsGroupBy(spec)
    if isinstance(spec, TimeWindows):
        return TimeWindowsGroupBy(spec)
    return WindowJoin(spec)
