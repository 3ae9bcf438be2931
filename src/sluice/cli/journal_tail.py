"""The newest epochs of a checkpoint, while another process commits them; the checkpoint is only read."""

from __future__ import annotations

from sluice.control.journal import Journal
from sluice.model.plan.recorded_plan import RecordedPlan
from sluice.record.epoch import EpochRecord

KEPT = 40


class JournalTail:
    """What is on record of a flow so far: its identity, its last epochs, oldest first, and the plan of the newest."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.identity = journal.recognised()
        self.records: list[EpochRecord] = []
        self.index = -1
        self.plan = RecordedPlan()
        self._plan_file = ""

    def look(self) -> None:
        """Read what was committed since the last look."""
        indexes = self.journal.indexes()
        newest = indexes[-1] if indexes else -1
        if newest < self.index:  # the checkpoint was removed: there may be a new one in its place
            self.identity, self.records, self.index = self.journal.recognised(), [], -1
        for entry in self.journal.entries([i for i in indexes if i > self.index][-KEPT:]):
            if entry.record.number > (self.records[-1].number if self.records else -1):  # else only its owner is new
                self.records.append(entry.record)
        self.records, self.index = self.records[-KEPT:], newest
        file = self.records[-1].plan if self.records else ""
        if file != self._plan_file:
            self.plan = self.journal.read_plan(file) if file else RecordedPlan()
            self._plan_file = file
