"""Epochs over files, whose one log is the journal: each file is taken in once, whatever dies or fails, and the log of
the files costs the same however long it is."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from crash_flow import PLAN, epoch_rows, found_by
from dying_process import dies_before
from engine_harness import DirectQuery

from sluice.cli.verification import verify
from sluice.control.controller import Controller
from sluice.engine import file_log
from sluice.engine.file_log import FileLog, NewFile, NewFiles
from sluice.engine.split import SplitTask
from sluice.model.epoch.taken_files import FileList, TakenFiles
from sluice.model.errors import CheckpointError
from sluice.model.identity import FILES
from sluice.sources.file_search import FileSearch
from sluice.sources.file_tracker import FileTracker
from sluice.sources.listing_options import ListingOptions
from sluice.state.files import storage
from sluice.state.files.storage import Storage

BEFORE, AFTER = 3, 5
"""Files that are taken in before something happens, and in all."""


@pytest.fixture(autouse=True)
def short_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_log, "NAMED_AT_MOST", 1)


@pytest.fixture(scope="module")
def fast() -> Iterator[Path]:
    """A directory in memory where there is one."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as directory:
        yield Path(directory)


class Loop:
    """A driver over the files that arrive, one an epoch; the rows of a file are those of its number."""

    def __init__(self, root: Path) -> None:
        self.query = DirectQuery(PLAN, root, sites=1, memory=8_000, partitions=2, input=FILES)
        options = ListingOptions(max_files=1)
        forgotten = self.query.epochs.record.taken.forgotten_of(0)
        self.tracker = FileTracker(FileSearch(str(root.parent / "in")), options, forgotten)
        self.tracker.restore((file.path, file.modified) for file in self.query.epochs.files_taken())
        self.query.epochs.finish_delivery()

    def run_next(self) -> bool:
        files = self.tracker.next_files()
        if not files:
            return False
        new = NewFiles(tuple(NewFile(0, file.path, file.modified) for file in files), (self.tracker.keep_from,))
        self.query.run(epoch_rows(int(Path(files[0].path).name)), files=new)
        self.tracker.take(files)
        return True

    def run_all(self) -> None:
        while self.run_next():
            pass
        self.query.epochs.note_shown()


def arrive(root: Path, files: range) -> None:
    """Files for all queries beside this one."""
    directory = root.parent / "in"
    directory.mkdir(exist_ok=True, parents=True)
    for number in files:
        (directory / f"{number}").touch()
        os.utime(directory / f"{number}", (number, number))


@pytest.fixture(scope="module")
def answers(fast: Path) -> list[Counter[Any]]:
    root = fast / "undisturbed" / "query"
    query = DirectQuery(PLAN, root, sites=1, memory=8_000, partitions=2)
    for number in range(AFTER):
        query.run(epoch_rows(number))
    return found_by(query)


@pytest.fixture
def before(fast: Path) -> Path:
    """A query with some history, stopped."""
    root = fast / "same files" / "history"
    if not root.exists():
        arrive(root, range(BEFORE))
        loop = Loop(root)
        loop.run_all()
        loop.query.close()
        arrive(root, range(BEFORE, AFTER))
    return root


def crash_at(root: Path, operation: int) -> bool:
    """Run to the end in a process of its own that dies just before the given file operation."""
    return dies_before(operation, lambda: Loop(root).run_next())


@pytest.mark.parametrize("step", [37, pytest.param(1, marks=pytest.mark.slow)])
def test_a_crash_at_any_file_operation_loses_and_repeats_no_file(before, fast, answers, step):
    operation, crashed = 0, True
    while crashed:
        root = before.parent / f"crash-{operation}"
        shutil.copytree(before, root)
        crashed = crash_at(root, operation)
        assert_exact(root, answers, f"after a crash at operation {operation}")
        shutil.rmtree(root)
        operation += step
    assert operation > 40


@pytest.mark.parametrize("step", [41, pytest.param(1, marks=pytest.mark.slow)])
def test_so_does_an_operation_that_fails(before, fast, answers, step):
    operation, failed = 0, True
    while failed:
        root = before.parent / f"fail-{operation}"
        shutil.copytree(before, root)
        failed, count = False, 0

        def watcher(name: str, path: str, at: int = operation) -> None:
            nonlocal count, failed
            count += 1
            if count == at + 1:
                failed = True
                raise OSError(5, "a fault")

        with storage.watch(watcher), suppress(Exception):
            Loop(root).run_all()
        assert_exact(root, answers, f"after a failure of operation {operation}")
        shutil.rmtree(root)
        operation += step
    assert operation > 40


def assert_exact(root: Path, answers: list[Counter[Any]], when: str) -> None:
    loop = Loop(root)
    loop.run_all()
    assert found_by(loop.query) == answers, when
    record = loop.query.epochs.checkpoint.newest
    taken = sorted((Path(file.path).name, file.epoch) for file in loop.query.epochs.files_taken())
    assert [name for name, _ in taken] == [str(number) for number in range(AFTER)], when
    assert {f"input/{p.name}" for p in (root / "checkpoint" / "input").iterdir()} == record.file_lists()
    loop.query.close()


def test_two_drivers_on_one_checkpoint_take_in_each_file_once(fast, answers):
    root = fast / "two" / "query"
    arrive(root, range(AFTER))
    first = Loop(root)
    assert first.run_next()
    second = Loop(root)
    for step in (first.query.epochs.note_shown, first.run_next):
        with pytest.raises(CheckpointError, match="was taken over by another driver"):
            step()
    assert_exact(root, answers, "after it was taken over")
    with pytest.raises(CheckpointError, match="was taken over by another driver"):
        second.run_next()


