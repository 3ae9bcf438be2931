"""The newest epochs of a checkpoint, while another process commits them; the checkpoint is only read."""

from __future__ import annotations

from sluice.control.journal import Journal
from sluice.dashboard.journal_follower import JournalFollower
from sluice.model.errors import CheckpointError
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

    @property
    def damage(self) -> str:
        """Why an entry was passed by, until an epoch after it is there."""
        return self._follower.damage

    def look(self) -> None:
        """Read what was committed since the last look. A damaged entry is refused only if there is no other."""
        try:
            self._follower.read_on(self._add)
        finally:
            self._drop_former()
        if self.damage and not self.records:
            raise CheckpointError(self.damage)
        self.plan = self._follower.plan_of(self.records[-1]) if self.records else RecordedPlan()

    def _add(self, record: EpochRecord) -> None:
        self._drop_former()
        self.records = [*self.records, record][-KEPT:]

    def _drop_former(self) -> None:
        """Forget the epochs of a checkpoint that another one has taken the place of."""
        if self._follower.beginnings > self._beginnings:
            self._beginnings, self.records = self._follower.beginnings, []
