"""Executors and drivers killed with SIGKILL at random moments: the answer stays exact, and nothing is left behind."""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from changing_flow import assert_each_exact
from kill_leftovers import assert_nothing_left, durable_leftovers, local_leftovers, records, rows_on_record
from kill_rows import OUTPUTS, ROWS, answers
from kills import ChangingJob, Job, Kill, ending, job, killed, plan
from oracle import multiset
from spark_listing import by_metadata

import sluice


def assert_right(root: Path, files: int) -> None:
    found = records(root)
    assert [r.number for r in found] == list(range(len(found)))
    assert rows_on_record(root) == files * 2 * ROWS  # not so many in each epoch: Spark may catch up after a kill
    assert not any(r.stats.late_rows for r in found)
    assert sum(s.spilled_bytes for r in found for s in r.stats.sites), "the disk tier was not used"
    assert_exact(root, files)


def assert_exact(root: Path, files: int) -> None:
    for output, expected in zip(OUTPUTS, answers(files), strict=True):
        parts = sorted((root / output).glob("*.parquet"))
        assert multiset(pa.concat_tables([pq.read_table(p) for p in parts])) == expected
        assert sorted(by_metadata(root / output)) == parts


Fault = tuple[str, str, str, int]
FAULTS: list[Fault] = [
    ("fail", "write", r"/exchange/(\d{12})-", 0),
    ("kill", "map", r"/exchange/(\d{12})-", 0),
    ("fail", "map", r"/(\d{12})-[^/]*\.arrow", -100),
    ("fail", "write", r"/state/(\d{12})-0000", 1),
    ("fail", "finish", r"/state/(\d{12})-0001", 1),
    ("fail", "write", r"/part-(\d{12})-0001", 1),
    ("fail", "finish", r"/part-(\d{12})-0000", 1),
    ("kill", "write", r"/state/(\d{12})-0001", 2),
]
"""Operations that fail once, or with which an executor is killed, on which files, and how many epochs after the first
that they are for: when a map task writes a blob, when a site takes one and all map tasks are through, in the local
tiers, at two sites, and when other sites are through. The first ones leave no blobs in files for the others."""
FAIL_ONCE = """
import json
import os
import re
import signal

if os.environ.get("BLOBS_IN_FILES"):
    from sluice.engine import file_log, host_delivery

    host_delivery.LEAST_BYTES = 1
    file_log.NAMED_AT_MOST = int(os.environ.get("NAMED_AT_MOST", file_log.NAMED_AT_MOST))
if os.environ.get("FAULTS"):
    from sluice.state.files import storage, workspace

    def fail_once(operation, path):
        for number, (kind, wanted, pattern, first) in enumerate(json.loads(os.environ["FAULTS"])):
            match = re.search(pattern, path) if operation == wanted else None
            if match and int(match[1]) >= first:
                try:
                    os.close(os.open(f"{os.environ['FAULTS_SEEN']}/{number}", os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    continue
                if kind == "kill":
                    os.kill(int(workspace.executor().rpartition("/")[2]), signal.SIGKILL)
                if kind == "kill all":
                    os.killpg(os.getpgrp(), signal.SIGKILL)
                if kind != "fail":
                    os._exit(1)
                raise OSError(5, f"fault {number} at {operation} {path}")

    watching = storage.watch(fail_once)
    watching.__enter__()
"""


def put_blobs_in_files(root: Path) -> dict[str, str]:
    """The environment in which the smallest blobs, too, go by reference."""
    hook = root / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(FAIL_ONCE)  # every Python worker imports it
    path = os.pathsep.join([str(hook), str(Path(sluice.__file__).parents[1])])
    return {"BLOBS_IN_FILES": "1", "PYTHONPATH": path}


def make_tasks_fail(root: Path, epoch: int, faults: Sequence[Fault] = FAULTS) -> dict[str, str]:
    """The environment in which tasks of this epoch, or the ones after it, fail; a file of `root`/seen for each that
    has."""
    seen = root / "seen"
    seen.mkdir()
    from_epoch = [(*what, epoch + later) for *what, later in faults]
    return {"FAULTS": json.dumps(from_epoch), "FAULTS_SEEN": str(seen)}


