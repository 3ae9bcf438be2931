"""Streams as users hold them: sources and results alike can be filtered, joined, grouped and written."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sluice.api.grouping import GroupedStream
from sluice.api.joining import Keys, Within, build_join
from sluice.api.steps import condition, expression, is_plain, selection
from sluice.api.writer import DataStreamWriter
from sluice.model.errors import FlowError
from sluice.model.plan import Applied, OperatorSpec, Relation, plan_of
from sluice.model.stream import TIME_COLUMN, Filter, Project, Step, Stream
from sluice.spark.sources import quoted

if TYPE_CHECKING:
    from sluice.api.flow import Flow


class StreamHandle:
    """A stream: registered in the flow, or the result of operators; under its own name or an alias."""

    def __init__(self, flow: Flow, name: str, relation: Relation) -> None:
        self.flow, self.name, self.relation = flow, name, relation

    @property
    def columns(self) -> list[str]:
        return [f.name for f in self.relation.stream.shown]

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

    def alias(self, name: str) -> StreamHandle:
        """The same stream under another name: to join it with itself, or to name a result. It is read once."""
        if not isinstance(name, str) or not name.isidentifier():
            raise FlowError(f"an alias must be a plain word such as 'later', not {name!r}")
        return StreamHandle(self.flow, name, self.relation)

    def filter(self, condition_: str) -> StreamHandle:
        """The rows for which a Spark SQL condition is true, for example "price > 3"."""
        return self._then(Filter(condition(self, condition_)), self.stream.schema)

    where = filter

    def select(self, *columns: str) -> StreamHandle:
        """Columns and Spark SQL expressions, such as "price * size AS value"; the event time goes along."""
        chosen = tuple(pair for text in columns for pair in selection(self, text))
        return self._projected(chosen)

    def withColumn(self, name: str, expression_: str) -> StreamHandle:
        """All columns and one more, or one replaced, given by a Spark SQL expression."""
        if not isinstance(name, str) or not name or name.startswith("__"):
            raise FlowError(f"{name!r} cannot be the name of a column")
        made = expression(self, expression_)
        have = [(n, expression(self, quoted(n))) for n in self.columns]
        same = [n for n, _ in have if n == name] or [n for n, _ in have if n.lower() == name.lower()][:1]
        if same:
            return self._projected(tuple((name, made) if n in same else (n, e) for n, e in have))
        return self._projected((*have, (name, made)))

    def join(
        self,
        other: StreamHandle,
        on: Keys | None = None,
        within: Within | None = None,
        where: str | None = None,
        how: str = "inner",
    ) -> StreamHandle:
        """Rows of both streams with equal keys whose event times differ by at most `within`.

        `within=("10 seconds", "30 seconds")`: the other stream's row is at most 10 s earlier and at most 30 s later.
        `where` is a further condition in Spark SQL, for example "trades.price > quotes.ask".
        """
        if how != "inner":
            raise FlowError(f"how={how!r}: only inner joins are there")
        return applied(self.flow, *build_join([self, other], on, within, where))

    def groupBy(self, *columns: str) -> GroupedStream:
        """Groups of rows with equal values in these columns; without any, one group of all rows."""
        return GroupedStream(self, columns)

    @property
    def writeStream(self) -> DataStreamWriter:
        return DataStreamWriter(self)

    def explain(self) -> None:
        """Print what has to run for this stream."""
        plan = plan_of([self.relation])
        print(plan.describe())
        for number, source in enumerate(plan.sources):
            why_spark = self.flow.sources[source.name].file_options.why_spark
            if why_spark:
                print(f"Source {source.name!r} is read as rows of Spark, because of {', '.join(why_spark)}")
            for each in plan.by_spark(number):
                print(f"Source {source.name!r} is read as rows of Spark, which computes {each.text}")

    def __repr__(self) -> str:
        return f"Stream({self.name + ': ' if self.name else ''}{', '.join(self.columns)})"

    def _projected(self, columns: tuple[tuple[str, Any], ...]) -> StreamHandle:
        names = [name for name, _ in columns]
        for name in names:
            if names.count(name) > 1:
                raise FlowError(f"{self.title} would have two columns {name!r}; name one of them with AS")
        time = self.event_time
        same = any(name == time and e.columns == (time,) and is_plain(e.text, time) for name, e in columns)
        fields = [pa.field(name, e.type) for name, e in columns]
        if not same:
            fields.insert(0, pa.field(TIME_COLUMN, self.stream.schema.field(time).type))
        step = Project(columns, None if same or time == TIME_COLUMN else time)
        return self._then(step, pa.schema(fields), time if same else TIME_COLUMN)

    def _then(self, step: Step, schema: pa.Schema, event_time: str | None = None) -> StreamHandle:
        stream = replace(self.stream, schema=schema, event_time=event_time or self.event_time)
        return StreamHandle(self.flow, self.name, Relation(self.relation.origin, (*self.relation.steps, step), stream))


def applied(flow: Flow, spec: OperatorSpec, feeds: tuple[Relation, ...]) -> StreamHandle:
    """The result of an operator."""
    schema = spec.output_schema()
    if spec.event_time == TIME_COLUMN and TIME_COLUMN not in schema.names:
        times = spec.streams[0]
        schema = pa.schema([pa.field(TIME_COLUMN, times.schema.field(times.event_time).type), *schema])
    stream = Stream("result", schema, spec.event_time, spec.delay)
    return StreamHandle(flow, "", Relation(Applied(spec, feeds), (), stream))
