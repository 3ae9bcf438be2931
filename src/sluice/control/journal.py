"""The journal: one small file an entry, put in place by one atomic step, and the flow's identity and plans beside it.

An entry is an epoch's record under the driver that owns the checkpoint. Entries are numbered one by one, and each is
put only where none is yet, so of two drivers that go on from the same entry one alone gets further. A driver takes the
checkpoint over by putting the newest record again, as an entry of its own: from then on no earlier owner can commit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sluice.control.identity import differing_flows
from sluice.model.codec import DecodeError, Value, checksum, decode, encode
from sluice.model.epoch.attempt import Attempt
from sluice.model.epoch.packed_manifests import PackedManifests
from sluice.model.epoch.results import PackedListings
from sluice.model.errors import CheckpointError, ProtocolError, StorageError
from sluice.model.identity import CheckpointIdentity, Owner
from sluice.model.ids import Site
from sluice.model.plan.recorded_plan import RecordedPlan
from sluice.record.epoch import EpochRecord
from sluice.state.files.storage import Storage

FORMAT = 18
MIGRATING = 0
"""In place of the format, while a checkpoint is brought from one to another."""
IDENTITY = "flow.json"
PLANS = "flow"
"""The directory with the plans that epochs on record went by."""
DIRECTORY = "journal"
KEPT = 100
_CHECKED = re.compile(rb'\{"checksum":"([0-9a-f]{16})","content":(.*)\}', re.DOTALL)


@dataclass(frozen=True)
class EntryContent:
    """An entry as it is written: the record's manifests and listings are packed, beside it."""

    index: int
    owner: Owner
    before: int
    state: PackedManifests
    listings: PackedListings
    record: EpochRecord


@dataclass(frozen=True)
class Entry:
    """An epoch's record in its place in the journal. `before` is the checksum of the entry before, `checksum` its
    own."""

    index: int
    owner: Owner
    before: int
    record: EpochRecord
    checksum: int


