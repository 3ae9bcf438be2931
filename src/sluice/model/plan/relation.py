"""What users write as relations."""

from __future__ import annotations

from dataclasses import dataclass

from sluice.model.plan.plan import OperatorSpec
from sluice.model.plan.steps import StaticTable, Step
from sluice.model.plan.stream import Stream


@dataclass(frozen=True, eq=False)
class Relation:
    """Rows as users hold them: those of a source, of an operator or of several relations, after stateless steps;
    `stream` describes them. Those of a table are read when it is time, and come from no origin of a plan."""

    origin: Stream | LateRows | Applied | Union | StaticTable
    steps: tuple[Step, ...]
    stream: Stream

    @property
    def late_streams(self) -> tuple[Stream, ...]:
        """The streams whose late rows are among these."""
        if isinstance(self.origin, Union):
            return tuple(stream for each in self.origin.relations for stream in each.late_streams)
        return (self.origin.stream,) if isinstance(self.origin, LateRows) else ()


@dataclass(frozen=True)
class LateRows:
    """The rows of a source that come too late for its operators, as rows of their own. They go to sinks alone."""

    stream: Stream


@dataclass(frozen=True, eq=False)
class Applied:
    """An operator with the relations it takes in, one for each of its streams."""

    spec: OperatorSpec
    feeds: tuple[Relation, ...]


@dataclass(frozen=True, eq=False)
class Union:
    """The rows of several relations with the same columns and the same event time."""

    relations: tuple[Relation, ...]
