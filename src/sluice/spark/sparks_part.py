"""Spark's own part of a checkpoint: what each batch goes up to (`offsets`), which batches are over (`commits`), and
which files its file sources have listed (`sources`).

Spark writes these files without having them synced. After a power cut the newest may be gone or empty, and Spark would
plan their batch anew, over other input. So they are synced before an epoch is committed, the epoch's record says what
its batch was, and a checkpoint whose two parts do not fit is refused before anything is touched.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import count
from typing import Any

from sluice.control.journal import FORMAT, Journal
from sluice.engine.checkpoint import PARTS_DIFFER
from sluice.model.codec import checksum
from sluice.model.errors import CheckpointError, StorageError
from sluice.model.identity import BATCHES
from sluice.record.epoch import EpochRecord
from sluice.state.files.storage import Storage

SPARK = "spark"
OFFSETS, COMMITS, SOURCES, METADATA = f"{SPARK}/offsets", f"{SPARK}/commits", f"{SPARK}/sources", f"{SPARK}/metadata"
_TAIL = 1 << 16
"""Bytes at the end of a compact list that are read at first: its newest entries stand there."""


class SparksPart:
    """What Spark keeps in the checkpoint of a query. `directories` has a number for each source of its plan, by which
    Spark keeps its lists: those that are one and the same, as a DataFrame that two streams are made of, share theirs.
    None where only the checkpoint is there."""

    def __init__(self, storage: Storage, directories: Sequence[int] | None = None) -> None:
        self.storage, self._directories = storage, directories
        self._planned: dict[int, tuple[Any, ...]] = {}
        """How far the newest batches go, as they were read: what is new in a batch is seen by the one before it."""

    def check(self, newest: EpochRecord | None) -> None:
        """See that neither this part nor the journal lacks what the other has. Without its offsets Spark would read
        files again, or leave some out; without its journal all state would be left over."""
        batch = -1 if newest is None else newest.batch
        planned, ended = self._numbers(OFFSETS), self._numbers(COMMITS)
        if batch >= 0 and not planned:
            raise CheckpointError(f"checkpoint {self.storage.uri} has a journal, but no {OFFSETS}: {PARTS_DIFFER}")
        if max(ended, default=-1) > batch or max(planned, default=-1) > batch + 1:
            raise CheckpointError(
                f"the journal of checkpoint {self.storage.uri} ends at batch {batch}, Spark's part of it at "
                f"{max(ended | planned)}: {PARTS_DIFFER}"
            )
        if newest is not None and batch >= 0:
            self._refuse_gaps(batch, planned)
            if self._can_describe(batch, planned) and self.describe_batch(batch) != newest.batch_input:
                raise CheckpointError(
                    f"batch {batch} is not the same in the journal of checkpoint {self.storage.uri} and in {OFFSETS}: "
                    f"{PARTS_DIFFER}"
                )
        self._refuse_torn(batch + 1, batch + 1 in planned)

    def check_with(self, journal: Journal) -> None:
        """The same with the journal's newest record. Another driver may be at work, and both parts move on."""
        if journal.format not in (None, FORMAT):
            return  # it is refused when it is claimed
        identity = journal.identity()
        if identity is not None and identity.input != BATCHES:
            return  # Spark has no part in it
        while True:
            newest = journal.newest()
            try:
                return self.check(None if newest is None else newest.record)
            except CheckpointError:
                if journal.indexes()[-1:] == ([] if newest is None else [newest.index]):
                    raise

    def describe_batch(self, batch: int) -> str:
        """What a batch has in it, as a short hash: the files of sources that list files, of others how far it goes.
        When it was planned, and under which settings, does not matter."""
        before = self._offsets_before(batch)
        content: list[Any] = []
        for source, offset in enumerate(self._offsets(batch)):
            numbers = _new_lists(source, before, offset)
            files = sorted(entry for number in numbers for entry in self._entries(source, number))
            content.append(offset if _last_list(offset) is None else files)
        return f"{checksum(json.dumps(content, sort_keys=True).encode()):016x}"

    def make_durable(self, batch: int) -> None:
        """Have all that Spark wrote to plan a batch outlast a power cut; other places than a local disk see to that."""
        if not self.storage.local:
            return
        names = [METADATA, f"{OFFSETS}/{batch}"]
        before = self._offsets_before(batch)
        for source, offset in enumerate(self._offsets(batch)):
            names += [self._list_name(source, number) for number in _new_lists(source, before, offset)]
        self.storage.sync([*names, *map(_hadoop_checksum, names)])

    def _refuse_gaps(self, batch: int, planned: set[int]) -> None:
        """Refuse to go on from a batch if a file is missing that Spark needs for it. Once the next one is planned it
        needs those before the batch no more, and may have deleted them."""
        for needed in (batch, batch - 1):
            if needed >= 0 and needed not in planned and not (needed < batch and batch + 1 in planned):
                raise self._lacks(f"{OFFSETS}/{needed}", f"the journal has batch {batch}")
        if not self._knows_directories(batch):
            return
        for source, offset in enumerate(self._offsets(batch)):
            last = _last_list(offset)
            if last is None:
                continue
            directory = self._directory(source)
            names = {entry.name for entry in self.storage.files(directory)}
            compact = [int(name.removesuffix(".compact")) for name in names if name.endswith(".compact")]
            for number in range(max((c for c in compact if c <= last), default=-1) + 1, last + 1):
                if str(number) not in names and not any(c > number for c in compact):
                    raise self._lacks(f"{directory}/{number}", f"batch {batch} has files up to list {last}")

    def _can_describe(self, batch: int, planned: set[int]) -> bool:
        return (batch == 0 or batch - 1 in planned) and self._knows_directories(batch)

    def _knows_directories(self, batch: int) -> bool:
        """Whether it is known where each source's lists are. Without a plan, sources that go equally far may be one."""
        offsets = self._offsets(batch)
        if self._directories is not None or all(offset not in offsets[:at] for at, offset in enumerate(offsets)):
            return True
        return all(self.storage.files(f"{SOURCES}/{source}") for source in range(len(offsets)))

    def _directory(self, source: int) -> str:
        """Where the lists of a source are. That a plan has fewer sources than it had is for Spark to tell."""
        numbers = self._directories or ()
        return f"{SOURCES}/{numbers[source] if source < len(numbers) else source}"

    def _refuse_torn(self, batch: int, is_planned: bool) -> None:
        """Refuse what a power cut left of a batch that was about to begin, or of the word that one is over, and say how
        to go on. What else is of earlier ones was synced."""
        name = f"{OFFSETS}/{batch}"
        torn = [name] if is_planned and len(self._lines(name)) < 3 else []
        directories = [COMMITS]
        for source in count():
            if not self.storage.files(f"{SOURCES}/{source}"):
                break
            directories.append(f"{SOURCES}/{source}")
        for directory in directories:
            entries = self.storage.files(directory)
            torn += [f"{directory}/{e.name}" for e in entries if e.size == 0 and not e.name.startswith(".")]
        begun = [name] if is_planned and name not in torn and any(SOURCES in one for one in torn) else []
        checksums = [c for d in (OFFSETS, *directories) for c in self._left_over_checksums(d, {*torn, *begun})]
        if torn or checksums:
            useless = [*torn, *begun, *checksums]
            raise CheckpointError(
                f"{self.storage.path(useless[0])} is cut short, as by a power cut, and nothing in the journal needs "
                f"it: delete {', '.join(useless)}, and the query goes on where it was"
            )

    def _left_over_checksums(self, directory: str, torn: set[str]) -> list[str]:
        """Checksums of Hadoop's whose files are gone, or are to go. Spark would take them for those of another query
        when it writes the file."""
        names = {entry.name for entry in self.storage.files(directory)}
        whole = [_number(name) for name in names if f"{directory}/{name}" not in torn]
        newest = max((number for number in whole if number is not None), default=-1)
        hidden = sorted(name for name in names if name.startswith(".") and name.endswith(".crc"))
        numbers = {name: _number(name[1:].removesuffix(".crc")) for name in hidden}
        return [f"{directory}/{name}" for name, number in numbers.items() if number is not None and number > newest]

    def _offsets(self, batch: int) -> tuple[Any, ...]:
        """How far a batch goes, source by source."""
        name = f"{OFFSETS}/{batch}"
        try:
            version, _settings, *offsets = [*self._lines(name), "", ""]
        except StorageError as problem:
            raise self._lacks(name, f"batch {batch} was planned") from problem
        offsets = _by_number(offsets) if version == "v2" else offsets
        planned = tuple(_parse(offset) for offset in offsets if offset)
        self._planned = {n: of_batch for n, of_batch in self._planned.items() if n == batch - 1} | {batch: planned}
        return planned

    def _offsets_before(self, batch: int) -> tuple[Any, ...]:
        """How far the batch before goes. It is over, and need not be read again."""
        return () if batch == 0 else self._planned.get(batch - 1) or self._offsets(batch - 1)

    def _entries(self, source: int, number: int) -> list[list[Any]]:
        """The files of a source's list: where each lies, and since when."""
        try:
            lines = self._lines(f"{self._directory(source)}/{number}")[1:]
        except StorageError:  # it is a compact one, or in one
            lines = self._newest_lines(self._list_name(source, number), number)
        entries = [entry for entry in map(_parse, lines) if isinstance(entry, dict)]
        return [[e.get("path"), e.get("timestamp")] for e in entries if e.get("batchId") == number]

    def _list_name(self, source: int, number: int) -> str:
        """The file with the entries of a source's list."""
        directory = self._directory(source)
        for name in (f"{directory}/{number}", f"{directory}/{number}.compact"):
            if self.storage.size(name) is not None:
                return name
        # its entries are in a later compact list as well, after which it may have been deleted
        names = (entry.name for entry in self.storage.files(directory))
        later = [int(name.removesuffix(".compact")) for name in names if name.endswith(".compact")]
        compact = min((c for c in later if c > number), default=None)
        if compact is None:
            raise self._lacks(f"{directory}/{number}", "a batch has its files")
        return f"{directory}/{compact}.compact"

    def _newest_lines(self, compact: str, number: int) -> list[str]:
        """The end of a compact list, from an entry before those of a list on that is part of it."""
        size, length = self.storage.size(compact) or 0, _TAIL
        while True:
            length = min(length, size)
            data = self.storage.read(compact, size - length, length).to_pybytes()
            lines = data.decode(errors="replace").split("\n")[1:]  # the first is the version, or cut
            first = _parse(lines[0]) if lines else None
            if length == size or (isinstance(first, dict) and first.get("batchId", number) < number):
                return lines
            length *= 4

    def _lines(self, name: str) -> list[str]:
        return self.storage.read(name).to_pybytes().decode(errors="replace").split("\n")

    def _numbers(self, directory: str) -> set[int]:
        return {int(entry.name) for entry in self.storage.files(directory) if entry.name.isdecimal()}

    def _lacks(self, name: str, although: str) -> CheckpointError:
        return CheckpointError(f"checkpoint {self.storage.uri} lacks {name}, although {although}: {PARTS_DIFFER}")


