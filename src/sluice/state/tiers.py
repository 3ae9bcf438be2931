"""Where a site's segments lie on its host: in memory (files of a tmpfs), on the local disk, or only in durable storage.

Every worker process of the host sees the same files and maps them, so no state belongs to a process. A segment lies in
one file, or in pages, a file a unit, so that whole units can go to disk and come back; of a segment that came from
durable storage the file has what the site holds. All of it is a copy of what is durable: whatever is missing here, or
damaged, is read from there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from sluice.model.checksum import checksum
from sluice.model.errors import StorageError
from sluice.model.state import PlacedBlock, RunRef, SegmentRef, numbers
from sluice.state.local_files import LocalFiles
from sluice.state.storage import Storage

SUFFIX, PAGE = ".arrow", "@"
_NAME = re.compile(
    rf"(?P<segment>[^.{PAGE}]+)({PAGE}(?P<unit>\d+))?\.(?P<rows>\d+)\.(?P<checksum>[0-9a-f]{{16}}){SUFFIX}"
)
MEMORY, DISK = "memory", "disk"
WHOLE = -1
"""In place of a unit: a segment in one file."""
NEARBY = 1 << 20
"""Bytes between two blocks that are read along with them from a remote store: another request would take longer."""


class LocalFile(NamedTuple):
    """What a file's name says of it, and its size."""

    rows: int
    checksum: int
    size: int


