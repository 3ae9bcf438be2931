"""Rows on their way through the exchange: stateless steps, then hashed, routed, and packed as one Arrow blob a site.

Used on both sides: by the split for the rows of sources, by sites for the results that a later operator takes in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa

from sluice.kernels.hashing import hash_keys
from sluice.model.codec import encode
from sluice.model.columns import IntColumn
from sluice.model.ids import InputNumber, SiteKey
from sluice.model.plan.plan import Plan
from sluice.model.plan.stream import HASH_COLUMN, apply_steps
from sluice.model.routing.routing import Routing
from sluice.model.routing.sharing import SharedUnit
from sluice.operators import operator
from sluice.record.reports import LevelWatermark, SiteReport, SplitReport

BLOBS = pa.schema([("site", pa.int32()), ("input", pa.int32()), ("payload", pa.binary())])
BLOBS_DDL = "site int, input int, payload binary"
SPLIT_REPORT, SITE_REPORT, LEVEL_WATERMARK = -1, -2, -3
"""Numbers, in place of an input's, of blobs that carry a split's report (to every site), a site's (to the driver), or
how far a site has come (to every site of the level above)."""
MAX_BATCH_BYTES = 1 << 30  # of blobs in one batch, whose offsets have 32 bits
Blob = tuple[SiteKey, int, pa.Buffer]


def blob_schema(columns: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(HASH_COLUMN, pa.uint32()), *columns])


class Sender:
    """The way from an origin to one stream of an operator."""

    def __init__(self, plan: Plan, node: int, stream: int, routing: Routing, site_keys: tuple[SiteKey, ...]) -> None:
        spec = plan.nodes[node].spec
        self.steps, self.whose = plan.nodes[node].feeds[stream].steps, f"stream {spec.streams[stream].name!r}"
        self.columns, self.event_time = spec.streams[stream].schema.names, spec.streams[stream].event_time
        self.operator = operator(spec)
        self.inputs = [
            (number, i, blob_schema(self.operator.exchange_schema(i)))
            for i, number in enumerate(plan.inputs_of(node))
            if spec.inputs[i].stream == stream and plan.inputs[number].readers[0] == (node, i)
        ]
        """The states that this way is of: the first of their readers takes rows in for all of them."""
        self.holders = np.array(routing.holders, dtype=np.uint8 if len(site_keys) <= 256 else np.uint16)
        self.plan, self.site_keys = plan, site_keys
        self.directory = routing.directories[plan.nodes[node].fragment]
        first, end = self.directory.range
        shared = {routing.index_of(sharing.unit): sharing for sharing in routing.shared}
        self.shared = [sharing for index, sharing in shared.items() if first <= index < end]
        self.shared_units = np.array([index for index in shared if first <= index < end])
        self.turns: dict[tuple[InputNumber, int], int] = {}
        self.dropped = self.copied_rows = self.copied_bytes = 0

    def blobs(self, rows: pa.RecordBatch) -> Iterator[Blob]:
        rows = apply_steps(self.steps, rows, self.whose).select(self.columns)
        if rows.num_rows == 0:
            return
        for number, local, schema in self.inputs:
            going = self.operator.prepare_input(local, rows)
            self.dropped += going.dropped
            if going.rows.num_rows == 0:
                continue
            packed = pa.RecordBatch.from_arrays([pa.array(going.hashes), *going.rows.columns], schema=schema)
            if len(self.site_keys) == 1:
                yield self.site_keys[0], number, packed.serialize()
                continue
            units = self.directory.unit_of(going.hashes)
            if self.shared:
                is_shared = np.isin(units, self.shared_units)
                yield from self._by_unit(number, units[is_shared], packed.filter(pa.array(is_shared)))
                units, packed = units[~is_shared], packed.filter(pa.array(~is_shared))
            for site_key, part in self._by_site(units, packed):
                yield site_key, number, part.serialize()

    def _by_site(self, units: np.ndarray, packed: pa.RecordBatch) -> Iterator[tuple[SiteKey, pa.RecordBatch]]:
        sites = self.holders[units]
        order = np.argsort(sites, kind="stable")
        cuts = np.searchsorted(sites[order], np.arange(len(self.site_keys) + 1))
        packed = packed.take(pa.array(order))
        for site, (a, b) in enumerate(pairwise(cuts)):
            if b > a:
                yield self.site_keys[site], packed.slice(a, b - a)

    def _by_unit(self, number: InputNumber, units: np.ndarray, packed: pa.RecordBatch) -> Iterator[Blob]:
        """Rows of shared units, unit by unit."""
        order = np.argsort(units, kind="stable")
        units, packed = units[order], packed.take(pa.array(order))
        ends = np.searchsorted(units, self.shared_units, side="right")
        for sharing, a, b in zip(self.shared, np.searchsorted(units, self.shared_units), ends, strict=True):
            if b > a:
                yield from self._send_shared(sharing, number, packed.slice(a, b - a))

    def _send_shared(self, sharing: SharedUnit, number: InputNumber, rows: pa.RecordBatch) -> Iterator[Blob]:
        """Rows of a shared unit to its holders, dealt out to the lines in turn: each to those that store it and to
        those where it only looks up what is there. Where the turns begin is up to the first row, so that an attempt
        again decides the same and tasks with few rows do not all begin with the same holder."""
        lines, whose = sharing.line_count(number), (number, sharing.unit)
        if whose not in self.turns:
            self.turns[whose] = int(hash_keys([rows.column(self.event_time).slice(0, 1)])[0])
        lines_of = (self.turns[whose] + np.arange(rows.num_rows)) % lines
        self.turns[whose] += rows.num_rows
        for line in range(lines):
            line_rows = rows if lines == 1 else rows.filter(pa.array(lines_of == line))
            if line_rows.num_rows == 0:
                continue
            payload = line_rows.serialize()
            storing, probing = sharing.storing(number, line), sharing.probing(number, line)
            yield from ((self.site_keys[site], number, payload) for site in storing)
            yield from ((self.site_keys[site], self.plan.probe_only_number(number), payload) for site in probing)
            copies = len(storing) + len(probing) - 1
            self.copied_rows += copies * line_rows.num_rows
            self.copied_bytes += copies * len(payload)


def senders(plan: Plan, origin: int, routing: Routing, site_keys: tuple[SiteKey, ...]) -> list[Sender]:
    """The ways of an origin's rows to all states that keep them."""
    ways = [
        Sender(plan, n, s, routing, site_keys)
        for n, node in enumerate(plan.nodes)
        for s, feed in enumerate(node.feeds)
        if feed.origin == origin
    ]
    return [way for way in ways if way.inputs]


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
