"""Executors come and go on a real cluster: those that join are used, those that die missed, and the answer stays."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from arrivals import arrive
from namespaces import Network, can_make_networks, can_mount
from oracle import batch_join, multiset
from specs import SECOND, TIME, join, stream
from standalone import Standalone, wait_for

from sluice.control.journal import KEPT, Journal
from sluice.record.epoch import EpochRecord
from sluice.state.files.storage import Storage

STREAMS = stream("a"), stream("b")
SPEC = join(list(STREAMS), 20 * SECOND)
ROWS, SPAN = 1_000, 5 * SECOND  # of a file


class Feed:
    """Two streams of files; every call brings one more of each."""

    def __init__(self, root: Path) -> None:
        self.root, self.number = root, 0
        self.rng = np.random.default_rng(7)
        self.tables: list[list[pa.Table]] = [[], []]

    def more(self) -> None:
        for s, tables in zip(STREAMS, self.tables, strict=True):
            times = self.number * SPAN + np.sort(self.rng.integers(0, SPAN, ROWS))
            keys, values = self.rng.integers(0, 2_000, ROWS), self.rng.integers(0, 1 << 40, ROWS)
            tables.append(pa.table([keys, pa.array(times, TIME), values], schema=s.schema))
            arrive(self.root / s.name, tables[-1])
        self.number += 1

    def answer(self) -> pa.Table:
        return batch_join(SPEC, [pa.concat_tables(tables) for tables in self.tables])


class Job:
    """sites_job.py on a cluster, with flows that it runs one after the other."""

    def __init__(self, cluster: Standalone, *flows: str, options: Sequence[str] = ()) -> None:
        self.cluster = cluster
        self.flows = [Running(self, cluster.root / flow.partition("=")[0]) for flow in flows]
        program = str(Path(__file__).parents[1] / "support" / "sites_job.py")
        command = [sys.executable, program, str(cluster.root), cluster.url, *flows, *options]
        self.process = cluster.run("job", *command)

    def assert_alive(self) -> None:
        assert self.process.poll() is None, self.cluster.tail("job")

    def finish(self) -> None:
        """After the last flow."""
        wait_for("the end", lambda: self.process.poll() is not None)
        assert self.process.returncode == 0, self.cluster.tail("job")


class Running:
    """A flow of a job, fed so that it is never idle."""

    def __init__(self, job: Job, root: Path) -> None:
        self.job, self.root, self.feed = job, root, Feed(root)
        self.feed.more()

    def records(self, most: int = KEPT) -> list[EpochRecord]:
        journal = Journal(Storage(str(self.root / "ck")))
        return journal.epochs(most)

    def until(self, what: str, condition: Callable[[EpochRecord], bool]) -> float:
        """Feed epoch after epoch until the newest record is as wanted; how long that took."""

        def holds() -> bool:
            self.job.assert_alive()
            newest = self.records(most=1)
            if newest and newest[0].number + 1 >= self.feed.number:
                self.feed.more()
            return bool(newest) and condition(newest[0])

        return wait_for(what, holds)

    def finish(self) -> None:
        (self.root / "end").touch()
        wait_for("the end", lambda: (self.root / "done").exists() or bool(self.job.assert_alive()))


def on(record: EpochRecord) -> list[int]:
    """The processes of the sites' executors."""
    return [int(site.executor.rpartition("/")[2]) for site in record.stats.sites]


def decisions(records: list[EpochRecord]) -> list[str]:
    return [d.reason for r in records for d in r.decisions]


def assert_exact(running: Running) -> None:
    records = running.records()
    assert sum(r.stats.rows_in for r in records) == running.feed.number * 2 * ROWS
    found = [pq.read_table(p) for p in sorted((running.root / "out").glob("*.parquet"))]
    assert multiset(pa.concat_tables(found)) == multiset(running.feed.answer())


def evenly(there: Standalone, workers: dict[str, int], sites: int) -> Callable[[EpochRecord], bool]:
    """Whether a record's sites are spread over the workers by their cores."""

    def holds(record: EpochRecord) -> bool:
        cores = {pid: count for name, count in workers.items() for pid in there.executors(name)}
        load = Counter(on(record))
        fair = all(load[a] / cores[a] <= (load[b] + 1) / cores[b] for a in load for b in cores if a in cores)
        return len(cores) == len(workers) and set(load) <= set(cores) and fair and record.routing.sites == sites

    return holds


@contextmanager
def cluster(root: Path, network: Network | None = None, **workers: int) -> Iterator[Standalone]:
    with Standalone(root, network) as made:
        for name, cores in workers.items():
            made.add_worker(name, cores)
        yield made
    assert not made.left()
    assert not [p for place in ("mem", "disk", "tmp") for p in (root / place).glob("sluice-*")]


@pytest.mark.slow
@pytest.mark.spark
def test_executors_that_join_and_leave_and_die(tmp_path):
    """Three flows of one application: on a cluster that costs the fewest starts of Java."""
    with cluster(tmp_path, first=1) as there:
        job = Job(there, "joined", "scaled=2", "lost", options=["--grace", "3"])
        joined, scaled, lost = job.flows
        assert_a_worker_that_joins_is_used(there, joined)
        assert_executors_go_back_when_sites_leave_and_come_again_when_they_join(there, scaled)
        assert_a_worker_that_dies_is_missed(there, lost)
        job.finish()


