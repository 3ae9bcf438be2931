"""The journal: one small file an epoch, put in place by one atomic step, and the flow's identity beside it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sluice.model.epoch import EpochRecord
from sluice.model.errors import CheckpointError, StorageError
from sluice.state.storage import Storage

FORMAT = 4
IDENTITY = "flow.json"
DIRECTORY = "journal"
KEPT = 100


class Journal:
    """The ordered, durable record of a flow's epochs in its checkpoint."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def identity(self) -> dict[str, Any] | None:
        """Whose checkpoint this is; None if it is nobody's yet."""
        if self.storage.size(IDENTITY) is None:
            return None
        return self._parsed(IDENTITY)

    def recognised(self) -> dict[str, Any]:
        """Whose checkpoint this is, for those who only read it; what is none, or of another version, is refused."""
        found = self.identity()
        if found is None:
            raise CheckpointError(f"{self.storage.uri} holds no Sluice checkpoint (there is no {IDENTITY} in it)")
        if found.get("format") != FORMAT:
            raise CheckpointError(
                f"{self.storage.uri} has format {found.get('format')}; this version of Sluice reads {FORMAT}"
            )
        return found

    def claim(self, identity: dict[str, Any]) -> dict[str, Any]:
        """Make this checkpoint the flow's, or see that it is; another flow's or version's is refused, untouched."""
        found = self.identity()
        if found is None:
            foreign = [n for n in self.storage.names() if not n.endswith(".tmp") and n != DIRECTORY]
            if foreign:
                raise CheckpointError(
                    f"checkpointLocation {self.storage.uri} is not empty ({', '.join(sorted(foreign)[:3])}, …) and was "
                    "not written by Sluice; give an empty or new directory"
                )
            self.storage.make_dir(DIRECTORY)
            self.storage.put_if_absent(IDENTITY, _bytes({"format": FORMAT, **identity}))
            found = self._parsed(IDENTITY)
        if found.get("format") != FORMAT:
            raise CheckpointError(
                f"checkpoint {self.storage.uri} has format {found.get('format')}, this version of Sluice reads format "
                f"{FORMAT}; nothing was touched. Use the version that wrote it, or a new checkpointLocation and path"
            )
        if not isinstance(found.get("id"), str):
            raise CheckpointError(f"{self.storage.path(IDENTITY)} is damaged: it has no id")
        differences = differing({k: v for k, v in identity.items() if k not in ("id", "says")}, found)
        if differences:
            raise CheckpointError(
                f"checkpoint {self.storage.uri} belongs to another flow: " + "; ".join(differences) + ". Nothing was "
                "touched. Use the flow that wrote it, or a new checkpointLocation and a new path"
            )
        return found

    def commit(self, record: EpochRecord) -> None:
        """Commit an epoch. This step alone decides whether it happened."""
        data = _bytes({"format": FORMAT, **record.as_json()})
        if not self.storage.put_if_absent(_name(record.number), data):
            raise CheckpointError(
                f"epoch {record.number} of {self.storage.uri} was committed by somebody else: another query is using "
                "this checkpoint; this one stops"
            )
        if record.number >= KEPT:
            self.storage.delete(_name(record.number - KEPT))

    def numbers(self) -> list[int]:
        """The epochs on record, oldest first (only the newest `KEPT` stay)."""
        names = (e.name for e in self.storage.files(DIRECTORY))
        ours = [n for n in names if n.endswith(".json")]
        foreign = [n for n in ours if not n.removesuffix(".json").isdecimal()]
        if foreign:
            raise CheckpointError(f"{self.storage.path(DIRECTORY)} holds {foreign[0]}, which no epoch has written")
        return sorted(int(n.removesuffix(".json")) for n in ours)

    def read(self, number: int) -> EpochRecord:
        doc = self._parsed(_name(number))
        if doc.get("format", FORMAT) != FORMAT:
            raise CheckpointError(
                f"{self.storage.path(_name(number))} has format {doc['format']}, this version of Sluice reads {FORMAT}"
            )
        try:
            return EpochRecord.from_json(doc)
        except (KeyError, TypeError, ValueError) as problem:
            raise CheckpointError(f"{self.storage.path(_name(number))} is damaged: {problem!r}") from problem

    def records(self, numbers: Sequence[int]) -> list[EpochRecord]:
        """Some of the epochs on record, but for those that a running query deletes meanwhile, as it does with its
        oldest."""
        found = []
        for number in numbers:
            try:
                found.append(self.read(number))
            except StorageError:
                if number in self.numbers():
                    raise
        return found

    def last(self) -> EpochRecord | None:
        """The epoch to go on from."""
        numbers = self.numbers()
        return self.read(numbers[-1]) if numbers else None

    def _parsed(self, name: str) -> dict[str, Any]:
        try:
            doc = json.loads(self.storage.read(name).to_pybytes())
        except ValueError as problem:
            raise CheckpointError(f"{self.storage.path(name)} is damaged: {problem}") from problem
        if not isinstance(doc, dict):
            raise CheckpointError(f"{self.storage.path(name)} is damaged: it holds no JSON object")
        return doc


def _name(number: int) -> str:
    return f"{DIRECTORY}/{number:012d}.json"


def _bytes(doc: dict[str, Any]) -> bytes:
    return json.dumps(doc, separators=(",", ":")).encode()


def differing(wanted: Any, found: Any, at: str = "") -> list[str]:
    """Where two identities differ, in words.

    >>> differing({"join": {"within": 5}}, {"join": {"within": 7}})
    ['join.within is 5, the checkpoint has 7']
    """
    if isinstance(wanted, dict) and isinstance(found, dict):
        keys = list(wanted)
        return [d for k in keys for d in differing(wanted[k], found.get(k), f"{at}.{k}" if at else k)]
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        pairs = enumerate(zip(wanted, found, strict=True))
        return [d for i, (a, b) in pairs for d in differing(a, b, f"{at}[{i}]")]
    return [] if wanted == found else [f"{at} is {json.dumps(wanted)}, the checkpoint has {json.dumps(found)}"]
