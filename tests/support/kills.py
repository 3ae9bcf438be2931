"""Starts kill_job.py, and kills its driver and its executors at chosen moments."""

from __future__ import annotations

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
from pathlib import Path
from typing import TypeVar

import psutil
from kill_leftovers import processes, records, rows_on_record
from kill_rows import ROWS, write_files
from standalone import is_executor

import sluice

PATIENCE = 300  # seconds for whatever must happen sooner or later
SITES = (3, 4, 2)  # of the first start, the second, …
AnyJob = TypeVar("AnyJob", bound="Job")
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
    """A program on a directory: started again and again, each time with another number of sites."""

    program = "kill_job.py"

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
        program = Path(__file__).with_name(self.program)
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
            self.wait_for(f"a record of {kill.files} files", lambda: self.files_on_record() >= kill.files)
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

    def files_on_record(self) -> int:
        """Of each stream."""
        return rows_on_record(self.root) // (2 * ROWS)

    def executors(self) -> list[psutil.Process]:
        """Running ones, the oldest first."""
        return executors_below(psutil.Process(self.process.pid))

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


class ChangingJob(Job):
    """One whose queries come and go."""

    program = "changing_job.py"

    def files_on_record(self) -> int:
        return max((record.batch for record in records(self.root)), default=-1) + 1


def executors_below(process: psutil.Process) -> list[psutil.Process]:
    """The executors that a driver has started, the oldest first."""
    below = process.children(recursive=True)
    return sorted((p for p in below if is_executor(p)), key=lambda p: p.create_time())


@contextmanager
def job(root: Path, files: int, *options: str, env: dict[str, str] | None = None) -> Iterator[Job]:
    """A job over so many files a stream; if the test fails, it ends too."""
    write_files(root, files)
    with ending(Job(root, *options, env=env)) as running:
        yield running


@contextmanager
def ending(running: AnyJob) -> Iterator[AnyJob]:
    """A job of which no process stays."""
    try:
        yield running
    finally:
        for process in processes(running.root):
            with suppress(psutil.NoSuchProcess):
                process.kill()
