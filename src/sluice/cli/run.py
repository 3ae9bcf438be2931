"""`sluice run`: a file that defines a flow becomes running queries, shown until they end; nothing is left behind."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from sluice.cli.flow_file import Writer, flow_file, last_words
from sluice.dashboard.report import report_checkpoint
from sluice.dashboard.terminal import watch_all
from sluice.dashboard.terminal_style import printable
from sluice.model.errors import FlowError, SluiceError
from sluice.model.extras import Extra, require
from sluice.policies import policy
from sluice.state.files.workspace import temporary_directory

LOCAL = "local[*]"


@dataclass(frozen=True)
class Run:
    """What was asked for on the command line."""

    file: str
    arguments: tuple[str, ...] = ()
    master: str | None = None
    name: str | None = None
    policy: str | None = None
    checkpoint: str | None = None
    conf: Sequence[tuple[str, str]] = ()
    available_now: bool = False
    report: str | None = None
    ui: bool = False
    control: bool = False


@dataclass(frozen=True)
class Planned:
    """A query about to start: its writer, what tells it from the others, and its checkpoint if it has one."""

    writer: Writer
    label: str
    checkpoint: str | None


Session = Callable[[Run, str], Any]
"""Starts Spark for a run, with a directory for what Spark would else leave in the working directory."""


def run(options: Run, session: Session | None = None) -> int:
    """Run the file; 0 when all queries ended well or were stopped by Ctrl-C, 1 if one failed."""
    if options.policy is not None:
        policy(options.policy)
    if options.control and not options.ui:
        raise FlowError("--control is about the page: give --ui, too")
    if options.report and not os.path.isdir(os.path.dirname(os.path.abspath(options.report))):
        raise FlowError(f"there is no directory for the report {options.report}")
    if options.ui:
        require(Extra.UI, "the page")
    with (
        flow_file(options.file, options.arguments) as (module, define),
        temporary_directory() as directory,
        _terminated_as_interrupted(),
    ):
        spark = None
        try:
            scratch = str(directory)
            spark = (session or _session)(options, scratch)
            pressed = _take_ctrl_c_back()
            _send_by_value(module)
            planned = _planned(define(spark), options, scratch, _is_local(spark))
            return _run(planned, options, pressed)
        except KeyboardInterrupt:  # before there was a query to stop, or while it was being stopped
            print("sluice: interrupted", file=sys.stderr)
            return 1
        finally:
            if spark is not None:
                spark.stop()


def _take_ctrl_c_back() -> Callable[[], bool]:
    """Whether Ctrl-C was pressed. It is only noted: raised in the middle of a call to the JVM it would leave the
    connection in disorder, and PySpark's own handler cancels jobs from inside the signal, with a trace for each."""
    pressed = threading.Event()
    if threading.current_thread() is threading.main_thread():

        def note(*_: Any) -> None:
            if pressed.is_set():  # again: somebody is in a hurry
                raise KeyboardInterrupt
            pressed.set()

        signal.signal(signal.SIGINT, note)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it reports the interrupted calls as errors
    return pressed.is_set


def _run(planned: Sequence[Planned], options: Run, pressed: Callable[[], bool]) -> int:
    failed: Exception | None = None
    queries = _started(planned)
    try:
        if options.ui:
            _open_pages(planned, queries, options.control)
        watch_all(queries, interrupted=pressed)
    except Exception as problem:  # the query's own error, whatever it is
        failed = problem
        print(printable(f"sluice: a query failed: {last_words(problem)}"), file=sys.stderr)
    if options.report:
        try:
            _report(planned, options.report)
        except SluiceError as problem:
            if not failed:
                raise
            print(printable(f"sluice: there is no report: {problem}"), file=sys.stderr)
    return 1 if failed else 0


