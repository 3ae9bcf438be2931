"""The second half of an epoch's job: a site joins the new rows with its state, keeps them, and reports.

Runs in the Spark task of the site, in whichever Python worker of its executor it lands.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import pyarrow as pa

from sluice.kernels.probe import Run
from sluice.model.epoch import Attempt, Times
from sluice.model.errors import StorageError
from sluice.model.join import JoinSpec
from sluice.model.routing import Routing
from sluice.model.state import Manifest
from sluice.operators.window_join import WindowJoin
from sluice.spark.results import PartWriter, Staging
from sluice.spark.split import FIGURES, blob_schema
from sluice.state.segment import Layout, sorted_run
from sluice.state.storage import Storage
from sluice.state.tiers import Tiers
from sluice.state.transaction import Transaction
from sluice.state.workspace import Places, open_workspace

REPORT = pa.schema([("site", pa.int32()), ("report", pa.binary())])
REPORT_DDL = "site int, report binary"


@dataclass(frozen=True)
class SiteTask:
    """What the sites need to know for one epoch."""

    spec: JoinSpec
    number: int
    routing: Routing
    tokens: tuple[int, ...]
    manifests: tuple[Manifest, ...]
    watermarks: Times
    checkpoint: str
    query: str
    run: str
    places: Places
    limit: int
    staging: Staging

    def __call__(self, token: int, blobs: pa.Table) -> pa.Table:
        pa.set_cpu_count(1)
        site = self.tokens.index(token)
        report = _SiteEpoch(self, site).run(blobs)
        return pa.table([[token], [json.dumps(report).encode()]], schema=REPORT)


class _SiteEpoch:
    def __init__(self, task: SiteTask, site: int) -> None:
        self.task, self.site, spec = task, site, task.spec
        self.seconds: dict[str, float] = {}
        self.streams = [spec.streams[i.stream] for i in spec.inputs]
        self.layouts = [Layout(s.schema, s.event_time) for s in self.streams]
        self.attempt = Attempt(task.number, site, task.run, uuid.uuid4().hex[:8])

    def run(self, blobs: pa.Table) -> dict[str, Any]:
        task, spec = self.task, self.task.spec
        begun = perf_counter()
        with self._timing("open"):
            transaction = self._begin()
        with self._timing("sort"):
            new, figures = self._unpack(blobs)
            spans = [(r.earliest, r.latest) if r else None for r in new]
        with self._timing("open"):
            old = [transaction.runs(i, spec.reached(i, spans)) for i in range(len(new))]
        name = f"part-{self.attempt}.parquet"
        writer = PartWriter(task.staging, name, spec.output_schema())
        results = WindowJoin(spec).results(new, old)
        while True:
            with self._timing("kernel"):
                batch = next(results, None)
            if batch is None:
                break
            with self._timing("sink"):
                writer.add(batch)
        with self._timing("sink"):
            parts = writer.close()
        with self._timing("durable"):
            for i, run in enumerate(new):
                if run is not None:
                    transaction.stage(i, run)
            manifest = transaction.commit()
        segments = [run.segment.id for run in manifest]
        local = transaction.tiers.usage(segments)
        return {
            "site": self.site,
            "runs": [run.as_json() for run in manifest],
            "parts": [[p.name, p.rows, p.bytes] for p in parts],
            "splits": figures,
            "figures": {
                "site": self.site,
                "units": sum(high - low for low, high in task.routing.ranges_of(self.site)),
                "rowsIn": sum(len(r) for r in new if r is not None),
                "rowsOut": writer.rows,
                "rows": round(sum(run.segment.rows * run.share for run in manifest)),
                "segments": len(segments),
                "probed": sum(len(o) for o in old),
                "memoryBytes": local["memory"],
                "diskBytes": local["disk"],
                "durableBytes": round(sum(run.segment.length * run.share for run in manifest)),
                "spilledBytes": transaction.tiers.spilled_bytes,
                "fetchedBytes": transaction.tiers.fetched_bytes,
                "mergedRows": transaction.merged_rows,
                "busySeconds": round(perf_counter() - begun, 6),
                "seconds": {k: round(v, 6) for k, v in self.seconds.items()},
            },
        }

    def _begin(self) -> Transaction:
        task, spec = self.task, self.task.spec
        memory, disk = open_workspace(task.places, task.query)
        places = [Storage(f"{root}/site-{self.site:04d}") for root in (memory, disk)]
        for place in places:
            place.make_dir()
        transaction = Transaction(
            self.attempt,
            Tiers(places[0], places[1], Storage(task.checkpoint), task.limit),
            self.layouts,
            units=task.routing.units,
            held=task.routing.ranges_of(self.site),
            keep_from=[spec.keep_from(i, task.watermarks) for i in range(len(spec.inputs))],
            retention=spec.retention(),
        )
        transaction.begin(task.manifests[self.site])
        return transaction

    def _unpack(self, blobs: pa.Table) -> tuple[list[Run | None], list[dict[str, Any]]]:
        """The new rows of every input, sorted, and the figures of the splits (they come to the first site)."""
        batches: list[list[pa.RecordBatch]] = [[] for _ in self.streams]
        figures = []
        schemas = [blob_schema(s) for s in self.streams]
        for chunk in blobs.to_batches():
            for number, payload in zip(chunk.column("input").to_pylist(), chunk.column("payload"), strict=True):
                if number == FIGURES:
                    figures.append(json.loads(payload.as_py()))
                else:
                    batches[number].append(pa.ipc.read_record_batch(payload.as_buffer(), schemas[number]))
        runs: list[Run | None] = []
        for layout, parts in zip(self.layouts, batches, strict=True):
            if not parts:
                runs.append(None)
                continue
            try:
                rows = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
                runs.append(sorted_run(layout, rows.column(0).to_numpy(), rows.remove_column(0)))
            except pa.ArrowInvalid as problem:
                raise StorageError(
                    f"an epoch brings site {self.site} more than 2 GB of one column ({problem}): take in less at a "
                    "time, with maxFilesPerTrigger or its like, or use more sites"
                ) from problem
        return runs, figures

    @contextmanager
    def _timing(self, phase: str) -> Iterator[None]:
        started = perf_counter()
        try:
            yield
        finally:
            self.seconds[phase] = self.seconds.get(phase, 0.0) + perf_counter() - started