DRIVER_DIES = ("kill all", "put", r"/journal/(\d{12})", -1)
"""Before it commits the epoch before the first in which tasks fail."""


def await_death(running: Job) -> None:
    """Of a driver that a fault kills."""
    running.wait_for("the death of a driver", lambda: not running.running, ending=True)
    assert running.process.returncode == -signal.SIGKILL, running.tail()
    killed["driver"] += 1


@pytest.mark.spark
def test_a_killed_driver_killed_executors_and_tasks_that_fail_change_nothing(tmp_path):
    """Two starts of Spark, the first one without executors, which take long to start. In the second one tasks fail, and
    executors are killed, inside sites and between map tasks and sites; Spark's next attempt at each succeeds, or the
    epoch's next job."""
    faults = [*FAULTS, DRIVER_DIES]
    files = (later := 3) + 3
    env = put_blobs_in_files(tmp_path) | make_tasks_fail(tmp_path, later, faults)
    with job(tmp_path, files, env=env) as running:
        running.options = ("--master", "local[2,20]")  # a task may fail twenty times
        running.start()
        await_death(running)
        running.options = ()
        running.finish()
        assert running.starts == 2
        assert_right_after(faults, tmp_path, files)


@pytest.mark.slow
def test_killed_executors_and_drivers_and_tasks_that_fail_change_nothing(tmp_path):
    """A start of Spark for each killed driver, and one more, in which tasks fail."""
    files = (later := 6) + 6  # after each of three kills, an epoch may have two of a stream
    with job(tmp_path, files, env=put_blobs_in_files(tmp_path)) as running:
        running.carry_out(Kill("executor", 1, 0.3))
        running.carry_out(Kill("driver and executors", 2, 0.2))
        assert_nothing_left(tmp_path, local_leftovers)
        running.carry_out(Kill("driver", 4, 0.4))
        running.env |= make_tasks_fail(tmp_path, later)
        running.finish()
        assert running.starts == 3
        assert_right_after(FAULTS, tmp_path, files)


def assert_right_after(faults: Sequence[Fault], root: Path, files: int) -> None:
    """All of these have happened, the results are exact, and nothing is left of a run that has ended."""
    assert len(list((root / "seen").iterdir())) == len(faults)
    assert_right(root, files)
    assert_nothing_left(root, local_leftovers)
    assert_nothing_left(root, durable_leftovers)


OF_BLOBS = [(kind, step) for step in ("write", "finish", "map", "delete") for kind in ("fail", "die", "kill")]
"""What happens to a task, its worker or its executor, and before which step on a blob's way."""
OF_DRIVERS = [
    ("put", r"/input/(\d{12})-"),
    ("finish", r"/input/(\d{12})-"),
    ("put", r"/journal/(\d{12})"),
    ("finish", r"/journal/(\d{12})"),
    ("move", r"/part-(\d{12})-"),
    ("delete", r"/input/(\d{12})-"),
    ("delete", r"/state/(\d{12})-"),
]
"""Steps of an epoch before which its driver is killed, with all executors: the log of the files is written, the epoch
is committed, its results are shown, lists that were merged and state that was are removed."""


@pytest.mark.slow
def test_deaths_at_every_step_of_the_exchange_and_of_the_file_loop(tmp_path):
    """One after the other; the first ones with so many epochs between them that blobs go by reference again."""
    tasks: list[Fault] = [(kind, step, r"/exchange/(\d{12})-", 4 * n) for n, (kind, step) in enumerate(OF_BLOBS)]
    first = 4 * len(tasks)
    drivers: list[Fault] = [("kill all", *step, first + 2 * n) for n, step in enumerate(OF_DRIVERS)]
    files = first + 2 * len(drivers) + 12  # until state is removed that the last epochs have written
    env = put_blobs_in_files(tmp_path) | make_tasks_fail(tmp_path, 1, [*tasks, *drivers]) | {"NAMED_AT_MOST": "3"}
    seen = tmp_path / "seen"
    with job(tmp_path, files, env=env) as running:
        running.start()
        for number, fault in enumerate(tasks):
            running.wait_for(f"fault {fault}", lambda n=number: (seen / f"{n}").exists())
        for _ in drivers:
            await_death(running)
            assert_nothing_left(tmp_path, local_leftovers, seconds=30)
            running.start()
        running.finish()
        assert_right_after([*tasks, *drivers], tmp_path, files)


