"""What crosses the exchange: blobs of rows, and messages in place of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from sluice.model.codec import encode
from sluice.model.columns import IntColumn
from sluice.model.ids import SiteKey
from sluice.record.reports import LevelWatermark, SiteReport, SplitReport

BLOBS = pa.schema([("site", pa.int32()), ("input", pa.int32()), ("payload", pa.binary())])
BLOBS_DDL = "site int, input int, payload binary"
SPLIT_REPORT, SITE_REPORT, LEVEL_WATERMARK = -1, -2, -3
"""Numbers, in place of an input's, of blobs that carry a split's report (to every site), a site's (to the driver), or
how far a site has come (to every site of the level above)."""
Blob = tuple[SiteKey, int, pa.Buffer]
"""For which site, of which input or kind, and its bytes."""
MAX_BATCH_BYTES = 1 << 30  # of blobs in one batch, whose offsets have 32 bits


class SentBytes:
    """How many bytes of rows were sent to each site."""

    def __init__(self, site_keys: tuple[SiteKey, ...]) -> None:
        self._by_key = dict.fromkeys(site_keys, 0)

    def count(self, blobs: Iterable[Blob]) -> Iterator[Blob]:
        for blob in blobs:
            self._by_key[blob[0]] += len(blob[2])
            yield blob

    @property
    def by_site(self) -> IntColumn[int]:
        return IntColumn(self._by_key.values())


def message(site_key: SiteKey, number: int, value: SplitReport | SiteReport | LevelWatermark) -> Blob:
    """What a task has to say beside its rows, as a blob."""
    return site_key, number, pa.py_buffer(encode(value))


def in_batches(blobs: Iterable[Blob]) -> Iterator[pa.RecordBatch]:
    """Blobs as batches for the exchange, their bytes copied once."""
    waiting: list[Blob] = []
    size = 0
    for blob in blobs:
        if waiting and size + len(blob[2]) > MAX_BATCH_BYTES:
            yield _batch(waiting)
            waiting, size = [], 0
        waiting.append(blob)
        size += len(blob[2])
    if waiting:
        yield _batch(waiting)


def _batch(blobs: list[Blob]) -> pa.RecordBatch:
    sink = pa.BufferOutputStream()
    offsets = [0]
    for _, _, payload in blobs:
        sink.write(payload)
        offsets.append(sink.tell())
    data = [None, pa.py_buffer(np.array(offsets, dtype=np.int32)), sink.getvalue()]
    payload = pa.Array.from_buffers(pa.binary(), len(blobs), data)
    numbers = [pa.array([b[i] for b in blobs], pa.int32()) for i in (0, 1)]
    return pa.RecordBatch.from_arrays([*numbers, payload], schema=BLOBS)
