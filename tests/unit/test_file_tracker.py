"""Files are found, ordered and taken in as by Spark's file source, at a cost that does not grow with those before."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sluice.model.errors import FlowError, StorageError
from sluice.sources import directory_tree
from sluice.sources.directory_tree import LocalTree, RemoteTree
from sluice.sources.file_paths import locate
from sluice.sources.file_search import FileSearch
from sluice.sources.file_tracker import FileTracker
from sluice.sources.listing_options import ListingOptions, needs_sparks_source


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def put(path: Path, modified: float = 0.0, size: int = 1) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (modified, modified))


def tracker_of(path: Path | str, clock: Clock | None = None, **options: Any) -> FileTracker:
    chosen = ListingOptions.of(options)
    tree = LocalTree(clock) if clock else None
    return FileTracker(FileSearch(str(path), chosen.name_filter, chosen.recursive, tree), chosen)


def epochs_of(tracker: FileTracker) -> Iterator[list[str]]:
    """The names that each epoch takes in, until there are no more."""
    while files := tracker.next_files():
        tracker.take(files)
        yield [os.path.basename(file.path) for file in files]


def test_files_come_in_the_order_of_their_times_so_many_an_epoch(tmp_path):
    for number, name in enumerate("dbca"):
        put(tmp_path / name, modified=number)
    assert list(epochs_of(tracker_of(tmp_path))) == [["d", "b", "c", "a"]]
    assert list(epochs_of(tracker_of(tmp_path, maxFilesPerTrigger=3))) == [["d", "b", "c"], ["a"]]
    assert list(epochs_of(tracker_of(tmp_path, latestFirst=True, maxFilesPerTrigger="3"))) == [["a", "c", "b"], ["d"]]


def test_so_many_bytes_an_epoch_but_at_least_one_file(tmp_path):
    for number, size in enumerate([10, 1, 1, 1, 3]):
        put(tmp_path / str(number), number, size)
    assert list(epochs_of(tracker_of(tmp_path, maxBytesPerTrigger=3))) == [["0"], ["1", "2", "3"], ["4"]]


def test_a_file_is_taken_in_once_whatever_becomes_of_it(tmp_path):
    put(tmp_path / "a")
    tracker = tracker_of(tmp_path)
    assert list(epochs_of(tracker)) == [["a"]]
    put(tmp_path / "a", modified=99, size=7)
    (tmp_path / "a").rename(tmp_path / "b")
    (tmp_path / "b").rename(tmp_path / "a")
    put(tmp_path / "c")
    assert list(epochs_of(tracker)) == [["c"]]


def test_the_latest_come_first_though_others_wait(tmp_path):
    for number in range(4):
        put(tmp_path / str(number), number)
    tracker = tracker_of(tmp_path, latestFirst=True, maxFilesPerTrigger=2)
    epochs = epochs_of(tracker)
    assert next(epochs) == ["3", "2"]
    put(tmp_path / "9", 9)
    assert list(epochs) == [["9", "1"], ["0"]]


def test_files_that_are_much_older_than_the_newest_are_not_taken_in_nor_remembered(tmp_path):
    day = 86_400
    put(tmp_path / "a", 10 * day)
    tracker = tracker_of(tmp_path, maxFileAge="2d")
    assert list(epochs_of(tracker)) == [["a"]]
    put(tmp_path / "old", 7 * day)
    put(tmp_path / "b", 8 * day)
    assert list(epochs_of(tracker)) == [["b"]] and tracker.remembered == 2
    put(tmp_path / "c", 11 * day)
    assert list(epochs_of(tracker)) == [["c"]] and tracker.keep_from == 9 * day * 1000
    assert list(epochs_of(tracker)) == [], "b is too old now, and not taken in again"
    put(tmp_path / "d", 20 * day)
    assert list(epochs_of(tracker)) == [["d"]] and tracker.remembered == 1


def test_what_was_forgotten_for_good_is_not_taken_in_again_by_one_that_looks_further_back(tmp_path):
    for number in range(3):
        put(tmp_path / str(number), number)
    options = ListingOptions.of({"maxFileAge": "100d"})
    tracker = FileTracker(FileSearch(str(tmp_path)), options, forgotten=1000)
    tracker.restore([])
    assert list(epochs_of(tracker)) == [["2"]]


def test_after_a_restart_only_what_is_new_comes(tmp_path):
    for name in "abc":
        put(tmp_path / name)
    tracker = tracker_of(tmp_path)
    tracker.restore([(str(tmp_path / "a"), 0), (str(tmp_path / "c"), 0)])
    assert list(epochs_of(tracker)) == [["b"]]


def test_files_of_one_name_are_one_file_if_only_names_count(tmp_path):
    put(tmp_path / "x" / "a", 2)
    put(tmp_path / "y" / "a", 1)
    put(tmp_path / "y" / "b", 3)
    tracker = tracker_of(tmp_path / "*", fileNameOnly=True)
    assert list(epochs_of(tracker)) == [["a", "b"]] and tracker.remembered == 2
    assert list(epochs_of(tracker_of(tmp_path / "*"))) == [["a", "a", "b"]]


def test_a_look_for_the_last_time_leaves_out_what_comes_later(tmp_path):
    for name in "ab":
        put(tmp_path / name)
    tracker = tracker_of(tmp_path, maxFilesPerTrigger=1)
    tracker.look_for_the_last_time()
    put(tmp_path / "c")
    assert list(epochs_of(tracker)) == [["a"], ["b"]]


def test_partitions_that_differ_are_refused(tmp_path):
    put(tmp_path / "day=1" / "a")
    put(tmp_path / "hour=1" / "a")
    with pytest.raises(StorageError, match=r"partitioned in different ways \(day and hour\)"):
        tracker_of(tmp_path).next_files()
    assert list(epochs_of(tracker_of(tmp_path, recursiveFileLookup=True))) == [["a", "a"]]


def test_a_directory_that_is_not_there_has_no_files(tmp_path):
    tracker = tracker_of(tmp_path / "later")
    assert tracker.next_files() == []
    put(tmp_path / "later" / "a")
    assert list(epochs_of(tracker)) == [["a"]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"maxFilesPerTrigger": 0}, "'maxFilesPerTrigger' must be a whole number above 0, not 0"),
        ({"maxFilesPerTrigger": 1, "maxBytesPerTrigger": 1}, "cannot both be given"),
        ({"latestFirst": "maybe"}, "'latestFirst' must be true or false"),
        ({"maxFileAge": "a week"}, "'maxFileAge' must be a time such as '7d'"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(FlowError, match=message):
        ListingOptions.of(options)


def test_what_cleans_up_after_itself_is_spark_s():
    assert needs_sparks_source({"cleanSource": "archive"}) and not needs_sparks_source({"cleanSource": "OFF"})


class TestSinkLists:
    """An output directory of a streaming sink."""

    def add(self, out: Path, list_name: str, *names: str, listed: bool = True) -> None:
        for name in names:
            put(out / name)
        directory = out / "_spark_metadata"
        directory.mkdir(exist_ok=True)
        entries = [{"path": f"file://{out}/{n}", "size": 1, "isDir": False, "modificationTime": 5, "action": "add"}
                   for n in names]  # fmt: skip
        (directory / list_name).write_text("\n".join(["v1", *map(json.dumps, entries)]))

    def test_only_what_is_listed_is_there(self, tmp_path: Path) -> None:
        self.add(tmp_path, "0", "a")
        put(tmp_path / "unlisted")
        tracker = tracker_of(tmp_path)
        assert list(epochs_of(tracker)) == [["a"]]
        self.add(tmp_path, "1", "b")
        assert list(epochs_of(tracker)) == [["b"]]
        self.add(tmp_path, "9.compact", "a", "b", "c")
        for name in "01":
            (tmp_path / "_spark_metadata" / name).unlink()
        assert list(epochs_of(tracker)) == [["c"]]
        assert list(epochs_of(tracker_of(tmp_path))) == [["a", "b", "c"]]

    def test_a_damaged_list_is_refused(self, tmp_path: Path) -> None:
        self.add(tmp_path, "0", "a")
        (tmp_path / "_spark_metadata" / "0").write_text("v1\n{")
        with pytest.raises(StorageError, match="is no list of a sink's files"):
            tracker_of(tmp_path).next_files()


class TestCost:
    """What an epoch asks of the file system."""

    @pytest.fixture
    def counts(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
        counts = {"stats": 0, "scans": 0}
        listed, scan = directory_tree._listed, directory_tree._scan

        def count_stat(*arguments: Any) -> Any:
            counts["stats"] += 1
            return listed(*arguments)

        def count_scan(*arguments: Any) -> Any:
            counts["scans"] += 1
            return scan(*arguments)

        monkeypatch.setattr(directory_tree, "_listed", count_stat)
        monkeypatch.setattr(directory_tree, "_scan", count_scan)
        return counts

    def test_a_file_is_looked_at_once_however_many_there_are(self, tmp_path: Path, counts: dict[str, int]) -> None:
        clock, files = Clock(), 10_000
        tracker = tracker_of(tmp_path, clock)
        for number in range(0, files, 200):
            for name in range(number, number + 200):
                (tmp_path / f"{name:06d}").touch()
            clock.now += 1.0
            assert len(next(epochs_of(tracker))) == 200
        assert counts["stats"] == files and counts["scans"] <= 2 * files / 200

    def test_a_backlog_is_listed_once_and_not_with_every_epoch(self, tmp_path: Path, counts: dict[str, int]) -> None:
        clock, files = Clock(), 10_000
        for number in range(files):
            (tmp_path / f"{number:06d}").touch()
        tracker = tracker_of(tmp_path, clock, maxFilesPerTrigger=1)
        for _ in range(files):
            clock.now += 0.001
            tracker.take(tracker.next_files())
        assert tracker.next_files() == [] and counts["stats"] == files and counts["scans"] <= 10

    def test_files_that_are_too_old_are_looked_at_once(self, tmp_path: Path, counts: dict[str, int]) -> None:
        clock = Clock()
        for number in range(1000):
            put(tmp_path / f"old-{number}", 0)
        put(tmp_path / "new", 30 * 86_400)
        tracker = tracker_of(tmp_path, clock, maxFilesPerTrigger=10_000)
        tracker.restore([("elsewhere", 30 * 86_400_000)])
        for number in range(50):
            put(tmp_path / f"new-{number}", 30 * 86_400)
            clock.now += 5.0
            tracker.take(tracker.next_files())
        assert counts["stats"] == 1000 + 51

    def test_an_idle_directory_is_hardly_ever_read(self, tmp_path: Path, counts: dict[str, int]) -> None:
        clock = Clock()
        put(tmp_path / "a")
        tracker = tracker_of(tmp_path, clock)
        list(epochs_of(tracker))
        before, polls = counts["scans"], 12_000
        for _ in range(polls):
            clock.now += 0.05
            assert tracker.next_files() == []
        assert counts["scans"] - before <= polls * 0.05 / 2 + 2
        put(tmp_path / "b")
        assert list(epochs_of(tracker)) == [["b"]], "it is seen at once"

    def test_a_change_within_one_tick_of_the_file_system_s_clock_is_seen(self, tmp_path: Path) -> None:
        clock = Clock()
        tracker = tracker_of(tmp_path, clock)
        os.utime(tmp_path, (5, 5))
        assert tracker.next_files() == []
        for name, later in (("a", 0.06), ("b", 3.1)):
            (tmp_path / name).touch()
            os.utime(tmp_path, (5, 5))
            assert tracker.next_files() == [], "nothing tells of it"
            clock.now += later
            assert list(epochs_of(tracker)) == [[name]]


def test_another_file_system_than_a_local_disk(tmp_path: Path) -> None:
    """By the same calls that HDFS and object stores answer."""
    put(tmp_path / "day=1" / "a", 2)
    put(tmp_path / "day=2" / "b", 1)
    put(tmp_path / "day=2" / "_c", 1)
    place = locate(str(tmp_path))
    tree = RemoteTree(f"store://there{tmp_path}", place)
    search = FileSearch(str(tmp_path), tree=tree)
    search._patterns = [(f"store://there{tmp_path}", [])]
    tracker = FileTracker(search, ListingOptions())
    files = tracker.next_files()
    assert [file.path for file in files] == [f"store://there{tmp_path}/day=2/b", f"store://there{tmp_path}/day=1/a"]
    tracker.take(files)
    assert tracker.next_files() == []


def test_a_path_can_be_one_file(tmp_path: Path) -> None:
    put(tmp_path / "a")
    tracker = tracker_of(tmp_path / "a")
    assert list(epochs_of(tracker)) == [["a"]] and tracker.next_files() == []
    put(tmp_path / "_b")
    assert tracker_of(tmp_path / "_b").next_files() == []
