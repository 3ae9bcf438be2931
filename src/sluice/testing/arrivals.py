"""The rows that users hand to a test, as the engine takes them in: an Arrow table for every stream and epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluice.model.epoch.times import Times, watermarks
from sluice.model.errors import FlowError
from sluice.model.plan.stream import EARLIEST, LATEST, Stream

Rows: TypeAlias = pa.Table | Sequence[Mapping[str, Any]]
"""Rows of a stream: an Arrow table, or a dictionary for each."""


@dataclass(frozen=True)
class Arrival:
    """What a stream brings in one epoch: rows, and the event time `upTo` which it has come though no row says so.

    Windows close and rows become late as if a row of that time had come.

    Args:
        rows: an Arrow table or dictionaries.
        upTo: a datetime, or text.

    >>> Arrival(upTo="2026-01-01 09:31:00").rows
    ()
    """

    rows: Rows = ()
    upTo: datetime | str | None = None


@dataclass(frozen=True)
class Batch:
    """What one epoch takes in: rows of every stream, how far streams have come besides, and which rows are late."""

    rows: tuple[pa.Table, ...]
    event_times: Times
    late: tuple[pa.Table, ...]


def read_batches(
    streams: Sequence[Stream],
    rows_by_stream: Mapping[str, Rows | Sequence[Rows | Arrival]],
    time_zone: str,
) -> list[Batch]:
    """The epochs of all streams; one that has fewer than others brings nothing in the last ones."""
    names = [stream.name for stream in streams]
    for name in rows_by_stream:
        if name not in names:
            raise FlowError(f"there are rows for {name!r}, which no query of this test reads; it reads {_list(names)}")
    epochs = [_epochs_of(stream, rows_by_stream.get(stream.name, ()), time_zone) for stream in streams]
    count = max((len(arrivals) for arrivals in epochs), default=0)
    for stream, arrivals in zip(streams, epochs, strict=True):
        arrivals += [(stream.schema.empty_table(), None)] * (count - len(arrivals))
    newest: Times = (None,) * len(streams)
    batches = []
    for number in range(count):
        of_epoch = [arrivals[number] for arrivals in epochs]
        rows, event_times = tuple(table for table, _ in of_epoch), tuple(time for _, time in of_epoch)
        late_below = watermarks(newest, tuple(stream.delay for stream in streams))
        late = tuple(map(_late_rows, streams, rows, late_below))
        batches.append(Batch(rows, event_times, late))
        newest = tuple(map(_newest, streams, newest, rows, event_times))
    return batches


def _epochs_of(stream: Stream, arrivals: Any, time_zone: str) -> list[tuple[pa.Table, int | None]]:
    if isinstance(arrivals, pa.Table | Arrival):
        arrivals = [arrivals]
    if not isinstance(arrivals, Sequence) or isinstance(arrivals, str):
        raise FlowError(
            f"rows of stream {stream.name!r} must be an Arrow table, a list of dictionaries, or a list with one of "
            f"these for each epoch, not {type(arrivals).__name__}"
        )
    if arrivals and all(isinstance(row, Mapping) for row in arrivals):
        arrivals = [arrivals]
    return [_read_arrival(stream, arrival, time_zone) for arrival in arrivals]


def _read_arrival(stream: Stream, rows_or_arrival: Any, time_zone: str) -> tuple[pa.Table, int | None]:
    arrival = rows_or_arrival if isinstance(rows_or_arrival, Arrival) else Arrival(rows_or_arrival)
    up_to = None if arrival.upTo is None else _event_time(stream, arrival.upTo, time_zone)
    if isinstance(arrival.rows, pa.Table):
        return _read_table(stream, arrival.rows), up_to
    rows = arrival.rows
    if not isinstance(rows, Sequence) or not all(isinstance(row, Mapping) for row in rows):
        raise FlowError(
            f"an epoch's rows of stream {stream.name!r} must be an Arrow table or a list of dictionaries, all of them"
        )
    unknown = {name for row in rows for name in row} - set(stream.schema.names)
    if unknown:
        raise FlowError(f"stream {stream.name!r} has no column {min(unknown)!r}; it has {_list(stream.schema.names)}")
    columns = [_read_column(stream, field, [row.get(field.name) for row in rows], time_zone) for field in stream.schema]
    return pa.Table.from_arrays(columns, schema=stream.schema), up_to


def _read_table(stream: Stream, table: pa.Table) -> pa.Table:
    missing = [name for name in stream.schema.names if name not in table.column_names]
    if missing:
        raise FlowError(f"a table for stream {stream.name!r} has no column {missing[0]!r}")
    try:
        return table.select(stream.schema.names).cast(stream.schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as problem:
        raise FlowError(f"a table for stream {stream.name!r} does not fit its columns: {problem}") from problem


def _read_column(stream: Stream, field: pa.Field, values: list[Any], time_zone: str) -> pa.Array:
    try:
        if pa.types.is_timestamp(field.type) and any(isinstance(value, str) for value in values):
            return _read_times(pa.array(values, pa.string()), field.type, time_zone)
        return pa.array(values, field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as problem:
        raise FlowError(f"column {field.name!r} of stream {stream.name!r} is {field.type}: {problem}") from problem


def _read_times(texts: pa.Array, kind: pa.TimestampType, time_zone: str) -> pa.Array:
    """Times as texts: those without a zone are in the flow's."""
    if kind.tz is None:
        return texts.cast(kind)
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        return pc.assume_timezone(texts.cast(pa.timestamp(kind.unit)), time_zone).cast(kind)


def _event_time(stream: Stream, time: datetime | str, time_zone: str) -> int:
    field = stream.schema.field(stream.event_time)
    return int(_read_column(stream, field, [time], time_zone).cast(pa.int64())[0].as_py())


def _late_rows(stream: Stream, rows: pa.Table, watermark: int | None) -> pa.Table:
    if watermark is None:
        return rows.slice(0, 0)
    times, in_range = _times_in_range(stream, rows)
    return rows.filter(pa.array(in_range & (times < watermark)))


def _newest(stream: Stream, before: int | None, rows: pa.Table, up_to: int | None) -> int | None:
    times, in_range = _times_in_range(stream, rows)
    event_times = [time for time in (before, up_to) if time is not None]
    if in_range.any():
        event_times.append(int(times[in_range].max()))
    return max(event_times, default=None)


def _times_in_range(stream: Stream, rows: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Event times in microseconds, and which of them count at all."""
    column = rows[stream.event_time].cast(pa.int64())
    times = pc.fill_null(column, LATEST + 1).to_numpy()
    return times, (times >= EARLIEST) & (times <= LATEST)


def _list(names: Sequence[str]) -> str:
    return ", ".join(names)
