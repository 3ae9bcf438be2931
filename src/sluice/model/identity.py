"""Whose a checkpoint is: the flow, which has to be the same whenever it goes on, and the driver that owns it now.

Fields of identities have the names that they have in the checkpoint.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import datetime, timezone

from sluice.model.durations import in_words

FILES, BATCHES = "files", "batches"
"""Who plans what an epoch takes in: Sluice, file by file, or Structured Streaming, by its micro-batches."""


@dataclass(frozen=True)
class StreamIdentity:
    """A stream: its columns, each with its type, its event time, and how late its rows may be (microseconds)."""

    name: str
    columns: tuple[tuple[str, str], ...]
    eventTime: str
    delay: int | None

    def describe(self) -> str:
        """
        >>> StreamIdentity("trades", (("symbol", "string"), ("ts", "timestamp")), "ts", 10_000_000).describe()
        'trades: symbol string, ts timestamp; event time ts, delay 10 seconds'
        """
        columns = ", ".join(f"{name} {kind}" for name, kind in self.columns)
        return f"{self.name}: {columns}; event time {self.eventTime}, delay {in_words(self.delay)}"


@dataclass(frozen=True, kw_only=True)
class FlowIdentity:
    """What a flow is as long as it lives, whichever queries it has: its name, its streams, how many units operators
    with keys begin with, and who plans its input."""

    name: str
    partitions: int
    streams: tuple[StreamIdentity, ...] = ()
    input: str = BATCHES


@dataclass(frozen=True, kw_only=True)
class CheckpointIdentity(FlowIdentity):
    """Whose a checkpoint is: the `id` of its query, and its flow."""

    id: str


@dataclass(frozen=True)
class Owner:
    """The driver that a checkpoint belongs to, a run of a query. Every entry of the journal names it.

    `term` is the journal's entry by which it took the checkpoint over: later owners have greater ones. `since` is its
    own clock's time and only for people to read.
    """

    run: str
    host: str
    process: int
    since: float
    term: int

    @classmethod
    def this_process(cls, run: str, since: float, term: int) -> Owner:
        return cls(run, socket.gethostname(), os.getpid(), since, term)

    def __str__(self) -> str:
        """
        >>> str(Owner("ab12", "db3", 4711, 1_794_711_267.0, 5))
        'process 4711 on db3 (since 2026-11-15 02:54:27 UTC)'
        """
        since = datetime.fromtimestamp(self.since, tz=timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
        return f"process {self.process} on {self.host} (since {since})"
