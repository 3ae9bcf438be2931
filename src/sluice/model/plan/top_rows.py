"""What it is to take the first rows of each group in some order, as a value."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from sluice.model.epoch.times import Times
from sluice.model.plan.keyed_stream import KeyedStream
from sluice.model.plan.sort_order import SortOrder
from sluice.model.plan.stream import columns_of


@dataclass(frozen=True)
class TopRows(KeyedStream):
    """The first `count` rows of each group in an order, with their places in it, from 1 on, in the column `number`.

    Where the event time is one of the keys, a group ends: its rows come when no others of their time can come any more.
    `is_past` says that those to come are later than the watermark; else one may have just that time. Other groups never
    end: a result is a place with the row that has it after an epoch, of all places that another row has now or, if it
    is `complete`, of every one.
    """

    order: tuple[SortOrder, ...]
    count: int
    number: str
    is_past: bool = False
    complete: bool = False

    @property
    def ends(self) -> bool:
        """Whether groups have an end."""
        return self.stream.event_time in self.keys

    def output_schema(self) -> pa.Schema:
        """Rows as they are, and their places."""
        return self.stream.schema.append(pa.field(self.number, pa.int32()))

    def ended_before(self, watermark: int | None) -> int | None:
        """The event time below which groups have ended."""
        return None if watermark is None else watermark + self.is_past

    def keep_from(self, input_: int, watermarks: Times) -> int | None:
        return self.ended_before(watermarks[0]) if self.ends else None

    def state_structure(self, input_: int) -> object:
        """Rows that may still be among the first: those who show all places and those who show changes can read the
        same ones."""
        return "first rows", self.count, self.keys, self._order(), columns_of(self.stream.schema)

    def identity(self) -> dict[str, object]:
        mode = {} if self.ends else {"complete": self.complete}
        return {
            "top": self.count,
            "groupBy": list(self.keys),
            "orderBy": self._order(),
            "number": self.number,
            **mode,
        }

    def _order(self) -> list[list[object]]:
        return [[by.column, by.descending, by.nulls_first] for by in self.order]

    def describe(self) -> str:
        order = ", ".join(by.describe() for by in self.order)
        return (
            f"First {self.count:,} rows of each ({', '.join(self.keys)}) of {self.describe_stream()}\n"
            f"  by {order}, their places as {self.number}{self._describe_mode()}"
        )

    def _describe_mode(self) -> str:
        if self.ends:
            return ""
        return f", kept for good, {'all of them' if self.complete else 'those that have changed'} after every epoch"
