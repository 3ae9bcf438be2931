"""A process that dies at any single file operation of an epoch loses and repeats nothing."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from crash_flow import KEEP, PLAN, SPEC, epoch_rows, found_by
from dying_process import dies_before
from engine_harness import DirectQuery
from oracle import batch_join, multiset

from sluice.model.errors import CheckpointError, StorageError
from sluice.state.files import storage


def started(root: Path, sites: int = 1, spill: str = "probe") -> DirectQuery:
    return DirectQuery(PLAN, root, sites=sites, memory=8_000, partitions=4, spill=spill)


@pytest.fixture(scope="module", params=["probe", "unit"])
def spill(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def fast() -> Iterator[Path]:
    """A directory in memory where there is one: these tests make and remove many thousand files."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as directory:
        yield Path(directory)


@pytest.fixture(scope="module")
def before(fast, spill) -> Path:
    """A query with some history, stopped."""
    root = fast / f"history-{spill}"
    root.mkdir()
    query = started(root, spill=spill)
    for epoch in range(KEEP):
        query.run(epoch_rows(epoch))
    query.close()
    return root


@pytest.fixture(scope="module")
def answers(fast, spill) -> list[Counter]:
    """What comes out when nothing happens; the pairs are those of the batch join."""
    root = fast / f"undisturbed-{spill}"
    query = started(root, spill=spill)
    for epoch in range(KEEP + 2):
        query.run(epoch_rows(epoch))
    query.drain()
    tables = [pa.concat_tables([epoch_rows(e)[i] for e in range(KEEP + 2)]) for i in (0, 1)]
    assert multiset(query.results()) == multiset(batch_join(SPEC, tables))
    return found_by(query)


def crash_at(root: Path, operation: int, spill: str) -> bool:
    """Restart the query and run an epoch in a process of its own that dies just before the given file operation."""

    def run_epoch() -> None:
        query = started(root, spill=spill)
        query.run(epoch_rows(KEEP))
        assert query.epochs.record.stats.sites[0].merged_rows, "an epoch that merges is to be looked at"

    return dies_before(operation, run_epoch)


def test_a_crash_at_some_file_operations_of_an_epoch(before, fast, answers, spill):
    assert crash_at_each(before, fast, answers, spill, step=29 if spill == "probe" else 139) > 40


@pytest.mark.slow
def test_a_crash_at_every_file_operation_of_an_epoch(before, fast, answers, spill):
    assert crash_at_each(before, fast, answers, spill, step=1 if spill == "probe" else 5) > 40  # pages are many files


def crash_at_each(before: Path, fast: Path, answers: Any, spill: str, step: int) -> int:
    """Crash at every `step`-th operation and go on; how many operations there are, about."""
    operation = 0
    while True:
        root = fast / str(operation)
        shutil.copytree(before, root)
        crashed = crash_at(root, operation, spill)
        query = started(root, 1 + operation % 2, spill)
        for epoch in (KEEP, KEEP + 1):
            query.run(epoch_rows(epoch), number=epoch)
        assert found_by(query) == answers, f"after a crash at operation {operation}"
        assert_nothing_left(query)
        query.close()
        shutil.rmtree(root)
        if not crashed:
            return operation
        operation += step


def assert_nothing_left(query: DirectQuery) -> None:
    """Only what the newest record refers to is there."""
    checkpoint = query.root / "checkpoint"
    files = {f"state/{p.name}" for p in (checkpoint / "state").iterdir()}
    assert files == query.epochs.record.files()
    assert not list(checkpoint.rglob("*.tmp"))
    for out in query.outs:
        assert not list((out / f"_sluice-{query.query}").iterdir())


def test_results_are_shown_before_what_nobody_needs_is_deleted(before, fast, spill):
    root = fast / "order"
    shutil.copytree(before, root)
    query = started(root, spill=spill)
    operations: list[str] = []
    with storage.watch(lambda name, path: operations.append(f"{name} {path}")):
        query.run(epoch_rows(KEEP))
    (committed,) = (n for n, done in enumerate(operations) if done.startswith("put ") and "/journal/" in done)
    shown = [n for n, done in enumerate(operations) if done.startswith("finish ") and "/_spark_metadata/" in done]
    deleted = [n for n, done in enumerate(operations) if done.startswith("delete ") and "/checkpoint/state/" in done]
    assert committed < min(shown) and max(shown) < min(deleted)
    query.close()
    shutil.rmtree(root)


def test_a_failing_operation_fails_the_epoch_and_the_next_try_succeeds(before, fast, answers, spill):
    """The process lives on: a full disk, a lost connection."""
    fail_at_each(before, fast, answers, spill, step=29 if spill == "probe" else 211)


