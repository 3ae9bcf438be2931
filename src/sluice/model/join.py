"""What a window join is, as a value: its streams, keys, time bounds and extra condition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from sluice.model.durations import LONGEST, in_words
from sluice.model.stream import TIME_COLUMN, Expression, Input, Stream


@dataclass(frozen=True)
class Leg:
    """One side of the join. Two legs may share an input (a self-join)."""

    name: str
    input: int


@dataclass(frozen=True)
class JoinSpec:
    """An m-way window join.

    `reach[i][j]` is how much later than leg i's row leg j's row may be, in microseconds; `LONGEST` is without a bound.
    """

    streams: tuple[Stream, ...]
    inputs: tuple[Input, ...]
    legs: tuple[Leg, ...]
    key_types: tuple[pa.DataType, ...]
    reach: tuple[tuple[int, ...], ...]
    where: Expression | None = field(default=None)
    timed: bool = False
    """Whether results carry their event time, the greatest of their rows', in a hidden column."""

    @property
    def output_keys(self) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(f"{leg.name}_{key}" for key in self.inputs[leg.input].keys) for leg in self.legs)

    @property
    def event_time(self) -> str:
        return TIME_COLUMN

    @property
    def delay(self) -> int | None:
        """How far behind its newest row a result's event time may lie."""
        delays = [s.delay for s in self.streams]
        return None if None in delays else max(d for d in delays if d is not None)

    def stream_of(self, leg: int) -> Stream:
        return self.streams[self.inputs[self.legs[leg].input].stream]

    def output_schema(self) -> pa.Schema:
        """Every column of every leg, named `<leg>_<column>`."""
        columns = [
            pa.field(f"{leg.name}_{column.name}", column.type)
            for i, leg in enumerate(self.legs)
            for column in self.stream_of(i).shown
        ]
        first = self.stream_of(0)
        hidden = [pa.field(TIME_COLUMN, first.schema.field(first.event_time).type)] if self.timed else []
        return pa.schema([*hidden, *columns])

    def watermark(self, watermarks: tuple[int | None, ...]) -> int | None:
        """Below which event time no result will come any more: each has a new row, and so one at least as new."""
        known = [w for w in watermarks if w is not None]
        return min(known) if len(known) == len(watermarks) else None

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
        if None in delays or self.widest() >= LONGEST:
            return None
        return self.widest() + max(d for d in delays if d is not None)

    def identity(self) -> dict[str, object]:
        """What must be the same for a checkpoint to be continued."""
        return {
            "join": [
                {"name": leg.name, "stream": self.inputs[leg.input].stream, "on": list(self.inputs[leg.input].keys)}
                for leg in self.legs
            ],
            "within": [list(row) for row in self.reach],
            "where": self.where.text if self.where else None,
        }

    def describe(self) -> str:
        """The join in a few lines for `explain`."""
        lines = ["Window join"]
        for i, leg in enumerate(self.legs):
            stream, keys = self.stream_of(i), ", ".join(self.inputs[leg.input].keys)
            alias = f" as {leg.name!r}" if leg.name != stream.name else ""
            lines.append(
                f"  {stream.name!r}{alias} on ({keys}), event time {stream.event_time!r}, delay "
                f"{in_words(stream.delay)}"
            )
        if len(self.legs) == 2:
            lines.append(f"  {self._describe_pair(*self.legs)}")
        elif self.widest() >= LONGEST:
            lines.append("  however far apart in time")
        else:
            lines.append(f"  all within {in_words(self.widest())} of the newest")
        if self.where:
            lines.append(f"  where {self.where.text}")
        return "\n".join(lines)

    def _describe_pair(self, first: Leg, second: Leg) -> str:
        before, after = self.reach[1][0], self.reach[0][1]
        bounds = [
            f"at most {in_words(most)} {way}" for most, way in ((before, "earlier"), (after, "later")) if most < LONGEST
        ]
        return f"{second.name!r} {', '.join(bounds)} than {first.name!r}" if bounds else "however far apart in time"
