"""Checkpoints of older formats become ones of this version's, step by step from format to format.

A migration changes the small files alone: the flow's identity, its plans, the journal. What they were stays in a
directory of the checkpoint. `flow.json` is the switch: first it says that a migration is under way, so that no version
opens the checkpoint, and at last it has the new format. A migration that was cut off is gone through again, from the
files that were kept.
"""

from __future__ import annotations

import os
import socket
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from sluice.control.journal import (
    DIRECTORY,
    FORMAT,
    IDENTITY,
    MIGRATING,
    PLANS,
    EntryContent,
    Journal,
    name_entry,
    wrap,
)
from sluice.model.codec import DecodeError, decode, encode
from sluice.model.errors import CheckpointError, ProtocolError
from sluice.model.identity import CheckpointIdentity, Owner
from sluice.model.plan.recorded_plan import RecordedPlan

Document = dict[str, Any]
"""The content of a file, as some format has it."""
FROM = "migratingFrom"
"""In `flow.json`, while a migration is under way: the format that the checkpoint had."""


@dataclass(frozen=True)
class Documents:
    """What a checkpoint says of itself: whose it is, and its plans and the journal's entries by their files."""

    identity: Document
    plans: Mapping[str, Document]
    entries: Mapping[str, Document]


Migration = Callable[[Documents], Documents]
"""Makes documents of a format those of the next one."""


class NoMigration(Exception):
    """Why documents cannot become those of the next format."""


def list_origins(documents: Documents) -> Documents:
    """Format 18: what a query shows and what a state keeps may come from several origins, those of a union. The newest
    rows of a join are kept with an order by time, first rows by another key."""
    for plan in documents.plans.values():
        for operator in plan["operators"]:
            if _keeps_first_rows(operator) or _keeps_newest_pairs(plan, operator):
                raise NoMigration(f"its state is kept otherwise since: {operator['says']}")

    def listed(document: Document) -> Document:
        others = {name: value for name, value in document.items() if name != "origin"}
        return {**others, "origins": [document["origin"]]}

    def changed(plan: Document) -> Document:
        return {**plan, **{part: [listed(one) for one in plan[part]] for part in ("queries", "states")}}

    return replace(documents, plans={file: changed(plan) for file, plan in documents.plans.items()})


def _keeps_first_rows(operator: Document) -> bool:
    return str(operator["says"]).startswith("First ")


def _keeps_newest_pairs(plan: Document, operator: Document) -> bool:
    """Whether an operator keeps the newest rows of a join, without an order by time."""
    below = [
        plan["operators"][origin - len(plan["sources"])]
        for origin in operator["origins"]
        if origin >= len(plan["sources"])
    ]
    columns = {name for state in operator["states"] for name in _columns(plan, plan["states"][state]["stored"])}
    return any(len(one["origins"]) > 1 for one in below) and "__sequence" in columns and "__by_time" not in columns


def _columns(plan: Document, schema: int) -> list[str]:
    names: list[str] = pa.ipc.read_schema(pa.py_buffer(b64decode(plan["schemas"][schema]))).names
    return names


MIGRATIONS: Mapping[int, Migration] = {17: list_origins}
"""From each format to the next one."""


@dataclass(frozen=True)
class Migrated:
    """What became of a checkpoint: the format it had, and the directory with the files as they were."""

    before: int
    kept: str


def migrate(journal: Journal, run: str, since: float, take_over: bool = False) -> Migrated | None:
    """Bring a checkpoint to this version's format; None if it is of it already. One whose query runs is refused, unless
    it is to be taken over: its driver then stops at its next epoch."""
    before = journal.format
    if before is None:
        raise CheckpointError(f"{journal.storage.uri} holds no Sluice checkpoint (there is no {IDENTITY} in it)")
    if before == FORMAT:
        return None
    return _Migrating(journal).run(Owner.this_process(run, since, 0), take_over)


