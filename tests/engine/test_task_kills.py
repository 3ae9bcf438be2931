"""Workers, executors and drivers that die at any step on a blob's way from one task to the next: the answer is exact,
and nothing stays."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from crash_flow import PLAN, epoch_rows, found_by
from dying_process import dies_before
from engine_harness import DirectQuery
from modelled_cluster import EXECUTOR, TASK, WORKER, Death, Executor, ModelledQuery

from sluice.engine import file_log, host_delivery

FILES = 4
"""Of each stream, an epoch each; somebody dies in the last one."""


@pytest.fixture(autouse=True)
def all_blobs_in_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_delivery, "LEAST_BYTES", 1)
    monkeypatch.setattr(file_log, "NAMED_AT_MOST", 2)


@pytest.fixture(scope="module")
def fast() -> Iterator[Path]:
    """A directory in memory where there is one."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as directory:
        yield Path(directory)


@pytest.fixture(scope="module")
def sources(fast: Path) -> list[Path]:
    directories = [fast / "in" / name for name in "ab"]
    for directory in directories:
        directory.mkdir(parents=True)
    for number in range(FILES):
        for directory, rows in zip(directories, epoch_rows(number), strict=True):
            pq.write_table(rows, directory / f"{number}")
            os.utime(directory / f"{number}", (number, number))
    return directories


@pytest.fixture(scope="module")
def answers(fast: Path) -> list[Counter[Any]]:
    query = DirectQuery(PLAN, fast / "undisturbed", partitions=4)
    for number in range(FILES):
        query.run(epoch_rows(number))
    found = found_by(query)
    query.close()
    return found


@pytest.fixture(scope="module", params=[False, True], ids=["with an exchange", "in one stage"])
def small(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture
def before(fast: Path, sources: list[Path], small: bool) -> Path:
    """A query with some history, stopped; the last files arrive."""
    root = fast / f"history-{small}"
    if not root.exists():
        query = start(root, sources, small, epochs=FILES - 1)
        query.run_all()
        query.close()
    return root


def start(root: Path, sources: list[Path], small: bool, epochs: int = FILES) -> ModelledQuery:
    """A small epoch has one site: where there are several levels it is done so there alone."""
    query = ModelledQuery(PLAN, root, sources, sites=1 if small else 2, partitions=4, memory=8_000)
    query.small_epochs, query.epochs_at_most = small, epochs
    return query


def is_of_the_exchange(operation: str, path: str) -> bool:
    return not path or "/exchange/" in path


@pytest.mark.parametrize(
    ("whom", "stride"),
    [
        (WORKER, 37),
        (EXECUTOR, 41),
        *(pytest.param(whom, 1, marks=pytest.mark.slow) for whom in (TASK, WORKER, EXECUTOR)),
    ],
)
def test_a_death_at_any_step_of_the_exchange_changes_nothing(before, sources, answers, small, whom, stride):
    """Before a blob is written, when it has been, before a reference is sent, and when it has been; before a blob is
    mapped, and before it is removed. In one stage there are no blobs, so all of a site's work counts."""
    step, seen, died = 0, Counter[str](), True
    while died:
        root = before.parent / f"{whom}-{step}"
        shutil.copytree(before, root)
        query = start(root, sources, small)
        query.executors = [Executor(), Executor()]
        query.death = Death(whom, step) if small else Death(whom, step, is_of_the_exchange)
        try:
            query.run_all()
            died = query.death.is_over
            when = f"a {whom} died before {query.death.before}"
            seen[query.death.before.partition(" ")[0]] += died
            assert not query.blobs_left(), when
            assert query.jobs <= 2, when
            living = {str(executor.process.pid) for executor in query.executors}
            assert {path.name.split("-")[2] for path in query.workspaces()} <= living, when
            query.executors, executors = [], query.executors
            assert found_by(query) == answers, when
            query.executors = executors
        finally:
            query.close()
        assert not query.workspaces(), when
        shutil.rmtree(root)
        step += stride
    if stride == 1:
        assert {*(() if small else ("write", "finish", "map", "delete")), "end", "the"} <= set(seen), seen


@pytest.mark.parametrize("stride", [97, pytest.param(2, marks=pytest.mark.slow)])
def test_a_driver_that_dies_before_any_file_operation_leaves_nothing_that_the_next_one_does_not_remove(
    before, sources, answers, small, stride
):
    """With the tasks in its own process: files that are listed, an epoch that is planned, blobs, state, results, the
    journal, the log of the files, and its lists, which are merged."""
    operation, died = 0, True
    while died:
        root = before.parent / f"driver-{operation}"
        shutil.copytree(before, root)
        died = dies_before(operation, lambda at=root: start(at, sources, small).run_all())
        when = f"after a death at operation {operation}"
        query = start(root, sources, small)
        try:
            query.run_all()
            assert found_by(query) == answers, when
            assert not query.blobs_left(), when
            if query.jobs:  # sites look for what dead processes left when they have something to do
                assert all(f"-{os.getpid()}-" in path.name for path in query.workspaces()), when
            record, checkpoint = query.epochs.checkpoint.newest, root / "checkpoint"
            assert {f"state/{path.name}" for path in (checkpoint / "state").iterdir()} == record.files(), when
            assert {f"input/{path.name}" for path in (checkpoint / "input").iterdir()} == record.file_lists(), when
            assert not list(root.rglob("*.tmp")), when
            taken = sorted(Path(file.path).name for file in query.epochs.files_taken())
            assert taken == sorted(2 * [str(number) for number in range(FILES)]), when
        finally:
            query.close()
        assert not query.workspaces() or not query.jobs, when
        shutil.rmtree(root)
        operation += stride
    assert operation > 100
