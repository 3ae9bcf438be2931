"""A site's state over epochs without a query: rows of chosen units come in, and whole units go to disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from specs import TIME, stream

from sluice.kernels.probe import Run
from sluice.model.clock import Clock, SystemClock
from sluice.model.epoch.attempt import Attempt
from sluice.model.epoch.segments import Manifest, SegmentRef
from sluice.model.routing.directory import Directory
from sluice.model.routing.unit_ranges import Ranges, intersect
from sluice.state.durable import DurableSegments
from sluice.state.files.local_files import LocalFiles
from sluice.state.files.storage import Storage
from sluice.state.inputs import KEEPS_ALL, Holdings, InputLayouts, Retention
from sluice.state.segment import Layout, sort_run
from sluice.state.tiers import Tiers
from sluice.state.transaction import Preparations, SiteStore, StateBefore, Transaction

UNITS = 4
ALL: Ranges = ((0, UNITS),)
SCHEMA = stream("a").schema
LAYOUT = Layout(SCHEMA, "ts")
ALWAYS = (0, 1 << 60)


def rows(at: int, *units: int, each: int = 40) -> Run:
    """Rows of some units at one time; a row's value names its unit."""
    of = np.repeat(np.array(units), each)
    hashes = np.array([Directory(UNITS).hashes_of(int(u))[0] + i for i, u in enumerate(of)], dtype=np.uint32)
    batch = pa.record_batch([of, pa.array(np.full(len(of), at), TIME), of], schema=SCHEMA)
    return sort_run(LAYOUT, hashes, batch)


class Site:
    """One site's state over epochs, in a directory."""

    def __init__(self, root: Path, limit: int, paging: bool = True) -> None:
        self.root, self.limit, self.paging = root, limit, paging
        self.number, self.manifest, self.queues = 0, (), None
        self.held = ALL
        self.clock: Clock = SystemClock()
        (root / "durable" / "state").mkdir(parents=True, exist_ok=True)

    def begin(self, keep_from: int | Sequence[int] = KEEPS_ALL, arriving: Sequence[SegmentRef] = ()) -> Transaction:
        memory, disk = (LocalFiles(str(self.root / name)) for name in ("memory", "disk"))
        self.tiers = Tiers(memory, disk, self.limit)
        self.durable = DurableSegments(Storage(str(self.root / "durable")), self.clock)
        holdings = Holdings({0: InputLayouts(LAYOUT, LAYOUT)}, self.held, {0: Directory(UNITS)})
        store = SiteStore(holdings, self.tiers, self.durable, self.clock, self.paging)
        bounds = np.broadcast_to(np.array(keep_from, dtype=np.int64), UNITS)
        self.retention = {0: Retention(Directory(UNITS), bounds, ((ALL, lambda run: run),), None, shrinks=False)}
        before = StateBefore(self.manifest, self.retention, tuple(arriving), self.queues)
        return store.begin(Attempt(self.number, 0, "ab", "cd"), before)

    def commit(self, transaction: Transaction, set_apart: Sequence[int] = ()) -> None:
        self.manifest: Manifest = transaction.commit(self.retention, Preparations(set_apart=set_apart))
        self.queues = transaction.pages.queues(0, 0)
        self.number += 1

    def add(self, run: Run, **options: object) -> None:
        """An epoch that only adds rows."""
        transaction = self.begin(**options)  # type: ignore[arg-type]
        transaction.begin_turn(self.held)
        transaction.stage(0, run)
        transaction.end_turn()
        self.commit(transaction)

    def files(self, tier: str) -> list[str]:
        return sorted(p.name for p in (self.root / tier).iterdir())

    def bytes(self, tier: str) -> int:
        return sum(p.stat().st_size for p in (self.root / tier).iterdir())

    def all_rows(self) -> Counter:
        """The rows of each unit, as an epoch would read them."""
        transaction = self.begin()
        found: Counter = Counter()
        for unit in range(UNITS):
            transaction.begin_turn(intersect(((unit, unit + 1),), self.held))
            for run in transaction.runs(0, ALWAYS):
                assert set(run.rows.column("v").to_pylist()) == {unit}
                found[unit] += len(run)
            transaction.end_turn()
        return found


def crowded_site(root: Path) -> Site:
    """Three epochs of state, of which about half fits into memory."""
    site = Site(root, 14_000)
    for epoch in range(3):
        site.add(rows(epoch, 0, 1, 2, 3))
    return site