class _Migrating:
    """One migration."""

    def __init__(self, journal: Journal) -> None:
        self._journal, self._storage = journal, journal.storage
        identity = self._read(IDENTITY)
        self._is_resumed = identity["format"] == MIGRATING
        self._before = int(identity[FROM] if self._is_resumed else identity["format"])
        self._identity = {**{name: value for name, value in identity.items() if name != FROM}, "format": self._before}
        self._kept = f"format-{self._before}"

    def run(self, owner: Owner, take_over: bool) -> Migrated:
        migrations = self._find_migrations()
        if not take_over:
            self._refuse_if_running()
        if not self._is_resumed:
            self._storage.delete_tree(self._kept)  # of an earlier migration, from which somebody went back
        self._write(IDENTITY, {**self._identity, "format": MIGRATING, FROM: self._before})
        last = self._fence(owner)
        self._keep_files()
        documents = self._kept_documents()
        try:
            migrated = documents
            for migration in migrations:
                migrated = migration(migrated)
            _check(migrated)
        except NoMigration as reason:
            self._restore()
            raise CheckpointError(
                f"{self._storage.uri} cannot be migrated from format {self._before}, and is as it was; {reason}. Run "
                "it with the version that wrote it, or begin anew with a new checkpointLocation and path"
            ) from None
        except (DecodeError, ProtocolError, KeyError, TypeError) as problem:
            self._restore()
            raise CheckpointError(
                f"{self._storage.uri} is not as format {self._before} has it, and is as it was: {problem!r}"
            ) from problem
        self._write_changed(documents, migrated)
        if self._journal.indexes()[-1:] != last:
            raise CheckpointError(
                f"another driver has taken {self._storage.uri} over meanwhile: stop its query, and migrate again"
            )
        self._write(IDENTITY, {**migrated.identity, "format": FORMAT})
        return Migrated(self._before, self._storage.path(self._kept))

    def _find_migrations(self) -> list[Migration]:
        if self._before > FORMAT:
            raise CheckpointError(
                f"{self._storage.uri} has format {self._before}, and this version of Sluice has {FORMAT}: a newer one "
                "wrote it. Use that; there is no way back"
            )
        if self._before < min(MIGRATIONS):
            raise CheckpointError(
                f"{self._storage.uri} has format {self._before}, from before the first release: migrations begin with "
                f"format {min(MIGRATIONS)}. Run the query with the version that wrote it, or begin anew with a new "
                "checkpointLocation and path"
            )
        return [MIGRATIONS[number] for number in range(self._before, FORMAT)]

    def _refuse_if_running(self) -> None:
        for index in self._journal.indexes()[-1:]:
            owner = decode(encode(self._read(name_entry(index))["owner"]), Owner)
            if is_alive(owner):
                raise CheckpointError(
                    f"{self._storage.uri} belongs to {owner}, which is alive: stop its query. If it has stopped, and "
                    "the process goes on with something else, give --take-over"
                )

    def _fence(self, owner: Owner) -> list[int]:
        """Put the newest entry again, under an owner of its own: no driver that went on from the one before can commit
        any more. Returns the entry's index, if there is any."""
        while indexes := self._journal.indexes()[-1:]:
            newest, checksum = self._journal.read_content(name_entry(indexes[0]))
            index = indexes[0] + 1
            entry = {**decode(newest, Document), "index": index, "owner": vars(replace(owner, term=index))}
            data, _ = wrap(encode({**entry, "before": checksum}))
            if self._storage.put_if_absent(name_entry(index), data):
                return [index]
        return []

    def _keep_files(self) -> None:
        """Copy the files that are not kept yet: those that are may have been changed since."""
        for directory in (PLANS, DIRECTORY):
            self._storage.make_dir(f"{self._kept}/{directory}")
            for name in sorted(self._storage.files_in(directory) - self._migrated_files(directory)):
                if name.endswith(".json"):
                    self._storage.put_if_absent(f"{self._kept}/{name}", self._storage.read(name).to_pybytes())
        self._storage.put_if_absent(f"{self._kept}/{IDENTITY}", wrap(encode(self._identity))[0])

    def _migrated_files(self, directory: str) -> set[str]:
        return {name.removeprefix(f"{self._kept}/") for name in self._storage.files_in(f"{self._kept}/{directory}")}

    def _kept_documents(self) -> Documents:
        plans, entries = (
            {name: self._read(f"{self._kept}/{name}") for name in sorted(self._migrated_files(directory))}
            for directory in (PLANS, DIRECTORY)
        )
        return Documents(self._identity, plans, entries)

    def _write_changed(self, documents: Documents, migrated: Documents) -> None:
        """Write what differs, and the entries behind one that does: each has the checksum of the one before."""
        for file, plan in migrated.plans.items():
            if plan != documents.plans.get(file):
                self._write(file, plan)
        before: dict[int, int] = {}
        for file, entry in sorted(migrated.entries.items()):
            index = int(entry["index"])
            chained = {**entry, "before": before.get(index - 1, entry["before"])}
            if chained != documents.entries.get(file):
                before[index] = self._write(file, chained)

    def _restore(self) -> None:
        for directory in (PLANS, DIRECTORY):
            for name in self._migrated_files(directory):
                self._storage.write(name, [self._storage.read(f"{self._kept}/{name}")])
        self._write(IDENTITY, self._identity)

    def _read(self, file: str) -> Document:
        return decode(self._journal.read_content(file)[0], Document)

    def _write(self, file: str, document: Document) -> int:
        data, its_checksum = wrap(encode(document))
        self._storage.write(file, [data])
        return its_checksum


def _check(documents: Documents) -> None:
    """See that this version can read all of it."""
    decode(encode(documents.identity), CheckpointIdentity)
    for plan in documents.plans.values():
        decode(encode(plan), RecordedPlan)
    for entry in documents.entries.values():
        decode(encode(entry), EntryContent)


def is_alive(owner: Owner) -> bool:
    """Whether a driver's process lives, as far as this machine can tell."""
    if owner.host != socket.gethostname():
        return False
    try:
        status = Path(f"/proc/{owner.process}/stat").read_text()
        boot = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime"))
    except (OSError, StopIteration):
        return False
    fields = status[status.rindex(")") + 2 :].split()
    started = int(boot.split()[1]) + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return fields[0] not in "ZX" and started <= owner.since + 1  # else the number was given to another process
