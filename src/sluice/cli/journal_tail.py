"""The newest epochs of a checkpoint, while another process commits them; the checkpoint is only read."""

from __future__ import annotations

from sluice.control.journal import Journal
from sluice.dashboard.journal_follower import JournalFollower
from sluice.model.identity import CheckpointIdentity
from sluice.model.plan.recorded_plan import RecordedPlan
from sluice.record.epoch import EpochRecord

KEPT = 40


class JournalTail:
    """What is on record of a flow so far: its identity, its last epochs, oldest first, and the plan of the newest."""

    def __init__(self, journal: Journal) -> None:
        self._follower = JournalFollower(journal, KEPT)
        self._beginnings = 0
        self.records: list[EpochRecord] = []
        self.plan = RecordedPlan()

    @property
    def identity(self) -> CheckpointIdentity:
        return self._follower.identity

    def look(self) -> None:
        """Read what was committed since the last look."""
        try:
            for record in self._follower.look():
                self._drop_former()
                self.records = [*self.records, record][-KEPT:]
        finally:
            self._drop_former()
        self.plan = self._follower.plan_of(self.records[-1]) if self.records else RecordedPlan()

    def _drop_former(self) -> None:
        """Forget the epochs of a checkpoint that another one has taken the place of."""
        if self._follower.beginnings > self._beginnings:
            self._beginnings, self.records = self._follower.beginnings, []
