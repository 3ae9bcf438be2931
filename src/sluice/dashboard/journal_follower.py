"""The epochs of a checkpoint as another process commits them, each once; the checkpoint is only read."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sluice.control.journal import Journal
from sluice.model.errors import CheckpointError, StorageError
from sluice.model.plan.recorded_plan import RecordedPlan
from sluice.record.epoch import EpochRecord


class JournalFollower:
    """What a flow is, and how far its journal was read: up to entry `index`. It is begun anew, and `beginnings` counts
    that, if another checkpoint takes the place of the one that was read."""

    def __init__(self, journal: Journal, most: int, with_state: bool = True) -> None:
        """Of what was committed between two looks, it hands out the newest `most` epochs."""
        self.journal, self._most, self._with_state = journal, most, with_state
        self.identity = journal.recognised()
        self.index, self.beginnings = -1, 0
        self.damage = ""
        """Why an entry was passed by, until an epoch after it is there."""
        self._number = -1
        self._plan_file, self._plan = "", RecordedPlan()

    def read_on(self, take: Callable[[EpochRecord], None]) -> None:
        """Hand over what was committed since the last time, oldest first. A damaged entry is passed by, as is an epoch
        that `take` refuses for a damaged plan; a store that is out of reach is asked again for the same ones."""
        damage, begin = "", self.index
        try:
            while True:
                before = self.index
                try:
                    for record in self._read_new():
                        take(record)
                    break
                except CheckpointError as refused:
                    if self.index == before:
                        raise
                    damage = str(refused)
        finally:
            if self.index != begin:
                self.damage = damage

    def _read_new(self) -> Iterator[EpochRecord]:
        """What was committed since the last time, oldest first. A damaged entry is refused, and not read again."""
        indexes = self.journal.indexes()
        newest = indexes[-1] if indexes else -1
        if newest < self.index:  # the checkpoint was removed: there may be a new one in its place
            self.identity = self.journal.recognised()
            self.index = self._number = -1
            self.beginnings += 1
        for index in [i for i in indexes if i > self.index][-self._most :]:
            record = self._read(index)
            self.index = index
            if record is not None and record.number > self._number:  # else only its owner is new
                self._number = record.number
                yield record

    def plan_of(self, record: EpochRecord) -> RecordedPlan:
        """The plan that an epoch went by; of an epoch without one, and of one whose plan is gone, an empty one."""
        if record.plan != self._plan_file:
            self._plan = self._read_plan(record.plan) if record.plan else RecordedPlan()
            self._plan_file = record.plan
        return self._plan

    def _read(self, index: int) -> EpochRecord | None:
        """An entry's record, None if a running query deletes it meanwhile, as it does with its oldest."""
        try:
            return self.journal.read(index, self._with_state).record
        except StorageError:
            if index in self.journal.indexes():
                raise
            return None
        except CheckpointError:
            self.index = index
            raise

    def _read_plan(self, file: str) -> RecordedPlan:
        try:
            return self.journal.read_plan(file)
        except StorageError:
            if self.journal.storage.size(file) is not None:
                raise
            return RecordedPlan()
