"""What operators over one stream have in common, as a value: the stream and the columns that its rows go by."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from sluice.model.durations import in_words
from sluice.model.epoch.times import Times
from sluice.model.plan.stream import TIME_COLUMN, Input, Stream


@dataclass(frozen=True)
class KeyedStream:
    """One stream, whose rows meet those with the same values in the key columns. Results have the times of its rows,
    unless an operator says otherwise."""

    stream: Stream
    keys: tuple[str, ...]

    @property
    def streams(self) -> tuple[Stream, ...]:
        return (self.stream,)

    @property
    def inputs(self) -> tuple[Input, ...]:
        return (Input(0, self.keys),)

    def columns_read(self, input_: int) -> tuple[str, ...]:
        """All that there are."""
        return tuple(self.stream.schema.names)

    @property
    def output_keys(self) -> tuple[tuple[str, ...], ...]:
        return (self.keys,)

    @property
    def event_time(self) -> str:
        return self.stream.event_time

    @property
    def delay(self) -> int | None:
        return self.stream.delay

    @property
    def time_type(self) -> pa.DataType:
        return self.stream.schema.field(self.stream.event_time).type

    def watermark(self, watermarks: Times) -> int | None:
        """Results come in the order of event time, up to the watermark, and rows that wait are not earlier."""
        return watermarks[0]

    def identity(self) -> dict[str, object]:
        """What must be the same for a checkpoint to be continued."""
        raise NotImplementedError

    def structure(self) -> dict[str, object]:
        return self.identity()

    def describe_stream(self) -> str:
        hidden = self.stream.event_time == TIME_COLUMN
        time = "that of the newest row" if hidden else repr(self.stream.event_time)
        return f"{self.stream.name!r}, event time {time}, delay {in_words(self.stream.delay)}"
