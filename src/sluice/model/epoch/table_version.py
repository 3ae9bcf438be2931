"""Which content a table had in an epoch: a file of the checkpoint."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TableVersion:
    """What is in a table: the file that has it, what its bytes add up to, its rows, and the epoch that had it first."""

    name: str
    file: str
    checksum: int
    rows: int
    since: int