@pytest.mark.slow
def test_failing_operations_closer_to_each_other(before, fast, answers, spill):
    fail_at_each(before, fast, answers, spill, step=1 if spill == "probe" else 17)


def fail_at_each(before: Path, fast: Path, answers: Any, spill: str, step: int) -> None:
    """Have every `step`-th operation fail, and go on."""
    operation, failures = 0, 1
    while failures:
        root = fast / str(operation)
        shutil.copytree(before, root)
        query = started(root, spill=spill)
        count = failures = 0

        def watcher(name: str, path: str, at: int = operation) -> None:
            nonlocal count, failures
            count += 1
            if count == at + 1:
                failures += 1
                raise OSError(28, "No space left on device")

        with storage.watch(watcher), suppress(OSError, StorageError):
            query.run(epoch_rows(KEEP), number=KEEP)
        query.epochs.close()
        query.close()
        query = started(root, spill=spill)
        for epoch in (KEEP, KEEP + 1):
            query.run(epoch_rows(epoch), number=epoch)
        assert found_by(query) == answers, f"after a failure at operation {operation}"
        assert_nothing_left(query)
        query.close()
        shutil.rmtree(root)
        operation += step


def test_a_lost_or_damaged_file_is_named(before, fast, spill):
    root = fast / f"damaged-{spill}"
    shutil.copytree(before, root)
    shutil.rmtree(root / "memory", ignore_errors=True)
    files = sorted((root / "checkpoint" / "state").iterdir())
    for file in files:
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 0xFF
        file.write_bytes(bytes(data))
    with pytest.raises(StorageError, match="damaged"):
        started(root, spill=spill).run(epoch_rows(KEEP))
    for file in files:
        file.unlink()
    with pytest.raises(StorageError, match=r"cannot read .*segments"):
        started(root, spill=spill).run(epoch_rows(KEEP))


def test_results_of_a_catch_up_epoch_that_could_not_be_shown_are_shown_before_the_next_batch(fast):
    """Spark knows nothing of the epoch, so it would not ask for it again."""
    query = DirectQuery(SPEC, fast / "shown", sites=1, seconds=1e-6)
    for epoch in range(3):
        query.run(epoch_rows(epoch))

    def no_renames(operation: str, path: str) -> None:
        if operation == "move":
            raise OSError(5, "Input/output error")

    with storage.watch(no_renames), suppress(OSError, StorageError):
        query.drain()
    assert query.epochs.record.stats.catch_up and not query.epochs.delivery.done
    query.run(epoch_rows(3))
    query.drain()
    tables = [pa.concat_tables([epoch_rows(e)[i] for e in range(4)]) for i in (0, 1)]
    assert multiset(query.results()) == multiset(batch_join(SPEC, tables))
    query.close()


def test_a_commit_that_came_through_although_it_failed_loses_nothing(fast):
    """The entry is in the journal, but the driver never learns it: then it closes."""
    query = DirectQuery(SPEC, fast / "came-through", sites=1)
    query.run(epoch_rows(0))
    committed = False

    def no_answer(operation: str, path: str) -> None:
        nonlocal committed
        if committed:
            raise OSError(5, "Input/output error")
        committed = operation == "finish" and "/journal/" in path

    with storage.watch(no_answer), pytest.raises(OSError):
        query.run(epoch_rows(1))
    query.epochs.close()
    query.close()
    query = DirectQuery(SPEC, fast / "came-through", sites=1)
    for epoch in (1, 2):
        query.run(epoch_rows(epoch), number=epoch)
    tables = [pa.concat_tables([epoch_rows(e)[i] for e in range(3)]) for i in (0, 1)]
    assert multiset(query.results()) == multiset(batch_join(SPEC, tables))
    query.close()


def test_a_batch_that_is_asked_for_again_with_other_input_is_refused(fast):
    """As after Spark lost its offsets: the journal has a batch of that number, but not these rows."""
    query = DirectQuery(SPEC, fast / "other-input", sites=1)
    query.run(epoch_rows(0), batch_input="files 0")
    query.catch_up()
    query.close()
    query = DirectQuery(SPEC, fast / "other-input", sites=1)
    with pytest.raises(CheckpointError, match=r"other input in batch 0 than the journal.*would lose rows"):
        query.run(epoch_rows(1), number=0, batch_input="files 0 and 1")
    query.run(epoch_rows(0), number=0, batch_input="files 0")
    query.run(epoch_rows(1), batch_input="files 1")
    tables = [pa.concat_tables([epoch_rows(e)[i] for e in range(2)]) for i in (0, 1)]
    assert multiset(query.results()) == multiset(batch_join(SPEC, tables))
    query.close()
