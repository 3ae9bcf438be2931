"""The lists of files that Spark's readers take as the content of an output directory, in the format of Spark's sink.

`spark.read` and `spark.readStream` look into `_spark_metadata` first and see only files listed there. An epoch's files
are listed by one atomic step, so such a reader sees all of an epoch or nothing of it. Which list an epoch's files are
in, and every byte of it, is fixed by the epoch's record (`Listing`), so that a driver that shows an epoch again, or
wakes up after another one has, changes nothing.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from urllib.parse import quote, unquote

from sluice.model.epoch.results import Listing, Part, Results
from sluice.model.errors import CheckpointError, StorageError
from sluice.state.files.storage import Storage

DIRECTORY = "_spark_metadata"
MARK = "_sluice-"
"""Begins the name of the directory in an output where a query's parts wait; it stays, and tells whose output it is."""
VERSION = b"v1"
READ_BYTES = 8 << 20
OLDER_COPY = (
    "the output knows later epochs than the checkpoint, which is an older copy or lacks its newest record. To go on "
    "would show results twice. Bring the checkpoint back to where it was, or start anew with a new checkpointLocation "
    "and path"
)


class SinkLog:
    """The file lists of one output directory."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def listing_with(self, before: Listing, parts: tuple[Part, ...], committed_at: float) -> Listing:
        """The listing after one more epoch; nothing is written."""
        return before.after(len(parts), zlib.crc32(self._lines(parts, committed_at), before.checksum))

    def has(self, results: Results) -> bool:
        """Whether an epoch's files are listed, if it has any."""
        return not results.parts or self.storage.size(_name(results.listing.number, results.listing)) is not None

    def add(self, results: Results) -> None:
        """List an epoch's files, unless they are listed already."""
        listing = results.listing
        name = _name(listing.number, listing)
        if self.has(results):
            return
        if self.listing_with(results.before, results.parts, results.committed_at) != listing:
            raise CheckpointError(
                f"epoch {results.epoch} was committed for another path than {self.storage.uri}, which its files would "
                "be listed under; give the path as it was given then"
            )
        self.storage.make_dir(DIRECTORY)
        self.storage.write(name, self._content(results))
        if listing.is_compact:  # who reads by the lists before may go on with them until the next compact one
            outdated = [n for n in self._numbers() if n < results.before.compact]
            self.storage.delete_all(name for n in outdated for name in _either_name(n))

    def check(self, results: Results) -> None:
        """See that the lists are those that lead up to the newest epoch, whether or not its own is there yet."""
        newest = max(self._numbers(), default=-1)
        if newest > results.listing.number:
            raise CheckpointError(
                f"{self.storage.path(DIRECTORY)} has list {newest}, the checkpoint's epoch {results.epoch} only goes "
                f"to list {results.listing.number}: {OLDER_COPY}"
            )
        for _ in self._lines_of(results.listing if newest == results.listing.number else results.before):
            pass  # its last step is the error

    def list_files(self, listing: Listing) -> dict[str, int]:
        """The files of a listing by their places in the output, with their sizes."""
        lines = b"".join(self._lines_of(listing)).split(b"\n")
        entries = [json.loads(line) for line in lines if line]
        return {self._place(str(entry["path"])): int(entry["size"]) for entry in entries}

    def _place(self, uri: str) -> str:
        """Where in the output a file is; one that was listed when the output lay elsewhere is known by its name."""
        output = self._uri("")
        return unquote(uri.removeprefix(output) if uri.startswith(output) else uri.rsplit("/", 1)[-1]).lstrip("/")

    def tidy(self, newest: int) -> None:
        """Remove drafts that a killed driver left of lists up to the newest."""
        for entry in self.storage.files(DIRECTORY):
            number = entry.name.split(".")[0]
            if entry.name.endswith(".tmp") and number.isdecimal() and int(number) <= newest:
                self.storage.delete(f"{DIRECTORY}/{entry.name}")

    def _content(self, results: Results) -> Iterator[bytes]:
        yield VERSION
        if results.listing.is_compact:
            yield from self._lines_of(results.before)
        yield self._lines(results.parts, results.committed_at)

    def _lines_of(self, listing: Listing) -> Iterator[bytes]:
        """All lines of a listing, in pieces; if they are not what they were, the last step is an error."""
        checksum = 0
        for number in listing.numbers:
            for piece in self._pieces(_name(number, listing)):
                checksum = zlib.crc32(piece, checksum)
                yield piece
        if checksum != listing.checksum:
            raise self._damage_error(f"lists {listing.compact} to {listing.number} are not what was written (checksum)")

    def _pieces(self, name: str) -> Iterator[bytes]:
        """A list's content after its first line."""
        size = self.storage.size(name)
        if not size:
            raise self._damage_error(f"{name.split('/')[1]} is {'missing' if size is None else 'empty'}")
        for offset in range(0, size, READ_BYTES):
            piece = self.storage.read(name, offset, min(READ_BYTES, size - offset)).to_pybytes()
            if offset == 0 and not piece.startswith(VERSION):
                raise self._damage_error(f"{name.split('/')[1]} does not begin with {VERSION.decode()}")
            yield piece if offset else piece.removeprefix(VERSION)

    def _damage_error(self, what: str) -> StorageError:
        return StorageError(
            f"the file lists in {self.storage.path(DIRECTORY)} are damaged: {what}. Spark's readers would miss "
            "results, so nothing is added. Restore the directory, or start anew with a new checkpointLocation and path"
        )

    def _numbers(self) -> list[int]:
        names = (e.name.removesuffix(".compact") for e in self.storage.files(DIRECTORY))
        return sorted(int(n) for n in names if n.isdecimal())

    def _lines(self, parts: tuple[Part, ...], committed_at: float) -> bytes:
        entries = (self._entry(part, committed_at) for part in parts)
        return b"".join(b"\n" + json.dumps(entry, separators=(",", ":")).encode() for entry in entries)

    def _entry(self, part: Part, committed_at: float) -> dict[str, object]:
        return {
            "path": self._uri(part.place),
            "size": part.bytes,
            "isDir": False,
            "modificationTime": int(committed_at * 1000),
            "blockReplication": 1,
            "blockSize": 32 << 20,
            "action": "add",
        }

    def _uri(self, name: str) -> str:
        if self.storage.local:
            return "file://" + quote(self.storage.path(name))
        return f"{self.storage.uri.rstrip('/')}/{quote(name)}"


def _name(number: int, listing: Listing) -> str:
    return _either_name(number)[number == listing.compact]


def _either_name(number: int) -> tuple[str, str]:
    """A list's name, and a compact one's."""
    return f"{DIRECTORY}/{number}", f"{DIRECTORY}/{number}.compact"
