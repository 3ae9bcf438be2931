"""A segment: rows sorted by key hash and event time, as one Arrow IPC message that can be used where it lies."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluice.kernels.order import TimeScale, hash_part, order_key, sort_by_hash
from sluice.kernels.probe import Run
from sluice.kernels.value_order import ValueOrder
from sluice.model.codec import checksum
from sluice.model.epoch.segments import Block, SegmentRef
from sluice.model.errors import StorageError
from sluice.model.plan.inequalities import Ordering
from sluice.model.plan.stream import BY_TIME_COLUMN, BY_VALUE_COLUMN, ORDER_COLUMN, VALUE_COLUMN
from sluice.model.routing.directory import HASH_SPACE, Directory
from sluice.model.routing.unit_ranges import Ranges, numbers

BLOCK_BYTES, MOST_BLOCKS = 1 << 16, 64
"""Bytes of a block of a durable segment, about, and how many blocks it may have: the journal lists them."""
LARGEST_BLOCK_BYTES = 4 << 20
"""A unit with more than so many bytes of a segment is cut into several blocks, no more than those again: whoever looks
at frozen state holds one at a time."""


@dataclass(frozen=True)
class Layout:
    """What a segment of one input holds: the stream's columns and which of them is the event time.

    With a `time_step`, of which all times are multiples, its rows can be found by their time alone; with `orderings`,
    by the values of these.
    """

    schema: pa.Schema
    event_time: str
    time_step: int | None = None
    orderings: tuple[Ordering, ...] = ()

    @cached_property
    def stored_schema(self) -> pa.Schema:
        by_time = [] if self.time_step is None else [pa.field(BY_TIME_COLUMN, pa.uint32())]
        by_value = [
            pa.field(f"{name}{number}", kind)
            for number in range(len(self.orderings))
            for name, kind in ((VALUE_COLUMN, pa.float64()), (BY_VALUE_COLUMN, pa.uint32()))
        ]
        return pa.schema([pa.field(ORDER_COLUMN, pa.uint64()), *by_time, *by_value, *self.schema])

    def times(self, rows: pa.RecordBatch) -> np.ndarray:
        """Event times as microseconds, without a copy."""
        times: np.ndarray = rows.column(self.event_time).cast(pa.int64()).to_numpy()
        return times


def sort_run(layout: Layout, hashes: np.ndarray, rows: pa.RecordBatch) -> Run:
    """Rows of one epoch as a run."""
    order, hashes = sort_by_hash(hashes, layout.times(rows))
    rows = pc.take(rows, pa.array(order), boundscheck=False)
    return run_of(hashes, layout.times(rows), rows)


def run_of(hashes: np.ndarray, times: np.ndarray, rows: pa.RecordBatch) -> Run:
    """Rows that are in order already, by hash and time, as a run."""
    earliest, latest = _span(times)
    scale = TimeScale.for_span(earliest, latest)
    return Run(order_key(hashes, times, scale), times, rows, scale, earliest, latest)


def _scale(times: np.ndarray) -> TimeScale:
    return TimeScale.for_span(*_span(times))


def _span(times: np.ndarray) -> tuple[int, int]:
    return (int(times.min()), int(times.max())) if len(times) else (0, 0)


def merge_sorted(runs: list[Run], keep_from: int | np.ndarray | None) -> Run:
    """Several runs as one, without the rows below a time: one for all, or one for each row of the runs in turn."""
    if len(runs) == 1:
        return _keep_needed(runs[0], keep_from)
    times = np.concatenate([r.times for r in runs])
    hashes = np.concatenate([hash_part(r.order) for r in runs])
    kept = np.arange(len(times)) if keep_from is None else np.flatnonzero(times >= keep_from)
    times, hashes = times[kept], hashes[kept]
    scale = _scale(times)  # of the rows that stay: by a coarser one they would not be in the order of their run
    # already sorted pieces: numpy's stable sort of the 64-bit numbers merges them, unless one tick holds many times
    key = order_key(hashes, times, scale)
    order = np.lexsort((times, hashes)) if scale.shift else np.argsort(key, kind="stable")
    rows = pa.concat_batches([r.rows for r in runs]).take(pa.array(kept[order]))
    return run_of(hashes[order], times[order], rows)


def _keep_needed(run: Run, keep_from: int | np.ndarray | None) -> Run:
    """A run without the rows below a time, or each below its own; those that stay are in order."""
    needed = None if keep_from is None else run.times >= keep_from
    if needed is None or needed.all():
        return run
    places = np.flatnonzero(needed)
    return run_of(run.hashes[places], run.times[places], run.rows.take(pa.array(places)))


def encode(layout: Layout, run: Run) -> pa.Buffer:
    """The run as the bytes of a segment."""
    by_time = [] if layout.time_step is None else [pa.array(_by_time(run.times, layout.time_step))]
    orders = [run.order_by(ordering) for ordering in layout.orderings]
    by_value = [pa.array(column) for order in orders for column in (order.values, order.places)]
    columns = [pa.array(run.order), *by_time, *by_value, *run.rows.columns]
    return pa.RecordBatch.from_arrays(columns, schema=layout.stored_schema).serialize()


def encode_blocks(layout: Layout, run: Run, counts: np.ndarray, whole: pa.Buffer) -> list[tuple[Block, pa.Buffer]]:
    """The run as the blocks of a durable segment, cut between units: a site reads little besides what it holds. Large
    units are cut into several.

    `counts` are the rows of its units and `whole` the run's bytes: most are small, and one block.
    """
    if len(whole) < BLOCK_BYTES:
        return [(Block(len(run), len(whole), checksum(whole)), whole)]
    size, largest = (max(each, len(whole) // MOST_BLOCKS) for each in (BLOCK_BYTES, LARGEST_BLOCK_BYTES))
    row_bytes = len(whole) / max(1, len(run))
    begins = np.cumsum(counts) - counts
    cuts = begins[np.flatnonzero(np.diff(begins * row_bytes // size)) + 1]
    edges = [0]
    for end in [*cuts[cuts < len(run)].tolist(), len(run)]:
        pieces = max(1, math.ceil((end - edges[-1]) * row_bytes / largest))
        edges += np.linspace(edges[-1], end, pieces + 1).astype(np.int64)[1:].tolist()
    if len(edges) == 2:
        return [(Block(len(run), len(whole), checksum(whole)), whole)]
    out = []
    for first, end in pairwise(edges):
        rows = run.part(first, end)
        data = encode(layout, rows)
        out.append((Block(len(rows), len(data), checksum(data)), data))
    return out


def decode(layout: Layout, ref: SegmentRef, data: pa.Buffer) -> Run:
    """A segment's bytes as a run, nothing copied."""
    batch = _read_batch(layout.stored_schema, ref, data)
    order, *others = (column.to_numpy() for column in batch.columns[: -len(layout.schema)])
    by_time = None if layout.time_step is None else others.pop(0)
    pairs = zip(layout.orderings, others[::2], others[1::2], strict=True)
    by_value = {ordering: ValueOrder(values, places) for ordering, values, places in pairs}
    rows, scale = batch.select(layout.schema.names), TimeScale(ref.base, ref.shift)
    return Run(order, layout.times(rows), rows, scale, ref.earliest, ref.latest, by_time, by_value=by_value)