class Journal:
    """The ordered, durable record of a flow's epochs in its checkpoint."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.head: Entry | None = None
        """The newest entry that this process put; None as long as it only reads."""

    @property
    def format(self) -> int | None:
        """Of which format the checkpoint is; None if it is nobody's yet."""
        return None if self.storage.size(IDENTITY) is None else self._read_format_and_identity()[0]

    def identity(self) -> CheckpointIdentity | None:
        """Whose checkpoint this is; None if it is nobody's yet. What another version wrote is refused."""
        if self.storage.size(IDENTITY) is None:
            return None
        return self._read_identity()

    def recognised(self) -> CheckpointIdentity:
        """Whose checkpoint this is, for those who only read it; what is none, or of another version, is refused."""
        if self.storage.size(IDENTITY) is None:
            raise CheckpointError(f"{self.storage.uri} holds no Sluice checkpoint (there is no {IDENTITY} in it)")
        return self._read_identity()

    def claim(self, identity: CheckpointIdentity) -> CheckpointIdentity:
        """Make this checkpoint the flow's, or see that it is; another flow's or version's is refused, untouched."""
        recorded = self.identity()
        if recorded is None:
            foreign = [n for n in self.storage.names() if not n.endswith(".tmp") and n != DIRECTORY]
            if foreign:
                raise CheckpointError(
                    f"checkpointLocation {self.storage.uri} is not empty ({', '.join(sorted(foreign)[:3])}, …) and was "
                    "not written by Sluice; give an empty or new directory"
                )
            self.storage.make_dir(DIRECTORY)
            self.storage.put_if_absent(IDENTITY, wrap(encode({"format": FORMAT, **vars(identity)}))[0])
            recorded = self._read_identity()
        differences = differing_flows(identity, recorded)
        if differences:
            raise CheckpointError(
                f"checkpoint {self.storage.uri} belongs to another flow: " + "; ".join(differences) + ". Nothing was "
                "touched. Use the flow that wrote it, or a new checkpointLocation and a new path"
            )
        return recorded

    def write_plan(self, plan: RecordedPlan, epoch: int, run: str) -> str:
        """Write the plan that an epoch is to go by; nobody reads it before a record names its file. Returns that."""
        data, file = wrap(encode(plan))[0], name_plan(plan, epoch, run)
        self.storage.make_dir(PLANS)
        self.storage.put_if_absent(file, data)
        return file

    def read_plan(self, file: str) -> RecordedPlan:
        """The plan that an epoch on record went by."""
        content, its_checksum = self.read_content(file)
        if its_checksum is None:
            raise CheckpointError(f"{self.storage.path(file)} is damaged: it has no checksum")
        try:
            return decode(content, RecordedPlan)
        except DecodeError as problem:
            raise CheckpointError(f"{self.storage.path(file)} is damaged: {problem}") from problem

    def plan_after(self, records: Sequence[EpochRecord]) -> RecordedPlan:
        """The plan that the last of some epochs went by; where there is none yet, the one that the first will go by."""
        return self.read_plan(records[-1].plan) if records else self.newest_plan() or RecordedPlan()

    def newest_with_plan(self) -> tuple[Entry, RecordedPlan] | None:
        """The newest entry and the plan that its epoch went by; None if there is no entry yet. The query may go on
        meanwhile, and delete a plan that it no longer goes by."""
        while (newest := self.newest()) is not None:
            try:
                return newest, self.read_plan(newest.record.plan)
            except StorageError:
                if self.indexes()[-1:] == [newest.index]:
                    raise
        return None

    def newest_plan(self) -> RecordedPlan | None:
        """The plan that the newest epoch went by; None if there is no entry yet. The query may go on meanwhile."""
        for entry in self.entries(reversed(self.indexes())):
            try:
                return self.read_plan(entry.record.plan)
            except StorageError:
                if entry.index in self.indexes():
                    raise
        return None

    def take_over(self, run: str, since: float, newest: Entry | None, first: EpochRecord) -> bool:
        """Make this process the owner of a checkpoint whose newest entry is `newest`, with the record `first` if there
        is none; False if there is a newer one meanwhile."""
        index, before, record = (0, 0, first) if newest is None else (newest.index + 1, newest.checksum, newest.record)
        return self._put(index, Owner.this_process(run, since, index), before, record)

    def commit(self, record: EpochRecord) -> None:
        """Commit an epoch. This step alone decides whether it happened."""
        assert self.head is not None, "only the owner of a checkpoint commits"
        index = self.head.index + 1
        try:
            first = self._put(index, self.head.owner, self.head.checksum, record)
        except StorageError as problem:
            self.refuse_if_taken_over(problem)
            raise
        if not first:
            self.refuse_if_taken_over()
        indexes = self.indexes()
        if indexes[-1] > index:  # entries as old as this one are deleted, so that there was room for it
            self.storage.delete(name_entry(index))
            self.refuse_if_taken_over()
        self.storage.delete_all(name_entry(i) for i in indexes if i <= index - KEPT)

    def remove_drafts(self) -> None:
        """Remove what killed drivers left half put; later owners' drafts are of later entries."""
        assert self.head is not None
        drafts = [f"{DIRECTORY}/{e.name}" for e in self.storage.files(DIRECTORY) if e.name.endswith(".tmp")]
        self.storage.delete_all(name for name in drafts if name < name_entry(self.head.index + 1))
        root = [e.name for e in self.storage.files()]
        self.storage.delete_all(n for n in root if n.startswith(IDENTITY) and n.endswith(".tmp"))

    def is_at(self, record: EpochRecord) -> bool:
        """Whether this is the record of the newest entry that this process put."""
        return self.head is not None and self.head.record.number == record.number

    def is_owned(self) -> bool:
        """Whether no other driver has taken the checkpoint over."""
        return self.head is not None and self.indexes()[-1:] == [self.head.index]

    def refuse_if_taken_over(self, problem: Exception | None = None) -> None:
        """Tell the user of another driver's ownership, if that is why there is a problem."""
        if self.head is None or self.is_owned():
            return
        newest = self.newest()
        now = "another one" if newest is None or newest.owner == self.head.owner else str(newest.owner)
        raise CheckpointError(
            f"checkpoint {self.storage.uri} was taken over by another driver and belongs to {now}; this is "
            f"{self.head.owner}, which stops. What it had not committed was not shown"
        ) from problem

    def indexes(self) -> list[int]:
        """The entries there are, oldest first (only the newest `KEPT` stay)."""
        names = (e.name for e in self.storage.files(DIRECTORY))
        ours = [n for n in names if n.endswith(".json")]
        foreign = [n for n in ours if not n.removesuffix(".json").isdecimal()]
        if foreign:
            raise CheckpointError(f"{self.storage.path(DIRECTORY)} holds {foreign[0]}, which no epoch has written")
        return sorted(int(n.removesuffix(".json")) for n in ours)

    def read(self, index: int, with_state: bool = True) -> Entry:
        """An entry; without its state, it has neither the manifests nor the listings of results."""
        name = name_entry(index)
        content, its_checksum = self.read_content(name)
        if its_checksum is None:
            raise CheckpointError(f"{self.storage.path(name)} is damaged: it has no checksum")
        try:
            entry = decode(content, EntryContent)
        except (DecodeError, ProtocolError) as problem:
            raise CheckpointError(f"{self.storage.path(name)} is damaged: {problem}") from problem
        if entry.index != index:
            raise CheckpointError(f"{self.storage.path(name)} is damaged: it is entry {entry.index}")
        record = entry.record
        if with_state:
            record = replace(record, manifests=entry.state.unpack(), listings=entry.listings.unpack())
        return Entry(entry.index, entry.owner, entry.before, record, its_checksum)

    def entries(self, indexes: Iterable[int], passed_by: list[CheckpointError] | None = None) -> Iterable[Entry]:
        """Some of the entries, but for those that a running query deletes meanwhile, as it does with its oldest. A
        damaged one is refused, or passed by where there is a list for the reason."""
        for index in indexes:
            try:
                yield self.read(index)
            except StorageError:
                if index in self.indexes():
                    raise
            except CheckpointError as damage:
                if passed_by is None:
                    raise
                passed_by.append(damage)

    def epochs(self, most: int = KEPT, passed_by: list[CheckpointError] | None = None) -> list[EpochRecord]:
        """The newest epochs on record, oldest first; damaged entries as in `entries`."""
        records: dict[int, EpochRecord] = {}
        for entry in self.entries(reversed(self.indexes()), passed_by):
            if len(records) == most or entry.record.number < 0:
                break
            records.setdefault(entry.record.number, entry.record)
        return list(records.values())[::-1]

    def newest(self) -> Entry | None:
        """The entry to go on from; one that does not fit the entry before it is refused."""
        indexes = self.indexes()
        if not indexes:
            return None
        newest = self.read(indexes[-1])
        if indexes[-2:-1] == [newest.index - 1]:
            for before in self.entries(indexes[-2:-1]):
                if before.checksum != newest.before:
                    raise CheckpointError(
                        f"{self.storage.path(name_entry(newest.index))} does not continue {name_entry(before.index)}: "
                        "one of them is of another checkpoint, or damaged"
                    )
        return newest

    def _put(self, index: int, owner: Owner, before: int, record: EpochRecord) -> bool:
        state, listings = PackedManifests.of(record.manifests), PackedListings.of(record.listings)
        bare = replace(record, manifests=(), listings=())
        data, its_checksum = wrap(encode(EntryContent(index, owner, before, state, listings, bare)))
        put = self.storage.put_if_absent(name_entry(index), data)
        if put:
            self.head = Entry(index, owner, before, record, its_checksum)
        return put

    def read_content(self, name: str) -> tuple[bytes, int | None]:
        """A file's content and its checksum, None where there is none around it."""
        data = self.storage.read(name).to_pybytes()
        checked = _CHECKED.fullmatch(data)
        if checked is None:
            return data, None
        if checksum(checked[2]) != int(checked[1], 16):
            raise CheckpointError(f"{self.storage.path(name)} is damaged: its checksum differs")
        return checked[2], int(checked[1], 16)

    def _read_identity(self) -> CheckpointIdentity:
        its_format, content = self._read_format_and_identity()
        if its_format == MIGRATING:
            raise CheckpointError(
                f"a migration of checkpoint {self.storage.uri} was cut off: sluice migrate {self.storage.uri} goes on"
            )
        if its_format != FORMAT:
            is_older = its_format is not None and its_format < FORMAT
            advice = (
                f"sluice migrate {self.storage.uri} brings it over" if is_older else "Use the version that wrote it"
            )
            raise CheckpointError(
                f"checkpoint {self.storage.uri} has format {its_format}; this version of Sluice reads format {FORMAT}. "
                f"Nothing was touched. {advice}, or begin anew with a new checkpointLocation and path"
            )
        return self._decoded(content, CheckpointIdentity)

    def _read_format_and_identity(self) -> tuple[int | None, bytes]:
        """What older formats wrote had another checksum or none: its format is read, to be refused by it."""
        content, its_checksum = self.read_content(IDENTITY)
        doc = self._decoded(content, dict[str, Any])
        if its_checksum is None:
            where = self.storage.path(IDENTITY)
            doc = doc["content"] if isinstance(doc.get("content"), dict) else doc
            if not isinstance(doc.get("format"), int):
                raise CheckpointError(f"{where} is damaged: it is not as Sluice writes it")
            if doc["format"] == FORMAT:
                raise CheckpointError(f"{where} is damaged: it has no checksum")
        return doc.get("format"), content

    def _decoded(self, content: bytes, type_: type[Value]) -> Value:
        try:
            return decode(content, type_)
        except DecodeError as problem:
            raise CheckpointError(f"{self.storage.path(IDENTITY)} is damaged: {problem}") from problem


def name_plan(plan: RecordedPlan, epoch: int, run: str) -> str:
    """The file of a plan by which a run goes from an epoch on; another plan has another one."""
    return f"{PLANS}/{Attempt(epoch, Site(0), run, f'{checksum(encode(plan)):016x}')}.json"


def name_entry(index: int) -> str:
    return f"{DIRECTORY}/{index:012d}.json"


def wrap(content: bytes) -> tuple[bytes, int]:
    """A file's bytes: the content with its checksum before it; and the checksum."""
    its_checksum = checksum(content)
    return b'{"checksum":"%016x","content":%b}' % (its_checksum, content), its_checksum
