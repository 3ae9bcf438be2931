"""Drivers that are suspended, taken over from and woken: nothing is lost, nothing comes twice, and they are told."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import suspension
from suspension import CHANGES, HISTORY, Operation, Suspended, take_over

SHARDS = 4
"""Tests that the cases of one kind are divided among, so that none takes very long."""


class Bench:
    """Where drivers are suspended: a checkpoint and its outputs, always at the same place, as they were before."""

    def __init__(self, directory: Path) -> None:
        self.root, self.history = directory / "root", directory / "history"
        query = suspension.start(self.root, sites=2)
        for number in range(HISTORY):
            suspension.run_batch(query, number)
        query.epochs.close()
        query.close()
        self.root.rename(self.history)
        self.operations = tuple(self._operations(("start", "epoch"), closing=False))
        self.operations += tuple(self._operations(("close",), closing=True))

    def _operations(self, phases: tuple[str, ...], closing: bool) -> Iterator[Operation]:
        """What a driver does that nobody suspends."""
        shutil.copytree(self.history, self.root)
        ending = Suspended(self.root, None, closing).wake()
        assert ending.kind is None, ending.error
        shutil.rmtree(self.root)
        return (o for o in ending.operations if o.phase in phases)

    def changes(self) -> list[Operation]:
        return [o for o in self.operations if o.name in CHANGES]

    def assert_right(self, cases: Iterable[tuple[Operation, int]]) -> None:
        """All of them are looked at, so that a failure shows what they have in common."""
        wrong = []
        for at, epochs in cases:
            wrong += [f"{at}, {epochs} epochs: {p}" for p in take_over(self.history, self.root, at, epochs)]
        assert not wrong, "\n" + "\n".join(wrong)


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as directory:
        yield Bench(Path(directory))


def test_all_steps_are_among_those_where_a_driver_is_suspended(bench):
    done = {(o.phase, o.name, o.path.split("/")[0], o.path.split("/")[1]) for o in bench.changes() if "/" in o.path}
    for name in ("put", "finish", "delete"):
        assert ("epoch", name, "checkpoint", "journal") in done
    assert ("start", "put", "checkpoint", "journal") in done
    for output in ("out", "out1"):
        assert ("epoch", "finish", output, "_spark_metadata") in done
        assert ("epoch", "delete", output, "_spark_metadata") in done
    assert ("epoch", "delete", "checkpoint", "state") in done
    assert sum(o.name == "move" for o in bench.operations) >= 4


def test_a_driver_suspended_at_some_steps_and_woken_two_epochs_later(bench):
    bench.assert_right((at, 2) for at in bench.changes()[::12])


def test_a_driver_suspended_at_its_commit_and_woken_when_the_journal_has_forgotten_the_epoch(bench):
    commit = next(o for o in bench.operations if o.name == "put" and "/journal/" in o.path and o.phase == "epoch")
    bench.assert_right([(commit, 120)])


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_driver_suspended_at_every_operation(bench, shard):
    bench.assert_right((at, 2) for at in bench.operations[shard::SHARDS])


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.parametrize("epochs", [1, 15, 120])
def test_a_driver_suspended_at_every_step(bench, epochs, shard):
    """After 120 epochs the journal has forgotten the one that the driver was at."""
    bench.assert_right((at, epochs) for at in bench.changes()[shard::SHARDS])