def _by_number(lines: Sequence[str]) -> list[str]:
    """Offsets with their source's number before them, as in version 2 of Spark's log, one a source.

    >>> _by_number(['2:{"logOffset":4}', "0:17", ""])
    ['17', '-', '{"logOffset":4}']
    """
    offsets = {line.partition(":")[0]: line.partition(":")[2] for line in lines if line}
    if not all(number.isdecimal() for number in offsets):
        return sorted(filter(None, lines))  # they have names
    return [offsets.get(str(number), "-") for number in range(max(map(int, offsets), default=-1) + 1)]


def _parse(text: str) -> Any:
    """An offset, or a list's entry, as it is meant: JSON in most sources, whose order of keys says nothing."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _last_list(offset: Any) -> int | None:
    """The number of a file source's newest list, None if it is another source's offset."""
    number = offset.get("logOffset") if isinstance(offset, dict) and len(offset) == 1 else None
    return number if isinstance(number, int) else None


def _new_lists(source: int, before: tuple[Any, ...], offset: Any) -> range:
    """The lists of a source's files that are new in a batch; none if the source has no such lists."""
    last = _last_list(offset)
    first = _last_list(before[source]) if source < len(before) else None
    return range(0) if last is None else range(0 if first is None else first + 1, last + 1)


def _number(name: str) -> int | None:
    """The number of a batch or of a list, None of files that are neither.

    >>> _number("7"), _number("9.compact"), _number("9.tmp")
    (7, 9, None)
    """
    number = name.removesuffix(".compact")
    return int(number) if number.isdecimal() else None


def _hadoop_checksum(name: str) -> str:
    """The file beside another one in which Hadoop keeps its checksums on a local disk."""
    directory, _, base = name.rpartition("/")
    return f"{directory}/.{base}.crc"
