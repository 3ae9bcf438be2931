"""Where a site's segments lie on its host: in memory (files of a tmpfs), on the local disk, or only in durable storage.

Every worker process of the host sees the same files and maps them, so no state belongs to a process. A segment lies in
one file, or in pages, a file a unit, so that whole units can go to disk and come back. All of it is a copy of what is
durable: whatever is missing here is read from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np
import pyarrow as pa

from sluice.model.errors import StorageError
from sluice.model.state import RunRef, SegmentRef, numbers
from sluice.state.segment import checksum
from sluice.state.storage import Storage

SUFFIX, PAGE = ".arrow", "@"
MEMORY, DISK = "memory", "disk"
WHOLE = -1
"""In place of a unit: a segment in one file."""


@dataclass
class Tiers:
    """One site's segments on one host; `limit` bounds the bytes in memory."""

    memory: Storage
    disk: Storage
    durable: Storage
    limit: int
    fetched_bytes: int = 0
    fetch_seconds: float = 0.0
    spilled_bytes: int = 0
    _sizes: dict[str, dict[str, dict[int, int]]] = field(default_factory=dict)
    """By tier and segment: the bytes of each unit's page, or of the one file under `WHOLE`."""

    def begin(self, wanted: Iterable[str], sparing: str = " ") -> None:
        """Look at what is here and let go of all but `wanted`: leftovers of failed attempts, expired segments.

        Names that begin with `sparing` stay too: they are of this epoch, perhaps of an attempt still at work.
        """
        keep = set(wanted)
        for tier in (MEMORY, DISK):
            place = self._place(tier)
            self._sizes[tier] = {}
            for entry in place.files():
                segment, unit = _parsed(entry.name)
                if segment in keep:
                    if entry.name.endswith(SUFFIX):  # else a draft, perhaps of an attempt still at work
                        self._sizes[tier].setdefault(segment, {})[unit] = entry.size
                elif not entry.name.startswith(sparing):
                    place.delete(entry.name)

    @property
    def used(self) -> int:
        """Bytes in memory."""
        return sum(sum(files.values()) for files in self._sizes[MEMORY].values())

    @property
    def here(self) -> int:
        """Bytes in memory and on disk."""
        return self.used + sum(sum(files.values()) for files in self._sizes[DISK].values())

    def read(self, ref: SegmentRef) -> pa.Buffer:
        """A segment's bytes from the nearest tier that has it whole."""
        found = self.whole(ref)
        if found is not None:
            return found
        data = self.fetch(ref)
        self.drop(ref.id)  # it may lie here in pages
        self.add(ref.id, data, room=self.limit - self.used)
        return data

    def whole(self, ref: SegmentRef) -> pa.Buffer | None:
        """A segment's bytes if they lie here in one file."""
        for tier in (MEMORY, DISK):
            if self._sizes[tier].get(ref.id, {}).get(WHOLE) == ref.length:
                with suppress(StorageError):  # another attempt at this epoch has moved it
                    return self._place(tier).map(_name(ref.id, WHOLE))
        return None

    def fetch(self, ref: SegmentRef) -> pa.Buffer:
        """A segment's bytes from durable storage."""
        started = perf_counter()
        data = self.durable.read(ref.file, ref.offset, ref.length)
        if checksum(data) != ref.checksum:
            raise StorageError(f"segment {ref.id} in {self.durable.path(ref.file)} is damaged (its checksum differs)")
        self.fetched_bytes += ref.length
        self.fetch_seconds += perf_counter() - started
        return data

    def add(self, segment: str, data: pa.Buffer, room: int | None = None) -> None:
        """Keep a segment, in memory if there is room, else on disk. For new ones, older ones have made it."""
        fits = len(data) <= (self.limit if room is None else room)
        self._write(segment, WHOLE, data, MEMORY if fits else DISK)

    def page(self, segment: str, unit: int) -> pa.Buffer | None:
        """A unit's rows of a segment, if they lie here as a page."""
        for tier in (MEMORY, DISK):
            if unit in self._sizes[tier].get(segment, {}):
                with suppress(StorageError):  # another attempt at this epoch has moved it
                    return self._place(tier).map(_name(segment, unit))
        return None

    def put(self, segment: str, unit: int, data: pa.Buffer, tier: str) -> None:
        """Keep a unit's rows of a segment as a page."""
        self._write(segment, unit, data, tier)

    def units(self, tier: str) -> set[int]:
        """The units that have pages in a tier."""
        return {unit for files in self._sizes[tier].values() for unit in files if unit != WHOLE}

    def shift(self, unit: int, tier: str) -> int:
        """Bring all pages of a unit to a tier; returns the bytes that went there."""
        other = DISK if tier == MEMORY else MEMORY
        total = 0
        for segment in [segment for segment, files in self._sizes[other].items() if unit in files]:
            size = self._move(segment, unit, other, tier)
            total += size
            self.spilled_bytes += size if tier == DISK else 0
        return total

    def drop(self, segment: str) -> None:
        """Let go of a segment, in whatever form it lies here."""
        for tier in (MEMORY, DISK):
            for unit in self._sizes[tier].pop(segment, {}):
                self._place(tier).delete(_name(segment, unit))

    def clear(self, state: Sequence[RunRef], waiting: Iterable[str]) -> None:
        """Take out of memory what is no state of this site any more; segments that are `waiting` go to disk."""
        held = {run.segment.id: set(numbers(run.units).tolist()) for run in state}
        later = set(waiting)
        for segment, files in [(segment, list(files)) for segment, files in self._sizes[MEMORY].items()]:
            for unit in files:
                if segment in later:
                    self._move(segment, unit, MEMORY, DISK)
                elif segment not in held or (unit != WHOLE and unit not in held[segment]):
                    self._forget(segment, unit, MEMORY)
                    self.memory.delete(_name(segment, unit))

    def settle(self, newest_first: Sequence[SegmentRef], coming: int = 0) -> None:
        """Bring the memory tier within its limit, bytes that are `coming` included: what is late in this order goes to
        disk."""
        files = self._sizes[MEMORY]
        here = {ref.id: files[ref.id][WHOLE] for ref in newest_first if WHOLE in files.get(ref.id, {})}
        room = self.limit - coming - self.used + sum(here.values())
        for segment, size in here.items():
            if size <= room:
                room -= size
                continue
            self.spilled_bytes += self._move(segment, WHOLE, MEMORY, DISK)

    def usage(self, manifest: Sequence[RunRef], units: int) -> tuple[np.ndarray, np.ndarray]:
        """Bytes in memory and on disk of each unit; of a segment in one file each has its part by rows."""
        out = np.zeros((2, units))
        for tier, column in zip((MEMORY, DISK), out, strict=True):
            for run in manifest:
                files = self._sizes[tier].get(run.segment.id)
                if not files:
                    continue
                held, rows = run.unit_rows
                if WHOLE in files:
                    column[held] += rows * (files[WHOLE] / max(1, run.segment.rows))
                for unit in files.keys() & set(held.tolist()) if len(files) > (WHOLE in files) else ():
                    column[unit] += files[unit]
        return out[0], out[1]

    def _write(self, segment: str, unit: int, data: pa.Buffer, tier: str) -> str:
        """Writes a file, and says to which tier."""
        name = _name(segment, unit)
        if tier == MEMORY:
            try:
                self._sizes[MEMORY].setdefault(segment, {})[unit] = self.memory.write(name, [data])
                return MEMORY
            except StorageError:
                pass  # the tmpfs is full: less than siteMemory is there
        self._sizes[DISK].setdefault(segment, {})[unit] = self.disk.write(name, [data])
        return DISK

    def _move(self, segment: str, unit: int, source: str, target: str) -> int:
        size, name = self._forget(segment, unit, source), _name(segment, unit)
        place = self._place(source)
        try:
            data = place.map(name)
        except StorageError:
            return 0  # another attempt at this epoch has done it
        if self._write(segment, unit, data, target) == source:
            return 0
        place.delete(name)
        return size

    def _forget(self, segment: str, unit: int, tier: str) -> int:
        files = self._sizes[tier][segment]
        size = files.pop(unit)
        if not files:
            del self._sizes[tier][segment]
        return size

    def _place(self, tier: str) -> Storage:
        return self.memory if tier == MEMORY else self.disk


def _name(segment: str, unit: int) -> str:
    return f"{segment}{SUFFIX}" if unit == WHOLE else f"{segment}{PAGE}{unit}{SUFFIX}"


def _parsed(name: str) -> tuple[str, int]:
    """The segment and the unit of a file, also of its draft."""
    segment, _, unit = name.partition(SUFFIX)[0].partition(PAGE)
    return segment, int(unit) if unit else WHOLE
