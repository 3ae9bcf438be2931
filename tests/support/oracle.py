"""The batch answer: the same join over the rows that were not late, in DuckDB."""

from __future__ import annotations

import os
from collections import Counter
from datetime import timezone
from functools import cache

import duckdb
import numpy as np
import pyarrow as pa

from sluice.model.plan.join import JoinSpec
from sluice.model.plan.join_kind import JoinKind


def connect_duckdb() -> duckdb.DuckDBPyConnection:
    """A connection of its own, in UTC, to the process's one database: starting another takes as long as ten queries."""
    connection = _database(os.getpid()).cursor()
    connection.execute("SET TimeZone = 'UTC'")
    return connection


@cache
def _database(pid: int) -> duckdb.DuckDBPyConnection:
    """A fork has its own: threads do not survive it."""
    return duckdb.connect(config={"threads": 1})


def on_time(epochs: list[pa.Table], event_time: str, delay: int | None) -> tuple[pa.Table, int]:
    """The rows of a stream that are not late, given how epochs cut it, and how many are."""
    newest, kept, late = None, [], 0
    for rows in epochs:
        times = rows[event_time].cast(pa.int64()).to_pylist()
        bound = None if newest is None or delay is None else newest - delay
        mask = [t is not None and (bound is None or t >= bound) for t in times]
        late += sum(1 for t, ok in zip(times, mask, strict=True) if t is not None and not ok)
        kept.append(rows.filter(pa.array(mask, pa.bool_())))
        newest = max([t for t in times if t is not None] + ([] if newest is None else [newest]), default=None)
    return pa.concat_tables(kept), late


def final_watermarks(epochs: list[list[pa.Table]], spec: JoinSpec) -> tuple[int | None, ...]:
    """Those of a join's streams after all their epochs."""
    watermarks: list[int | None] = []
    for own, s in zip(epochs, spec.streams, strict=True):
        times = [t for rows in own for t in rows[s.event_time].cast(pa.int64()).to_pylist() if t is not None]
        watermarks.append(max(times) - s.delay if times and s.delay is not None else None)
    return tuple(watermarks)


def batch_join(
    spec: JoinSpec, tables: list[pa.Table], where: str | None = None, watermarks: tuple[int | None, ...] = ()
) -> pa.Table:
    """The join as one SQL query; `tables` has one table a stream. Rows without a partner are there if these final
    watermarks say that none can come any more."""
    with connect_duckdb() as db:
        for number, table in enumerate(tables):
            db.register(f"s{number}", table)
        legs = range(len(spec.legs))
        inputs = [spec.inputs[leg.input] for leg in spec.legs]
        columns = ", ".join(
            f'{spec.legs[i].name}."{c}" AS "{spec.legs[i].name}_{c}"'
            for i in spec.shown_legs
            for c in spec.stream_of(i).schema.names
        )
        times = [f"epoch_us({spec.legs[i].name}.{spec.stream_of(i).event_time})" for i in legs]
        conditions = [
            f'{spec.legs[0].name}."{a}" = {spec.legs[i].name}."{b}"'
            for i in legs[1:]
            for a, b in zip(inputs[0].keys, inputs[i].keys, strict=True)
        ]
        conditions += [f"{times[j]} - {times[i]} <= {spec.reach[i][j]}" for i in legs for j in legs if i != j]
        conditions += [
            f"{times[1 - i]} <= epoch_us({leg.name}.{leg.until})" for i, leg in enumerate(spec.legs) if leg.until
        ]
        if where:
            conditions.append(f"({where})")
        if spec.is_inner:
            sources = ", ".join(f"s{inputs[i].stream} AS {spec.legs[i].name}" for i in legs)
            return db.sql(f"SELECT {columns} FROM {sources} WHERE {' AND '.join(conditions)}").to_arrow_table()
        left, right = (f"(SELECT *, true AS here FROM s{inputs[i].stream}) AS {spec.legs[i].name}" for i in legs)
        word = spec.kind.value.upper()
        alone = []
        for leg in spec.kind.kept_legs if spec.kind.waits else ():
            settled = spec.settled_before(leg, watermarks)
            other = "true" if spec.kind is JoinKind.ANTI else f"{spec.legs[1 - leg].name}.here IS NULL"
            alone.append(f"({other} AND {'true' if settled is None else f'{times[leg]} >= {settled}'})")
        joined = f"{left} {word} JOIN {right} ON {' AND '.join(conditions)}"
        still_waiting = " OR ".join(alone) or "false"
        return db.sql(f"SELECT {columns} FROM {joined} WHERE NOT ({still_waiting})").to_arrow_table()


def multiset(table: pa.Table) -> Counter:
    """Whole rows with their counts; NaN is made comparable, nested values hashable."""
    if not table.num_columns:
        return Counter([()] * table.num_rows)
    return Counter(zip(*(_values(column) for column in table.columns), strict=True))


def rounded(table: pa.Table) -> Counter:
    """Whole rows with their counts, floats to nine digits: sums of few numbers, in any order."""
    return Counter(
        {tuple(float(f"{v:.9g}") if isinstance(v, float) else v for v in row): n for row, n in multiset(table).items()}
    )


def _values(column: pa.ChunkedArray) -> list:
    """A column in Python; by way of numpy where that has the same values, many times as fast as Arrow's own way."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        numbers = column.fill_null(0).to_numpy()
        values = numbers.tolist()
        if pa.types.is_floating(kind):
            for place in np.flatnonzero(np.isnan(numbers)):
                values[place] = "NaN"
        for place in np.flatnonzero(column.is_null().to_numpy()) if column.null_count else ():
            values[place] = None
        return values
    if not len(column) or not any(is_kind(kind) for is_kind in _EACH_MADE_ONCE):
        return [_plain(v) for v in column.to_pylist()]
    encoded = pa.chunked_array(column.chunks).combine_chunks().dictionary_encode()
    distinct = np.array([*_distinct_values(encoded.dictionary), None], dtype=object)
    return distinct[encoded.indices.fill_null(len(distinct) - 1).to_numpy()].tolist()


_EACH_MADE_ONCE = (pa.types.is_string, pa.types.is_decimal, pa.types.is_date, pa.types.is_timestamp)
"""Kinds of columns that have few different values, where a value of Python's is dear."""


def _distinct_values(array: pa.Array) -> list:
    kind = array.type
    if pa.types.is_timestamp(kind) and kind.tz == "UTC":
        times = array.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
        return [t.replace(tzinfo=timezone.utc) for t in times.astype("datetime64[us]").tolist()]
    return array.to_pylist()


def _plain(value: object) -> object:
    if isinstance(value, float) and value != value:
        return "NaN"
    if isinstance(value, dict):
        return tuple((k, _plain(v)) for k, v in value.items())
    if isinstance(value, list):
        return tuple(_plain(v) for v in value)
    if isinstance(value, tuple):
        return tuple(_plain(v) for v in value)
    return value
