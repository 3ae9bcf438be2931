"""What a window join is, as a value: its streams, keys, time bounds and extra condition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from sluice.model.durations import in_words

HASH_COLUMN = "__hash"
ORDER_COLUMN = "__order"
"""Columns Sluice adds to a stream's own in the exchange and in segments."""


@dataclass(frozen=True)
class Stream:
    """One source of rows: its columns, the column that is its event time, and how late a row may be (microseconds)."""

    name: str
    schema: pa.Schema
    event_time: str
    delay: int | None


@dataclass(frozen=True)
class Input:
    """A stream as one operator takes it in: partitioned by these key columns. Its state is held once."""

    stream: int
    keys: tuple[str, ...]


@dataclass(frozen=True)
class Leg:
    """One side of the join. Two legs may share an input (a self-join)."""

    name: str
    input: int


class Condition(Protocol):
    """A compiled boolean expression over result columns."""

    @property
    def text(self) -> str: ...

    @property
    def columns(self) -> tuple[str, ...]: ...

    def evaluate(self, table: pa.RecordBatch) -> pa.Array: ...


@dataclass(frozen=True)
class JoinSpec:
    """An m-way window join.

    `reach[i][j]` is how much later than leg i's row leg j's row may be, in microseconds.
    """

    streams: tuple[Stream, ...]
    inputs: tuple[Input, ...]
    legs: tuple[Leg, ...]
    key_types: tuple[pa.DataType, ...]
    reach: tuple[tuple[int, ...], ...]
    where: Condition | None = field(default=None)

    def stream_of(self, leg: int) -> Stream:
        return self.streams[self.inputs[self.legs[leg].input].stream]

    def output_schema(self) -> pa.Schema:
        """Every column of every leg, named `<leg>_<column>`."""
        return pa.schema(
            [
                pa.field(f"{leg.name}_{column.name}", column.type)
                for i, leg in enumerate(self.legs)
                for column in self.stream_of(i).schema
            ]
        )

    def keep_from(self, input_: int, watermarks: tuple[int | None, ...]) -> int | None:
        """The event time below which no row of this input can match a row still to come; None keeps everything.

        A row at time t of leg l can meet a new row of leg j only while t + reach[l][j] reaches j's watermark.
        """
        bounds = []
        for mine, leg in enumerate(self.legs):
            if leg.input != input_:
                continue
            for other in range(len(self.legs)):
                watermark = watermarks[self.inputs[self.legs[other].input].stream]
                if other == mine:
                    continue
                if watermark is None:
                    return None
                bounds.append(watermark - self.reach[mine][other])
        return min(bounds)

    def reached(self, input_: int, new: Sequence[tuple[int, int] | None]) -> tuple[int, int] | None:
        """The event times at which state of this input can match new rows, given each input's new time span."""
        low, high = [], []
        for mine, leg in enumerate(self.legs):
            if leg.input != input_:
                continue
            for other, theirs in enumerate(self.legs):
                span = new[theirs.input]
                if other != mine and span is not None:
                    low.append(span[0] - self.reach[mine][other])
                    high.append(span[1] + self.reach[other][mine])
        return (min(low), max(high)) if low else None

    def widest(self) -> int:
        """The longest time bound between any two legs."""
        return max(max(row) for row in self.reach)

    def retention(self) -> int | None:
        """For how long, in event time, state may be needed; None is for good."""
        delays = [s.delay for s in self.streams]
        return None if None in delays else self.widest() + max(d for d in delays if d is not None)

    def identity(self) -> dict[str, object]:
        """What must be the same for a checkpoint to be continued."""
        return {
            "streams": [
                {"name": s.name, "columns": columns_of(s.schema), "eventTime": s.event_time, "delay": s.delay}
                for s in self.streams
            ],
            "join": {
                "legs": [
                    {
                        "name": leg.name,
                        "stream": self.stream_of(i).name,
                        "on": list(self.inputs[leg.input].keys),
                    }
                    for i, leg in enumerate(self.legs)
                ],
                "within": [list(row) for row in self.reach],
                "where": self.where.text if self.where else None,
            },
        }

    def describe(self) -> str:
        """The join in a few lines for `explain`."""
        lines = []
        for i, leg in enumerate(self.legs):
            stream, keys = self.stream_of(i), ", ".join(self.inputs[leg.input].keys)
            alias = f" as {leg.name!r}" if leg.name != stream.name else ""
            lines.append(
                f"  {stream.name!r}{alias} on ({keys}), event time {stream.event_time!r}, delay "
                f"{in_words(stream.delay)}"
            )
        if len(self.legs) == 2:
            before, after = in_words(self.reach[1][0]), in_words(self.reach[0][1])
            lines.append(
                f"  {self.legs[1].name!r} at most {before} earlier, at most {after} later than {self.legs[0].name!r}"
            )
        else:
            lines.append(f"  all within {in_words(self.widest())} of the newest")
        if self.where:
            lines.append(f"  where {self.where.text}")
        return "\n".join(lines)


def columns_of(schema: pa.Schema) -> list[list[str]]:
    """A schema's columns as names and types, for identities and messages."""
    return [[f.name, str(f.type)] for f in schema]
