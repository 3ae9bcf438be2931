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
    """What one epoch did.

    Args:
        number: of the epoch, from 0.
        results: of each query, by its name.
        late: the rows of each stream that came too late, by its name.
        progress: what `query.recentEpochs` has of it.

    >>> from sluice import Flow, testing
    >>> trades = Flow().readStream("trades", "symbol string, ts timestamp", eventTime="ts")
    >>> testing.run(trades, {"trades": [{"symbol": "A", "ts": "2026-01-01 09:30:00"}]}).epochs[0].number
    0
    """

    number: int
    results: Mapping[str, pa.Table]
    late: Mapping[str, pa.Table]
    progress: EpochProgress


@dataclass(frozen=True)
class Outcome:
    """All epochs of a test, those after the last rows too, in which what waited was done.

    Args:
        epochs: one after the other.
        queries: the columns of each query's results, by its name.
        streams: the columns of each stream, by its name.
        disturbances: what happened to the query meanwhile.

    >>> from sluice import Flow, testing
    >>> trades = Flow().readStream("trades", "symbol string, ts timestamp", eventTime="ts")
    >>> outcome = testing.run(trades.select("symbol"), {"trades": [{"symbol": "A", "ts": "2026-01-01 09:30:00"}]})
    >>> outcome.rows(), outcome.late("trades").num_rows
    ([{'symbol': 'A'}], 0)
    """

    epochs: tuple[EpochOutcome, ...]
    queries: Mapping[str, pa.Schema]
    streams: Mapping[str, pa.Schema]
    disturbances: tuple[str, ...] = ()

    def results(self, query: str | None = None) -> pa.Table:
        """All results of a query, in the order of epochs.

        Args:
            query: its name; where there is one query, it need not be said.
        """
        name = self._query_name(query)
        return pa.concat_tables([self.queries[name].empty_table(), *(epoch.results[name] for epoch in self.epochs)])

    def rows(self, query: str | None = None) -> list[dict[str, Any]]:
        """The same, a dictionary for each row.

        Args:
            query: its name; where there is one query, it need not be said.
        """
        rows: list[dict[str, Any]] = self.results(query).to_pylist()
        return rows

    def late(self, stream: str) -> pa.Table:
        """All rows of a stream that came too late and were dropped.

        Args:
            stream: its name.
        """
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
