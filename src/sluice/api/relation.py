"""Rows under a name, and the flow they are of: what expressions, joins and group-bys are built from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyspark.sql import SparkSession

from sluice.api.output_mode import changes
from sluice.engine.static_tables import TableSource
from sluice.model.errors import FlowError
from sluice.model.plan.plan import OperatorSpec
from sluice.model.plan.relation import Applied, LateRows, Relation
from sluice.model.plan.steps import Step
from sluice.model.plan.stream import TIME_COLUMN, Stream
from sluice.spark.sources import Source

ZONE_WITHOUT_SPARK = "UTC"


@dataclass(frozen=True, eq=False)
class Registry:
    """What all streams of a flow share: the Spark session, if there is one, the flow's name, and the registered sources
    and tables by theirs."""

    spark: SparkSession | None
    flow: str
    sources: dict[str, Source] = field(default_factory=dict)
    tables: dict[str, TableSource] = field(default_factory=dict)

    @property
    def session(self) -> SparkSession:
        """The Spark session, which whoever starts a query needs."""
        if self.spark is None:
            raise FlowError(
                f"flow {self.flow!r} has no Spark session, so it cannot be started: make it with Flow(spark, …), or "
                "test it with sluice.testing.run"
            )
        return self.spark

    @property
    def time_zone(self) -> str:
        """In which expressions read the clock."""
        return ZONE_WITHOUT_SPARK if self.spark is None else str(self.spark.conf.get("spark.sql.session.timeZone"))


@dataclass(frozen=True, eq=False, repr=False)
class NamedRelation:
    """A relation of a flow under a stream's name or an alias; a result has no name before it is given one."""

    registry: Registry
    name: str
    relation: Relation

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in order."""
        return [f.name for f in self.relation.stream.shown]

    @property
    def column_types(self) -> dict[str, pa.DataType]:
        """The types that users see, by column."""
        return {field.name: field.type for field in self.relation.stream.shown}

    @property
    def stream(self) -> Stream:
        return self.relation.stream

    @property
    def event_time(self) -> str:
        """The column with the event time; of a join's result it is hidden, the greatest of its sides'."""
        return self.relation.stream.event_time

    @property
    def title(self) -> str:
        """What messages call it."""
        return f"stream {self.name!r}" if self.name else "this result"

    def find_column(self, column: object) -> str | None:
        """The column of this name, else the first that differs from it in case only."""
        if not isinstance(column, str):
            return None
        if column in self.columns:
            return column
        return next((c for c in self.columns if c.lower() == column.lower()), None)


def add_step(rows: NamedRelation, step: Step, schema: pa.Schema, event_time: str | None = None) -> Relation:
    """The relation after one more stateless step."""
    stream = replace(rows.stream, schema=schema, event_time=event_time or rows.event_time)
    return Relation(rows.relation.origin, (*rows.relation.steps, step), stream)


def late_rows(rows: NamedRelation) -> Relation:
    """The late rows of a registered stream, after the same steps."""
    relation = rows.relation
    if not isinstance(relation.origin, Stream):
        raise FlowError(
            f"{rows.title} is no registered stream: rows are late by the watermark of the stream that they come in "
            "with, so ask that one, as in trades.late()"
        )
    if relation.stream.delay is None:
        raise FlowError(f"{rows.title} has delay=None, so none of its rows is ever late; give it a delay")
    return Relation(LateRows(relation.origin), relation.steps, replace(relation.stream, delay=None))


def result_of(spec: OperatorSpec, feeds: tuple[Relation, ...]) -> Relation:
    """The relation that an operator makes of those it takes in."""
    for feed in feeds:
        for late in feed.late_streams:
            raise FlowError(
                f"the late rows of stream {late.name!r} can be filtered, selected and written, and no "
                "operator takes them in: none of them is in time for it. Write them, and read what was written"
            )
    refuse_changing(feeds)
    schema = spec.output_schema()
    if spec.event_time == TIME_COLUMN and TIME_COLUMN not in schema.names:
        times = spec.streams[0]
        schema = pa.schema([pa.field(TIME_COLUMN, times.schema.field(times.event_time).type), *schema])
    of_several = len(spec.streams) > 1
    return Relation(Applied(spec, feeds), (), Stream("result", schema, spec.event_time, spec.delay, of_several))


def refuse_changing(relations: Iterable[Relation]) -> None:
    """Refuses results that later ones replace, where each row counts."""
    for relation in relations:
        if changes(relation):
            raise FlowError(
                "the results of a group-by without a window change, so no operator can follow it: filter and select "
                "can. Give it a window, groupBy(...).window('1 minute').agg(...), or do the rest where it is written"
            )
