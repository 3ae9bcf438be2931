"""A cluster without Spark: the real tasks of an epoch's job in worker processes of their own, whom somebody can kill
before any file operation, and what Spark does then: tasks run again, and with them those whose output is lost."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dying_process import DIED
from engine_harness import DirectQuery
from forking import fork

from sluice.engine.host_delivery import HostDelivery, InputUnusable
from sluice.engine.site_task import SiteTask
from sluice.engine.split import FileFormat, SplitTask
from sluice.model.identity import FILES
from sluice.model.ids import Level
from sluice.record.reports import SiteReport
from sluice.sources.input_files import InputFile
from sluice.spark.epoch_job import read_reports
from sluice.spark.epoch_tasks import FileSplit, SiteWork, SmallEpoch
from sluice.spark.feed import FeedInput
from sluice.spark.file_loop import FileLoop
from sluice.spark.map_tasks import divide_by_bytes
from sluice.state.files import workspace
from sluice.state.files.storage import watch
from sluice.state.files.workspace import identify_memory

TASK, WORKER, EXECUTOR = "task", "worker", "executor"
END_OF_TASK = "end of a task"


@dataclass
class Death:
    """Who dies, and before which step: of those that count, over all tasks one after the other. A step is a file
    operation on a path, or that a task ends and its output is still to be sent. A task dies of an operation that
    fails."""

    whom: str
    step: int
    counts: Callable[[str, str], bool] = lambda operation, path: True
    steps: int = 0
    """How many there have been."""
    is_over: bool = False
    before: str = ""
    """What the one who died was about to do."""

    def is_due(self, operation: str, path: str) -> bool:
        due = not self.is_over and self.steps == self.step and self.counts(operation, path)
        self.steps += self.counts(operation, path)
        return due


class Died(Exception):
    """A task failed, or its worker died, and perhaps the executor with it."""


class Fault(OSError):
    """An operation failed."""


class Executor:
    """A process that owns local tiers, as the JVM of an executor does; its workers run tasks, each one."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(["sleep", "1000"])

    @property
    def lives(self) -> bool:
        return self.process.poll() is None

    def run(self, task: Callable[[], Any], death: Death) -> Any:
        """What a task comes to, in a worker of its own."""
        reading, writing = os.pipe()
        worker = fork()
        if worker == 0:
            status = 1
            try:
                os.close(reading)
                self._run_in_worker(task, death, writing)
                status = 0
            except Fault:
                status = DIED
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(writing)
        with open(reading, "rb") as file:
            answer = file.read()
        status = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
        assert status in (0, DIED), f"a task failed with {status}"
        if status == DIED:
            death.is_over, death.before = True, answer.decode()
            if death.whom == EXECUTOR:
                self.kill()
            raise Died
        death.steps, result = pickle.loads(answer)
        return result

    def _run_in_worker(self, task: Callable[[], Any], death: Death, answer: int) -> None:
        workspace._nearest_jvm = lambda process: self.process.pid  # type: ignore[assignment]

        def die_if_due(operation: str, path: str) -> None:
            if death.is_due(operation, path):
                os.write(answer, f"{operation} {path}".encode())
                if death.whom == TASK:
                    raise Fault(5, "a fault")
                if death.whom == EXECUTOR:
                    os.kill(self.process.pid, signal.SIGKILL)
                os._exit(DIED)

        with watch(die_if_due):
            result = task()
        die_if_due(END_OF_TASK, "")
        with open(answer, "wb") as file:
            pickle.dump((death.steps, result), file)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()


@dataclass(frozen=True)
class Unshipped:
    """A task that needs not be shipped."""

    task: Any

    def unpack(self) -> Any:
        return self.task


Pairs = list[tuple[int, bytes]]
"""What a task sends: to which site, and a frame."""


