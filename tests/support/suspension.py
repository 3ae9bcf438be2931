"""A driver that is suspended at a chosen file operation, while another one takes its checkpoint over; without Spark.

The suspended one is a process of its own, stopped as a whole by SIGSTOP: what it has read before, it still believes
when it is woken.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import spark_listing
from engine_harness import DirectQuery
from forking import fork
from oracle import batch_join
from specs import SECOND, TIME, handle, join, stream

from sluice.model.errors import CheckpointError
from sluice.model.plan.planning import plan_of
from sluice.state.files import storage
from sluice.testing.local_query import EpochRows

STREAMS = stream("a"), stream("b")
WITHIN = 16 * SECOND, 4 * SECOND
"""Of the join whose results are one output, and of that whose results are the other."""
PLAN = plan_of(
    [handle(STREAMS[0]).join(handle(STREAMS[1]), on="k", within=f"{w} microseconds").relation for w in WITHIN]
)
STEP, ROWS, MOST = 2 * SECOND, 6, 300
"""How much time a batch spans, how many rows of each stream it has, and how many batches there are at most."""
HISTORY = 120
"""Batches before the takeover. The next epoch deletes the oldest record, some state, and lists of the sink."""
CHANGES = ("write", "finish", "put", "move", "delete")


@dataclass(frozen=True)
class Operation:
    """A file operation of a driver: the how manyth, when, which, and on what."""

    number: int
    phase: str
    name: str
    path: str

    def __str__(self) -> str:
        return f"{self.number}: {self.name} {self.path} ({self.phase})"


@dataclass(frozen=True)
class Ending:
    """How a driver ended: with which error, if any; and what it did."""

    pid: int
    kind: str | None
    error: str
    operations: tuple[Operation, ...]

    def names_both(self, other: int) -> bool:
        """Whether the error says that another driver has the checkpoint: which one, and which one had it."""
        return self.kind == CheckpointError.__name__ and names_drivers(self.error, self.pid, other)


def names_drivers(error: str, *pids: int) -> bool:
    """Whether an error names these drivers of this host, and since when each has had the checkpoint."""
    since = re.findall(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d", error)
    named = all(re.search(rf"\b{pid}\b", error) for pid in pids)
    return named and socket.gethostname() in error and len(since) >= len(pids)


class Suspended:
    """A driver in a process of its own, which has stopped itself just before one of its file operations, or ended."""

    def __init__(self, root: Path, at: int | None, closing: bool = False) -> None:
        reading, self.open_writer = os.pipe()
        self.pid = fork()
        if self.pid == 0:
            os.close(reading)
            self._run(root, at, closing)
        os.close(self.open_writer)
        self.report = os.fdopen(reading, "rb")
        self.ended = not os.WIFSTOPPED(os.waitpid(self.pid, os.WUNTRACED)[1])

    def wake(self) -> Ending:
        """Let it go on, until it ends by itself."""
        if not self.ended:
            os.kill(self.pid, signal.SIGCONT)
        with self.report:
            doc = json.loads(self.report.read())
        if not self.ended:
            os.waitpid(self.pid, 0)
            self.ended = True
        return Ending(self.pid, doc["kind"], doc["error"], tuple(Operation(*o) for o in doc["operations"]))

    def kill(self) -> None:
        if not self.ended:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.ended = True

    def _run(self, root: Path, at: int | None, closing: bool) -> None:
        """In the process itself: claim, run the batch after the history and, unless it is closed before, one more."""
        operations: list[Operation] = []
        phase, kind, error = "start", None, ""

        def watcher(name: str, path: str) -> None:
            within = path.removeprefix(f"{root}/")
            if within.startswith(("memory", "disk")):  # its own, nobody else's
                return
            operations.append(Operation(len(operations), phase, name, within))
            if len(operations) - 1 == at:
                os.kill(os.getpid(), signal.SIGSTOP)

        try:
            with storage.watch(watcher):
                query = start(root, sites=2)
                phase = "epoch"
                try:
                    run_batch(query, max(HISTORY, query.epochs.record.batch))
                    phase = "next"
                    if not closing:
                        run_batch(query, query.next)
                finally:
                    phase = "close"
                    query.epochs.close()
                    query.close()
        except BaseException as failure:
            kind, error = type(failure).__name__, str(failure)
        try:
            doc = {"kind": kind, "error": error, "operations": [list(vars(o).values()) for o in operations]}
            with os.fdopen(self.open_writer, "wb") as out:
                out.write(json.dumps(doc).encode())
        finally:
            os._exit(0)


def start(root: Path, sites: int = 1) -> DirectQuery:
    return DirectQuery(PLAN, root, sites=sites, memory=8_000, partitions=4, spill="probe")


def run_batch(query: DirectQuery, number: int) -> None:
    query.run(batch_rows(number), number=number)


@cache
def batch_rows(number: int) -> EpochRows:
    rng = np.random.default_rng(number)
    times = [pa.array(number * STEP + np.sort(rng.integers(0, STEP, ROWS)), TIME) for _ in STREAMS]
    return [
        pa.table([rng.integers(0, 4, ROWS), t, rng.integers(0, 9, ROWS)], schema=s.schema)
        for s, t in zip(STREAMS, times, strict=True)
    ]


@cache
def answer(output: int, batches: int) -> pa.Table:
    """The batch join over the rows of so many batches."""
    pairs, newest = _all_pairs(output)
    return pairs.filter(pa.compute.less(newest, batches * STEP))


@cache
def _all_pairs(output: int) -> tuple[pa.Table, pa.Array]:
    tables = [pa.concat_tables([batch_rows(n)[i] for n in range(MOST)]) for i in (0, 1)]
    pairs = in_order(batch_join(join(list(STREAMS), WITHIN[output]), tables).cast(PLAN.outputs[output].schema))
    return pairs, pa.compute.max_element_wise(*(pairs[c].cast(pa.int64()) for c in ("a_ts", "b_ts")))


def in_order(table: pa.Table) -> pa.Table:
    return table.sort_by([(name, "ascending") for name in table.schema.names]).combine_chunks()


def problems(root: Path, batches: int) -> list[str]:
    """In what the outputs differ from the batch join over so many batches, for those who list and for Spark."""
    found = []
    for output, schema in enumerate(o.schema for o in PLAN.outputs):
        directory, expected = root / ("out", "out1")[output], answer(output, batches)
        for reader in (spark_listing.by_listing, spark_listing.by_metadata):
            try:
                rows = in_order(spark_listing.read(reader(directory), schema))
            except spark_listing.Unreadable as problem:
                found.append(f"{directory.name} {reader.__name__}: {problem}")
                continue
            if rows != expected:
                found.append(f"{directory.name} {reader.__name__}: {rows.num_rows} rows, not {expected.num_rows}")
    return found


def attempt(run: Callable[[], object]) -> str | None:
    """What stops it; None if nothing does."""
    try:
        run()
    except Exception as failure:
        return f"{type(failure).__name__}: {failure}"
    return None


def take_over(history: Path, root: Path, at: Operation, epochs: int) -> list[str]:
    """Suspend a driver there, have another one go on for so many epochs, and wake the first; what is wrong then.

    Exactly one of them goes on. The other is refused and told by whom, whatever it tries.
    """
    closing = at.phase == "close"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(history, root)
    first = Suspended(root, at.number, closing)
    try:
        if first.ended:
            return [f"not reached: {first.wake().error}"]
        second = start(root)
        for number in range(HISTORY, HISTORY + epochs):
            run_batch(second, number)
        found = [f"while suspended: {p}" for p in problems(root, second.next)]
        ending = first.wake()
        refused = attempt(lambda: run_batch(second, second.next))
        if refused:
            if at.phase != "start":
                found.append(f"the second driver was stopped by the first: {refused}")
            elif not names_drivers(refused, first.pid, os.getpid()):
                found.append(f"the second driver was told: {refused}")
            if ending.kind:
                found.append(f"both stopped, the first with {ending.kind}: {ending.error}")
        elif not ending.names_both(os.getpid()) and not closing:
            found.append(f"the first driver was told {ending.kind}: {ending.error}")
        second.epochs.close()
        second.close()
        third = start(root)
        found += problems(root, third.next)
        run_batch(third, third.next)
        third.epochs.close()
        third.close()
        return found + [f"an epoch later: {p}" for p in problems(root, third.next)]
    except Exception as failure:
        return [f"{type(failure).__name__}: {failure}"]
    finally:
        first.kill()
