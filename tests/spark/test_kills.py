"""Executors and drivers killed with SIGKILL at random moments: the answer stays exact, and nothing is left behind."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import duckdb
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from oracle import batch_join, multiset
from spark_listing import by_metadata
from specs import SECOND, TIME, join, stream

import sluice
from sluice.control.journal import Journal
from sluice.model.epoch import EpochRecord
from sluice.state.storage import Storage

STREAMS = stream("a"), stream("b")
SPEC = join(list(STREAMS), 20 * SECOND)
ROWS, SPAN = 2_000, 5 * SECOND  # of a file; ROWS unless a test wants fewer
PATIENCE = 300  # seconds for whatever must happen sooner or later
OUTPUTS = ("out", "bars")
SITES = (3, 4, 2)  # of the first start, the second, …
killed: Counter[str] = Counter()
"""Drivers and executors, in all tests so far; executors that die in one moment count as one."""


@dataclass(frozen=True)
class Kill:
    """Whom to kill, and when: `delay` seconds after so many files a stream are on record; 0: after the start."""

    whom: str
    files: int
    delay: float


def plan(seed: int, files: int, drivers: int, executors: int) -> list[Kill]:
    """Kills spread at random over a whole run, from the driver's first second to its last."""
    rng = random.Random(seed)
    others = ["executor", "all executors"]
    whom = [rng.choice(["driver", "driver and executors"]) for _ in range(drivers - 1)]
    whom += [rng.choice(others) for _ in range(executors)]
    rng.shuffle(whom)
    kills, running = [], False
    for who, done in zip(whom, sorted(rng.sample(range(1, files - 3), len(whom))), strict=True):
        starting = not running and who not in others
        kills.append(Kill(who, 0, rng.uniform(0.2, 12)) if starting else Kill(who, done, rng.uniform(0, 0.8)))
        running = who in others
    return [*kills, Kill("driver and executors", files, rng.uniform(0, 0.2))]


