"""A tmpfs, or a disk, that is really full: blobs and state go to the next tier, or through the exchange; the answer is
the same, and where nothing helps the message says so."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from host_query import HostQuery
from namespaces import can_mount, in_own_mounts, mount_tmpfs
from oracle import batch_join, multiset
from specs import SECOND, TIME, join, stream

from sluice.engine import host_delivery
from sluice.model.errors import StorageError

pytestmark = pytest.mark.skipif(not can_mount(), reason="nothing can be mounted here")
A, B = stream("a"), stream("b")
SPEC = join([A, B])
ROWS = 2_000
EPOCHS = 4


@pytest.fixture(autouse=True)
def small_blobs_go_by_reference(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(host_delivery, "LEAST_BYTES", 1)
    yield


def rows(epoch: int) -> list[pa.Table]:
    """About 100 KB."""
    rng = np.random.default_rng(epoch)
    times = pa.array(epoch * SECOND + np.sort(rng.integers(0, SECOND, ROWS)), TIME)
    return [pa.table([rng.integers(0, ROWS, ROWS), times, np.arange(ROWS)], schema=s.schema) for s in (A, B)]


def fill(directory: Path, leaving: int = 0) -> Path:
    """Take all space of a file system but so many bytes."""
    status, file = os.statvfs(directory), directory / "of others"
    with file.open("wb") as out:
        os.posix_fallocate(out.fileno(), 0, status.f_bavail * status.f_frsize - leaving)
    return file


class TieredQuery(HostQuery):
    """Notes in which tiers blobs lie, and how many references there are."""

    def __init__(self, root: Path) -> None:
        super().__init__(SPEC, root)
        self.tiers: set[str] = set()
        self.between = lambda files: self.tiers.update(file.parents[2].name for file in files)

    def assert_exact(self, epochs: int = EPOCHS) -> None:
        tables = [pa.concat_tables(tables) for tables in zip(*map(rows, range(epochs)), strict=True)]
        assert multiset(self.results()) == multiset(batch_join(SPEC, tables))
        assert not self.files() and self.jobs == epochs
        self.close()
        assert not list(self.root.glob("*/sluice-*"))


@pytest.mark.parametrize("size", ["64k", "256k"])
def test_a_tmpfs_that_is_smaller_than_the_memory_of_a_site(tmp_path, size):
    def run() -> None:
        mount_tmpfs(tmp_path / "memory", f"size={size}")
        query = TieredQuery(tmp_path)
        for epoch in range(EPOCHS):
            query.run(rows(epoch))
        assert "disk" in query.tiers and query.references == EPOCHS * 8
        query.assert_exact()

    in_own_mounts(run)


def test_a_tmpfs_that_others_fill_up_and_empty_again(tmp_path):
    def run() -> None:
        mount_tmpfs(tmp_path / "memory", "size=4m")
        query = TieredQuery(tmp_path)
        query.run(rows(0))
        assert query.tiers == {"memory"}
        file = fill(tmp_path / "memory")
        query.tiers.clear()
        for epoch in (1, 2):
            query.run(rows(epoch))
        assert query.tiers == {"disk"}
        file.unlink()
        query.tiers.clear()
        query.run(rows(3))
        assert query.tiers == {"memory"}
        query.assert_exact()

    in_own_mounts(run)


def test_blobs_that_fit_into_no_tier_go_through_the_exchange(tmp_path):
    """What state there is fits, and the blobs besides do not."""

    def run() -> None:
        for tier in ("memory", "disk"):
            mount_tmpfs(tmp_path / tier, "size=2m")
        query = TieredQuery(tmp_path)
        query.run(rows(0))
        before = query.references
        files = [fill(tmp_path / tier, leaving=8 << 10) for tier in ("memory", "disk")]
        query.between = lambda blobs: [file.unlink() for file in files]
        query.run(rows(1))
        assert query.references < before + 8
        query.assert_exact(2)

    in_own_mounts(run)


@pytest.mark.parametrize("what", ["bytes", "files"])
def test_where_nothing_helps_the_message_says_what_is_full(tmp_path, what):
    def run() -> None:
        for tier in ("memory", "disk"):
            mount_tmpfs(tmp_path / tier, "size=1m" if what == "bytes" else "nr_inodes=2")
        query = TieredQuery(tmp_path)
        files = [fill(tmp_path / tier) for tier in ("memory", "disk")] if what == "bytes" else []
        full = r"no space left to (write|make) .*/(disk|memory)/.*: free some or use another place"
        with pytest.raises(StorageError, match=full):
            query.run(rows(0))
        for file in files:
            file.unlink()
        if files:
            query.jobs = 0
            query.run(rows(0))
            query.assert_exact(1)

    in_own_mounts(run)