def assert_a_worker_that_joins_is_used(there: Standalone, running: Running) -> None:
    running.until("epoch", lambda r: r.routing.sites == 1)
    there.add_worker("second", 1)
    joined = running.until("use of the second worker", lambda r: len(set(on(r))) == 2)
    assert set(on(running.records()[-1])) == {*there.executors("first"), *there.executors("second")}
    assert running.records()[-1].routing.holders.count(1) == 128
    print(f"joined: used after {joined:.1f} s")
    running.finish()
    assert_exact(running)
    assert decisions(running.records()) == ["executors joined: 1; sites: 1, now 2; 128 units moved"]


def assert_a_worker_that_dies_is_missed(there: Standalone, running: Running) -> None:
    running.until("use of two executors", lambda r: len(set(on(r))) == 2)
    there.kill_worker("first")
    left = there.executors("second")
    moved = running.until("move to the second worker", lambda r: on(r) == left * 2)
    fewer = running.until("end of the grace time", lambda r: on(r) == left)
    print(f"killed: gone on after {moved:.1f} s, fewer sites after {fewer:.1f} s")
    running.finish()
    assert_exact(running)
    assert decisions(running.records()) == [
        "executors gone: 1; sites on another one: 1",
        "executors gone: 1; sites: 2, now 1; 128 units moved",
    ]


def assert_executors_go_back_when_sites_leave_and_come_again_when_they_join(
    there: Standalone, running: Running
) -> None:
    running.until("use of two executors", lambda r: len(set(on(r))) == 2)
    first = set((running.root / "executors").read_text().split())
    fewer = scale(running, 1)
    assert len([*there.executors("first"), *there.executors("second")]) == 1
    held = running.records()[-1].routing.holders
    assert set(held) == {0}
    more = scale(running, 2)
    newest = running.records()[-1]
    joined = set((running.root / "executors").read_text().split()) - first
    assert len(joined) == 1 and len(set(on(newest))) == 2
    running.until("use of two sites", lambda r: set(r.routing.holders) == {0, 1})  # the one that joins has a share
    print(f"one of two sites, and executors, after {fewer:.1f} s, both again after {more:.1f} s")
    assert_next_replaces_a_lost_one(running)
    running.finish()
    assert_exact(running)
    told = [d for r in running.records() for d in r.decisions]
    of_sites = {("sites", action) for action in ("move", "resize", "place")}
    assert {(d.policy, d.action) for d in told} == {("you", "scale"), *of_sites}
    resizes = [d.reason.partition("; ")[2] for d in told if d.action == "resize"]
    assert resizes[0] == "sites: 2, now 1; 0 units moved"
    assert all(resize.endswith("; 0 units moved") for resize in resizes)
    assert all(d.refused is None for d in told)


def scale(running: Running, sites: int) -> float:
    """Ask for so many sites; how long it took until there were as many, and as many executors in Spark's own list."""
    (running.root / f"scale-{sites}").touch()
    there = running.root / "executors"
    return running.until(
        f"{sites} sites", lambda r: r.routing.sites == sites and len(there.read_text().split()) == sites
    )


def assert_next_replaces_a_lost_one(running: Running) -> None:
    """The one that comes for a killed one stays, also while it warms up and has no site; Spark numbers them."""
    listed = running.root / "executors"
    before = {int(number) for number in listed.read_text().split()}
    killed = on(running.records()[-1])[-1]
    os.kill(killed, signal.SIGKILL)
    running.until("use of another executor", lambda r: killed not in on(r) and len(set(on(r))) == len(before))
    now = {int(number) for number in listed.read_text().split()}
    assert len(now) == len(before) and now - before == {max(before) + 1}


SMALL_BLOBS_IN_FILES = """
import os

if os.environ.get("BLOBS_READ"):
    from sluice.engine import host_delivery
    from sluice.state.files import storage

    def note(operation, path):
        if operation == "map" and "/exchange/" in path:
            open(os.environ["BLOBS_READ"], "a").close()

    host_delivery.LEAST_BYTES = 1
    watching = storage.watch(note)
    watching.__enter__()
"""


def put_blobs_in_files(there: Standalone) -> Path:
    """Have the smallest blobs, too, go by reference; the file is there when one was read."""
    hook, read = there.root / "hook", there.root / "read"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(SMALL_BLOBS_IN_FILES)  # every Python worker imports it
    there.env |= {"BLOBS_READ": str(read), "PYTHONPATH": f"{hook}{os.pathsep}{there.env['PYTHONPATH']}"}
    return read


