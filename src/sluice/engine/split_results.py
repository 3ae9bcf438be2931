"""Rows that go to sinks straight from the split: those of queries that are filters and projections alone.

They never cross the exchange. The part files of an attempt count if the sites took in what that attempt sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sluice.engine.filtered_rows import FilteredRows, StepPath
from sluice.engine.part_writer import PartWriter, Staging
from sluice.model.clock import Clock
from sluice.model.epoch.attempt import Attempt
from sluice.model.epoch.results import Part
from sluice.model.epoch.work_stats import OutputWork
from sluice.model.plan.plan import Plan


class SplitResults:
    """What one map task finds of one stream for sinks: a part file for each that gets any rows."""

    def __init__(self, plan: Plan, stream: int, staging: Sequence[Staging], attempt: Attempt, clock: Clock) -> None:
        self._clock = clock
        self._whose = f"stream {plan.sources[stream].name!r}"
        self._outputs = {i: output for i, output in enumerate(plan.outputs) if output.feed.origin == stream}
        self._writers = {
            i: PartWriter(staging[i], f"part-{attempt}-{i}.parquet", output.schema)
            for i, output in self._outputs.items()
        }
        self._paths = {i: StepPath.of(output.feed.steps) for i, output in self._outputs.items()}
        self._seconds = dict.fromkeys(self._outputs, 0.0)

    def add(self, filtered: FilteredRows) -> None:
        """Rows of the stream, on their way to all sinks that take them."""
        for i, output in self._outputs.items():
            started = self._clock.process_time()
            rows = filtered.after(self._paths[i], self._whose).rows
            self._writers[i].add(rows.select(output.schema.names))
            self._seconds[i] += self._clock.process_time() - started

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
