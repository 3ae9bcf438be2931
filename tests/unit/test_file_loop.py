"""The epoch loop over files, without Spark: which triggers mean what, how it ends, and what it tells."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sluice.engine.file_log import NewFiles
from sluice.model.clock import SystemClock
from sluice.model.epoch.taken_files import TakenFile, TakenFiles
from sluice.model.epoch.times import ENDED
from sluice.model.errors import QueryError
from sluice.sources.input_files import InputFile
from sluice.spark import file_loop
from sluice.spark.feed import FeedInput
from sluice.spark.file_loop import FileLoop


class FakeEpochs:
    """Takes files in, and remembers which with which epoch."""

    def __init__(self, taken: tuple[TakenFile, ...] = ()) -> None:
        self.clock, self.taken, self.shown = SystemClock(), list(taken), 0
        self.newest: int | None = None
        self.epochs: list[list[str]] = []

    @property
    def record(self) -> Any:
        return SimpleNamespace(
            batch=len(self.epochs) - 1, taken=TakenFiles(), stats=SimpleNamespace(rows_in=7), newest=(self.newest,)
        )

    @property
    def checkpoint(self) -> Any:
        return SimpleNamespace(newest=self.record)

    def files_taken(self) -> list[TakenFile]:
        return self.taken

    def finish_delivery(self) -> None:
        pass

    def note_shown(self) -> None:
        self.shown += 1

    def run_with_files(
        self, files: NewFiles, keys: Any, exchange: Any, reason: str, ingested_at: float, look_ahead: Any
    ) -> None:
        exchange(None, None)
        look_ahead(len(self.epochs))
        self.epochs.append([Path(file.path).name for file in files.files])


class Running:
    """A loop over a directory, and what it asks of the query around it."""

    def __init__(self, root: Path, trigger: dict[str, Any], interval: float = 0.0, **options: Any) -> None:
        self.context = SimpleNamespace(
            _jsc=object(), setJobGroup=self.note_group, cancelJobGroup=lambda group: self.cancelled.set()
        )
        self.cancelled, self.groups, self.failures = threading.Event(), list[str](), list[BaseException]()
        self.read_files = lambda files: files
        self.ahead: dict[int, list[str]] = {}
        self.epochs = FakeEpochs()
        query: Any = SimpleNamespace(
            spark=SimpleNamespace(sparkContext=self.context),
            sources=[SimpleNamespace(path=str(root), options=options, stream=SimpleNamespace(name="trades"))],
            trigger=trigger,
            interval=interval,
            name="sums",
        )
        epochs: Any = self.epochs
        self.loop = FileLoop(query, "ab12", epochs, self.take_in, self.note_ahead, self.failures.append)

    def note_group(self, group: str, description: str, interrupt: bool) -> None:
        self.groups.append(description)

    def note_ahead(self, split: Any, files: Sequence[InputFile]) -> None:
        self.ahead[split] = [Path(file.path).name for file in files]

    def take_in(self, input: FeedInput) -> None:
        files = list(input.content or ())
        splits = [SimpleNamespace(files=self.read_files(len(files)))]
        input.run((), lambda split, site: [SimpleNamespace(splits=splits)], "", 0.0)  # type: ignore[arg-type,list-item,return-value]


@contextmanager
def running(root: Path, trigger: dict[str, Any] | None = None, **options: Any) -> Iterator[Running]:
    run = Running(root, trigger or {}, **options)
    run.loop.start()
    try:
        yield run
    finally:
        run.loop.stop()


def test_files_are_taken_in_as_they_come(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with running(tmp_path) as run:
        run.loop.process_all()
        assert run.epochs.epochs == [["a"]]
        (tmp_path / "b").touch()
        run.loop.process_all()
        assert run.epochs.epochs == [["a"], ["b"]] and run.epochs.shown > 0
        assert run.loop.is_active and run.loop.status["isTriggerActive"] in (True, False)
        assert run.loop.name == "sums" and "batch = 1" in run.groups[-1] and run.loop.run_id in run.groups[-1]
    assert not run.loop.is_active and run.loop.status["message"] == "Stopped" and not run.failures


@pytest.mark.parametrize("trigger", [{}, {"availableNow": True}], ids=["again and again", "available now"])
def test_the_next_files_are_read_ahead_as_far_as_they_are_known(tmp_path: Path, trigger: dict[str, Any]) -> None:
    for name in "abcde":
        (tmp_path / name).touch()
    with running(tmp_path, trigger, maxFilesPerTrigger=2) as run:
        run.loop.process_all()
    assert run.epochs.epochs == [["a", "b"], ["c", "d"], ["e"]]
    last = {1: ["e"]} if trigger else {}  # else another file might have come by then
    assert run.ahead == {0: ["c", "d"], **last}


def test_files_that_were_taken_in_before_are_not(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).touch()
    run = Running(tmp_path, {"availableNow": True})
    run.epochs.taken = [TakenFile(0, str(tmp_path / "a"), 0, 4)]
    run.loop.start()
    assert run.loop.wait(60) and run.epochs.epochs == [["b"]]


def test_what_is_available_now_comes_in_epochs_of_the_limit_and_nothing_after_it(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).touch()
    run = Running(tmp_path, {"availableNow": True}, maxFilesPerTrigger=2)
    take_in = run.loop._take_in

    def take_in_while_others_come(input: FeedInput) -> None:
        (tmp_path / "late").touch()
        take_in(input)

    run.loop._take_in = take_in_while_others_come
    run.loop.start()
    assert run.loop.wait(60)
    assert sorted(map(sorted, run.epochs.epochs)) == [["a", "b"], ["c"]]
    progress = run.loop.progress
    assert list(progress) == [0, 1] and progress[1]["id"] == run.loop.id
    assert set(progress[1]["durationMs"]) == {"latestOffset", "addBatch", "triggerExecution"}


def test_files_of_a_stream_that_has_ended_are_refused_before_any_is_taken_in(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).touch()
    run = Running(tmp_path, {"availableNow": True})
    run.epochs.newest = ENDED
    run.loop.start()
    assert run.loop.wait(60) and run.epochs.epochs == []
    (refusal,) = run.failures
    assert isinstance(refusal, QueryError) and "stream 'trades' has ended" in str(refusal)
    assert str(tmp_path) in str(refusal) and "and 1 more" in str(refusal) and "closeAtEnd" in str(refusal)


def test_where_all_streams_have_ended_and_nothing_is_new_a_run_does_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    run = Running(tmp_path, {"availableNow": True})
    run.epochs.newest, run.epochs.taken = ENDED, [TakenFile(0, str(tmp_path / "a"), 0, 4)]
    run.loop.start()
    assert run.loop.wait(60) and run.epochs.epochs == [] and not run.failures


class Ticking(SystemClock):
    """Time passes only while somebody waits for it."""

    def __init__(self) -> None:
        self.now = 1003.0

    def time(self) -> float:
        return self.now


@pytest.mark.parametrize(("takes", "starts"), [(0.0, [1003.0, 1010.0, 1020.0]), (12.0, [1003.0, 1015.0, 1027.0])])
def test_ticks_come_at_multiples_of_the_interval_and_at_once_where_an_epoch_took_longer(
    tmp_path: Path, takes: float, starts: list[float]
) -> None:
    run = Running(tmp_path, {"processingTime": "10 seconds"}, interval=10.0, maxFilesPerTrigger=1)
    clock = run.loop._clock = Ticking()
    began: list[float] = []

    class Stopping(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            clock.now += timeout or 0.0
            return self.is_set()

    run.loop._stopping = Stopping()
    for name in "abc":
        (tmp_path / name).touch()

    def take_in(input: FeedInput) -> None:
        began.append(clock.now)
        clock.now += takes
        run.take_in(input)
        if len(began) == 3:
            run.loop._stopping.set()

    run.loop._take_in = take_in
    run.loop.start()
    assert run.loop.wait(60) and began == starts


def test_what_goes_wrong_ends_the_loop_and_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    run = Running(tmp_path, {})
    run.read_files = lambda files: files - 1
    run.loop.start()
    assert run.loop.wait(60)
    (failure,) = run.failures
    assert isinstance(failure, QueryError) and str(failure) == "0 of 1 files were read"
    run.loop.process_all()
    run.loop.stop()


def stop_in(run: Running, tmp_path: Path, raised: Callable[[], BaseException]) -> None:
    """Stop the loop in the middle of an epoch, which fails then."""
    begun = threading.Event()

    def take_in(input: FeedInput) -> None:
        begun.set()
        assert run.cancelled.wait(60)
        raise raised()

    (tmp_path / "a").touch()
    run.loop._take_in = take_in
    run.loop.start()
    assert begun.wait(60)
    run.loop.stop()
    assert not run.loop.is_active


def test_a_stop_cancels_what_runs_and_that_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Cancelled(Exception):
        pass

    monkeypatch.setattr(file_loop, "is_cancellation", lambda failure: isinstance(failure, Cancelled))
    run = Running(tmp_path, {})
    stop_in(run, tmp_path, Cancelled)
    assert not run.failures
    run = Running(tmp_path, {})
    stop_in(run, tmp_path, lambda: ValueError("its own"))
    assert [str(failure) for failure in run.failures] == ["its own"]


def test_it_ends_with_spark(tmp_path: Path) -> None:
    run = Running(tmp_path, {})
    run.loop.start()
    run.context._jsc = None
    assert run.loop.wait(60) and not run.failures
