"""What it is to drop duplicates, as a value: which rows of a stream are duplicates of an earlier one."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from sluice.model.durations import in_words
from sluice.model.epoch.times import Times
from sluice.model.plan.keyed_stream import KeyedStream
from sluice.model.plan.stream import Input, columns_of

WAITING, SHOWN = 0, 1
"""Its states: rows that an earlier one may still push out, and the keys of those that were shown."""


@dataclass(frozen=True)
class Deduplication(KeyedStream):
    """The first row of each key by event time, and the first one that is more than `within` (microseconds) later than
    the last that was shown; None is never again.

    Of rows of one key and one time, that with the least values in the other columns counts. A row is shown when no
    earlier one, and none of its time, can come any more; at once where all rows that could take its place are equal.
    """

    within: int | None

    @property
    def inputs(self) -> tuple[Input, ...]:
        return Input(0, self.keys), Input(0, self.keys)

    @property
    def is_timed(self) -> bool:
        """Whether rows of one key have one event time."""
        return self.event_time in self.keys

    @property
    def is_once(self) -> bool:
        """Whether a key is shown once."""
        return self.within is None or self.is_timed

    @property
    def at_once(self) -> bool:
        """Whether a row need not wait: those of its key are all equal."""
        return set(self.stream.schema.names) == set(self.keys)

    @property
    def retention(self) -> int | None:
        """For how long rows are needed; None is for good."""
        remembered = 0 if self.is_timed else self.within
        return None if remembered is None or self.delay is None else remembered + self.delay

    def output_schema(self) -> pa.Schema:
        """Rows as they are."""
        return self.stream.schema

    def keep_from(self, input_: int, watermarks: Times) -> int | None:
        """Rows that wait have had their turn when the watermark has passed them. A key is forgotten when no duplicate
        of it can come any more."""
        reached = watermarks[0]
        remembered = 0 if input_ == WAITING or self.is_timed else self.within
        return None if reached is None or remembered is None else reached - remembered

    def state_structure(self, input_: int) -> object:
        """No other operator keeps the same rows: what waits depends on what was shown."""
        return "waiting" if input_ == WAITING else "shown", self.identity(), columns_of(self.stream.schema)

    def identity(self) -> dict[str, object]:
        return {"dropDuplicates": list(self.keys), "within": self.within}

    def describe(self) -> str:
        if self.is_timed:
            kept = "keys are kept until the watermark has passed them"
        else:
            kept = "keys are kept for good" if self.within is None else f"within {in_words(self.within)}"
        return f"First rows by ({', '.join(self.keys)}) of {self.describe_stream()}\n  {kept}"
