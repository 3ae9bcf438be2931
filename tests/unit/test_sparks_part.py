"""Spark's part of a checkpoint: what of it has to be there, and that the journal is never ahead of it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from epoch_factory import owned_journal
from epoch_factory import record as epoch_record

from sluice.control.journal import Journal
from sluice.model.errors import CheckpointError
from sluice.record.epoch import EpochRecord
from sluice.spark.sparks_part import SparksPart
from sluice.state.files.storage import Storage, watch

KAFKA = '{"prices":{"1":40,"0":50}}'


class Checkpoint:
    """A checkpoint as Spark writes its part of it: one source of files, one of another kind."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.part = SparksPart(Storage(str(root)))

    def write(self, name: str, *lines: str) -> None:
        path = self.root / "spark" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(("v1", *lines)))
        (path.parent / f".{path.name}.crc").write_text("crc")

    def list_files(self, number: int, *files: tuple[str, int], compact: bool = False) -> None:
        entries = [{"path": path, "timestamp": 7, "batchId": listed} for path, listed in files]
        self.write(f"sources/0/{number}{'.compact' * compact}", *map(json.dumps, entries))

    def plan(self, batch: int, last_list: int, other: str = KAFKA, at: int = 0) -> None:
        self.write(f"offsets/{batch}", json.dumps({"batchTimestampMs": at}), f'{{"logOffset":{last_list}}}', other)

    def run(self, batches: int) -> EpochRecord:
        """Some batches with a file each, all of them over; the record of the last."""
        for batch in range(batches):
            self.list_files(batch, (f"{batch}.parquet", batch))
            self.plan(batch, batch)
            self.write(f"commits/{batch}", "{}")
        return self.record(batches - 1)

    def record(self, batch: int) -> EpochRecord:
        return epoch_record(batch, batch=batch, batch_input=self.part.describe_batch(batch))

    def remove(self, *names: str) -> None:
        for name in names:
            (self.root / "spark" / name).unlink()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path)


def test_whole_ones_are_accepted(checkpoint: Checkpoint) -> None:
    checkpoint.part.check(None)
    record = checkpoint.run(4)
    checkpoint.part.check(record)
    checkpoint.remove("commits/3", "commits/.3.crc")  # Spark asks for batch 3 again
    checkpoint.part.check(record)
    checkpoint.list_files(4, ("4.parquet", 4))
    checkpoint.plan(4, 4)
    checkpoint.part.check(record)


def test_offsets_that_spark_has_deleted_are_not_missed(checkpoint: Checkpoint) -> None:
    """With `minBatchesToRetain` of 1 it deletes those before a batch when it plans the next."""
    record = checkpoint.run(4)
    checkpoint.list_files(4, ("4.parquet", 4))
    checkpoint.plan(4, 4)
    checkpoint.remove("offsets/0", "offsets/1", "offsets/2")
    checkpoint.part.check(record)


LOST = {
    "the newest offsets": ["offsets/3", "commits/3"],
    "those before": ["offsets/2"],
    "the newest list of files": ["sources/0/3"],
    "an older list": ["sources/0/1"],
    "all of the newest batch": ["offsets/3", "commits/3", "sources/0/3"],
}


@pytest.mark.parametrize("lost", LOST.values(), ids=LOST.keys())
def test_what_lacks_something_is_refused_by_its_name(checkpoint: Checkpoint, lost: list[str]) -> None:
    record = checkpoint.run(4)
    checkpoint.remove(*lost)
    with pytest.raises(CheckpointError, match=rf"lacks spark/{lost[0]}.*deleted or restored"):
        checkpoint.part.check(record)


def test_offsets_without_content_are_refused(checkpoint: Checkpoint) -> None:
    record = checkpoint.run(4)
    (checkpoint.root / "spark/offsets/3").write_text("")
    with pytest.raises(CheckpointError, match=r"batch 3 is not the same"):
        checkpoint.part.check(record)


