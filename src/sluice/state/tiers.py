"""Where a site's segments lie on its host: in memory (files of a tmpfs), on the local disk, or only in durable storage.

Every worker process of the host sees the same files and maps them, so no state belongs to a process. The memory tier is
bounded; this is the simple rule: the newest segments stay in memory, the oldest go to disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa

from sluice.model.errors import StorageError
from sluice.model.state import SegmentRef
from sluice.state.segment import checksum
from sluice.state.storage import Storage

SUFFIX = ".arrow"


@dataclass
class Tiers:
    """One site's segments on one host; `limit` bounds the bytes in memory."""

    memory: Storage
    disk: Storage
    durable: Storage
    limit: int
    fetched_bytes: int = 0
    spilled_bytes: int = 0
    _sizes: dict[str, dict[str, int]] = field(default_factory=dict)

    def begin(self, wanted: Iterable[str], sparing: str = " ") -> None:
        """Look at what is here and let go of all but `wanted`: leftovers of failed attempts, expired segments.

        Names that begin with `sparing` stay too: they are of this epoch, perhaps of an attempt still at work.
        """
        keep = {name + SUFFIX for name in wanted}
        for tier, place in (("memory", self.memory), ("disk", self.disk)):
            self._sizes[tier] = {}
            for entry in place.files():
                if entry.name in keep:
                    self._sizes[tier][entry.name] = entry.size
                elif not entry.name.startswith(sparing):
                    place.delete(entry.name)

    def read(self, ref: SegmentRef) -> pa.Buffer:
        """A segment's bytes from the nearest tier that has it whole."""
        name = ref.id + SUFFIX
        for tier, place in (("memory", self.memory), ("disk", self.disk)):
            if self._sizes[tier].get(name) == ref.length:
                with suppress(StorageError):  # another attempt at this epoch has moved it
                    return place.map(name)
        data = self.durable.read(ref.file, ref.offset, ref.length)
        if checksum(data) != ref.checksum:
            raise StorageError(f"segment {ref.id} in {self.durable.path(ref.file)} is damaged (its checksum differs)")
        self.fetched_bytes += ref.length
        self.add(ref.id, data, room=self.limit - sum(self._sizes["memory"].values()))
        return data

    def add(self, segment: str, data: pa.Buffer, room: int | None = None) -> None:
        """Keep a segment, in memory if there is room, else on disk. New ones need no room: older ones make it."""
        name = segment + SUFFIX
        if len(data) <= (self.limit if room is None else room):
            try:
                self._sizes["memory"][name] = self.memory.write(name, [data])
                return
            except StorageError:
                pass  # the tmpfs is full: less than siteMemory is there
        self._sizes["disk"][name] = self.disk.write(name, [data])

    def settle(self, newest_first: Sequence[SegmentRef]) -> None:
        """Bring the memory tier within its limit: what comes late in this order goes to disk."""
        room = self.limit
        for ref in newest_first:
            name = ref.id + SUFFIX
            size = self._sizes["memory"].get(name)
            if size is None:
                continue
            if size <= room:
                room -= size
                continue
            del self._sizes["memory"][name]
            if self.memory.size(name) is None:
                continue  # another attempt at this epoch has done it
            self._sizes["disk"][name] = self.disk.write(name, [self.memory.map(name)])
            self.memory.delete(name)
            self.spilled_bytes += size

    def usage(self, segments: Iterable[str]) -> dict[str, int]:
        """Bytes of these segments by local tier."""
        names = [s + SUFFIX for s in segments]
        memory, disk = self._sizes["memory"], self._sizes["disk"]
        return {
            "memory": sum(memory.get(n, 0) for n in names),
            "disk": sum(disk.get(n, 0) for n in names if n not in memory),
        }
