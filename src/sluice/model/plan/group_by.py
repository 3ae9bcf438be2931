"""What windowed group-bys are, as values: over each group's newest rows, over windows of event time, and over
sessions."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import pyarrow as pa

from sluice.model.durations import in_words
from sluice.model.epoch.times import ENDED, Times
from sluice.model.plan.aggregate import Aggregate, result_type
from sluice.model.plan.keyed_stream import KeyedStream
from sluice.model.plan.stream import columns_of

WINDOW_START, WINDOW_END = "window_start", "window_end"
WINDOW_TIME = "window_time"
"""The last microsecond of a window, as Spark names it: windows over windows that go by it hold those that they hold
whole."""


@dataclass(frozen=True)
class GroupBy(KeyedStream):
    """What all kinds share: one stream, its group columns and the aggregates."""

    aggregates: tuple[Aggregate, ...]

    def identity(self) -> dict[str, object]:
        """What must be the same for a checkpoint to be continued."""
        return {
            "groupBy": list(self.keys),
            "aggregates": [[a.name, a.function, a.column] for a in self.aggregates],
        }

    @property
    def time_columns(self) -> tuple[str, ...]:
        """The columns of results with times of their own, between those of the group and the aggregates."""
        return WINDOW_START, WINDOW_END

    def columns_read(self, input_: int) -> tuple[str, ...]:
        """The group columns, the event time and what is aggregated."""
        aggregated = (aggregate.column for aggregate in self.aggregates if aggregate.column)
        return tuple(dict.fromkeys([*self.keys, self.stream.event_time, *aggregated]))

    def output_schema(self) -> pa.Schema:
        """The group columns, the times, the aggregates."""
        groups = [self.stream.schema.field(k) for k in self.keys]
        results = [pa.field(a.name, self._type(a)) for a in self.aggregates]
        return pa.schema([*groups, *(pa.field(name, self.time_type) for name in self.time_columns), *results])

    def _type(self, aggregate: Aggregate) -> pa.DataType:
        kind = self.stream.schema.field(aggregate.column).type if aggregate.column else None
        return result_type(aggregate.function, kind)

    def _describe(self, over: str) -> str:
        groups = f"({', '.join(self.keys)})" if self.keys else "(everything)"
        shown = ", ".join(f"{a.function}({a.column or '*'}) as {a.name}" for a in self.aggregates)
        return f"Group-by {groups} of {self.describe_stream()}\n  over {over}\n  {shown}"


@dataclass(frozen=True)
class LastRows(GroupBy):
    """For every row, aggregates over its group's newest `count` rows up to and including it.

    Rows are in the order of event time, rows of one time in the order of arrival. A row's turn comes when no earlier
    one can arrive any more: at once if the stream's delay is zero.
    """

    count: int

    def keep_from(self, input_: int, watermarks: Times) -> int | None:
        """Rows are replaced by newer ones; none expires."""
        return None

    def state_structure(self, input_: int) -> object:
        """No other group-by keeps the same rows."""
        return "newest", self.identity()

    @property
    def time_columns(self) -> tuple[str, ...]:
        """The row's event time."""
        return () if self.event_time in self.keys else (self.event_time,)

    def identity(self) -> dict[str, object]:
        return {**super().identity(), "last": self.count}

    def describe(self) -> str:
        return self._describe(f"the newest {self.count:,} rows up to each row")