@dataclass
class Tiers:
    """One site's segments on one host; `limit` bounds the bytes in memory."""

    memory: LocalFiles
    disk: LocalFiles
    durable: Storage
    limit: int
    fetched_bytes: int = 0
    fetch_seconds: float = 0.0
    spilled_bytes: int = 0
    damaged_files: int = 0
    """Local files that were not what was written, and were dropped."""
    _files: dict[str, dict[str, dict[int, LocalFile]]] = field(default_factory=dict)
    """By tier and segment: each unit's page, or the one file under `WHOLE`."""

    def begin(self, wanted: Iterable[str], sparing: str = " ") -> None:
        """Look at what is here and let go of all but `wanted`: leftovers of failed attempts, expired segments.

        Names that begin with `sparing` stay too: they are of this epoch, perhaps of an attempt still at work.
        """
        keep = set(wanted)
        for tier in (MEMORY, DISK):
            place = self._place(tier)
            self._files[tier] = {}
            for entry in place.files():
                segment, unit, rows, expected = _parsed(entry.name)
                if segment in keep:
                    if expected is None:  # a draft, perhaps of an attempt still at work
                        continue
                    files = self._files[tier].setdefault(segment, {})
                    if unit not in files:
                        files[unit] = LocalFile(rows, expected, entry.size)
                        continue
                elif entry.name.startswith(sparing):
                    continue
                place.delete(entry.name)

    @property
    def used(self) -> int:
        """Bytes in memory."""
        return self._bytes(MEMORY)

    @property
    def here(self) -> int:
        """Bytes in memory and on disk."""
        return self.used + self._bytes(DISK)

    def whole(self, segment: str) -> tuple[int, pa.Buffer] | None:
        """The rows and bytes of the one file that a segment lies in here, if it does."""
        return self._open(segment, WHOLE)

    def page(self, segment: str, unit: int) -> pa.Buffer | None:
        """A unit's rows of a segment, if they lie here as a page."""
        found = self._open(segment, unit)
        return None if found is None else found[1]

    def paged(self, segment: str) -> set[int]:
        """The units that have a page of a segment here."""
        return {unit for tier in (MEMORY, DISK) for unit in self._files[tier].get(segment, {}) if unit != WHOLE}

    def fetch(self, run: RunRef) -> list[tuple[int, pa.Buffer]]:
        """The blocks of a segment in which a site holds something, from durable storage: their rows and bytes."""
        started, ref = perf_counter(), run.segment
        found = []
        for blocks in _side_by_side(run.blocks, NEARBY if not self.durable.local else 0):
            first, last = blocks[0], blocks[-1]
            length = last.offset + last.length - first.offset
            read = self.durable.read(ref.file, ref.offset + first.offset, length)
            self.fetched_bytes += length
            for block in blocks:
                data = read.slice(block.offset - first.offset, block.length)
                if checksum(data) != block.checksum:
                    where = self.durable.path(ref.file)
                    raise StorageError(f"segment {ref.id} in {where} is damaged (its checksum differs)")
                found.append((block.rows, data))
        self.fetch_seconds += perf_counter() - started
        return found

    def add(self, segment: str, rows: int, data: pa.Buffer, room: int | None = None, known: int | None = None) -> None:
        """Keep a segment, in memory if there is room, else on disk. For new ones, older ones have made it. Its checksum
        may be `known` already."""
        fits = len(data) <= (self.limit if room is None else room)
        file = LocalFile(rows, checksum(data) if known is None else known, len(data))
        self._write(segment, WHOLE, file, data, MEMORY if fits else DISK)

    def put(self, segment: str, unit: int, rows: int, data: pa.Buffer, tier: str) -> None:
        """Keep a unit's rows of a segment as a page."""
        self._write(segment, unit, LocalFile(rows, checksum(data), len(data)), data, tier)

    def units(self, tier: str) -> set[int]:
        """The units that have pages in a tier."""
        return {unit for files in self._files[tier].values() for unit in files if unit != WHOLE}

    def shift(self, unit: int, tier: str) -> int:
        """Bring all pages of a unit to a tier; returns the bytes that went there."""
        other = DISK if tier == MEMORY else MEMORY
        total = 0
        for segment in [segment for segment, files in self._files[other].items() if unit in files]:
            size = self._move(segment, unit, other, tier)
            total += size
            self.spilled_bytes += size if tier == DISK else 0
        return total

    def drop(self, segment: str) -> None:
        """Let go of a segment, in whatever form it lies here."""
        for tier in (MEMORY, DISK):
            for unit in list(self._files[tier].get(segment, {})):
                self._delete(segment, unit, tier)

    def drop_whole(self, segment: str) -> None:
        """Let go of the one file that a segment lies in here; its pages stay."""
        for tier in (MEMORY, DISK):
            if WHOLE in self._files[tier].get(segment, {}):
                self._delete(segment, WHOLE, tier)

    def clear(self, state: Sequence[RunRef], waiting: Iterable[str]) -> None:
        """Take out of memory what is no state of this site any more; segments that are `waiting` go to disk."""
        held = {run.segment.id: set(numbers(run.units).tolist()) for run in state}
        later = set(waiting)
        for segment, files in [(segment, list(files)) for segment, files in self._files[MEMORY].items()]:
            for unit in files:
                if segment in later:
                    self._move(segment, unit, MEMORY, DISK)
                elif segment not in held or (unit != WHOLE and unit not in held[segment]):
                    self._delete(segment, unit, MEMORY)

    def settle(self, newest_first: Sequence[SegmentRef], coming: int = 0) -> None:
        """Bring the memory tier within its limit, bytes that are `coming` included: what is late in this order goes to
        disk."""
        files = self._files[MEMORY]
        here = {ref.id: files[ref.id][WHOLE].size for ref in newest_first if WHOLE in files.get(ref.id, {})}
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
                files = self._files[tier].get(run.segment.id)
                if not files:
                    continue
                held, rows = run.unit_rows
                if WHOLE in files:
                    column[held] += rows * (files[WHOLE].size / max(1, files[WHOLE].rows))
                for unit in files.keys() & set(held.tolist()) if len(files) > (WHOLE in files) else ():
                    column[unit] += files[unit].size
        return out[0], out[1]

    def _bytes(self, tier: str) -> int:
        return sum(file.size for files in self._files[tier].values() for file in files.values())

    def _open(self, segment: str, unit: int) -> tuple[int, pa.Buffer] | None:
        """A file's rows and bytes, as they were written: one that is damaged is dropped."""
        for tier in (MEMORY, DISK):
            file = self._files[tier].get(segment, {}).get(unit)
            if file is not None:
                try:
                    data = self._map(segment, unit, file, tier)
                except StorageError:
                    continue  # another attempt at this epoch has moved it
                if data is not None:
                    return file.rows, data
                self._drop_damaged(segment, unit, tier)
        return None

    def _map(self, segment: str, unit: int, file: LocalFile, tier: str) -> pa.Buffer | None:
        """A file's bytes, None if it is damaged. A page on disk is read as a whole, so it is verified every time."""
        return self._place(tier).map(_name(segment, unit, file), file.checksum, again=tier == DISK and unit != WHOLE)

    def _write(self, segment: str, unit: int, file: LocalFile, data: pa.Buffer, tier: str) -> str:
        """Writes a file, and says to which tier."""
        if tier == MEMORY:
            try:
                return self._replace(segment, unit, file, data, MEMORY)
            except StorageError:
                pass  # the tmpfs is full: less than siteMemory is there
        return self._replace(segment, unit, file, data, DISK)

    def _replace(self, segment: str, unit: int, file: LocalFile, data: pa.Buffer, tier: str) -> str:
        self._place(tier).write(_name(segment, unit, file), [data])
        before = self._files[tier].get(segment, {}).get(unit)
        if before is not None and _name(segment, unit, before) != _name(segment, unit, file):  # it had other rows
            self._delete(segment, unit, tier)
        self._files[tier].setdefault(segment, {})[unit] = file
        return tier

    def _move(self, segment: str, unit: int, source: str, target: str) -> int:
        file = self._files[source][segment][unit]
        try:
            data = self._map(segment, unit, file, source)
        except StorageError:
            self._forget(segment, unit, source)
            return 0  # another attempt at this epoch has done it
        if data is None:
            self._drop_damaged(segment, unit, source)
            return 0
        self._forget(segment, unit, source)
        if self._write(segment, unit, file, data, target) == source:
            return 0
        self._place(source).delete(_name(segment, unit, file))
        return file.size

    def _drop_damaged(self, segment: str, unit: int, tier: str) -> None:
        self.damaged_files += 1
        self._delete(segment, unit, tier)

    def _delete(self, segment: str, unit: int, tier: str) -> None:
        self._place(tier).delete(_name(segment, unit, self._forget(segment, unit, tier)))

    def _forget(self, segment: str, unit: int, tier: str) -> LocalFile:
        files = self._files[tier][segment]
        file = files.pop(unit)
        if not files:
            del self._files[tier][segment]
        return file

    def _place(self, tier: str) -> LocalFiles:
        return self.memory if tier == MEMORY else self.disk


def _side_by_side(blocks: Sequence[PlacedBlock], gap: int) -> list[list[PlacedBlock]]:
    """Blocks that are read together: what lies between two of them is not more than this."""
    out: list[list[PlacedBlock]] = []
    for block in blocks:
        if out and block.offset - (out[-1][-1].offset + out[-1][-1].length) <= gap:
            out[-1].append(block)
        else:
            out.append([block])
    return out


def _name(segment: str, unit: int, file: LocalFile) -> str:
    """The name of a file: whose rows, how many, and what its bytes add up to."""
    whose = segment if unit == WHOLE else f"{segment}{PAGE}{unit}"
    return f"{whose}.{file.rows}.{file.checksum:016x}{SUFFIX}"


def _parsed(name: str) -> tuple[str, int, int, int | None]:
    """The segment, the unit, the rows and the checksum of a file; a draft, or whatever else, has no checksum."""
    found = _NAME.fullmatch(name)
    if found is None:
        return name.partition(".")[0].partition(PAGE)[0], WHOLE, 0, None
    return found["segment"], int(found["unit"] or WHOLE), int(found["rows"]), int(found["checksum"], 16)
