"""Rows that go to sinks straight from the split: those of queries that are filters and projections alone.

They never cross the exchange. The part files of an attempt count if the sites took in what that attempt sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sluice.engine.compiled_plan import compiled
from sluice.engine.filtered_rows import FilteredRows
from sluice.engine.part_writer import PartWriter, Staging
from sluice.model.clock import Clock
from sluice.model.epoch.attempt import Attempt
from sluice.model.epoch.results import Part
from sluice.model.epoch.work_stats import OutputWork
from sluice.model.plan.plan import Plan


class SplitResults:
    """What one map task finds of one stream for sinks, of its rows in time or of its late ones: a part file for each
    that gets any rows."""

    def __init__(
        self, plan: Plan, stream: int, staging: Sequence[Staging], attempt: Attempt, clock: Clock, late: bool = False
    ) -> None:
        self._plan, self._staging, self._attempt, self._clock = plan, staging, attempt, clock
        self._whose = f"{'late rows of ' if late else ''}stream {plan.sources[stream].name!r}"
        sinks = compiled(plan).late_sinks if late else compiled(plan).sinks
        self._sinks, self._mark = sinks.get(stream, ()), "-late" if late else ""
        self._writers: dict[int, PartWriter] = {}
        self._seconds: dict[int, float] = {}

    @property
    def is_wanted(self) -> bool:
        """Whether any sink takes such rows."""
        return bool(self._sinks)

    def add(self, filtered: FilteredRows) -> None:
        """Rows of the stream, on their way to all sinks that take them."""
        for i, path in self._sinks:
            started = self._clock.process_time()
            selection = filtered.after(path, self._whose)
            if selection is not None:
                schema = self._plan.outputs[i].schema
                if i not in self._writers:
                    name = f"part-{self._attempt}-{i}{self._mark}.parquet"
                    self._writers[i] = PartWriter(self._staging[i], name, schema)
                self._writers[i].add(selection.rows.select(schema.names))
            self._seconds[i] = self._seconds.get(i, 0.0) + self._clock.process_time() - started

    def close(self) -> tuple[Part, ...]:
        """What was written."""
        return tuple(replace(part, output=i) for i, writer in self._writers.items() for part in writer.close())

    def works(self, now: float) -> tuple[OutputWork, ...]:
        """What was done for each output that got rows; all is written by now."""
        return tuple(
            OutputWork(i, writer.rows, round(self._seconds[i], 6), now)
            for i, writer in self._writers.items()
            if writer.rows
        )
