"""What many units cost the driver: bytes of the journal's entries, memory, and processor seconds, epoch by epoch.

    python -m benchmarks.run --only units --json units.json

A join on two sites runs in this process, without Spark. The sites' own work does not count. The first site begins with
three quarters of the units, so that `hybrid` has units to move: neighbours, or as scattered as after many moves.
"""

from __future__ import annotations

import gc
import pickle
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from types import FunctionType, ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from benchmarks import report
from sluice.control.controller import Controller
from sluice.control.identity import identify
from sluice.engine import epochs as driver
from sluice.engine.blobs import SentBlob, put_together
from sluice.engine.checkpoint import open_checkpoint
from sluice.engine.epochs import Epochs
from sluice.engine.flow_plan import FlowPlan
from sluice.engine.settings import QuerySettings
from sluice.engine.site import run_site
from sluice.engine.site_task import SiteTask
from sluice.engine.split import SplitTask
from sluice.model.clock import SystemClock
from sluice.model.codec import decode
from sluice.model.columns import IntColumn
from sluice.model.ids import Level, Site, SiteKey
from sluice.model.plan.join import JoinSpec, Leg
from sluice.model.plan.plan import Plan
from sluice.model.plan.planning import plan_of
from sluice.model.plan.relation import Applied, Relation
from sluice.model.plan.stream import Input, Stream
from sluice.policies import policy
from sluice.record.epoch import EpochRecord
from sluice.record.reports import SiteReport
from sluice.spark.sinks import NoopSink
from sluice.state.files.storage import Storage
from sluice.state.files.workspace import Places, Workspace

SECOND = 1_000_000
EPOCH, WINDOW = 5 * SECOND, 30 * SECOND
KEYS = 1 << 20
SITE_KEYS = (SiteKey(100), SiteKey(101))
MEMORY = 1 << 30
PHASES = ("plan", "tasks", "reports", "record", "encode", "put", "rest")


@dataclass(frozen=True)
class Case:
    """So many units under a policy, with so many rows of each of two streams an epoch."""

    units: int
    policy: str
    rows: int
    scattered: bool
    epochs: int

    @property
    def holders(self) -> IntColumn[Site]:
        here = np.arange(self.units) < self.units * 3 // 4
        if self.scattered:
            here = np.random.default_rng(2).permutation(here)
        return IntColumn(np.where(here, 0, 1))


CASES = tuple(
    Case(units, *how, epochs)
    for units, epochs in ((4_096, 40), (65_536, 20))
    for how in (
        ("static", 1_000, False),
        ("static", 100_000, False),
        ("hybrid", 1_000, True),
        ("hybrid", 100_000, False),
    )
)
QUICK = tuple(replace(case, epochs=8) for case in CASES if case.units == 4_096)


@dataclass(frozen=True)
class Measured:
    """What one epoch cost the driver: bytes of the journal's entry, of the tasks, of what the driver keeps, and of the
    process, and processor seconds by phase."""

    epoch: int
    moves: int
    runs: int
    entry_bytes: int
    task_bytes: int
    kept_bytes: int
    process_bytes: int
    seconds: dict[str, float]

    @property
    def total(self) -> float:
        return sum(self.seconds.values())


class UnitsRun:
    """A query of many units, whose driver is watched."""

    def __init__(self, case: Case, root: Path) -> None:
        self.case, self.root, self.clock = case, root, SystemClock()
        self.plan, self.rng = join_plan(), np.random.default_rng(1)
        self.places = Places(str(root / "memory"), str(root / "disk"))
        controller = Controller(policy(case.policy), MEMORY, 1e-9, capabilities=self.plan.capabilities)
        routing = self.plan.first_routing(case.units, len(SITE_KEYS))
        routing = replace(routing, holders=case.holders)
        flow = FlowPlan(self.plan, (NoopSink(),))
        self.checkpoint = open_checkpoint(
            Storage(str(root / "checkpoint")),
            "0" * 16,
            identify("units", self.plan.sources, case.units),
            EpochRecord.before_all(routing, len(self.plan.sources)),
            flow,
            self.clock,
        )
        settings = QuerySettings(len(SITE_KEYS), case.units, MEMORY, self.places, controller)
        reading = tuple(tuple(s.schema.names) for s in self.plan.sources)
        self.epochs = Epochs(flow, reading, settings, self.checkpoint, self.clock)
        self.seconds: dict[str, float] = {}
        self.entry_bytes = self.task_bytes = 0
        self._watch(controller, "plan", "plan")
        self._watch(driver, "record_epoch", "record")
        self._watch(self.checkpoint.journal, "_put", "encode")
        self._watch(self.checkpoint.storage, "put_if_absent", "put", self._count_entry)

    def measure_epoch(self, number: int) -> Measured:
        self.seconds = dict.fromkeys((*PHASES, "sites"), 0.0)
        rows = [self._rows(number, stream) for stream in self.plan.sources]
        gc.collect()
        begun = time.process_time()
        self.epochs.run(number, SITE_KEYS, lambda split, site: self._exchange(split, site, rows))
        spent = time.process_time() - begun
        self.seconds["encode"] -= self.seconds["put"]
        self.seconds["rest"] = spent - sum(self.seconds.values())
        del self.seconds["sites"]
        record = self.epochs.record
        return Measured(
            epoch=number,
            moves=record.stats.moves,
            runs=sum(map(len, record.manifests)),
            entry_bytes=self.entry_bytes,
            task_bytes=self.task_bytes,
            kept_bytes=reachable_bytes(self.epochs),
            process_bytes=anonymous_bytes(),
            seconds=self.seconds,
        )

    def close(self) -> None:
        self.epochs.close()
        Workspace(self.places, self.checkpoint.query, self.checkpoint.run).close()

    def _watch(self, owner: Any, name: str, phase: str, look: Callable[..., object] = lambda *arguments: None) -> None:
        called = getattr(owner, name)

        def watched(*arguments: Any, **options: Any) -> Any:
            begun = time.process_time()
            try:
                return called(*arguments, **options)
            finally:
                self.seconds[phase] += time.process_time() - begun
                look(*arguments)

        setattr(owner, name, watched)

    def _count_entry(self, name: str, data: bytes) -> None:
        self.entry_bytes = len(data)

    def _exchange(self, split: SplitTask, site: SiteTask, rows: list[pa.RecordBatch]) -> list[SiteReport]:
        begun = time.process_time()
        tasks = pickle.dumps((split, site), protocol=pickle.HIGHEST_PROTOCOL)
        self.task_bytes = len(tasks)
        pickled = time.process_time()
        split, site = pickle.loads(tasks)
        blobs = list(put_together(split(rows, self.clock)))
        told: list[SentBlob] = []
        for key in SITE_KEYS:
            own = [(number, payload) for site_key, number, payload in blobs if site_key == key]
            told += put_together(run_site(site, Level(0), key, own, self.clock))
        done = time.process_time()
        reports = [decode(payload.to_pybytes(), SiteReport) for _, _, payload in told]
        self.seconds["tasks"] += pickled - begun
        self.seconds["sites"] += done - pickled
        self.seconds["reports"] += time.process_time() - done
        return reports

    def _rows(self, epoch: int, stream: Stream) -> pa.RecordBatch:
        count = self.case.rows
        columns = [
            pa.array(np.full(count, self.plan.sources.index(stream)), pa.int32()),
            pa.array(self.rng.integers(0, KEYS, count)),
            pa.array(epoch * EPOCH + np.sort(self.rng.integers(0, EPOCH, count)), stream.schema.field("ts").type),
            pa.array(self.rng.integers(0, 100, count)),
        ]
        return pa.RecordBatch.from_arrays(columns, names=["stream", *stream.schema.names])