def test_nothing_is_shown_before_the_first_epoch(fast, monkeypatch):
    root = fast / "first" / "query"
    arrive(root, range(1))
    loop = Loop(root)
    shown: list[int] = []
    deliver = loop.query.epochs.delivery.deliver
    monkeypatch.setattr(
        loop.query.epochs.delivery, "deliver", lambda record: (shown.append(record.number), deliver(record))
    )
    loop.run_all()
    assert shown == [0]


def test_results_that_were_shown_are_not_shown_again_after_a_clean_end(fast):
    root = fast / "shown" / "query"
    arrive(root, range(2))
    loop = Loop(root)
    loop.run_all()
    loop.query.close()
    again = DirectQuery(PLAN, root, sites=1, memory=8_000, partitions=2, input=FILES)
    assert again.epochs.delivery.done


def test_a_list_that_is_gone_or_damaged_is_refused(before, fast):
    root = before.parent / "damaged"
    shutil.copytree(before, root)
    (one,) = list((root / "checkpoint" / "input").iterdir())[:1]
    one.write_bytes(one.read_bytes()[:-1] + b"?")
    with pytest.raises(CheckpointError, match="is damaged: its checksum differs"):
        Loop(root)
    one.unlink()
    with pytest.raises(CheckpointError, match="lacks a list of files that were taken in"):
        Loop(root)


def test_verification_looks_at_the_lists(before, fast):
    root = before.parent / "verified"
    shutil.copytree(before, root)
    assert not verify(str(root / "checkpoint")).problems
    for one in (root / "checkpoint" / "input").iterdir():
        one.write_bytes(one.read_bytes()[:-1] + b"?")
    (problem, *_) = verify(str(root / "checkpoint")).problems
    assert problem.startswith("input: ") and "is damaged" in problem


class TestCost:
    EPOCHS = 10_000

    @pytest.fixture(autouse=True)
    def usual_lists(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(file_log, "NAMED_AT_MOST", 100)

    def test_of_an_epoch_does_not_grow_with_the_files_before_it(self, fast: Path) -> None:
        root = fast / "cost"
        log, taken = FileLog(Storage(str(root))), TakenFiles()
        written: list[int] = []
        with counted() as counts:
            for epoch in range(self.EPOCHS):
                taken = log.add(taken, self.files(epoch), epoch, "ab")
                for name in {f"input/{p.name}" for p in (root / "input").glob("*")} - {x.file for x in taken.lists}:
                    (root / name).unlink()
                written.append(sum(one.count for one in taken.lists[-1:]))
        assert len(taken.lists) <= 8 and len(taken.recent) <= 100
        assert sorted(file.path for file in log.read(taken)) == sorted(f"/in/{n:06d}" for n in range(self.EPOCHS))
        assert counts["put"] == self.EPOCHS // 101
        assert counts["read"] <= 2 * counts["put"]

    def test_names_are_written_a_few_times_each(self, fast: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        rows = 0
        write = FileLog._write

        def count_rows(self: FileLog, names: Any, epoch: int, run: str) -> FileList:
            nonlocal rows
            rows += names.num_rows
            return write(self, names, epoch, run)

        monkeypatch.setattr(FileLog, "_write", count_rows)
        log, taken = FileLog(Storage(str(fast / "rows"))), TakenFiles()
        for epoch in range(self.EPOCHS):
            taken = log.add(taken, self.files(epoch), epoch, "ab")
        assert rows <= 8 * self.EPOCHS

    def test_files_that_do_not_matter_any_more_go(self, fast: Path) -> None:
        log, taken = FileLog(Storage(str(fast / "old"))), TakenFiles()
        for epoch in range(self.EPOCHS):
            taken = log.add(taken, self.files(epoch, keep=500), epoch, "ab")
        assert sum(one.count for one in taken.lists) < 2500
        (forgotten,) = taken.forgotten
        assert forgotten is not None and self.EPOCHS - 2500 < forgotten < self.EPOCHS - 500
        kept = {file.modified for file in log.read(taken)}
        assert kept >= set(range(forgotten + 1, self.EPOCHS)), "what is named no more is as old as that"

    def files(self, epoch: int, keep: int | None = None) -> NewFiles:
        limit = None if keep is None else epoch - keep
        return NewFiles((NewFile(0, f"/in/{epoch:06d}", epoch),), (limit,))


class counted:
    """Counts file operations by their kinds."""

    def __enter__(self) -> Counter[str]:
        self.counts: Counter[str] = Counter()
        self.watching = storage.watch(lambda operation, path: self.counts.update([operation]))
        self.watching.__enter__()
        return self.counts

    def __exit__(self, *failure: object) -> None:
        self.watching.__exit__(None, None, None)


def test_how_the_next_epochs_rows_are_split_is_told_before_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrive(tmp_path / "query", range(AFTER))
    loop, told, split, begun = Loop(tmp_path / "query"), [], [], []
    epochs = loop.query.epochs

    def run(files: NewFiles, rows: Any) -> None:
        exchange = loop.query._exchange(rows, lambda: None)

        def note(task: SplitTask, site: Any) -> Any:
            split.append(task)
            return exchange(task, site)

        def look_ahead(task: SplitTask) -> None:
            begun.append(len(split))
            told.append(task)

        epochs.run_with_files(files, loop.query.site_keys, note, look_ahead=look_ahead)

    loop.query.run = lambda rows, files: run(files, rows)
    for _ in range(3):
        loop.run_next()
    assert begun == [0, 1, 2]
    assert [replace(task, watermarks=None) for task in told[:2]] == [replace(t, watermarks=None) for t in split[1:]]
    assert [task.watermarks for task in told] == [task.watermarks for task in split], "as far as is known by then"
    monkeypatch.setattr(Controller, "is_changing_routing", True)
    loop.run_next()
    assert len(told) == 3, "a unit is on its way"
