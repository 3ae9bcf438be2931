"""The driver that a checkpoint belongs to: named in every entry of its journal, and to the user when another one has
taken the checkpoint over."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import datetime, timezone


@dataclass(frozen=True)
class Owner:
    """A run of a query. `term` is the journal's entry by which it took the checkpoint over: later owners have greater
    ones. `since` is its own clock's time and only for people to read."""

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