class ModelledJob:
    """An epoch's job: its stages are the split and a level of operators each, or all in one."""

    def __init__(
        self,
        executors: list[Executor],
        split: SplitTask,
        site: SiteTask,
        delivery: HostDelivery | None,
        files: Sequence[InputFile],
        is_small: bool,
        death: Death,
    ) -> None:
        self.executors, self.death = executors, death
        packed = Unshipped(split), Unshipped(site)
        levels = range(site.plan.levels)
        works: list[Any] = [SiteWork(packed[1], delivery, Level(n), n == levels[-1]) for n in levels]  # type: ignore[arg-type]
        self.inputs = [pickle.dumps(share) for share in divide_by_bytes(files, 2)]
        if is_small:
            self.stages = [SmallEpoch(*packed, delivery, tuple(files))]  # type: ignore[arg-type]
            self.tasks = [len(site.site_keys)]
        else:
            self.stages = [FileSplit(packed[0], delivery), *works]  # type: ignore[arg-type]
            self.tasks = [len(self.inputs), *(len(site.site_keys) for _ in levels)]
        self.is_small, self.last = is_small, len(self.stages) - 1
        self.outputs: dict[tuple[int, int], Any] = {}
        self.made_by: dict[tuple[int, int], Executor] = {}

    def run(self) -> list[SiteReport]:
        """The reports of the sites; `InputUnusable` if one could not read what it was sent."""
        self._complete(self.last)
        return read_reports(frame for task in range(self.tasks[-1]) for frame in self.outputs[self.last, task])

    def _complete(self, stage: int) -> None:
        while missing := [task for task in range(self.tasks[stage]) if (stage, task) not in self.outputs]:
            if stage:
                self._complete(stage - 1)
            self._run_task(stage, missing[0])

    def _run_task(self, stage: int, task: int) -> None:
        place = task % len(self.executors)
        executor, work = self.executors[place], self.stages[stage]
        frames = [b""] if self.is_small else self._frames_for(stage, task)
        gives_pairs = stage < self.last

        def run() -> Pairs | list[bytes]:
            sent = [b"".join(bytes(piece) for piece in frame) for frame in work(task, iter(frames))]
            keys = (int.from_bytes(key, "big", signed=True) for key in sent[::2])
            return list(zip(keys, sent[1::2], strict=True)) if gives_pairs else sent

        try:
            self.outputs[stage, task] = executor.run(run, self.death)
            self.made_by[stage, task] = executor
        except Died:
            pass
        if self.death.is_due("output of a task was sent", ""):
            self.death.is_over, self.death.before = True, "the next task"
            executor.kill()
        if not executor.lives:
            self._replace(place)

    def _frames_for(self, stage: int, task: int) -> list[bytes]:
        if not stage:
            return [self.inputs[task]]
        pairs = (pair for sender in range(self.tasks[stage - 1]) for pair in self.outputs[stage - 1, sender])
        return [frame for site, sent in pairs if site == task for frame in (b"", sent)]

    def _replace(self, place: int) -> None:
        """Another executor comes, and what the dead one had of the exchange is gone. What the driver has, stays."""
        dead, self.executors[place] = self.executors[place], Executor()
        lost = [key for key, executor in self.made_by.items() if executor is dead and key[0] < self.last]
        for key in lost:
            del self.outputs[key], self.made_by[key]


class ModelledQuery(DirectQuery):
    """A query over files of Parquet on two executors of one host, driven by the epoch loop. Without a death all tasks
    run in the driver's own process."""

    jobs = 0
    blobs_by_reference = True
    small_epochs = False
    epochs_at_most = 1_000

    def __init__(self, plan: Any, root: Path, sources: Sequence[Path], **options: Any) -> None:
        super().__init__(plan, root, input=FILES, **options)
        self.site_keys = tuple(range(len(self.site_keys)))  # type: ignore[assignment]
        self.epochs.reading = tuple(FileFormat("parquet") for _ in sources)
        self.executors: list[Executor] = []
        self.death = Death(EXECUTOR, -1)
        self.failures: list[BaseException] = []
        context = SimpleNamespace(_jsc=object(), setJobGroup=lambda *of: None, cancelJobGroup=lambda group: None)
        query: Any = SimpleNamespace(
            spark=SimpleNamespace(sparkContext=context),
            sources=[SimpleNamespace(path=str(path), options={"maxFilesPerTrigger": 1}) for path in sources],
            trigger={"availableNow": True},
            interval=0.0,
            name=None,
        )
        self.loop = FileLoop(query, "ab12", self.epochs, self._take_in, lambda *_: None, self.failures.append)

    def run_all(self) -> None:
        """Take in all files that are there."""
        self.loop.start()
        assert self.loop.wait(None)
        for failure in self.failures:
            raise failure

    def _take_in(self, input: FeedInput) -> None:
        files: Any = input.content
        if self.epochs.record.number + 1 == self.epochs_at_most:
            self.loop._stopping.set()
            return
        input.run(self.site_keys, lambda split, site: self._run_jobs(split, site, files), "", 0.0)

    def _run_jobs(self, split: SplitTask, site: SiteTask, files: Sequence[InputFile]) -> list[SiteReport]:
        try:
            return self._run_job(split, site, files, self.blobs_by_reference)
        except InputUnusable:
            return self._run_job(split, site, files, False)

    def _run_job(
        self, split: SplitTask, site: SiteTask, files: Sequence[InputFile], by_reference: bool
    ) -> list[SiteReport]:
        self.jobs += 1
        memory = identify_memory(self.places) if by_reference else ""
        memories = (memory,) * len(self.site_keys)
        delivery = HostDelivery(self.workspace(self.places), site.number, self.jobs, memories, 1 << 20)
        executors: Any = self.executors or [InProcess()] * 2
        return ModelledJob(executors, split, site, delivery, files, self.small_epochs, self.death).run()

    def blobs_left(self) -> list[Path]:
        """The blobs that lie on the host."""
        return sorted(self.root.glob("*/sluice-*/exchange/*"))

    def workspaces(self) -> list[Path]:
        """The local tiers of all runs."""
        return sorted(path for tier in ("memory", "disk") for path in (self.root / tier).glob("sluice-*"))

    def close(self) -> None:
        super().close()
        for executor in self.executors:
            executor.kill()


class InProcess(Executor):
    """An executor that is the driver's own process, as with `local[2]`."""

    lives = True  # type: ignore[assignment]

    def __init__(self) -> None:
        pass

    def run(self, task: Callable[[], Any], death: Death) -> Any:
        return task()