class Job:
    """kill_job.py on a directory: started again and again, each time with another number of sites."""

    def __init__(self, root: Path, *options: str, env: dict[str, str] | None = None) -> None:
        self.root, self.options, self.starts = root, options, 0
        path = [str(Path(sluice.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        self.env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(path), **(env or {})}
        self.log = root / "log"
        self.process: subprocess.Popen | None = None

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        sites = SITES[self.starts % len(SITES)]
        self.starts += 1
        program = Path(__file__).parents[1] / "support" / "kill_job.py"
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(program), str(self.root), "--sites", str(sites), *self.options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.root,
                env=self.env,
                start_new_session=True,
            )
        self.born = time.monotonic()

    def carry_out(self, kill: Kill) -> None:
        if not self.running:
            self.start()
        if kill.files:
            self.wait_for(f"a record of {kill.files} files", lambda: rows_on_record(self.root) >= kill.files * 2 * ROWS)
            time.sleep(kill.delay)
        else:
            time.sleep(max(0.0, self.born + kill.delay - time.monotonic()))
        assert self.running, self.ended_before(kill)
        if kill.whom == "driver and executors":  # one process group: Python, its JVM, and the executors' JVMs
            os.killpg(self.process.pid, signal.SIGKILL)
        elif kill.whom == "driver":  # the executors find out by themselves
            for process in [self.process, *psutil.Process(self.process.pid).children()]:
                process.kill()
        else:
            self.wait_for("an executor", lambda: bool(self.executors()))
            for process in self.executors()[: 1 if kill.whom == "executor" else None]:
                process.kill()
            assert self.running, self.ended_before(kill)
        if kill.whom.startswith("driver"):
            self.process.wait()
        killed[kill.whom.removeprefix("all ").split()[0].removesuffix("s")] += 1

    def executors(self) -> list[psutil.Process]:
        """Running ones, the oldest first."""
        below = psutil.Process(self.process.pid).children(recursive=True)
        return sorted((p for p in below if is_executor(p)), key=lambda p: p.create_time())

    def finish(self) -> None:
        if not self.running:
            self.start()
        self.wait_for("the end", lambda: not self.running, ending=True)
        assert self.process.returncode == 0, self.tail()

    def wait_for(self, what: str, condition: Callable[[], bool], ending: bool = False) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert self.running or ending, self.ended_before(what)
            assert time.monotonic() < deadline, f"no {what} in {PATIENCE} s\n{self.tail()}"
            time.sleep(0.25)  # the condition may read the whole journal

    def ended_before(self, what: object) -> str:
        return f"the job ended with {self.process.returncode} before {what}\n{self.tail()}"

    def tail(self) -> str:
        return self.log.read_text()[-6_000:]


def is_executor(process: psutil.Process) -> bool:
    try:
        return any(part.endswith("CoarseGrainedExecutorBackend") for part in process.cmdline())
    except psutil.Error:  # it is gone, or a zombie
        return False


@contextmanager
def job(root: Path, files: int, *options: str, env: dict[str, str] | None = None) -> Iterator[Job]:
    """A job over so many files a stream; if the test fails, it ends too."""
    write_files(root, files)
    running = Job(root, *options, env=env)
    try:
        yield running
    finally:
        for process in processes(root):
            with suppress(psutil.NoSuchProcess):
                process.kill()


def write_files(root: Path, files: int, count: int = ROWS) -> None:
    """So many files a stream, of so many rows each."""
    for name, tables in zip(("a", "b"), rows(files, count), strict=True):
        (root / name).mkdir()
        for number, table in enumerate(tables):
            path = root / name / f"{number:03d}.parquet"
            pq.write_table(table, path)
            os.utime(path, (1_700_000_000 + number,) * 2)  # Spark takes files in this order


@cache
def rows(files: int, count: int = ROWS) -> tuple[list[pa.Table], ...]:
    """Files of two streams, in the order of their event times."""
    out = []
    for number, s in enumerate(STREAMS):
        rng = np.random.default_rng(number)
        tables = []
        for file in range(files):
            times = file * SPAN + np.sort(rng.integers(0, SPAN, count))
            keys, values = rng.integers(0, 2 * count, count), rng.integers(0, 1 << 40, count)
            tables.append(pa.table([keys, pa.array(times, TIME), values], schema=s.schema))
        out.append(tables)
    return tuple(out)


@cache
def answers(files: int) -> tuple[Counter, Counter]:
    pairs, bars = answer_tables(files)
    return multiset(pairs), multiset(bars)


@cache
def answer_tables(files: int, count: int = ROWS) -> tuple[pa.Table, pa.Table]:
    """All pairs, and the groups of them whose windows the watermark has passed."""
    tables = [pa.concat_tables(t) for t in rows(files, count)]
    pairs = batch_join(SPEC, tables)
    newest = min(max(t["ts"].cast(pa.int64()).to_pylist()) for t in tables)
    length, slide = 10 * SECOND, 5 * SECOND
    time = "greatest(epoch_us(a_ts), epoch_us(b_ts))"
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        bars = db.sql(
            f"""SELECT a_k, make_timestamptz(s) AS window_start, make_timestamptz(s + {length}) AS window_end,
                       count(*) AS n, CAST(sum(b_v) AS BIGINT) AS total
                FROM (SELECT *, unnest(range({time} - {time} % {slide}, {time} - {length}, -{slide})) AS s FROM pairs)
                WHERE s + {length} <= {newest} GROUP BY a_k, s"""
        ).to_arrow_table()
    return pairs, bars


def rows_on_record(root: Path) -> int:
    return sum(r.stats.rows_in for r in records(root))


def records(root: Path) -> list[EpochRecord]:
    journal = Journal(Storage(str(root / "ck")))
    return journal.epochs()


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


def processes(root: Path) -> list[psutil.Process]:
    """Every process started by the job: driver, JVMs, Python workers, reapers. Their environment names the root."""
    found = []
    for process in psutil.process_iter(["name"]):  # asked for once: it may end while we look
        try:
            if str(root) in " ".join(process.cmdline()) or process.environ().get("SPARK_HOME") == f"{root}/spark":
                found.append(process)
        except psutil.Error:
            pass
    return found


def local_leftovers(root: Path) -> list[str]:
    """What must vanish when the processes have ended, however they ended."""
    left = [f"process {p.pid} {p.info['name']}" for p in processes(root)]
    for directory in (root / "mem", root / "disk", root / "tmp"):
        left += [str(p) for p in directory.glob("sluice-*")]
    query = (Journal(Storage(str(root / "ck"))).identity() or {"id": "none"})["id"]
    return left + [str(p) for p in Path("/dev/shm").glob(f"sluice-*-{query}-*")]


def durable_leftovers(root: Path) -> list[str]:
    """What must be gone when the query has ended in good order: everything the newest record does not refer to."""
    found = records(root)
    left = {f"state/{p.name}" for p in (root / "ck" / "state").iterdir()} ^ found[-1].files()
    drafts = [p for top in ("ck", *OUTPUTS) for p in (root / top).rglob("*.tmp")]
    left |= {str(p) for p in drafts if root / "ck" / "spark" not in p.parents}  # there Spark's own drafts may be
    for number, output in enumerate(OUTPUTS):
        left |= {str(p) for p in (root / output).glob("_sluice-*/*")}
        shown = {p.name for p in (root / output).glob("*.parquet")}
        left |= shown ^ {p.name for r in found for p in r.results_of(number).parts}
    return sorted(left)


def assert_nothing_left(root: Path, look: Callable[[Path], list[str]], seconds: float = 5) -> None:
    """Nothing, or nothing any more within a few seconds."""
    deadline = time.monotonic() + seconds
    while (left := look(root)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left


@pytest.mark.spark
def test_killed_executors_and_drivers_change_nothing(tmp_path):
    files = 10
    with job(tmp_path, files) as running:
        running.carry_out(Kill("executor", 2, 0.3))
        running.carry_out(Kill("driver and executors", 5, 0.2))
        assert_nothing_left(tmp_path, local_leftovers)
        running.carry_out(Kill("driver", 0, 4.0))
        running.carry_out(Kill("all executors", 7, 0.4))
        running.finish()
        assert_right(tmp_path, files)
        assert_nothing_left(tmp_path, local_leftovers)
        assert_nothing_left(tmp_path, durable_leftovers)


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
@pytest.mark.parametrize("seed", [1, 2])
def test_exact_under_chaos_on_three_executors(tmp_path, seed):
    """Units move, memory changes, epochs end early and sites are slow, and all the while somebody is killed."""
    files = 24
    with job(tmp_path, files, "--master", "local-cluster[3,1,1024]", "--restless", str(seed)) as running:
        for kill in plan(100 + seed, files, drivers=8, executors=9):
            running.carry_out(kill)
        running.finish()
        assert_exact(tmp_path, files)
        found = records(tmp_path)
        assert not found[-1].lagging
        for count in ("moves", "spills", "backlog_rows"):
            assert any(getattr(r.stats, count) for r in found), count
        assert_nothing_left(tmp_path, local_leftovers)


@pytest.mark.slow
def test_there_were_kills():
    """At least fifty of drivers and fifty of executors, if all of the tests above were run."""
    if sum(killed.values()) < 100:
        pytest.skip("only some of the kills were asked for")
    assert min(killed["driver"], killed["executor"]) >= 50, killed


FAULTS = """
import json
import os

if os.environ.get("FAULTS"):
    from sluice.state import storage

    def fail_once(operation, path):
        for number, (wanted, part) in enumerate(json.loads(os.environ["FAULTS"])):
            if operation == wanted and part in path:
                try:
                    os.close(os.open(f"{os.environ['FAULTS_SEEN']}/{number}", os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    continue
                raise OSError(5, f"fault {number} at {operation} {path}")

    watching = storage.watch(fail_once)
    watching.__enter__()
"""


@pytest.mark.spark
def test_a_task_that_fails_inside_a_site_is_tried_again(tmp_path):
    """Each kind of failure once, in an epoch of its own; Spark's next attempt succeeds."""
    files = 8
    faults = [
        ("write", "/state/000000000001-0000"),
        ("finish", "/state/000000000002-0001"),
        ("write", "/part-000000000003-0002"),
        ("finish", "/part-000000000004-0000"),
        ("map", ".arrow"),
    ]
    hook, seen = tmp_path / "hook", tmp_path / "seen"
    hook.mkdir()
    seen.mkdir()
    (hook / "sitecustomize.py").write_text(FAULTS)  # every Python worker imports it
    env = {
        "FAULTS": json.dumps(faults),
        "FAULTS_SEEN": str(seen),
        "PYTHONPATH": os.pathsep.join([str(hook), str(Path(sluice.__file__).parents[1])]),
    }
    with job(tmp_path, files, "--master", "local[2,3]", env=env) as running:
        running.finish()
        assert running.starts == 1
        assert len(list(seen.iterdir())) == len(faults)
        assert_right(tmp_path, files)
        assert_nothing_left(tmp_path, local_leftovers)
        assert_nothing_left(tmp_path, durable_leftovers)