@pytest.mark.slow
@pytest.mark.skipif(not can_mount(), reason="nothing can be mounted here")
def test_two_hosts_with_a_memory_tier_each(tmp_path):
    """Both have a tmpfs at the same path: what goes from one to the other goes through Spark, what stays by reference.
    One of them dies, and another one comes."""
    memory = tmp_path / "mem"
    memory.mkdir()
    with cluster(tmp_path) as there:
        read = put_blobs_in_files(there)
        for name in ("first", "second"):
            there.add_worker(name, 1, tmpfs=memory)
        job = Job(there, "flow", options=["--sites", "2", "--exchange"])
        (running,) = job.flows
        running.until("use of two executors", lambda r: len(set(on(r))) == 2)
        there.kill_worker("second")
        left = there.executors("first")
        running.until("move to the first worker", lambda r: on(r) == left * 2)
        there.add_worker("third", 1, tmpfs=memory)
        running.until("use of two executors", lambda r: len(set(on(r))) == 2)
        assert read.exists() and not list(memory.iterdir())
        running.finish()
        job.finish()
        assert_exact(running)


@pytest.fixture
def network() -> Iterator[Network]:
    made = Network()
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.skipif(not (can_mount() and can_make_networks()), reason="no hosts can be made here")
def test_two_hosts_of_a_network_one_of_which_is_cut_off_and_comes_back_and_dies_and_comes_back(tmp_path, network):
    """Each has an address and a tmpfs of its own. While one is cut off its executor lives on, and does not know that
    others do its work."""
    memory = tmp_path / "mem"
    memory.mkdir()
    with cluster(tmp_path, network) as there:
        read = put_blobs_in_files(there)
        for host, name in ((2, "first"), (3, "second")):
            there.add_worker(name, 1, tmpfs=memory, host=host)
        job = Job(there, "flow", options=["--sites", "2", "--exchange", "--timeout", "30s"])
        (running,) = job.flows
        running.until("use of two executors", lambda r: len(set(on(r))) == 2)
        (first,) = there.executors("first")
        network.cut_off(3)
        running.until("move to the first worker", lambda r: on(r) == [first] * 2)
        network.bring_back(3)
        running.until("use of two executors", lambda r: len(set(on(r))) == 2)
        there.kill_worker("second")
        running.until("move to the first worker", lambda r: on(r) == [first] * 2)
        there.add_worker("third", 1, tmpfs=memory, host=3)
        running.until("use of two executors", lambda r: len(set(on(r))) == 2)
        assert read.exists() and not list(memory.iterdir())
        running.finish()
        for name in ("first", "third"):
            its_memory = Path(f"/proc/{there.processes[name].pid}/root{memory}")
            assert os.path.ismount(its_memory)
            wait_for("end of its local tiers", lambda place=its_memory: not list(place.iterdir()), seconds=30)
        job.finish()
        assert_exact(running)


@pytest.mark.slow
def test_sites_join_and_leave_at_random_while_executors_die(tmp_path):
    """At the end, when one is left, there are as many executors again as at the start."""
    rng = random.Random(3)
    with cluster(tmp_path) as there:
        there.add_worker("worker", 3, memory="2g")
        job = Job(there, "flow=3", options=["--executors", "3"])
        (running,) = job.flows
        running.until("use of three executors", lambda r: len(set(on(r))) == 3)
        for _ in range(8):
            (running.root / f"scale-{rng.randint(1, 3)}").touch()
            epochs = len(running.records()) + rng.randint(1, 6)
            running.until("epochs", lambda r, n=epochs: r.number >= n)
            if rng.random() < 0.4:
                os.kill(rng.choice(there.executors("worker")), signal.SIGKILL)
        running.until("rest", lambda r: r.stats.scale_target.sites in (None, r.routing.sites))
        if running.records()[-1].routing.sites > 1:
            scale(running, 1)
        running.finish()
        job.finish()
        assert_exact(running)
        assert len((running.root / "executors").read_text().split()) == 3
        resizes = [d for r in running.records() for d in r.decisions if d.action == "resize"]
        assert len(resizes) > 1 and all(d.reason.endswith("; 0 units moved") for d in resizes)


@pytest.mark.slow
@pytest.mark.parametrize("sites", [None, 5])
def test_workers_and_executors_come_and_go_at_random(tmp_path, sites):
    """Executors that die alone are replaced by their worker; workers that die are not."""
    rng, cores = random.Random(sites), {"worker0": 2, "worker1": 1}
    options = [] if sites is None else ["--sites", str(sites)]
    with cluster(tmp_path, **cores) as there:
        job = Job(there, "flow", options=options)
        (running,) = job.flows
        for change in range(1, 9):
            epochs = len(running.records()) + rng.randint(1, 4)
            running.until("epochs", lambda r, n=epochs: r.number >= n)
            time.sleep(rng.uniform(0, 1))
            if change % 3 == 0:
                for pid in there.executors(rng.choice(sorted(cores))):
                    os.kill(pid, signal.SIGKILL)
            elif len(cores) > 1 and (len(cores) == 4 or rng.random() < 0.4):
                gone = rng.choice(sorted(cores))
                there.kill_worker(gone)
                del cores[gone]
            else:
                cores[f"worker{change + 1}"] = rng.randint(1, 2)
                there.add_worker(f"worker{change + 1}", cores[f"worker{change + 1}"])
        running.until("even spread", evenly(there, cores, sites or sum(cores.values())))
        running.finish()
        job.finish()
        assert_exact(running)
        assert decisions(running.records())