TORN = {
    "offsets": (["offsets/4"], [], ["offsets/4", "offsets/.4.crc"]),
    "a list": (["sources/0/4"], [], ["sources/0/4", "offsets/4", "offsets/.4.crc", "sources/0/.4.crc"]),
    "that a batch is over": (["commits/3"], [], ["commits/3", "commits/.3.crc"]),
    "checksums whose files are gone": (
        [],
        ["offsets/4", "sources/0/4", "commits/3"],
        ["offsets/.4.crc", "commits/.3.crc", "sources/0/.4.crc"],
    ),
}


@pytest.mark.parametrize(("cut", "gone", "useless"), TORN.values(), ids=TORN.keys())
def test_what_a_power_cut_left_is_told_with_all_that_is_in_the_way(
    checkpoint: Checkpoint, cut: list[str], gone: list[str], useless: list[str]
) -> None:
    """Spark refuses to write a file beside which there is a checksum."""
    record = checkpoint.run(4)
    checkpoint.list_files(4, ("4.parquet", 4))
    checkpoint.plan(4, 4)
    for name in cut:
        (checkpoint.root / "spark" / name).write_text("")
    checkpoint.remove(*gone)
    told = ", ".join(f"spark/{name}" for name in useless)
    with pytest.raises(CheckpointError, match=rf"{useless[0]} is cut short.*: delete {re.escape(told)}, and the query"):
        checkpoint.part.check(record)
    checkpoint.remove(*useless)
    checkpoint.part.check(record)


@pytest.mark.parametrize("directory", ["offsets", "commits"])
def test_a_journal_that_is_behind_is_refused(checkpoint: Checkpoint, directory: str) -> None:
    checkpoint.run(4)
    record = checkpoint.record(1)
    others = {"offsets", "commits"} - {directory}
    checkpoint.remove(*(f"{other}/{batch}" for other in others for batch in (2, 3)))
    with pytest.raises(CheckpointError, match=r"ends at batch 1, Spark's part of it at 3"):
        checkpoint.part.check(record)


def test_parts_that_another_driver_moves_on_meanwhile_are_looked_at_again(checkpoint: Checkpoint) -> None:
    """It commits a batch, and Spark plans the next, between a look at the journal and one at Spark's part."""
    journal = owned_journal(str(checkpoint.root))
    journal.commit(checkpoint.run(2))
    moved_on = False

    def move_on(operation: str, path: str) -> None:
        nonlocal moved_on
        if operation == "list" and path.endswith("/offsets") and not moved_on:
            moved_on = True
            journal.commit(checkpoint.run(3))
            checkpoint.list_files(3, ("3.parquet", 3))
            checkpoint.plan(3, 3)

    with watch(move_on):
        checkpoint.part.check_with(Journal(Storage(str(checkpoint.root))))
    assert moved_on
    checkpoint.plan(4, 3)
    with pytest.raises(CheckpointError, match=r"ends at batch 2, Spark's part of it at 4"):
        checkpoint.part.check_with(journal)