def _report(planned: Sequence[Planned], path: str) -> None:
    """One file a query; of several, each with the query's name in the file's."""
    stem, ending = os.path.splitext(path)
    for one in planned:
        if one.checkpoint:
            target = path if len(planned) == 1 else f"{stem}-{one.label}{ending}"
            report_checkpoint(one.checkpoint, target)
            print(f"wrote {target}", file=sys.stderr)


def _open_pages(planned: Sequence[Planned], queries: Sequence[Any], control: bool) -> None:
    """Print the link of a page for each query. They go with this process."""
    for one, query in zip(planned, queries, strict=True):
        try:
            print(printable(f"{one.label}: {query.ui(control=control)}"), file=sys.stderr, flush=True)
        except SluiceError as problem:
            print(printable(f"sluice: there is no page: {problem}"), file=sys.stderr)


def _started(planned: Sequence[Planned]) -> list[Any]:
    """All queries started, or none: if one is refused, those before it are stopped."""
    queries: list[Any] = []
    try:
        for one in planned:
            queries.append(one.writer.start())
    except BaseException as problem:
        for query in queries:
            with suppress(Exception):
                query.stop()
        if isinstance(problem, SluiceError) or not isinstance(problem, Exception):
            raise
        raise FlowError(f"query {one.label!r} cannot start: {last_words(problem)}") from problem
    return queries


def _planned(writers: Sequence[Writer], options: Run, scratch: str, local: bool) -> list[Planned]:
    """Apply the command line to what the file says; the command line wins."""
    labels = [_label(w, n) for n, w in enumerate(writers, 1)]
    for label in labels:
        if labels.count(label) > 1:
            raise FlowError(f"two queries are called {label!r}; give each its own queryName")
    planned = []
    for writer, label in zip(writers, labels, strict=True):
        if options.policy is not None:
            writer.policy(options.policy)
        if options.available_now:
            writer.trigger(availableNow=True)
        checkpoint = writer.choices().options.get("checkpointLocation")
        if options.checkpoint:
            checkpoint = f"{options.checkpoint.rstrip('/')}/{label}" if len(writers) > 1 else options.checkpoint
        elif not checkpoint and options.report and local:
            checkpoint = os.path.join(scratch, "checkpoints", label)  # the report is made of it, then it goes
        if checkpoint:
            writer.option("checkpointLocation", checkpoint)
        planned.append(Planned(writer, label, checkpoint and str(checkpoint)))
    return planned


def _label(writer: Writer, number: int) -> str:
    """A name that can be part of a path: the query's own, else its number."""
    name = writer.choices().name
    return re.sub(r"[^\w.-]+", "_", str(name)).lstrip(".") or f"query-{number}" if name else f"query-{number}"


def _session(options: Run, scratch: str) -> Any:
    """A Spark session as the command line asks for it, quiet enough to read the progress beside it."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", dict(options.conf).get("spark.pyspark.python", sys.executable))
    master = options.master or dict(options.conf).get("spark.master", LOCAL)
    settings = {
        "spark.master": master,
        "spark.app.name": options.name or os.path.splitext(os.path.basename(options.file))[0],
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    if master.startswith("local"):
        settings["spark.sql.warehouse.dir"] = os.path.join(scratch, "warehouse")
    chosen = {key: value for key, value in options.conf if not (options.master and key == "spark.master")}
    builder = SparkSession.builder
    for key, value in {**settings, **chosen}.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except (PySparkException, OSError, RuntimeError) as problem:
        raise FlowError(f"Spark does not start with master {master}: {last_words(problem)}") from problem
    except Exception as problem:
        if type(problem).__module__.partition(".")[0] != "py4j":
            raise
        raise FlowError(f"Spark does not start with master {master}: {last_words(problem)}") from problem


def _is_local(spark: Any) -> bool:
    return str(spark.sparkContext.master).startswith("local")


def _send_by_value(module: ModuleType) -> None:
    """Functions of the file that Spark sends to executors travel whole: the file is no module there."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(module)


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Being told to end (SIGTERM) ends the queries as cleanly as Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
