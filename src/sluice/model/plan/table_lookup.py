"""A join with a table whose rows are state, divided among units like any other: what it is, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from sluice.model.durations import LONGEST
from sluice.model.epoch.times import Times
from sluice.model.plan.join import JoinSpec, Leg
from sluice.model.plan.join_kind import JoinKind
from sluice.model.plan.steps import StaticTable
from sluice.model.plan.stream import EARLIEST, TIME_COLUMN, Expression, Input, Stream, columns_of

PASSING, TABLE = 0, 1
"""Its inputs: rows of the stream, of which nothing is kept, and those of the table."""
VERSION_TYPE = pa.timestamp("us")


def version_time(since: int) -> int:
    """The time that all rows have of a content that is in the table from this epoch on. It lies before that of the rows
    of streams, so that results have their time."""
    return EARLIEST + 2 * since


def version_bound(since: int) -> int:
    """A time between that of a content and that of any before it."""
    return version_time(since) - 1


def table_stream(table: StaticTable) -> Stream:
    """A table as its rows come in: their hidden time is that of their content."""
    return Stream(table.name, pa.schema([pa.field(TIME_COLUMN, VERSION_TYPE), *table.schema]), TIME_COLUMN, None)


@dataclass(frozen=True)
class TableLookup:
    """An inner, left, semi or anti join of a stream with a table by equal keys.

    A row of the stream goes to the unit of its key, meets the rows that the table has there, and leaves. `name` and
    `table_name` are what the columns of the two are called by.
    """

    stream: Stream
    name: str
    table: StaticTable
    table_name: str
    kind: JoinKind
    keys: tuple[str, ...]
    table_keys: tuple[str, ...]
    key_types: tuple[pa.DataType, ...]
    where: Expression | None = None

    @cached_property
    def join(self) -> JoinSpec:
        """The same as a join of two streams, however far apart in time."""
        return JoinSpec(
            self.streams,
            self.inputs,
            (Leg(self.name, PASSING), Leg(self.table_name, TABLE)),
            self.key_types,
            ((0, LONGEST), (LONGEST, 0)),
            where=self.where,
            timed=self.stream.event_time == TIME_COLUMN,
            kind=self.kind,
        )

    @property
    def streams(self) -> tuple[Stream, ...]:
        return self.stream, table_stream(self.table)

    @property
    def inputs(self) -> tuple[Input, ...]:
        return Input(PASSING, self.keys), Input(TABLE, self.table_keys)

    def columns_read(self, input_: int) -> tuple[str, ...]:
        """All that there are."""
        return tuple(self.streams[self.inputs[input_].stream].schema.names)

    @property
    def output_keys(self) -> tuple[tuple[str, ...], ...]:
        return self.join.output_keys

    @property
    def event_time(self) -> str:
        """That of the stream."""
        hidden = self.stream.event_time == TIME_COLUMN
        return TIME_COLUMN if hidden else f"{self.name}_{self.stream.event_time}"

    @property
    def delay(self) -> int | None:
        return self.stream.delay

    def output_schema(self) -> pa.Schema:
        return self.join.output_schema()

    def watermark(self, watermarks: Times) -> int | None:
        """Rows of the stream leave in the epoch in which they have their turn."""
        return watermarks[PASSING]

    def keep_from(self, input_: int, watermarks: Times) -> int | None:
        """Rows of the table are kept until it is read again, whatever the watermarks are."""
        return None

    def state_structure(self, input_: int) -> object:
        """The rows of the table as they are: joins by the same key have them once."""
        own, stream = self.inputs[input_], self.streams[input_]
        hashed = [(key, str(kind)) for key, kind in zip(own.keys, self.key_types, strict=True)]
        if input_ == TABLE:
            return "table", columns_of(stream.schema), hashed
        return "passing", columns_of(stream.schema), hashed, "judged" if self.join.is_judged(input_) else "partners"

    def structure(self) -> dict[str, object]:
        return {**self.identity(), "where": self.where.meaning if self.where else None}

    def identity(self) -> dict[str, object]:
        """What must be the same for a checkpoint to be continued."""
        return {
            "lookup": [self.name, list(self.keys)],
            "table": [self.table.name, self.table_name, list(self.table_keys)],
            "types": [str(kind) for kind in self.key_types],
            "how": self.kind.value,
            "where": self.where.text if self.where else None,
        }

    def describe(self) -> str:
        pairs = zip(self.keys, self.table_keys, strict=True)
        on = ", ".join(key if key == other else f"{key} = {other}" for key, other in pairs)
        where = "" if self.where is None else f", where {self.where.text}"
        kind = f"{self.kind.words} join".strip().capitalize()
        return f"{kind} of {self.stream.name!r} with table {self.table.name!r} on {on}{where}\n  divided by its key"