class TestWhatABatchIs:
    def test_is_its_files_and_how_far_it_goes(self, checkpoint: Checkpoint) -> None:
        checkpoint.run(2)
        first = checkpoint.part.describe_batch(1)
        checkpoint.plan(1, 1, other='{"prices":{"0":50,"1":40}}', at=99)
        assert checkpoint.part.describe_batch(1) == first, "planned at another time"
        checkpoint.plan(1, 1, other='{"prices":{"1":41,"0":50}}')
        assert checkpoint.part.describe_batch(1) != first, "a row more"
        checkpoint.plan(1, 1)
        checkpoint.list_files(1, ("1.parquet", 1), ("2.parquet", 1))
        assert checkpoint.part.describe_batch(1) != first, "a file more, though its offset is the same"

    def test_has_all_lists_since_the_batch_before(self, checkpoint: Checkpoint) -> None:
        """A list that was written before its driver died is part of the next batch."""
        checkpoint.run(2)
        checkpoint.list_files(2, ("2.parquet", 2))
        checkpoint.list_files(3, ("3.parquet", 3))
        checkpoint.plan(2, 3)
        first = checkpoint.part.describe_batch(2)
        checkpoint.list_files(2, ("other.parquet", 2))
        assert checkpoint.part.describe_batch(2) != first

    def test_is_the_same_when_its_lists_were_compacted(self, checkpoint: Checkpoint) -> None:
        """They may be deleted then; their entries stand near the end of the compact one, however long that is."""
        record = checkpoint.run(3)
        old = [(f"old-{number}.parquet", 0) for number in range(9000)]
        checkpoint.list_files(3, *old, ("1.parquet", 1), ("2.parquet", 2), ("3.parquet", 3), compact=True)
        checkpoint.remove("sources/0/0", "sources/0/1", "sources/0/2")
        assert checkpoint.part.describe_batch(2) == record.batch_input
        checkpoint.part.check(record)
        assert len(checkpoint.part.describe_batch(0)) == len(record.batch_input), "all of it is read, if need be"


class TestASourceThatTwoStreamsAreMadeOf:
    """Its offsets stand there twice, its lists once."""

    @pytest.fixture
    def shared(self, checkpoint: Checkpoint) -> Checkpoint:
        checkpoint.part = SparksPart(Storage(str(checkpoint.root)), directories=(0, 0, 1))
        for batch in range(3):
            checkpoint.list_files(batch, (f"{batch}.parquet", batch))
            listed = {"path": "other.parquet", "timestamp": 7, "batchId": 0}
            checkpoint.write("sources/1/0", json.dumps(listed))
            shared, other = f'{{"logOffset":{batch}}}', '{"logOffset":0}'
            checkpoint.write(f"offsets/{batch}", "{}", shared, shared, other)
            checkpoint.part.make_durable(batch)
        return checkpoint

    def test_is_whole(self, shared: Checkpoint) -> None:
        shared.part.check(shared.record(2))
        shared.remove("sources/0/2")
        with pytest.raises(CheckpointError, match="lacks spark/sources/0/2"):
            shared.part.describe_batch(2)

    def test_is_no_problem_where_the_plan_is_not_there(self, shared: Checkpoint) -> None:
        SparksPart(Storage(str(shared.root))).check(shared.record(2))


def test_an_epoch_reads_what_is_new_once(checkpoint: Checkpoint) -> None:
    """On an object store each read is a request."""
    checkpoint.run(2)
    checkpoint.part.describe_batch(1)
    checkpoint.list_files(2, ("2.parquet", 2))
    checkpoint.plan(2, 2)
    seen: list[str] = []
    with watch(lambda operation, path: seen.append(f"{operation} {os.path.relpath(path, checkpoint.root)}")):
        checkpoint.part.describe_batch(2)
    assert seen == ["read spark/offsets/2", "read spark/sources/0/2"]


def test_what_a_batch_needs_is_synced(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint.run(2)
    checkpoint.list_files(2, ("2.parquet", 2))
    checkpoint.list_files(3, ("3.parquet", 3), compact=True)
    checkpoint.write("metadata")
    checkpoint.plan(2, 3)
    synced: list[str] = []

    def fsync(descriptor: int) -> None:
        synced.append(os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), checkpoint.root))

    monkeypatch.setattr(os, "fsync", fsync)
    checkpoint.part.make_durable(2)
    files = {"spark/metadata", "spark/offsets/2", "spark/sources/0/2", "spark/sources/0/3.compact"}
    checksums = {
        "spark/.metadata.crc",
        "spark/offsets/.2.crc",
        "spark/sources/0/.2.crc",
        "spark/sources/0/.3.compact.crc",
    }
    directories = {".", "spark", "spark/offsets", "spark/sources", "spark/sources/0"}
    assert set(synced) == files | checksums | directories
    assert len(synced) == len(set(synced))
    assert set(synced[: len(files | checksums)]) == files | checksums, "the directories come after what is in them"
