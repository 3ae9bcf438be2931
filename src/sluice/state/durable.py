"""Segments in durable storage: a file a site and epoch with that epoch's new ones, read block by block."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from sluice.model.clock import Clock
from sluice.model.codec import checksum
from sluice.model.epoch.segments import PlacedBlock, RunRef, SegmentRef
from sluice.model.errors import StorageError
from sluice.state.files.disk_speed import DiskSpeed
from sluice.state.files.storage import Storage

STATE = "state"
"""The directory of a checkpoint with the files of segments."""
NEARBY = 1 << 20
"""Bytes between two blocks that are read along with them from a remote store: another request would take longer."""


class DurableSegments:
    """The segments of a checkpoint, as one site reads and writes them; it counts what it reads.

    A disk that is slow on purpose has a `speed`. New state is written at the store's own, whatever becomes of it later.
    """

    def __init__(self, storage: Storage, clock: Clock, speed: DiskSpeed | None = None) -> None:
        self._storage, self._clock = storage, clock
        self._speed = speed or DiskSpeed(clock)
        self.fetched_bytes = 0
        self.fetch_seconds = 0.0

    def write(self, file: str, pieces: Sequence[pa.Buffer]) -> None:
        """Write an epoch's new segments, all in one file."""
        self._storage.write(file, pieces)

    def write_frozen(self, file: str, pieces: Sequence[pa.Buffer]) -> None:
        """Write the segments that an epoch freezes: it is what would go to a disk of the site's own, and as slowly."""
        self._speed.spend(self._storage.write(file, pieces))

    def fetch(self, run: RunRef) -> list[tuple[int, pa.Buffer]]:
        """The blocks of a segment in which a run has something: their rows and bytes."""
        return self.fetch_blocks(run.segment, run.blocks)

    def fetch_blocks(self, ref: SegmentRef, blocks: Sequence[PlacedBlock]) -> list[tuple[int, pa.Buffer]]:
        """Some blocks of a segment, in their order: their rows and bytes."""
        started = self._clock.monotonic()
        fetched = []
        for nearby in _side_by_side(blocks, NEARBY if not self._storage.local else 0):
            first, last = nearby[0], nearby[-1]
            length = last.offset + last.length - first.offset
            read = self._storage.read(ref.file, ref.offset + first.offset, length)
            self.fetched_bytes += length
            self._speed.spend(length)
            for block in nearby:
                data = read.slice(block.offset - first.offset, block.length)
                if checksum(data) != block.checksum:
                    where = self._storage.path(ref.file)
                    raise StorageError(f"segment {ref.id} in {where} is damaged (its checksum differs)")
                fetched.append((block.rows, data))
        self.fetch_seconds += self._clock.monotonic() - started
        return fetched


def _side_by_side(blocks: Sequence[PlacedBlock], gap: int) -> list[list[PlacedBlock]]:
    """Blocks that are read together: what lies between two of them is not more than this."""
    out: list[list[PlacedBlock]] = []
    for block in blocks:
        if out and block.offset - (out[-1][-1].offset + out[-1][-1].length) <= gap:
            out[-1].append(block)
        else:
            out.append([block])
    return out
