"""Blobs between tasks of a host go by reference: the answer is the same, nothing stays, what is lost is noticed."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from engine_harness import DirectQuery
from host_query import HostQuery
from oracle import batch_join, multiset
from specs import SECOND, TIME, handle, join, stream

from sluice.engine import host_delivery
from sluice.engine.blobs import Payload
from sluice.model.plan.planning import plan_of
from sluice.state.files.storage import watch
from sluice.state.files.workspace import Places

A, B = stream("a"), stream("b")


@pytest.fixture(autouse=True)
def small_blobs_go_by_reference(monkeypatch):
    monkeypatch.setattr(host_delivery, "LEAST_BYTES", 1)


def rows(epoch: int, count: int = 60) -> list[pa.Table]:
    rng = np.random.default_rng(epoch)
    times = pa.array(epoch * SECOND + np.sort(rng.integers(0, SECOND, count)), TIME)
    return [pa.table([rng.integers(0, 20, count), times, np.arange(count)], schema=s.schema) for s in (A, B)]


def assert_exact(query: DirectQuery, spec, epochs: int) -> None:
    tables = [pa.concat_tables(tables) for tables in zip(*(rows(epoch) for epoch in range(epochs)), strict=True)]
    assert multiset(query.results()) == multiset(batch_join(spec, tables))


@pytest.mark.parametrize("limit", [1 << 30, 1000, 0])
@pytest.mark.parametrize("at_other_hosts", [(), (1,)])
def test_the_answer_is_the_same_and_nothing_stays(tmp_path, limit, at_other_hosts):
    spec = join([A, B])
    query = HostQuery(spec, tmp_path)
    query.limit, query.at_other_hosts = limit, at_other_hosts
    tiers = set()
    query.between = lambda files: tiers.update(file.parents[2].name for file in files)
    for epoch in range(4):
        query.run(rows(epoch))
        assert not query.files()
        assert ".blob" not in Path("/proc/self/maps").read_text()  # no state refers to them
    assert_exact(query, spec, 4)
    assert query.jobs == 4 and query.references == 4 * 4 * (2 - len(at_other_hosts))
    assert tiers == {1 << 30: {"memory"}, 1000: {"memory", "disk"}, 0: {"disk"}}[limit]
    query.close()


def test_references_pass_levels_that_they_are_not_for(tmp_path):
    """The second join takes in rows of a source, and what the first one finds."""
    a, b = handle(A), handle(B)
    pairs = a.join(b, on="k", within="2 seconds")
    counts = pairs.groupBy("b_v").last(2).agg(n=("*", "count")).alias("counts")
    plan = plan_of([counts.relation, a.join(counts, on={"a": "v", "counts": "b_v"}, within="2 seconds").relation])
    queries = [kind(plan, tmp_path / kind.__name__) for kind in (DirectQuery, HostQuery)]
    for epoch in range(3):
        for query in queries:
            query.run(rows(epoch))
    assert queries[1].jobs == 3 and not queries[1].files()
    for output in range(2):
        assert queries[0].results(output).num_rows > 0
        assert multiset(queries[0].results(output)) == multiset(queries[1].results(output))
    for query in queries:
        query.close()


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-9] ^= 4
    file.write_bytes(data)


@pytest.mark.parametrize(
    "hurt", [flip, Path.unlink, lambda file: os.truncate(file, 64)], ids=["damaged", "missing", "cut off"]
)
def test_a_lost_blob_runs_the_epoch_again(tmp_path, hurt):
    spec = join([A, B])
    query = HostQuery(spec, tmp_path)
    query.run(rows(0))
    query.between = lambda files: files and hurt(files[-1])
    query.run(rows(1))
    assert query.jobs == 3 and not query.files()
    query.between = lambda files: None
    query.run(rows(2))
    assert query.jobs == 4 and not query.files()
    assert_exact(query, spec, 3)
    query.close()


def test_what_a_failed_job_left_goes_with_the_next_one_or_with_the_query(tmp_path):
    class Failed(Exception):
        pass

    def fail(files: list[Path]) -> None:
        raise Failed

    spec = join([A, B])
    query = HostQuery(spec, tmp_path)
    query.between = fail
    with pytest.raises(Failed):
        query.run(rows(0))
    assert len(query.files()) == 8
    query.between = lambda files: None
    query.run(rows(0))
    assert not query.files()
    assert_exact(query, spec, 1)
    query.between = fail
    with pytest.raises(Failed):
        query.run(rows(1))
    assert query.files()
    query.close()
    assert not list(tmp_path.glob("*/sluice-*"))


def test_a_site_that_runs_on_another_host_than_it_was_placed_on(tmp_path):
    spec = join([A, B])
    query = HostQuery(spec, tmp_path)
    query.read_from = Places(str(tmp_path / "other"), str(tmp_path / "disk"))
    for epoch in range(2):
        query.run(rows(epoch))
    assert query.jobs == 4
    assert_exact(query, spec, 2)
    query.close()


def test_blobs_are_on_disk_where_memory_is_full(tmp_path):
    spec = join([A, B])
    query = HostQuery(spec, tmp_path)
    tiers = set()
    query.between = lambda files: tiers.update(file.parents[2].name for file in files)

    def fill_up(operation: str, path: str) -> None:
        if operation == "finish" and path.endswith(".blob") and "/memory/" in path:
            raise OSError(errno.ENOSPC, "no space left", path)

    with watch(fill_up):
        query.run(rows(0))
    assert tiers == {"disk"} and query.jobs == 1
    assert_exact(query, spec, 1)
    query.close()


def test_a_payload_is_the_same_by_either_way(tmp_path):
    batch = pa.record_batch({"n": np.arange(1000), "s": pa.array([f"x{i}" for i in range(1000)])}).slice(100, 800)
    for payload in (Payload((batch,)), Payload((b"abc", batch)), Payload((b"abc",))):
        with pa.OSFile(str(tmp_path / "file"), "wb") as sink:
            offset, length = payload.write_to(sink)
        assert (tmp_path / "file").read_bytes()[offset : offset + length] == payload.to_buffer().to_pybytes()
        assert length == payload.size
