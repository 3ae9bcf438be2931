"""Rows on their way through the exchange: stateless steps, then hashed, routed, and packed as one Arrow blob a site.

Used on both sides: by the split for the rows of sources, by sites for the results that a later operator takes in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa

from sluice.model.codec import encode
from sluice.model.ids import SiteKey
from sluice.model.plan import Plan
from sluice.model.reports import LevelWatermark, SiteReport, SplitReport
from sluice.model.routing import Routing
from sluice.model.stream import HASH_COLUMN, applied
from sluice.operators import operator

BLOBS = pa.schema([("site", pa.int32()), ("input", pa.int32()), ("payload", pa.binary())])
BLOBS_DDL = "site int, input int, payload binary"
SPLIT_REPORT, SITE_REPORT, LEVEL_WATERMARK = -1, -2, -3
"""Numbers, in place of an input's, of blobs that carry a split's report (to every site), a site's (to the driver), or
how far a site has come (to every site of the level above)."""
MOST_BYTES = 1 << 30  # of blobs in one batch, whose offsets have 32 bits
Blob = tuple[SiteKey, int, pa.Buffer]


def blob_schema(columns: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(HASH_COLUMN, pa.uint32()), *columns])


class Sender:
    """The way from an origin to one stream of an operator."""

    def __init__(self, plan: Plan, node: int, stream: int, routing: Routing, site_keys: tuple[SiteKey, ...]) -> None:
        spec = plan.nodes[node].spec
        self.steps = plan.nodes[node].feeds[stream].steps
        self.columns = spec.streams[stream].schema.names
        self.operator = operator(spec)
        self.inputs = [
            (plan.inputs_of(node)[i], i, blob_schema(self.operator.crossing(i)))
            for i, input_ in enumerate(spec.inputs)
            if input_.stream == stream
        ]
        self.holders = np.array(routing.holders, dtype=np.uint8 if len(site_keys) <= 256 else np.uint16)
        self.directory, self.site_keys = routing.directories[plan.nodes[node].fragment], site_keys
        self.dropped = 0

    def blobs(self, rows: pa.RecordBatch) -> Iterator[Blob]:
        rows = applied(self.steps, rows).select(self.columns)
        if rows.num_rows == 0:
            return
        for number, local, schema in self.inputs:
            going = self.operator.outgoing(local, rows)
            self.dropped += going.dropped
            if going.rows.num_rows == 0:
                continue
            packed = pa.RecordBatch.from_arrays([pa.array(going.hashes), *going.rows.columns], schema=schema)
            for site_key, part in self._by_site(going.hashes, packed):
                yield site_key, number, part.serialize()

    def _by_site(self, hashes: np.ndarray, packed: pa.RecordBatch) -> Iterator[tuple[SiteKey, pa.RecordBatch]]:
        if len(self.site_keys) == 1:
            yield self.site_keys[0], packed
            return
        sites = self.holders[self.directory.unit_of(hashes)]
        order = np.argsort(sites, kind="stable")
        cuts = np.searchsorted(sites[order], np.arange(len(self.site_keys) + 1))
        packed = packed.take(pa.array(order))
        for site, (a, b) in enumerate(pairwise(cuts)):
            if b > a:
                yield self.site_keys[site], packed.slice(a, b - a)


def senders(plan: Plan, origin: int, routing: Routing, site_keys: tuple[SiteKey, ...]) -> list[Sender]:
    """The ways of an origin's rows to all operators that take them in."""
    return [
        Sender(plan, n, s, routing, site_keys)
        for n, node in enumerate(plan.nodes)
        for s, feed in enumerate(node.feeds)
        if feed.origin == origin
    ]


def message(site_key: SiteKey, number: int, value: SplitReport | SiteReport | LevelWatermark) -> Blob:
    """What a task has to say beside its rows, as a blob."""
    return site_key, number, pa.py_buffer(encode(value))


def in_batches(blobs: Iterable[Blob]) -> Iterator[pa.RecordBatch]:
    """Blobs as batches for the exchange, their bytes copied once."""
    waiting: list[Blob] = []
    size = 0
    for blob in blobs:
        if waiting and size + len(blob[2]) > MOST_BYTES:
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
