"""The log of the files that epochs took in: what an epoch adds to it is in the epoch's own record, or in a list beside
the journal that the record names.

A record names the newest files itself. When these are too many they become a list, together with the lists that are
not at least twice as long as what they are merged with. So there are few lists, and each name is written a few times
however many there are. Files that are too old to matter are left out when lists are merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from sluice.model.codec import checksum
from sluice.model.epoch.attempt import Attempt
from sluice.model.epoch.taken_files import FileList, TakenFile, TakenFiles
from sluice.model.errors import CheckpointError, StorageError
from sluice.model.ids import Site
from sluice.state.files.storage import Storage

FILE_LISTS = "input"
"""The directory of a checkpoint with lists of files that were taken in."""
NAMED_AT_MOST = 100
"""How many files a record names itself."""
_SCHEMA = pa.schema([("source", pa.int32()), ("path", pa.string()), ("modified", pa.int64()), ("epoch", pa.int64())])


@dataclass(frozen=True)
class NewFile:
    """A file that an epoch takes in."""

    source: int
    path: str
    modified: int


@dataclass(frozen=True)
class NewFiles:
    """What an epoch takes in. For each source it is said from which time on files matter that were taken in, None if
    all do."""

    files: tuple[NewFile, ...]
    keep_from: tuple[int | None, ...]


class FileLog:
    """The lists of files in a checkpoint."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def add(self, before: TakenFiles, new: NewFiles, epoch: int, run: str) -> TakenFiles:
        """What the record of an epoch is to name. A list that this takes is written; nobody reads it before a record
        names it."""
        recent = (*before.recent, *(TakenFile(file.source, file.path, file.modified, epoch) for file in new.files))
        if len(recent) <= NAMED_AT_MOST:
            return replace(before, recent=recent)
        lists, merged = list(before.lists), [_table(recent)]
        while lists and lists[-1].count < 2 * sum(part.num_rows for part in merged):
            merged.append(self.read_list(lists.pop()))
        names, forgotten = _forget_old(pa.concat_tables(reversed(merged)), before.forgotten, new.keep_from)
        return TakenFiles((), (*lists, self._write(names, epoch, run)), forgotten)

    def read(self, taken: TakenFiles) -> Iterator[TakenFile]:
        """All files that were taken in and matter still."""
        for one in taken.lists:
            columns = self.read_list(one).to_pydict()
            yield from map(TakenFile, columns["source"], columns["path"], columns["modified"], columns["epoch"])
        yield from taken.recent

    def read_list(self, one: FileList) -> pa.Table:
        """The files of a list; one that is gone or damaged is refused."""
        try:
            data = self._storage.read(one.file)
        except StorageError as problem:
            raise CheckpointError(f"the checkpoint lacks a list of files that were taken in: {problem}") from problem
        if checksum(data) != one.checksum:
            raise CheckpointError(f"{self._storage.path(one.file)} is damaged: its checksum differs")
        return pa.ipc.open_file(data).read_all()

    def _write(self, names: pa.Table, epoch: int, run: str) -> FileList:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, _SCHEMA, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(names)
        data = sink.getvalue()
        its_checksum = checksum(data)
        file = f"{FILE_LISTS}/{Attempt(epoch, Site(0), run, f'{its_checksum:016x}')}.arrow"
        self._storage.make_dir(FILE_LISTS)
        self._storage.put_if_absent(file, data.to_pybytes())  # which outlasts a power cut
        return FileList(file, names.num_rows, its_checksum)


def _table(files: Iterable[TakenFile]) -> pa.Table:
    columns = zip(*files, strict=True)
    return pa.table([pa.array(column, type_) for column, type_ in zip(columns, _SCHEMA.types, strict=True)], _SCHEMA)


def _forget_old(
    names: pa.Table, forgotten: Sequence[int | None], keep_from: Sequence[int | None]
) -> tuple[pa.Table, tuple[int | None, ...]]:
    """The files that matter, and for each source the newest time of those that were ever left out."""
    source, modified = names["source"].to_numpy(), names["modified"].to_numpy()
    matter, newest = source >= 0, []
    for number, limit in enumerate(keep_from):
        before = forgotten[number] if number < len(forgotten) else None
        too_old = (source == number) & (modified < limit) if limit is not None else ~(source >= 0)
        matter &= ~too_old
        times = [*modified[too_old].tolist(), *([] if before is None else [before])]
        newest.append(max(times, default=None))
    return names.filter(pa.array(matter)), tuple(newest)
