"""The newest epochs of a checkpoint, while another process commits them; the checkpoint is only read."""

from __future__ import annotations

from typing import Any

from sluice.control.journal import Journal
from sluice.model.epoch import EpochRecord

KEPT = 40


class Following:
    """What is on record of a flow so far: its identity and its last epochs, oldest first."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.identity: dict[str, Any] = journal.recognised()
        self.records: list[EpochRecord] = []

    def look(self) -> None:
        """Read what was committed since the last look."""
        numbers = self.journal.numbers()
        newest = self.records[-1].number if self.records else -1
        if (numbers[-1] if numbers else -1) < newest:  # the checkpoint was removed: there may be a new one in its place
            self.identity, self.records, newest = self.journal.recognised(), [], -1
        new = [number for number in numbers if number > newest]
        self.records = [*self.records, *self.journal.records(new[-KEPT:])][-KEPT:]
