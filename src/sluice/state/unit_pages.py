"""The paging of one site: whole units go to disk and come back, when not all state fits into memory.

`Paging` says which unit is next, and when; here its pages are written and read. The clock and the queues are this
piece's alone: others ask it to take a step, or to wait for the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from sluice.kernels.probe import Run
from sluice.model.clock import Clock
from sluice.model.epoch.decision import Verb
from sluice.model.epoch.segments import RunRef, unit_bytes
from sluice.model.epoch.times import Queues
from sluice.model.errors import ProtocolError
from sluice.model.ids import Level, Site, UnitIndex
from sluice.model.routing.unit_ranges import numbers, to_ranges
from sluice.state.inputs import Holdings
from sluice.state.paging import Paging, SpillUnit, Task
from sluice.state.reading import SegmentReader
from sluice.state.segment import join_pieces, parts
from sluice.state.tiers import DISK, MEMORY, Page, Tiers

UNPAGED_FRACTION = 0.75
"""Part of its memory that a site's state has to fit into before its units go together again."""


class PageStep(NamedTuple):
    """A unit, by its place, that was spilled or fetched, and why."""

    action: Verb
    unit: UnitIndex
    reason: str


class UnitPages:
    """The units of a site in memory and on disk. While all state fits into memory it is not `active`, and there are no
    pages; whether it may become so is for the query to say (`allowed`)."""

    def __init__(self, reader: SegmentReader, clock: Clock, allowed: bool) -> None:
        self._reader, self._clock, self._allowed = reader, clock, allowed
        self._tiers: Tiers = reader.tiers
        self._holdings: Holdings = reader.holdings
        self._paging: Paging[UnitIndex] | None = None
        self.steps: list[PageStep] = []
        """What was spilled and fetched in this epoch."""

    @property
    def active(self) -> bool:
        """Whether segments lie in pages."""
        return self._paging is not None

    @property
    def resident_units(self) -> tuple[UnitIndex, ...]:
        """Units in memory, the longest there first."""
        return self._machine.resident

    @property
    def spilled_units(self) -> tuple[UnitIndex, ...]:
        """Units on disk, the longest there first; none while no units are paged."""
        return () if self._paging is None else self._paging.spilled_units

    @property
    def is_over_limit(self) -> bool:
        """Whether more is in memory than may be."""
        return self._machine.used > self._machine.limit

    @property
    def due(self) -> float | None:
        """When the next rotation can begin, by this piece's clock; None while nothing is on disk."""
        return self._machine.due

    def is_resident(self, unit: UnitIndex) -> bool:
        """Whether a unit is in memory."""
        return self._machine.is_resident(unit)

    def resume(self, queues: Queues, state: Sequence[RunRef]) -> None:
        """Take up the queues of the epoch before."""
        self._paging = Paging(self._tiers.limit, self._clock.monotonic() + queues.rest)
        units = numbers(self._holdings.units).tolist()
        here = set(units)
        memory = [u for u in queues.memory if u in here]
        disk = [u for u in queues.disk if u in here]
        on_disk, paged_before = set(disk), {*memory, *disk}
        sizes = self._unit_bytes(state)
        for unit in [*memory, *(u for u in units if u not in paged_before), *disk]:
            self._paging.arrive(unit, round(sizes[unit]), resident=unit not in on_disk)
        self._cut_all(state)
        for unit in sorted(self._tiers.units(MEMORY) & on_disk):  # an attempt that failed has fetched it
            self._tiers.shift(unit, DISK)

    def is_needed(self, state: Sequence[RunRef]) -> bool:
        """Whether units have to be paged that are not yet; mostly little is here, and need not be looked at closely."""
        if self.active or not self._allowed or self._tiers.here <= self._tiers.limit:
            return False
        return bool(self._unit_bytes(state).sum() > self._tiers.limit)

    def begin(self, state: Sequence[RunRef]) -> None:
        """Not all state fits into memory any more: whole units go to disk. No file of it may be open."""
        if self.active:
            raise ProtocolError("the units of this site are paged already")
        self._paging = Paging(self._tiers.limit)
        sizes = self._unit_bytes(state)
        for unit in numbers(self._holdings.units).tolist():
            self._paging.arrive(unit, round(sizes[unit]))
        self._relieve()
        self._cut_all(state)
        self.settle(state)

    def settle(self, state: Sequence[RunRef]) -> None:
        """Spill until what lies in memory is within the limit, however large the pages have become."""
        sizes = self._unit_bytes(state)
        for unit in numbers(self._holdings.units).tolist():
            self._machine.grow(unit, round(sizes[unit]))
        self._relieve()

    def grow(self, unit: UnitIndex, size: int) -> None:
        """A unit's state is larger by so many bytes."""
        self._machine.grow(unit, self._machine.size(unit) + size)

    def step(self) -> Task[UnitIndex] | None:
        """Write or read the pages of the unit that is next, if one is; says what was done."""
        task = self._machine.step(self._clock.monotonic())
        if isinstance(task, SpillUnit):
            self._spill(task.unit)
        elif task is not None:
            self._fetch(task.unit)
        return task

    def wait(self) -> None:
        """Until the next rotation can begin."""
        if self.due is None:
            raise ProtocolError("there is no rotation to wait for: no unit is on disk")
        self._clock.sleep(max(0.0, self.due - self._clock.monotonic()))

    def queues(self, site: Site, level: Level) -> Queues | None:
        """The queues to go on with, until all has been in memory again with some room to spare."""
        now = self._paging
        if now is None or (not now.spilled_units and now.used <= UNPAGED_FRACTION * now.limit):
            return None
        return Queues(site, level, now.resident, now.spilled_units, now.rest(self._clock.monotonic()))

    def open(self, run: RunRef, whole: RunRef) -> list[Run]:
        """A run, page by page. If one is missing here, all that is held of the segment, the `whole`, is laid out."""
        alone = (RunRef(run.segment, ((unit, unit + 1),)) for unit in numbers(run.units).tolist())
        return [page for one in alone for page in self._open_page(one, whole)]

    def lay_out(self, run: RunRef, rows: Run) -> None:
        """Lay a run out in pages, in memory or on disk as its units are."""
        self._tiers.write_pages(run.segment.id, self._pages(run, rows))

    @property
    def _machine(self) -> Paging[UnitIndex]:
        if self._paging is None:
            raise ProtocolError("the units of this site are not paged: all state fits into memory")
        return self._paging

    def _spill(self, unit: UnitIndex) -> None:
        paging = self._machine
        limit, used = paging.limit, paging.used
        over = f"{used:,} bytes of state in memory, {limit:,} allowed"
        reason = over if used > limit else "makes room for a unit whose turn it is"
        self.steps.append(PageStep(Verb.SPILL, unit, reason))
        self._tiers.shift(unit, DISK)
        paging.note_spilled(unit)

    def _fetch(self, unit: UnitIndex) -> None:
        started = self._clock.monotonic()
        self._tiers.shift(unit, MEMORY)
        now = self._clock.monotonic()
        self.steps.append(PageStep(Verb.FETCH, unit, f"its turn; read in {now - started:.3f} seconds"))
        self._machine.note_fetched(unit, now, now - started)

    def _relieve(self) -> None:
        while self.is_over_limit:
            task = self._machine.step(self._clock.monotonic())
            if not isinstance(task, SpillUnit):
                return
            self._spill(task.unit)

    def _unit_bytes(self, state: Sequence[RunRef]) -> np.ndarray:
        """The bytes of each unit, as they lie here, or as they would."""
        memory, disk = self._tiers.usage(state, self._holdings.unit_numbers)
        sizes: np.ndarray = np.maximum(memory + disk, unit_bytes(state, self._holdings.unit_numbers))
        return sizes

    def _cut_all(self, state: Sequence[RunRef]) -> None:
        """Lays all segments out in pages that lie here in one file."""
        for run in state:
            if self._tiers.read_whole_file(run.segment.id) is not None:
                self._cut(run)

    def _cut(self, run: RunRef) -> None:
        """Lays out in pages what is held of a segment, and is not here as a page."""
        ref, rows = run.segment, self._reader.read_whole(run)
        if rows is not None:
            rows = self._reader.copy(ref, rows)
        else:
            (units, count), here = run.unit_rows, self._tiers.paged_units(ref.id)
            run = replace(run, units=to_ranges(unit for unit in units[count > 0].tolist() if unit not in here))
            rows = join_pieces(self._reader.fetch(run)) if run.units else None
        self._tiers.write_pages(ref.id, () if rows is None else self._pages(run, rows))

    def _pages(self, run: RunRef, rows: Run) -> Iterator[Page]:
        units, count = run.unit_rows
        directory = self._holdings.directories[run.segment.input]
        for unit in units[count > 0].tolist():
            for part in parts(rows, ((unit, unit + 1),), directory):
                tier = MEMORY if self._machine.is_resident(unit) else DISK
                yield Page(unit, directory.hashes_of(unit), len(part), self._reader.encode(run.segment, part), tier)

    def _open_page(self, alone: RunRef, whole: RunRef) -> list[Run]:
        """A run of one unit."""
        if not alone.rows:
            return []
        ref, unit = alone.segment, alone.units[0][0]
        page = self._reader.read_page(ref, unit, alone.rows)
        if page is None:
            self._cut(whole)
            page = self._reader.read_page(ref, unit, alone.rows)
        if page is None:  # another attempt at this epoch has moved it between the two steps
            directory = self._holdings.directories[ref.input]
            return parts(join_pieces(self._reader.fetch(alone)), alone.units, directory)
        return [page]
