"""A flow on Spark whose queries come and go while much else happens to it, drawn from a seed; and what must have come
out of it.

What happens in a step follows from the seed and the step's number, and files below the root tell which steps were
begun: a driver goes on where another one was killed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from arrivals import arrive
from changing_queries import ChangingQuery, History, answers, assert_exact, draw_query, draw_streams, new_of
from chaos_flows import rows
from kills import executors_below
from spark_listing import by_metadata
from specs import SECOND

from sluice import Flow, QueryError
from sluice.control.journal import Journal
from sluice.engine.file_log import FileLog
from sluice.model.plan.planning import plan_of
from sluice.record.epoch import EpochRecord
from sluice.state.files.storage import Storage

NAMES = "abc"
STEP, SPREAD = 4 * SECOND, 4 * SECOND
QUERIES, STEPS = 0, 1
"""What is drawn from a seed beside the streams."""
MEMORY = ("0", "16k", "64m")


class ChangingFlow:
    """One driver's part of a run. With `executors` some of them are killed."""

    def __init__(self, spark: Any, root: Path, seed: int, sites: int, steps: int, executors: bool = False) -> None:
        self.root, self.seed, self.sites, self.steps = root, seed, sites, steps
        rng = np.random.default_rng([seed, STEPS])
        self.kills, self.restarts = (set(rng.choice(steps, steps // 4, replace=False).tolist()) for _ in range(2))
        """The steps in which an executor is killed, and those in which the query is stopped and goes on."""
        self.kills = self.kills if executors else set()
        self.flow = Flow(spark, "changing")
        self.streams = [self.read(stream.relation.origin) for stream in streams_of(seed)]
        self.queries: dict[str, ChangingQuery] = {
            f"q{number}": self.query_of(number) for number in range(marks(root / "drawn"))
        }

    def read(self, stream: Any) -> Any:
        (self.root / stream.name).mkdir(exist_ok=True)
        columns, delay = "k bigint, ts timestamp, v bigint, w double", f"{stream.delay} microseconds"
        path = str(self.root / stream.name)
        return self.flow.readFiles(stream.name, path, "parquet", "ts", delay, columns, maxFilesPerTrigger=1)

    def query_of(self, number: int) -> ChangingQuery:
        return draw_query(np.random.default_rng([self.seed, QUERIES, number]), self.streams, self.flow.sql)

    def draw(self) -> str:
        number = mark(self.root / "drawn")
        self.queries[f"q{number}"] = self.query_of(number)
        return f"q{number}"

    def run(self) -> None:
        """All steps that were not begun, and to the end of what they have brought."""
        self.start(np.random.default_rng([self.seed, STEPS, self.steps + marks(self.root / "steps")]))
        while marks(self.root / "steps") < self.steps:
            self.step(mark(self.root / "steps"))
        self.query.processAllAvailable()
        self.query.cleanUp()
        self.query.stop()
        self.query.awaitTermination()

    def start(self, rng: np.random.Generator) -> None:
        """With the queries that the checkpoint has, or others; at first with some that read all streams."""
        recorded = Journal(Storage(str(self.root / "ck"))).newest_plan()
        names = [query.name for query in recorded.queries] if recorded else []
        others = bool(names) and rng.random() < 0.4
        if others:
            names = [*(name for name in names if rng.random() < 0.7), self.draw()]
        while not recorded and len(self.sources_of(names)) < len(NAMES):
            names.append(self.draw())
        rng.shuffle(names)
        self.query = self.flow.start(
            *map(self.writer, names),
            policy="placement" if self.seed % 2 else "static",
            processingTime="0 seconds",
            checkpointLocation=self.root / "ck",
            sites=self.sites,
            partitions=6,
            memoryDir=self.root / "mem",
            diskDir=self.root / "disk",
            changeQueries=others,
        )

    def sources_of(self, names: Sequence[str]) -> tuple[Any, ...]:
        return plan_of([self.queries[name].relation for name in names]).sources

    def writer(self, name: str) -> Any:
        return (
            self.queries[name].rows.writeStream.format("parquet").queryName(name).option("path", out(self.root, name))
        )

    def step(self, number: int) -> None:
        rng = np.random.default_rng([self.seed, STEPS, number])
        for name in NAMES:
            if rng.random() < 0.85:
                arrive(self.root / name, rows(rng, int(rng.integers(1, 60)), number * STEP, SPREAD, 5, nulls=True))
        if number in self.kills:
            self.kill_executor(rng)
        self.ask(rng.spawn(1)[0])
        if rng.random() < 0.6:
            self.change(rng)
        if rng.random() < 0.15:
            self.query.cleanUp()
        if number in self.restarts:
            self.query.stop()
            mark(self.root / "restarts")
            self.start(rng)
        if rng.random() < 0.8:
            self.query.processAllAvailable()
        failure = self.query.exception()
        if failure is not None:
            raise failure

    def ask(self, rng: np.random.Generator) -> None:
        """Whatever a user may ask for; what cannot be is refused."""
        for _ in range(int(rng.integers(1, 5))):
            unit = int(rng.choice([*self.query.routing(), 0]))
            with suppress(QueryError):
                match int(rng.integers(6)):
                    case 0 | 1 | 2:
                        self.query.move(unit, int(rng.integers(self.sites)))
                    case 3:
                        self.query.split(unit)
                    case 4:
                        self.query.freeze(unit)
                    case _:
                        self.query.setSiteMemory(int(rng.integers(self.sites)), str(rng.choice(MEMORY)))

    def change(self, rng: np.random.Generator) -> None:
        """Some queries go and some come."""
        new = [self.draw() for _ in range(int(rng.integers(0, 3)))]
        if new:
            self.query.add(*map(self.writer, new))
        names = [one.name for one in self.query.queries()]
        gone = [name for name in names if rng.random() < 0.15][: len(names) - 1]
        if gone:
            self.query.drop(*gone)

    def kill_executor(self, rng: np.random.Generator) -> None:
        there = executors_below(psutil.Process())
        if there:
            mark(self.root / "killed")
            there[int(rng.integers(len(there)))].kill()


def mark(directory: Path) -> int:
    """Put one more file into a directory; how many there were."""
    number = marks(directory)
    directory.mkdir(exist_ok=True)
    (directory / str(number)).touch()
    return number


def marks(directory: Path) -> int:
    return len(list(directory.iterdir())) if directory.exists() else 0


def out(root: Path, name: str) -> Path:
    return root / f"out-{name}"


def streams_of(seed: int) -> tuple[Any, ...]:
    return draw_streams(np.random.default_rng(seed))


def assert_each_exact(root: Path, seed: int) -> Counter[str]:
    """Each query that there was equals its batch answer for the time that it was there; says what has happened."""
    journal, by_name = Journal(Storage(str(root / "ck"))), {s.name: s for s in streams_of(seed)}
    epochs = new_of(journal, History({}))
    ordered = [by_name[name] for name in epochs[0][1].sources]
    sources = [stream.relation.origin for stream in ordered]
    history = History.of(sources)
    for record, plan in epochs:
        history.add(record, plan)
    queries = {
        f"q{number}": draw_query(np.random.default_rng([seed, QUERIES, number]), [by_name[name] for name in NAMES])
        for number in range(marks(root / "drawn"))
    }
    newest = epochs[-1][0]
    assert not newest.lagging and not newest.missing_units
    seen = rows_by_batch(newest, root / "ck", sources)
    assert [sum(map(len, tables)) for tables in seen] == [pq.read_table(root / s.name).num_rows for s in sources]
    expected, late = answers(history, queries, sources, seen)
    assert late == sum(record.stats.late_rows for record, _ in epochs)
    happened = assert_exact(history, queries, expected, lambda name: results(out(root, name)))
    happened.update(what_happened(history, [record for record, _ in epochs]))
    happened.update({name: marks(root / name) for name in ("killed", "restarts")})
    return happened


def what_happened(history: History, records: Sequence[EpochRecord]) -> Counter[str]:
    happened = Counter(d.action.value for r in records for d in r.decisions if d.refused is None)
    happened["epochs"] = len(records)
    happened["moves"] = sum(r.stats.moves for r in records)
    happened["added"] = sum(since > 0 for since in history.since.values())
    happened["dropped"] = len(history.until)
    happened["attached"] = sum(
        any(state < since for state in history.reads[name][0]) for name, since in history.since.items()
    )
    return happened


def rows_by_batch(newest: EpochRecord, checkpoint: Path, sources: Sequence[Any]) -> list[list[pa.Table]]:
    """What each batch took in of each stream, by the files that the journal names."""
    taken = list(FileLog(Storage(str(checkpoint))).read(newest.taken))
    epochs = sorted({file.epoch for file in taken})  # those with input, one a batch
    assert len(epochs) == newest.batch + 1
    seen = []
    for number, stream in enumerate(sources):
        files = [sorted(f.path for f in taken if (f.source, f.epoch) == (number, epoch)) for epoch in epochs]
        seen.append([pa.concat_tables([stream.schema.empty_table(), *map(pq.read_table, paths)]) for paths in files])
    return seen


def results(output: Path) -> pa.Table:
    """What Spark's readers see of an output."""
    parts = by_metadata(output)
    assert sorted(parts) == sorted(output.glob("*.parquet"))
    return pa.concat_tables([pq.read_table(part) for part in parts]) if parts else pa.table({})