def decode_rows(stored_schema: pa.Schema, ref: SegmentRef, data: pa.Buffer) -> tuple[np.ndarray, pa.RecordBatch]:
    """A segment's bytes as rows with the hashes of their keys, for those who know no more than its columns."""
    batch = _read_batch(stored_schema, ref, data)
    return hash_part(batch.column(ORDER_COLUMN).to_numpy()), batch.select(row_schema(stored_schema).names)


def row_schema(stored_schema: pa.Schema) -> pa.Schema:
    """The columns of a segment's rows, without those by which they are found."""
    orders, values = (ORDER_COLUMN, BY_TIME_COLUMN), (VALUE_COLUMN, BY_VALUE_COLUMN)
    return pa.schema([f for f in stored_schema if f.name not in orders and not f.name.startswith(values)])


def _read_batch(stored_schema: pa.Schema, ref: SegmentRef, data: pa.Buffer) -> pa.RecordBatch:
    try:
        batch = pa.ipc.read_record_batch(data, stored_schema)
    except (pa.ArrowInvalid, OSError) as problem:
        raise StorageError(f"segment {ref.id} of {ref.file} is damaged: {problem}") from problem
    if batch.num_rows != ref.rows:
        raise StorageError(f"segment {ref.id} of {ref.file} is not what the journal says it is")
    return batch


def _by_time(times: np.ndarray, step: int) -> np.ndarray:
    """The places of the rows in the order of their times."""
    if len(times) == 0:
        return np.empty(0, dtype=np.uint32)
    steps = (times - times.min()) // step
    if steps.max() <= np.iinfo(np.uint16).max:
        steps = steps.astype(np.uint16)  # numpy sorts these by radix
    return np.argsort(steps, kind="stable").astype(np.uint32)


def parts(run: Run, units: Ranges, directory: Directory) -> list[Run]:
    """The rows of some units of a run, as slices of it: one more than there are rows of others between them."""
    if units == (directory.range,):
        return [run] if len(run) else []
    slices: list[tuple[int, int]] = []
    edges = _places(run, np.array(units, dtype=np.int64).reshape(-1), directory).tolist()
    for a, b in zip(edges[::2], edges[1::2], strict=True):
        if slices and slices[-1][1] == a:
            slices[-1] = slices[-1][0], b
        elif b > a:
            slices.append((a, b))
    if slices == [(0, len(run))]:
        return [run]
    return [run.part(a, b) for a, b in slices]


def join_pieces(pieces: list[Run]) -> Run:
    """Pieces of one run, in its order, as one again."""
    if len(pieces) == 1:
        return pieces[0]
    order, times = np.concatenate([p.order for p in pieces]), np.concatenate([p.times for p in pieces])
    rows = pa.concat_batches([p.rows for p in pieces])
    return Run(order, times, rows, pieces[0].scale, pieces[0].earliest, pieces[0].latest)


def counts(run: Run, units: Ranges, directory: Directory) -> np.ndarray:
    """How many rows of a run each of some units has."""
    if directory.units == 1 and units:
        return np.array([len(run)])
    of = numbers(units)
    places = _places(run, np.append(of, of + 1), directory)
    rows: np.ndarray = places[len(of) :] - places[: len(of)]
    return rows


def _places(run: Run, units: np.ndarray, directory: Directory) -> np.ndarray:
    """Where the rows of each of these units begin, or would."""
    least = directory.least_hashes(units).astype(np.uint64)
    # the end of all hashes has 33 bits: shifted as it is, it would come round to zero
    return np.where(least >= HASH_SPACE, len(run), np.searchsorted(run.order, least << np.uint64(32)))