def join_plan() -> Plan:
    schema = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.int64())])
    streams = tuple(Stream(name, schema, "ts", SECOND) for name in "ab")
    inputs, legs = tuple(Input(i, ("k",)) for i in range(2)), tuple(Leg(s.name, i) for i, s in enumerate(streams))
    spec = JoinSpec(streams, inputs, legs, (pa.int64(),), ((0, WINDOW), (WINDOW, 0)))
    result = Stream("result", spec.output_schema(), spec.event_time, spec.delay)
    return plan_of([Relation(Applied(spec, tuple(Relation(s, (), s) for s in streams)), (), result)])


def reachable_bytes(root: object) -> int:
    """The size of everything that an object leads to, but for code."""
    seen: set[int] = set()
    waiting, size = [root], 0
    while waiting:
        value = waiting.pop()
        if id(value) in seen or isinstance(value, type | ModuleType | FunctionType):
            continue
        seen.add(id(value))
        size += max(sys.getsizeof(value), value.nbytes if isinstance(value, np.ndarray) else 0)
        waiting += gc.get_referents(value)
    return size


def anonymous_bytes() -> int:
    """Memory of this process, but for mapped files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def measure(case: Case) -> list[Measured]:
    unwatched = vars(driver)["record_epoch"]
    with tempfile.TemporaryDirectory() as root, patch.object(driver, "record_epoch", unwatched):
        run = UnitsRun(case, Path(root))
        try:
            return [run.measure_epoch(number) for number in range(case.epochs)]
        finally:
            run.close()


def show(case: Case, measured: list[Measured]) -> None:
    """Some epochs, and what is usual in the second half."""
    head = ["epoch", "moves", "runs", "entry kB", "tasks kB", "kept MB", "process MB", *PHASES, "all ms"]
    shown = [m for m in measured if m.epoch % max(1, case.epochs // 5) == 0 or m is measured[-1]]
    where = ", scattered" if case.scattered else ""
    title = f"{case.units:,} units on 2 sites{where}, {case.policy}, {case.rows:,} rows a stream: milliseconds"
    report.table(title, head, [cells(m) for m in shown])


def cells(m: Measured) -> list[str]:
    sizes = [f"{m.entry_bytes / 1e3:,.0f}", f"{m.task_bytes / 1e3:,.0f}"]
    memory = [f"{size / 1e6:,.1f}" for size in (m.kept_bytes, m.process_bytes)]
    millis = [f"{1000 * seconds:,.1f}" for seconds in (*m.seconds.values(), m.total)]
    return [f"{m.epoch}", f"{m.moves}", f"{m.runs}", *sizes, *memory, *millis]


def usual(measured: list[Measured]) -> dict[str, float]:
    """Medians over the second half of the epochs."""
    late = measured[len(measured) // 2 :]
    names = ("runs", "entry_bytes", "task_bytes", "kept_bytes", "total")
    phases = {phase: median(m.seconds[phase] for m in late) for phase in PHASES}
    return {name: median(getattr(m, name) for m in late) for name in names} | phases


def run_cases(cases: tuple[Case, ...]) -> list[dict[str, Any]]:
    """Every case, shown and as values."""
    values = []
    for case in cases:
        measured = measure(case)
        show(case, measured)
        values.append(asdict(case) | {"usual": usual(measured), "by_epoch": [asdict(m) for m in measured]})
    return values
