"""The second half of an epoch's job: a site takes in new rows, brings its operators' state up to date, and reports.

Runs in the Spark task of the site, one a level of operators, in whichever Python worker of its executor it lands.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa

from sluice.kernels.probe import Run
from sluice.model.epoch import Attempt, Times, newest_of, watermarks
from sluice.model.errors import StorageError
from sluice.model.plan import Plan
from sluice.model.routing import Routing
from sluice.model.state import Manifest, numbers
from sluice.model.stream import applied
from sluice.operators import operator
from sluice.spark.results import PartWriter, Staging
from sluice.spark.sending import BLOBS, FIGURES, REPORT, Blob, blob_schema, document, in_batches, senders
from sluice.state.segment import counts, sorted_run
from sluice.state.storage import Storage
from sluice.state.tiers import Tiers
from sluice.state.transaction import Keeping, Transaction
from sluice.state.workspace import Places, open_workspace


@dataclass(frozen=True)
class SiteTask:
    """What the sites need to know for one epoch."""

    plan: Plan
    number: int
    routing: Routing
    tokens: tuple[int, ...]
    manifests: tuple[Manifest, ...]
    newest: Times
    checkpoint: str
    query: str
    run: str
    places: Places
    limit: int
    staging: tuple[Staging, ...]
    leaving: tuple[int, ...] = ()
    pace: tuple[float, ...] = ()
    """Seconds that a row takes longer at each site, for experiments with slow machines; none everywhere if empty."""

    def __call__(self, level: int, token: int, blobs: pa.Table) -> pa.Table:
        """One level's work of the site: blobs in, blobs for the levels above and a report out."""
        pa.set_cpu_count(1)
        site = _SiteEpoch(self, self.tokens.index(token), level)
        return pa.Table.from_batches(in_batches(site.run(blobs)), BLOBS)


