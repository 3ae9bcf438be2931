"""Which content a table had in an epoch: a file of the checkpoint, or state."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TableVersion:
    """What is in a table: the file that has it, what its bytes add up to, its rows, and the epoch that had it first.

    The content of a table that is divided among units is in a state, by whose name it goes, and in no file.
    """

    name: str
    file: str
    checksum: int
    rows: int
    since: int
    state: str = ""

    @property
    def is_divided(self) -> bool:
        return bool(self.state)
