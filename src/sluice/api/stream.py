"""Streams as users hold them: they can be joined, and what comes out can be written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.api.joining import Keys, Within, build_join
from sluice.api.writer import DataStreamWriter
from sluice.model.errors import FlowError
from sluice.model.join import JoinSpec, Stream

if TYPE_CHECKING:
    from sluice.api.flow import Flow


class StreamHandle:
    """A registered stream, under its own name or an alias."""

    def __init__(self, flow: Flow, name: str, stream: Stream) -> None:
        self.flow, self.name, self.stream = flow, name, stream

    @property
    def columns(self) -> list[str]:
        return list(self.stream.schema.names)

    def alias(self, name: str) -> StreamHandle:
        """The same stream under another name, for joining it with itself. It is still read and held once."""
        if not isinstance(name, str) or not name.isidentifier():
            raise FlowError(f"an alias must be a plain word such as 'later', not {name!r}")
        return StreamHandle(self.flow, name, self.stream)

    def join(
        self,
        other: StreamHandle,
        on: Keys | None = None,
        within: Within | None = None,
        where: str | None = None,
    ) -> Joined:
        """Rows of both streams with equal keys whose event times differ by at most `within`.

        `within=("10 seconds", "30 seconds")`: the other stream's row is at most 10 s earlier and at most 30 s later.
        `where` is a further condition in Spark SQL, for example "trades.price > quotes.ask".
        """
        return Joined(self.flow, build_join([self, other], on, within, where))

    def __repr__(self) -> str:
        return f"Stream({self.name!r}: {', '.join(self.columns)})"


class Joined:
    """The result of a join: columns `<stream>_<column>` of every joined stream."""

    def __init__(self, flow: Flow, spec: JoinSpec) -> None:
        self.flow, self.spec = flow, spec

    @property
    def columns(self) -> list[str]:
        return list(self.spec.output_schema().names)

    @property
    def writeStream(self) -> DataStreamWriter:
        return DataStreamWriter(self.flow, self.spec)

    def explain(self) -> None:
        """Print what the join does."""
        print("Window join\n" + self.spec.describe())

    def __repr__(self) -> str:
        return f"Joined({', '.join(self.columns)})"
