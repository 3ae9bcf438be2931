"""What group-bys without a window are, as values: groups that never end, whose aggregates change with every row."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from sluice.model.epoch.times import Times
from sluice.model.plan.group_by import GroupBy
from sluice.model.plan.stream import TIME_COLUMN, columns_of


@dataclass(frozen=True)
class RunningGroups(GroupBy):
    """Aggregates over all rows of a group so far.

    A result is a group as it is after an epoch: of each group that has changed or, if it is `complete`, of every one.
    """

    complete: bool = False

    @property
    def event_time(self) -> str:
        """That of the newest row of the group."""
        return TIME_COLUMN

    def keep_from(self, input_: int, watermarks: Times) -> int | None:
        """Groups are kept for good."""
        return None

    def state_structure(self, input_: int) -> object:
        """Partial aggregates: those who show all groups and those who show changes can read the same ones."""
        measured = [(a.function, a.column) for a in self.aggregates]
        return "groups", self.keys, measured, columns_of(self.stream.schema)

    @property
    def time_columns(self) -> tuple[str, ...]:
        """None that is shown."""
        return ()

    def output_schema(self) -> pa.Schema:
        """The event time, hidden, the group columns and the aggregates."""
        return pa.schema([pa.field(TIME_COLUMN, self.time_type), *super().output_schema()])

    def identity(self) -> dict[str, object]:
        return {**super().identity(), "complete": self.complete}

    def describe(self) -> str:
        shown = "each of them after every epoch" if self.complete else "those that have changed after every epoch"
        return self._describe(f"all rows so far, groups kept for good, {shown}")
