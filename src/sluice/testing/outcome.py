"""What came of a test: results, late rows and progress, epoch by epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sluice.model.errors import FlowError
from sluice.record.progress import EpochProgress


@dataclass(frozen=True)
class EpochOutcome:
    """What one epoch did: the results of each query, the late rows of each stream, and its progress."""

    number: int
    results: Mapping[str, pa.Table]
    late: Mapping[str, pa.Table]
    progress: EpochProgress


@dataclass(frozen=True)
class Outcome:
    """All epochs of a test, those after the last rows too, in which what waited was done. `disturbances` tells what
    happened to the query meanwhile."""

    epochs: tuple[EpochOutcome, ...]
    queries: Mapping[str, pa.Schema]
    streams: Mapping[str, pa.Schema]
    disturbances: tuple[str, ...] = ()

    def results(self, query: str | None = None) -> pa.Table:
        """All results of a query, in the order of epochs; where there is one query, it need not be named."""
        name = self._query_name(query)
        return pa.concat_tables([self.queries[name].empty_table(), *(epoch.results[name] for epoch in self.epochs)])

    def rows(self, query: str | None = None) -> list[dict[str, Any]]:
        """The same, a dictionary for each row."""
        rows: list[dict[str, Any]] = self.results(query).to_pylist()
        return rows

    def late(self, stream: str) -> pa.Table:
        """All rows of a stream that came too late and were dropped."""
        if stream not in self.streams:
            raise FlowError(f"no query of this test reads a stream {stream!r}; it reads {', '.join(self.streams)}")
        return pa.concat_tables([self.streams[stream].empty_table(), *(epoch.late[stream] for epoch in self.epochs)])

    def _query_name(self, query: str | None) -> str:
        if query is None and len(self.queries) == 1:
            return next(iter(self.queries))
        if query is None or query not in self.queries:
            names = ", ".join(self.queries)
            which = "say which query's results" if query is None else f"there is no query {query!r} in this test"
            raise FlowError(f"{which}; it has {names}")
        return query
