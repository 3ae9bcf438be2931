"""The results of a site in an epoch, at one level of operators: to the sinks, and to the operators above."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sluice.engine.blobs import Blob, SentBytes
from sluice.engine.filtered_rows import join_tables
from sluice.engine.joint_delivery import JointSender
from sluice.engine.part_writer import PartWriter
from sluice.engine.senders import Sender, senders
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
        self._task, self._level, self._attempt, self._stopwatch = task, level, attempt, stopwatch
        self._writers: dict[int, PartWriter] = {}
        self._senders: dict[int, Sequence[Sender | JointSender]] = {}
        self.sent = SentBytes(task.site_keys)

    def _writer(self, output: int) -> PartWriter:
        if output not in self._writers:
            name, schema = f"part-{self._attempt}-{output}.parquet", self._level.plan.outputs[output].schema
            self._writers[output] = PartWriter(self._task.staging[output], name, schema)
        return self._writers[output]

    def _senders_of(self, node: int) -> Sequence[Sender | JointSender]:
        if node not in self._senders:
            origin = self._level.plan.origin_of(node)
            self._senders[node] = senders(self._level.plan, origin, self._task.routing, self._task.site_keys)
        return self._senders[node]

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
        plan, compiled = self._level.plan, self._level.compiled
        paths = compiled.paths_with_tables(plan.origin_of(node))
        blobs: list[Blob] = []
        for filtered in join_tables(results[1], self._task.tables, paths, self._whose(node) if paths else ""):
            with self._stopwatch.measure("sink"):
                for output, path in compiled.sinks.get(plan.origin_of(node), ()):
                    selection = filtered.after(path, self._whose(node))
                    if selection is not None:
                        self._writer(output).add(selection.rows.select(plan.outputs[output].schema.names))
            with self._stopwatch.measure("split"):
                blobs += self.sent.count(blob for way in self._senders_of(node) for blob in way.blobs(filtered))
        return blobs

    def _whose(self, node: int) -> str:
        """What errors call an operator's results."""
        return f"results of operator {node + 1} ({self._level.plan.nodes[node].spec.describe().split(chr(10))[0]})"

    def close(self) -> tuple[Part, ...]:
        """What was written for the sinks."""
        with self._stopwatch.measure("sink"):
            return tuple(replace(part, output=i) for i, writer in self._writers.items() for part in writer.close())