class _SiteEpoch:
    def __init__(self, task: SiteTask, site: int, level: int) -> None:
        self.task, self.site, self.level, self.plan = task, site, level, task.plan
        self.token = task.tokens[site]
        self.last = level == task.plan.levels - 1
        self.seconds: dict[str, float] = {}
        self.nodes = [n for n, node in enumerate(self.plan.nodes) if node.level == level]
        self.operators = {n: operator(self.plan.nodes[n].spec) for n in self.nodes}
        self.local = {g: (n, i) for n in self.nodes for i, g in enumerate(self.plan.inputs_of(n))}
        self.layouts = {g: self.operators[n].stored(i) for g, (n, i) in self.local.items()}
        self.attempt = Attempt(task.number, site, task.run, f"{level}{uuid.uuid4().hex[:8]}")
        self.rows_in = self.probed = self.nulls = 0
        self.rows: dict[int, list[int]] = {}

    def run(self, blobs: pa.Table) -> Iterator[Blob]:
        begun = perf_counter()
        with self._timing("sort"):
            new, splits, passing = self._unpack(blobs)
        delays = tuple(s.delay for s in self.plan.sources)
        self.before = watermarks(self.task.newest, delays)
        self.after = watermarks(newest_of(self.task.newest, splits), delays)
        with self._timing("open"):
            transaction = self._begin()
        writers = {
            i: PartWriter(staging, f"part-{self.attempt}-{i}.parquet", output.schema)
            for i, (output, staging) in enumerate(zip(self.plan.outputs, self.task.staging, strict=True))
            if output.feed.origin - len(self.plan.sources) in self.nodes
        }
        for node in self.nodes:
            yield from self._operate(node, new, transaction, writers)
        with self._timing("sink"):
            parts = {i: [[p.name, p.rows, p.bytes] for p in writer.close()] for i, writer in writers.items()}
        with self._timing("durable"):
            manifest = transaction.commit(self.task.leaving)
        yield from passing
        if not self.last:
            yield from (document(self.token, FIGURES, figures) for figures in splits)
        report = {
            "site": self.site,
            "level": self.level,
            "runs": [run.as_json() for run in manifest],
            "parts": parts,
            "unitRows": self._unit_rows(new),
            "splits": splits if self.site == 0 and self.level == 0 else [],
            "figures": self._figures(transaction, manifest, writers, begun),
        }
        yield document(self.token, REPORT, report)

    def _operate(
        self, node: int, new: dict[int, Run], transaction: Transaction, writers: dict[int, PartWriter]
    ) -> Iterator[Blob]:
        """One operator's epoch: its results go to sinks and to the operators above."""
        origin = self.plan.origin_of(node)
        sinks = [(o.feed.steps, o.schema.names, i) for i, o in enumerate(self.plan.outputs) if o.feed.origin == origin]
        onward = senders(self.plan, origin, self.task.routing, self.task.tokens)
        inputs = self.plan.inputs_of(node)
        mine = [new.get(i) for i in inputs]
        before, after = (self.plan.watermarks_at(node, marks) for marks in (self.before, self.after))
        state = _NodeState(self, transaction, inputs[0])
        results = self.operators[node].epoch(self.task.number, mine, state, before, after)
        counts = self.rows[node] = [sum(len(run) for run in mine if run is not None), 0]
        while True:
            with self._timing("kernel"):
                batch = next(results, None)
            if batch is None:
                if self.task.pace:
                    time.sleep(counts[0] * self.task.pace[self.site])
                self.nulls += sum(sender.dropped for sender in onward)
                return
            counts[1] += batch.num_rows
            with self._timing("sink"):
                for steps, names, i in sinks:
                    writers[i].add(applied(steps, batch).select(names))
            with self._timing("split"):
                blobs = [blob for sender in onward for blob in sender.blobs(batch)]
            yield from blobs

    def _figures(
        self, transaction: Transaction, manifest: Manifest, writers: dict[int, PartWriter], begun: float
    ) -> dict[str, Any]:
        segments = [run.segment.id for run in manifest]
        local = transaction.tiers.usage(segments)
        return {
            "site": self.site,
            "units": sum(high - low for low, high in self.task.routing.ranges_of(self.site)),
            "rowsIn": self.rows_in,
            "rowsOut": sum(w.rows for w in writers.values()),
            "rows": sum(run.rows for run in manifest),
            "segments": len(segments),
            "probed": self.probed,
            "nullRows": self.nulls,
            "memoryBytes": local["memory"],
            "diskBytes": local["disk"],
            "durableBytes": round(sum(run.bytes for run in manifest)),
            "spilledBytes": transaction.tiers.spilled_bytes,
            "fetchedBytes": transaction.tiers.fetched_bytes,
            "mergedRows": transaction.merged_rows,
            "busySeconds": round(perf_counter() - begun, 6),
            "operators": self.rows,
            "seconds": {k: round(v, 6) for k, v in self.seconds.items()},
        }

    def _unit_rows(self, new: dict[int, Run]) -> list[int]:
        """The rows that came in for each unit held here."""
        held, units = self.task.routing.ranges_of(self.site), self.task.routing.units
        return sum((counts(run, held, units) for run in new.values()), np.zeros(len(numbers(held)), np.int64)).tolist()

    def _begin(self) -> Transaction:
        task = self.task
        memory, disk = open_workspace(task.places, task.query)
        places = [Storage(f"{root}/site-{self.site:04d}-{self.level}") for root in (memory, disk)]
        for place in places:
            place.make_dir()
        limit = task.limit // self.plan.levels
        transaction = Transaction(
            self.attempt,
            Tiers(places[0], places[1], Storage(task.checkpoint), limit),
            self.layouts,
            {g: self._keeping(g) for g in self.layouts},
            units=task.routing.units,
            held=task.routing.ranges_of(self.site),
        )
        transaction.begin(tuple(run for run in task.manifests[self.site] if run.segment.input in self.layouts))
        return transaction

    def _keeping(self, input_: int) -> Keeping:
        """How long rows of an input are needed, and how merged runs get smaller, as its operator says."""
        node, i = self.local[input_]
        mine = self.operators[node]
        before, after = (self.plan.watermarks_at(node, marks) for marks in (self.before, self.after))
        compacted = partial(mine.compacted, i, after=after)
        return Keeping(mine.keep_from(i, before, after), mine.retention, compacted, mine.largest_merge)

    def _unpack(self, blobs: pa.Table) -> tuple[dict[int, Run], list[dict[str, Any]], list[Blob]]:
        """The new rows of this level's inputs, sorted; the figures of the splits; and what goes to levels above."""
        batches: dict[int, list[pa.RecordBatch]] = {}
        figures: list[dict[str, Any]] = []
        passing: list[Blob] = []
        schemas = {g: blob_schema(self.operators[n].crossing(i)) for g, (n, i) in self.local.items()}
        for chunk in blobs.to_batches():
            for number, payload in zip(chunk.column("input").to_pylist(), chunk.column("payload"), strict=True):
                if number == FIGURES:
                    figures.append(json.loads(payload.as_py()))
                elif number in schemas:
                    batch = pa.ipc.read_record_batch(payload.as_buffer(), schemas[number])
                    batches.setdefault(number, []).append(batch)
                else:
                    passing.append((self.token, number, payload.as_buffer()))
        figures.sort(key=lambda f: f["stream"])
        return {number: self._run(number, parts) for number, parts in batches.items()}, figures, passing

    def _run(self, number: int, parts: list[pa.RecordBatch]) -> Run:
        try:
            rows = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
            self.rows_in += rows.num_rows
            return sorted_run(self.layouts[number], rows.column(0).to_numpy(), rows.remove_column(0))
        except pa.ArrowInvalid as problem:
            raise StorageError(
                f"an epoch brings site {self.site} more than 2 GB of one column ({problem}): take in less at a "
                "time, with maxFilesPerTrigger or its like, or use more sites"
            ) from problem

    @contextmanager
    def _timing(self, phase: str) -> Iterator[None]:
        started = perf_counter()
        try:
            yield
        finally:
            self.add(phase, perf_counter() - started)

    def add(self, phase: str, seconds: float) -> None:
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds


@dataclass(frozen=True)
class _NodeState:
    """One operator's part of the site's state; opening segments counts as opening, not as the operator's work."""

    site: _SiteEpoch
    transaction: Transaction
    first: int

    def runs(self, input_: int, span: tuple[int, int] | None) -> list[Run]:
        started = perf_counter()
        found = self.transaction.runs(self.first + input_, span)
        took = perf_counter() - started
        self.site.add("open", took)
        self.site.add("kernel", -took)
        self.site.probed += len(found)
        return found

    def stage(self, input_: int, run: Run) -> None:
        started = perf_counter()
        self.transaction.stage(self.first + input_, run)
        took = perf_counter() - started
        self.site.add("durable", took)
        self.site.add("kernel", -took)
