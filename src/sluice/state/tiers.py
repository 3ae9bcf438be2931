"""Where a site's segments lie on its host: in memory (files of a tmpfs), or on the local disk.

Every worker process of the host sees the same files and maps them, so no state belongs to a process. A segment lies in
one file, or in pages, a file a unit, so that whole units can go to disk and come back; of a segment that came from
durable storage the file has what the site holds. All of it is a copy of what is durable: whatever is missing here, or
damaged, is read from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from sluice.model.codec import checksum
from sluice.model.epoch.segments import RunRef, SegmentRef
from sluice.model.errors import ProtocolError, StorageError
from sluice.model.ids import UnitIndex
from sluice.model.routing.directory import Directory, HashRange
from sluice.model.routing.unit_ranges import numbers
from sluice.state.files.local_files import LocalFiles
from sluice.state.files.local_names import LocalFile, name_file, parse_name

MEMORY, DISK = "memory", "disk"
WHOLE = UnitIndex(-1)
"""In place of a unit: a segment in one file."""


class Page(NamedTuple):
    """A unit's rows of a segment, the unit's hashes, and the tier that they belong to."""

    unit: UnitIndex
    hashes: HashRange
    rows: int
    data: pa.Buffer
    tier: str


class Tiers:
    """One site's segments on one host; `limit` bounds the bytes in memory. Nobody else touches these files."""

    def __init__(self, memory: LocalFiles, disk: LocalFiles, limit: int) -> None:
        self.limit = limit
        self.spilled_bytes = 0
        self.damaged_files = 0
        """Local files that were not what was written, and were dropped."""
        self._places = {MEMORY: memory, DISK: disk}
        self._index: dict[str, dict[str, dict[UnitIndex, LocalFile]]] = {}
        """By tier and segment: each unit's page, or the one file under `WHOLE`."""
        self._sizes: dict[str, int] = {}
        """The bytes in each tier."""

    def begin(self, needed: Mapping[str, Directory], sparing: str = " ") -> None:
        """Look at what is here and let go of all but the segments that are `needed`, each with the directory of its
        units: leftovers of failed attempts, expired segments, pages of units that were split or merged.

        Names that begin with `sparing` stay too: they are of this epoch, perhaps of an attempt still at work.
        """
        for tier in (MEMORY, DISK):
            place = self._places[tier]
            self._index[tier], self._sizes[tier] = {}, 0
            for entry in place.files():
                segment, hashes, rows, expected = parse_name(entry.name)
                if segment in needed:
                    if expected is None:  # a draft, perhaps of an attempt still at work
                        continue
                    unit = WHOLE if hashes is None else needed[segment].unit_with(*hashes)
                    if unit is not None and unit not in self._files(tier).get(segment, {}):
                        file = LocalFile(rows, expected, entry.size, hashes)
                        self._note(segment, unit, file, tier)
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

    def read_whole_file(self, segment: str) -> tuple[int, pa.Buffer] | None:
        """The rows and bytes of the one file that a segment lies in here, if it does."""
        return self._open(segment, WHOLE)

    def page(self, segment: str, unit: UnitIndex) -> pa.Buffer | None:
        """A unit's rows of a segment, if they lie here as a page."""
        opened = self._open(segment, unit)
        return None if opened is None else opened[1]

    def paged_units(self, segment: str) -> set[UnitIndex]:
        """The units that have a page of a segment here."""
        return {unit for tier in (MEMORY, DISK) for unit in self._files(tier).get(segment, {}) if unit != WHOLE}

    def add(self, segment: str, rows: int, data: pa.Buffer, room: int | None = None, known: int | None = None) -> None:
        """Keep a segment, in memory if there is room, else on disk. For new ones, older ones have made it. Its checksum
        may be `known` already."""
        fits = len(data) <= (self.limit if room is None else room)
        file = LocalFile(rows, checksum(data) if known is None else known, len(data))
        self._write(segment, WHOLE, file, data, MEMORY if fits else DISK)

    def write_pages(self, segment: str, pages: Iterable[Page]) -> None:
        """Keep a segment in pages, and no longer in one file. If it lay in one here, what goes to disk is spilled."""
        was_whole = self._drop_whole(segment)
        for page in pages:
            file = LocalFile(page.rows, checksum(page.data), len(page.data), page.hashes)
            self._write(segment, page.unit, file, page.data, page.tier)
            self.spilled_bytes += file.size if was_whole and page.tier == DISK else 0

    def units(self, tier: str) -> set[UnitIndex]:
        """The units that have pages in a tier."""
        return {unit for files in self._files(tier).values() for unit in files if unit != WHOLE}

    def shift(self, unit: UnitIndex, tier: str) -> None:
        """Bring all pages of a unit to a tier."""
        other = DISK if tier == MEMORY else MEMORY
        for segment in [segment for segment, files in self._files(other).items() if unit in files]:
            size = self._move(segment, unit, other, tier)
            self.spilled_bytes += size if tier == DISK else 0

    def drop(self, segment: str) -> None:
        """Let go of a segment, in whatever form it lies here."""
        for tier in (MEMORY, DISK):
            for unit in list(self._files(tier).get(segment, {})):
                self._delete(segment, unit, tier)

    def keep_pages(self, run: RunRef) -> None:
        """Let go of what lies here of a segment, but for the pages of a run's units that have rows."""
        units, rows = run.unit_rows
        needed = set(units[rows > 0].tolist())
        for tier in (MEMORY, DISK):
            for unit in list(self._files(tier).get(run.segment.id, {})):
                if unit not in needed:
                    self._delete(run.segment.id, unit, tier)

    def clear(self, state: Sequence[RunRef], waiting: Iterable[str]) -> None:
        """Take out of memory what is no state of this site any more; segments that are `waiting` go to disk."""
        units = {run.segment.id: set(numbers(run.units).tolist()) for run in state}
        later = set(waiting)
        for segment, files in [(segment, list(files)) for segment, files in self._files(MEMORY).items()]:
            for unit in files:
                if segment in later:
                    self._move(segment, unit, MEMORY, DISK)
                elif segment not in units or (unit != WHOLE and unit not in units[segment]):
                    self._delete(segment, unit, MEMORY)

    def settle(self, newest_first: Sequence[SegmentRef], coming: int = 0) -> None:
        """Bring the memory tier within its limit, bytes that are `coming` included: what is late in this order goes to
        disk."""
        files = self._files(MEMORY)
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
                files = self._files(tier).get(run.segment.id)
                if not files:
                    continue
                if len(run.units) == 1 and run.units[0][1] - run.units[0][0] == 1 and run.rows == run.segment.rows:
                    first = run.units[0][0]  # all of it is of one unit
                    column[first] += sum(file.size for unit, file in files.items() if unit in (WHOLE, first))
                    continue
                places, rows = run.unit_rows
                if WHOLE in files:
                    column[places] += rows * (files[WHOLE].size / max(1, files[WHOLE].rows))
                for unit in files.keys() & set(places.tolist()) if len(files) > (WHOLE in files) else ():
                    column[unit] += files[unit].size
        return out[0], out[1]

    def _files(self, tier: str) -> dict[str, dict[UnitIndex, LocalFile]]:
        if tier not in self._index:
            raise ProtocolError("nobody has looked yet at what lies in the tiers")
        return self._index[tier]

    def _drop_whole(self, segment: str) -> bool:
        """Lets go of the one file that a segment lies in, if it does; its pages stay."""
        tiers = [tier for tier in (MEMORY, DISK) if WHOLE in self._files(tier).get(segment, {})]
        for tier in tiers:
            self._delete(segment, WHOLE, tier)
        return bool(tiers)

    def _bytes(self, tier: str) -> int:
        self._files(tier)  # nobody may ask before somebody has looked
        return self._sizes[tier]

    def _open(self, segment: str, unit: UnitIndex) -> tuple[int, pa.Buffer] | None:
        """A file's rows and bytes, as they were written: one that is damaged is dropped."""
        for tier in (MEMORY, DISK):
            file = self._files(tier).get(segment, {}).get(unit)
            if file is not None:
                try:
                    data = self._map(segment, unit, file, tier)
                except StorageError:
                    continue  # another attempt at this epoch has moved it
                if data is not None:
                    return file.rows, data
                self._drop_damaged(segment, unit, tier)
        return None

    def _map(self, segment: str, unit: UnitIndex, file: LocalFile, tier: str) -> pa.Buffer | None:
        """A file's bytes, None if it is damaged. A page on disk is read as a whole, so it is verified every time."""
        again = tier == DISK and unit != WHOLE
        return self._places[tier].map(name_file(segment, file), file.checksum, again)

    def _write(self, segment: str, unit: UnitIndex, file: LocalFile, data: pa.Buffer, tier: str) -> str:
        """Writes a file, and says to which tier."""
        if tier == MEMORY:
            try:
                return self._replace(segment, unit, file, data, MEMORY)
            except StorageError:
                pass  # the tmpfs is full: less than siteMemory is there
        return self._replace(segment, unit, file, data, DISK)

    def _replace(self, segment: str, unit: UnitIndex, file: LocalFile, data: pa.Buffer, tier: str) -> str:
        name = name_file(segment, file)
        self._places[tier].write(name, [data])
        before = self._files(tier).get(segment, {}).get(unit)
        if before is not None and name_file(segment, before) != name:  # it had other rows
            self._delete(segment, unit, tier)
        self._note(segment, unit, file, tier)
        return tier

    def _move(self, segment: str, unit: UnitIndex, source: str, target: str) -> int:
        file = self._files(source)[segment][unit]
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
        self._places[source].delete(name_file(segment, file))
        return file.size

    def _drop_damaged(self, segment: str, unit: UnitIndex, tier: str) -> None:
        self.damaged_files += 1
        self._delete(segment, unit, tier)

    def _delete(self, segment: str, unit: UnitIndex, tier: str) -> None:
        self._places[tier].delete(name_file(segment, self._forget(segment, unit, tier)))

    def _forget(self, segment: str, unit: UnitIndex, tier: str) -> LocalFile:
        files = self._files(tier)[segment]
        file = files.pop(unit)
        self._sizes[tier] -= file.size
        if not files:
            del self._files(tier)[segment]
        return file

    def _note(self, segment: str, unit: UnitIndex, file: LocalFile, tier: str) -> None:
        files = self._files(tier).setdefault(segment, {})
        before = files.get(unit)
        self._sizes[tier] += file.size - (before.size if before is not None else 0)
        files[unit] = file
