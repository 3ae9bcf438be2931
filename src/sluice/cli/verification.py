"""`sluice inspect --verify`: whether all that a checkpoint names is there, and is what was written."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

from sluice.control.journal import Entry, Journal
from sluice.engine.epoch_tables import read_version
from sluice.engine.file_log import FileLog
from sluice.model.codec import checksum
from sluice.model.epoch.results import Part
from sluice.model.epoch.segments import SegmentRef
from sluice.model.errors import SluiceError
from sluice.record.epoch import EpochRecord
from sluice.spark.delta_log import list_active_files
from sluice.spark.sink_log import MARK, SinkLog
from sluice.spark.sparks_part import SparksPart
from sluice.state.files.storage import Storage


@dataclass(frozen=True)
class Verified:
    """What was looked at, and what is wrong with it."""

    segments: int
    parts: int
    problems: tuple[str, ...]

    def __str__(self) -> str:
        looked_at = f"{self.segments:,} segments and {self.parts:,} parts of results were looked at"
        if not self.problems:
            return f"Verified   {looked_at}: all are there, and as they were written"
        return "\n".join([f"Verified   {looked_at}:", *(f"  {problem}" for problem in self.problems)])


def verify(uri: str) -> Verified:
    """Read all that the checkpoint at `uri` names, and the results that it has shown. Nothing is changed."""
    journal = Journal(Storage(uri))
    identity = journal.recognised()
    return _Verification(journal, identity.id).run()


class _Verification:
    """One look at a checkpoint. Its query may go on meanwhile, and delete what it no longer needs: what is gone or
    differs is a problem only if the journal still names it."""

    def __init__(self, journal: Journal, query: str) -> None:
        self.journal, self.storage, self.query = journal, journal.storage, query
        self.problems: list[str] = []
        self.segments = self.parts = 0

    def run(self) -> Verified:
        entries = self._entries()
        if entries and entries[-1].record.number >= 0:
            newest = entries[-1].record
            self._look_at_state(newest)
            for output, place in enumerate(self._shown(newest)):
                if place is not None:
                    self._look_at_results(output, place, entries)
            self._look_at_file_lists(newest)
            self._look_at_tables(newest)
            self._look_at_sparks_part()
        return Verified(self.segments, self.parts, tuple(self.problems))

    def _entries(self) -> list[Entry]:
        """The journal's entries that can be read; each has to continue the one before it."""
        read: list[Entry] = []
        for index in self.journal.indexes():
            try:
                read.append(self.journal.read(index))
            except SluiceError as problem:
                if index in self.journal.indexes():
                    self.problems.append(str(problem))
        for before, entry in pairwise(read):
            if entry.index == before.index + 1 and entry.before != before.checksum:
                self.problems.append(f"entry {entry.index} of the journal does not continue the one before it")
        return read

    def _shown(self, newest: EpochRecord) -> list[str | None]:
        """Where the results of each query are."""
        try:
            return [query.shown for query in self.journal.read_plan(newest.plan).queries]
        except SluiceError as problem:
            later = self._newest(newest)
            if later.plan != newest.plan:
                return self._shown(later)
            self.problems.append(str(problem))
            return []

    def _look_at_state(self, newest: EpochRecord) -> None:
        by_file: dict[str, dict[str, SegmentRef]] = defaultdict(dict)
        for manifest in newest.manifests:
            for run in manifest:
                by_file[run.segment.file][run.segment.id] = run.segment
        problems: dict[str, str] = {}
        for file, segments in sorted(by_file.items()):
            for segment in segments.values():
                self.segments += 1
                problem = self._problem_of(file, segment)
                if problem is not None:
                    problems[segment.id] = problem
        if problems:
            named = {run.segment.id for manifest in self._newest(newest).manifests for run in manifest}
            self.problems += [problem for segment, problem in problems.items() if segment in named]

    def _problem_of(self, file: str, segment: SegmentRef) -> str | None:
        try:
            data = self.storage.read(file, segment.offset, segment.length)
        except SluiceError as problem:
            return f"state: {problem}"
        offset = 0
        for block in segment.blocks:
            if checksum(data.slice(offset, block.length)) != block.checksum:
                return f"state: segment {segment.id} in {self.storage.path(file)} is damaged"
            offset += block.length
        return None

    def _newest(self, read: EpochRecord) -> EpochRecord:
        """The newest record by now, or the one that was read if that is damaged."""
        try:
            entry = self.journal.newest()
        except SluiceError:
            return read
        return read if entry is None else entry.record

    def _look_at_results(self, output: int, place: str, entries: list[Entry]) -> None:
        """The parts that were shown: those of the epochs on record, and in an output with lists for Spark's readers all
        that these have. Those of the newest epoch may still wait: the query that is started next shows them."""
        newest = entries[-1].record.results_of(output)
        inside = "://" not in place and not place.startswith("/")
        storage = Storage(f"{self.storage.uri.rstrip('/')}/{place}" if inside else place)
        waiting = self.storage.files(place.rpartition("/")[0]) if inside else storage.files(f"{MARK}{self.query}")
        unshown = {part.name for part in newest.parts} & {entry.name for entry in waiting}
        recorded = {part.place: part for entry in entries for part in entry.record.results_of(output).parts}
        try:
            active = list_active_files(storage.uri)
        except SluiceError as problem:
            self.problems.append(f"results: {problem}")
            return
        if active is not None:  # what others have compacted or deleted may be gone
            recorded = {name: part for name, part in recorded.items() if name in active or part.name in unshown}
        listed = self._listed(storage, output, entries[-1].record)
        sizes = {name: part.bytes for name, part in recorded.items()} | listed
        directories = {name.rpartition("/")[0] for name in sizes}
        here = {
            f"{directory}/{entry.name}".lstrip("/"): entry.size
            for directory in directories
            for entry in storage.files(directory)
        }
        for name, size in sorted(sizes.items()):
            self.parts += 1
            if name.rpartition("/")[2] in unshown:
                continue
            if name not in here:
                self.problems.append(f"results: {storage.path(name)} is gone")
            elif here[name] != size or (name in recorded and not _is_whole(storage, recorded[name])):
                self.problems.append(f"results: {storage.path(name)} is not what was shown")

    def _listed(self, storage: Storage, output: int, record: EpochRecord) -> dict[str, int]:
        """What Spark's readers take for the content of an output."""
        log, results = SinkLog(storage), record.results_of(output)
        if results.listing.number < 0:  # there are no lists, or a Delta table has its own
            return {}
        try:
            return log.list_files(results.listing if log.has(results) else results.before)
        except SluiceError as problem:
            newest = self._newest(record)
            if newest.number > record.number:
                return self._listed(storage, output, newest)
            self.problems.append(f"results: {problem}")
            return {}

    def _look_at_file_lists(self, newest: EpochRecord) -> None:
        """The lists of files that were taken in."""
        log = FileLog(self.storage)
        for one in newest.taken.lists:
            try:
                log.read_list(one)
            except SluiceError as problem:
                if one.file in self._newest(newest).file_lists():
                    self.problems.append(f"input: {problem}")

    def _look_at_tables(self, newest: EpochRecord) -> None:
        """The contents of tables that streams are joined with."""
        for version in (version for version in newest.tables if not version.is_divided):
            try:
                read_version(self.storage, version)
            except SluiceError as problem:
                if version.file in self._newest(newest).table_files():
                    self.problems.append(f"table: {problem}")

    def _look_at_sparks_part(self) -> None:
        try:
            SparksPart(self.storage).check_with(self.journal)
        except SluiceError as problem:
            if str(problem) not in self.problems:  # of the journal's newest entry it was told before
                self.problems.append(str(problem))


def _is_whole(storage: Storage, part: Part) -> bool:
    return bool(checksum(storage.read(part.place)) == part.checksum)