@dataclass(frozen=True)
class TimeWindows(GroupBy):
    """Aggregates over windows [start, start + length) of event time, one starting every `slide` (microseconds).

    A window's result comes once, when the watermark reaches its end. So results to come are later than the watermark.

    `shift` is by how much the times that count are earlier than the event times: windows over windows can go by another
    time than the end of those. `is_past` is whether rows to come are later than the watermark.
    """

    length: int
    slide: int
    shift: int = 0
    is_past: bool = False

    @property
    def comes_after_watermark(self) -> bool:
        """Whether results to come are later than the watermark; else one may have just that time."""
        return self.shift <= self.is_past

    def reached(self, watermark: int | None) -> int | None:
        """Up to which time all rows are there, where the stream has this watermark."""
        return None if watermark is None else watermark - self.shift + self.is_past

    def watermark(self, watermarks: tuple[int | None, ...]) -> int | None:
        """Results to come end later than all rows are there; none comes once the stream has ended."""
        reached = self.reached(watermarks[0])
        if reached is None or watermarks[0] is None or watermarks[0] == ENDED:
            return watermarks[0]
        return min(watermarks[0], reached + 1)

    @property
    def event_time(self) -> str:
        return WINDOW_END

    @property
    def delay(self) -> int | None:
        return None if self.stream.delay is None else self.stream.delay + self.length + self.shift

    @property
    def pane(self) -> int:
        """Windows are put together from panes: stretches that every window holds whole or not at all."""
        return gcd(self.length, self.slide)

    def keep_from(self, input_: int, watermarks: Times) -> int | None:
        """The pane below which no window can still be waited for."""
        reached = self.reached(watermarks[0])
        return None if reached is None else reached - self.length + 1

    def state_structure(self, input_: int) -> object:
        """Partial aggregates of panes: windows of any lengths can be put together from the same ones."""
        measured = [(a.function, a.column) for a in self.aggregates]
        shift = (self.shift,) if self.shift else ()
        return "panes", self.pane, self.keys, measured, columns_of(self.stream.schema), *shift

    def identity(self) -> dict[str, object]:
        shift = {"shift": self.shift} if self.shift else {}
        return {**super().identity(), "window": [self.length, self.slide], **shift}

    def describe(self) -> str:
        sliding = "" if self.slide == self.length else f", one every {in_words(self.slide)}"
        by = f", by times {in_words(self.shift)} earlier" if self.shift else ""
        return self._describe(f"windows of {in_words(self.length)}{sliding}{by}")


@dataclass(frozen=True)
class TimeGroups(TimeWindows):
    """Aggregates over groups that have the event time as one of their keys, such as the end of the windows below: each
    is a window of a microsecond.

    A group's result comes once, when no more rows of its time can come.
    """

    length: int = 1
    slide: int = 1

    @property
    def event_time(self) -> str:
        return self.stream.event_time

    @property
    def time_columns(self) -> tuple[str, ...]:
        """The event time is one of the keys."""
        return ()

    @property
    def comes_after_watermark(self) -> bool:
        """The event time of a result is where its window begins."""
        return self.is_past

    def watermark(self, watermarks: tuple[int | None, ...]) -> int | None:
        return watermarks[0]

    def describe(self) -> str:
        return self._describe("the rows of each event time")


@dataclass(frozen=True)
class SessionWindows(GroupBy):
    """Aggregates over sessions: rows of a group of which none is more than `gap` (microseconds) later than the one
    before it. A session is from its first row up to `gap` after its last one.

    A session's result comes once, when the watermark has passed its end.
    """

    gap: int

    @property
    def event_time(self) -> str:
        return WINDOW_END

    @property
    def delay(self) -> int | None:
        return None if self.stream.delay is None else self.stream.delay + self.gap

    def keep_from(self, input_: int, watermarks: Times) -> int | None:
        """The last row of a session below which no row to come can be of it."""
        return None if watermarks[0] is None else watermarks[0] - self.gap

    def state_structure(self, input_: int) -> object:
        """Sessions so far, with their partial aggregates."""
        measured = [(a.function, a.column) for a in self.aggregates]
        return "sessions", self.gap, self.keys, measured, columns_of(self.stream.schema)

    def identity(self) -> dict[str, object]:
        return {**super().identity(), "session": self.gap}

    def describe(self) -> str:
        return self._describe(f"sessions that end {in_words(self.gap)} after their last row")