@pytest.mark.slow
@pytest.mark.parametrize("seed, drivers, executors", [(1, 17, 8), (2, 17, 8), (3, 1, 20)])
def test_kills_at_random_moments(tmp_path, seed, drivers, executors):
    """With the local tiers in given directories, or where they are by default."""
    files = drivers + executors + 5
    options = [] if seed % 2 else ["--default-places"]
    rng = random.Random(seed)
    with job(tmp_path, files, *options) as running:
        for kill in plan(seed, files, drivers, executors):
            running.carry_out(kill)
            if kill.whom.startswith("driver") and rng.random() < 0.5:  # else the next start meets what is still dying
                alone = kill.whom == "driver"  # executors that were just starting give up when they cannot register
                assert_nothing_left(tmp_path, local_leftovers, seconds=60 if alone else 5)
        running.finish()
        assert_right(tmp_path, files)
        assert_nothing_left(tmp_path, local_leftovers)
        assert_nothing_left(tmp_path, durable_leftovers)


@pytest.mark.slow
@pytest.mark.parametrize("seed, options", [(1, ()), (2, ()), (3, ("--freezing",))])
def test_exact_under_chaos_on_three_executors(tmp_path, seed, options):
    """Units move and are frozen, memory changes, epochs end early and sites are slow, and all the while somebody is
    killed."""
    files = 24
    master = ("--master", "local-cluster[3,1,1024]")
    with job(tmp_path, files, *master, "--restless", str(seed), *options) as running:
        for kill in plan(100 + seed, files, drivers=8, executors=9):
            running.carry_out(kill)
        running.finish()
        assert_exact(tmp_path, files)
        found = records(tmp_path)
        assert not found[-1].lagging and not found[-1].missing_units
        for count in ("moves", "backlog_rows", *(() if options else ("spills",))):
            assert any(getattr(r.stats, count) for r in found), count
        if options:
            assert any(r.missing_units for r in found), "nothing was frozen"
            assert any(site.late_results for r in found for site in r.stats.sites), "nothing was cleaned up"
        assert_nothing_left(tmp_path, local_leftovers)


disturbed: Counter[str] = Counter()
"""What has happened in the runs below."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_queries_come_and_go_exactly_under_chaos_on_three_executors(tmp_path, seed):
    """Queries are added and dropped, units move, are split and frozen, the query is stopped and goes on, with other
    queries too; executors die, and then the driver does."""
    rng = random.Random(seed)
    with ending(ChangingJob(tmp_path, "--seed", str(seed), "--steps", "12")) as running:
        running.carry_out(Kill(rng.choice(["driver", "driver and executors"]), rng.randint(3, 7), rng.uniform(0, 2)))
        running.finish()
        happened = assert_each_exact(tmp_path, seed)
        print(dict(sorted(happened.items())))
        for what in ("exact", "results", "added", "dropped", "moves", "killed", "restarts"):
            assert happened[what], f"{what}: {happened}"
        disturbed.update(happened)
        assert_nothing_left(tmp_path, local_leftovers)


@pytest.mark.slow
def test_queries_attached_while_units_were_split_and_frozen():
    """If all of the runs above were asked for."""
    if not disturbed:
        pytest.skip("none of the runs was asked for")
    assert all(disturbed[what] for what in ("attached", "split", "freeze")), disturbed


@pytest.mark.slow
def test_there_were_kills():
    """At least fifty of drivers and fifty of executors, if all of the tests above were run."""
    if sum(killed.values()) < 100:
        pytest.skip("only some of the kills were asked for")
    assert min(killed["driver"], killed["executor"]) >= 50, killed
