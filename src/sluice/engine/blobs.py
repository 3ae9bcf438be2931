"""What crosses the exchange: blobs of rows, and messages in place of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from sluice.model.codec import encode
from sluice.model.columns import IntColumn
from sluice.model.ids import SiteKey
from sluice.record.reports import LevelWatermark, SiteReport, SplitReport

SPLIT_REPORT, SITE_REPORT, LEVEL_WATERMARK, REFERENCE, UNUSABLE = -1, -2, -3, -4, -5
"""Numbers, in place of an input's, of blobs that carry a split's report (to every site), a site's (to the driver), how
far a site has come (to every site of the level above), where another blob lies on the host, or why a site could not use
what it was sent (to every site of the level above, or to the driver)."""


class InputUnusable(Exception):
    """What a site was sent is missing, damaged, or was split by a watermark that has moved since. Nothing has been done
    with it; the epoch has to be run again."""


@dataclass(frozen=True)
class Payload:
    """The bytes of a blob before they are put together: bytes, and rows in Arrow's form for messages."""

    pieces: tuple[bytes | pa.Buffer | pa.RecordBatch, ...]

    @cached_property
    def size(self) -> int:
        """How many bytes it has."""
        return sum(_size_of(piece) for piece in self.pieces)

    def to_buffer(self) -> pa.Buffer:
        """The bytes, put together."""
        if len(self.pieces) == 1:
            return _to_buffer(self.pieces[0])
        sink = pa.BufferOutputStream()
        for piece in self.pieces:
            sink.write(_to_buffer(piece))
        return sink.getvalue()

    def write_to(self, sink: pa.NativeFile) -> tuple[int, int]:
        """Write it to an empty file; where in that it begins, and how long it is. Rows alone are copied straight into
        the file, behind their schema."""
        (piece, *others) = self.pieces
        if others or not isinstance(piece, pa.RecordBatch):
            for part in self.pieces:
                sink.write(_to_buffer(part))
            return 0, self.size
        with pa.ipc.new_stream(sink, piece.schema) as writer:
            writer.write_batch(piece)
            return sink.tell() - self.size, self.size


def _size_of(piece: bytes | pa.Buffer | pa.RecordBatch) -> int:
    return pa.ipc.get_record_batch_size(piece) if isinstance(piece, pa.RecordBatch) else len(piece)


def _to_buffer(piece: bytes | pa.Buffer | pa.RecordBatch) -> pa.Buffer:
    if isinstance(piece, pa.RecordBatch):
        return piece.serialize()
    return pa.py_buffer(piece) if isinstance(piece, bytes) else piece


Blob = tuple[SiteKey, int, Payload]
"""For which site, of which input or kind, and its bytes."""
SentBlob = tuple[SiteKey, int, pa.Buffer]
"""The same as it crosses the exchange."""
ReceivedBlob = tuple[int, pa.Buffer]
"""The same at its site."""


class SentBytes:
    """How many bytes of rows were sent to each site."""

    def __init__(self, site_keys: tuple[SiteKey, ...]) -> None:
        self._by_key = dict.fromkeys(site_keys, 0)

    def count(self, blobs: Iterable[Blob]) -> Iterator[Blob]:
        for blob in blobs:
            self._by_key[blob[0]] += blob[2].size
            yield blob

    @property
    def by_site(self) -> IntColumn[int]:
        return IntColumn(self._by_key.values())


def message(site_key: SiteKey, number: int, value: SplitReport | SiteReport | LevelWatermark) -> Blob:
    """What a task has to say beside its rows, as a blob."""
    return site_key, number, Payload((encode(value),))


def put_together(blobs: Iterable[Blob]) -> Iterator[SentBlob]:
    """Blobs whose bytes all cross the exchange."""
    return ((site_key, number, payload.to_buffer()) for site_key, number, payload in blobs)
