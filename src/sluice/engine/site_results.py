"""The results of a site in an epoch, at one level of operators: to the sinks, and to the operators above."""

from __future__ import annotations

from dataclasses import replace

from sluice.engine.blobs import Blob, SentBytes
from sluice.engine.filtered_rows import FilteredRows, StepPath
from sluice.engine.part_writer import PartWriter
from sluice.engine.senders import senders
from sluice.engine.site_level import SiteLevel
from sluice.engine.site_task import SiteTask
from sluice.engine.stopwatch import Stopwatch
from sluice.model.epoch.attempt import Attempt
from sluice.model.epoch.results import Part
from sluice.model.epoch.work_stats import OutputWork
from sluice.operators.protocol import ResultBatch


class SiteResults:
    """Where each operator's results go."""

    def __init__(self, task: SiteTask, level: SiteLevel, attempt: Attempt, stopwatch: Stopwatch) -> None:
        plan, self._stopwatch = level.plan, stopwatch
        origins = {node: plan.origin_of(node) for node in level.nodes}
        self._writers = {
            i: PartWriter(staging, f"part-{attempt}-{i}.parquet", output.schema)
            for i, (output, staging) in enumerate(zip(plan.outputs, task.staging, strict=True))
            if output.feed.origin in origins.values()
        }
        self._sinks = {
            node: [
                (StepPath.of(output.feed.steps), output.schema.names, i)
                for i, output in enumerate(plan.outputs)
                if output.feed.origin == origin
            ]
            for node, origin in origins.items()
        }
        kinds = {node: plan.nodes[node].spec.describe().split("\n")[0] for node in level.nodes}
        self._whose = {node: f"results of operator {node + 1} ({kind})" for node, kind in kinds.items()}
        self._senders = {node: senders(plan, origin, task.routing, task.site_keys) for node, origin in origins.items()}
        self.sent = SentBytes(task.site_keys)

    @property
    def shown(self) -> int:
        """Rows that went to sinks."""
        return sum(writer.rows for writer in self._writers.values())

    @property
    def works(self) -> tuple[OutputWork, ...]:
        """The rows of each output that got any."""
        return tuple(OutputWork(i, writer.rows) for i, writer in self._writers.items() if writer.rows)

    @property
    def dropped(self) -> int:
        """Rows that could have no effect above."""
        return sum(sender.dropped for ways in self._senders.values() for sender in ways)

    @property
    def copied_rows(self) -> int:
        """Rows that went to more than one holder of a shared unit above, for each beside the first."""
        return sum(sender.copied_rows for ways in self._senders.values() for sender in ways)

    @property
    def copied_bytes(self) -> int:
        """The bytes of these."""
        return sum(sender.copied_bytes for ways in self._senders.values() for sender in ways)

    def send(self, node: int, results: ResultBatch) -> list[Blob]:
        """Some results of an operator: those for sinks are written, those for operators above returned as blobs."""
        filtered = FilteredRows(results[1])
        with self._stopwatch.measure("sink"):
            for path, names, i in self._sinks[node]:
                self._writers[i].add(filtered.after(path, self._whose[node]).rows.select(names))
        with self._stopwatch.measure("split"):
            return list(self.sent.count(blob for sender in self._senders[node] for blob in sender.blobs(filtered)))

    def close(self) -> tuple[Part, ...]:
        """What was written for the sinks."""
        with self._stopwatch.measure("sink"):
            return tuple(replace(part, output=i) for i, writer in self._writers.items() for part in writer.close())
