"""Many queries over eight streams, each native at a site of its own; two of the streams have three times the rows for
a while (dynamic operator placement, section 4.3)."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.adapt import resident
from benchmarks.adapt.bench import EIGHT, Bench
from benchmarks.adapt.epochs import Epoch, Watch
from benchmarks.adapt.exact import latencies, quantile
from benchmarks.adapt.feeder import Feeder, Schedule
from benchmarks.adapt.load import others
from benchmarks.adapt.outcome import Bar, Chart, Outcome
from benchmarks.adapt.rows import linked
from benchmarks.adapt.running import LONGEST, PERIOD, Contender, Inexact, Run, Setup, Stage
from benchmarks.session import scratch
from benchmarks.workloads import FIRST_EVENT
from sluice import Flow
from sluice.experiments import slowDown

STREAMS = "ABCDEFGH"
HOT = "AB"
"""The streams that get more rows for a while."""
TIMES = 3
QUERIES = 60
ROWS = 300  # of a stream in a file
WEIGHTS = 1000  # a row has one of so many
OF_MAIN, OF_OTHER = 400, 100  # of these, how many a query takes
KEYS = 200
WITHIN = 20  # seconds
TICK = 10.0  # seconds from one file of a stream to the next, of event time and by the clock; an epoch has its own work
WARM, BEFORE, SURGE, AFTER = 2, 5, 30, 18  # files: there at the start, then as they come
FIRST, LAST = WARM + BEFORE, WARM + BEFORE + SURGE  # the files that are larger
FILES = LAST + AFTER
BUSY = 0.45  # of the time that a site has, what its rows take before there are more
SOONER, MORE_BYTES, BACK = 1 / 3, 1.3, 1.1
SCHEDULE = Schedule(WARM, tuple(number * TICK for number in range(FILES - WARM)))


@dataclass(frozen=True)
class Pair:
    """A query: rows of a stream with some weights, and rows of another one with fewer, with equal keys near in time."""

    name: str
    main: str
    other: str
    least_of_main: int
    least_of_other: int

    @property
    def of_main(self) -> str:
        return f"weight BETWEEN {self.least_of_main} AND {self.least_of_main + OF_MAIN - 1}"

    @property
    def of_other(self) -> str:
        return f"weight BETWEEN {self.least_of_other} AND {self.least_of_other + OF_OTHER - 1}"


def pairs(queries: int = QUERIES, seed: int = 3) -> list[Pair]:
    """Queries drawn at random, as many for each stream as for any other."""
    rng = np.random.default_rng(seed)
    drawn = []
    for number in range(queries):
        main = number % len(STREAMS)
        other = (main + 1 + int(rng.integers(len(STREAMS) - 1))) % len(STREAMS)
        least = (int(rng.integers(WEIGHTS - taken)) for taken in (OF_MAIN, OF_OTHER))
        drawn.append(Pair(f"pair_{number:02d}", STREAMS[main], STREAMS[other], *least))
    return drawn


SERVICE = TICK * BUSY / (QUERIES / EIGHT * ROWS * (OF_MAIN + OF_OTHER) / WEIGHTS)
"""Seconds that a row takes at its site."""


def write_files(home: Path) -> None:
    """A file of each stream for each tick, a second older than the next: files are taken by their age, and no row is to
    be late. A row's id tells the file."""
    written = time.time()
    for stream, name in enumerate(STREAMS):
        (home / name).mkdir(parents=True)
        for number in range(FILES):
            rng = np.random.default_rng([11, stream, number])
            count = ROWS * (TIMES if name in HOT and FIRST <= number < LAST else 1)
            at = FIRST_EVENT + ((number + np.arange(count) / count) * TICK * 1e6).astype(np.int64)
            columns = {
                "key": rng.integers(0, KEYS, count),
                "ts": pa.array(at, pa.timestamp("us", tz="UTC")),
                "id": number * ROWS * TIMES + np.arange(count),
                "weight": rng.integers(0, WEIGHTS, count),
            }
            path = home / name / f"{number:04d}.parquet"
            pq.write_table(pa.table(columns), path)
            os.utime(path, (written - FILES + number,) * 2)


def started(stage: Stage, contender: Contender, here: Path, memory: Path) -> Any:
    flow = Flow(stage.spark, name="placed")
    streams = {
        name: flow.readFiles(name, str(here / "in" / name), eventTime="ts", maxFilesPerTrigger=1) for name in STREAMS
    }
    writers = []
    for pair in pairs():
        main, other = streams[pair.main].filter(pair.of_main), streams[pair.other].filter(pair.of_other)
        joined = main.alias("m").join(other.alias("o"), on="key", within=f"{WITHIN} seconds").select("m_id", "o_id")
        writer = joined.writeStream.format("parquet").queryName(pair.name)
        writers.append(writer.option("path", str(here / "out" / pair.name)))
    options = {"memoryDir": str(memory), "diskDir": str(here / "disk"), "sites": EIGHT, "partitions": QUERIES}
    first = writers[0].option("checkpointLocation", str(here / "ck")).options(**options, **contender.options)
    settings: dict[str, Any] = {"collect": "1 millisecond", **contender.settings}  # asked after every epoch
    first.trigger(processingTime=f"{TICK} seconds").policy(contender.policy, **settings)
    return flow.start(*writers)


def run(stage: Stage, contender: Contender, home: Path) -> Run:
    with scratch(stage.work) as here:
        linked(STREAMS, home, here / "in", 0, WARM)
        feeder, before = Feeder(STREAMS, home, here / "in", SCHEDULE), others()
        with resident.sampled(EIGHT) as memory:
            query = started(stage, contender, here, memory.directory)
            try:
                for site in range(EIGHT):
                    slowDown(query, site, f"{SERVICE * 1e6:.0f} microseconds")
                watch = Watch(here / "ck", time.time())
                epochs = list(watched(query, watch, feeder))
            finally:
                feeder.end()
                query.stop()
        busy = others().since(before)
        results = check(contender, here)
        return Run(
            contender.name,
            tuple(epochs),
            results,
            sum(epoch.moves for epoch in epochs),
            busy,
            tuple(watch.decisions),
            tuple(by_file(here / "out")),
            feeder.arrived,
            ended=time.time(),
        )


def watched(query: Any, watch: Watch, feeder: Feeder) -> Iterator[Epoch]:
    """The epochs of a run until all that has arrived is processed."""
    begun, rows, backlog = time.monotonic(), 0, 0
    total = sum(count_rows(number) for number in range(FILES))
    while rows < total or backlog:
        for epoch in watch.new():
            rows, backlog = rows + epoch.rows, epoch.backlog
            yield epoch
        if rows >= sum(count_rows(number) for number in range(WARM)) and not backlog:
            feeder.begin()
        if not query.isActive:
            raise query.exception() or RuntimeError("the query has ended")
        if time.monotonic() - begun > LONGEST:
            raise TimeoutError(f"a run took longer than {LONGEST:.0f} s")
        time.sleep(PERIOD)


def count_rows(number: int) -> int:
    """Rows of a tick, of all streams."""
    more = len(HOT) * (TIMES - 1) if FIRST <= number < LAST else 0
    return ROWS * (len(STREAMS) + more)


def check(contender: Contender, here: Path) -> int:
    """See that the results of every query are DuckDB's; how many there are in all."""
    results = 0
    with duckdb.connect(config={"threads": 2}) as db:
        for pair in pairs():
            reach = WITHIN * 1_000_000
            expected = (
                f"SELECT m.id AS m_id, o.id AS o_id FROM '{here}/in/{pair.main}/*.parquet' m, "
                f"'{here}/in/{pair.other}/*.parquet' o WHERE m.{pair.of_main} AND "
                f"o.{pair.of_other} AND m.key = o.key AND "
                f"epoch_us(m.ts) - epoch_us(o.ts) BETWEEN -{reach} AND {reach}"
            )
            found = f"SELECT m_id, o_id FROM '{here}/out/{pair.name}/*.parquet'"
            missing, more = (
                db.execute(f"SELECT count(*) FROM ({one} EXCEPT ALL {other})").fetchall()[0][0]
                for one, other in ((expected, found), (found, expected))
            )
            if missing or more:
                raise Inexact(f"{contender.name}, {pair.name}: {missing} of DuckDB's results are missing, {more} more")
            results += db.execute(f"SELECT count(*) FROM ({found})").fetchall()[0][0]
    return results


def by_file(results: Path) -> list[tuple[int, int, int]]:
    """(file of a result's newest row, epoch that gave it, how many such results) over all queries."""
    query = f"""
        SELECT greatest(m_id, o_id) // {ROWS * TIMES} AS file,
               regexp_extract(filename, 'part-([0-9]+)-', 1)::BIGINT AS epoch, count(*)
        FROM read_parquet('{results}/*/*.parquet', filename = true) GROUP BY ALL ORDER BY ALL"""
    with duckdb.connect(config={"threads": 2}) as db:
        return [(int(f), int(e), int(n)) for f, e, n in db.execute(query).fetchall()]


STATIC = Contender("static", "placement", settings={"advise": True})
"""The same first placement, from which nothing moves."""
FLOW_AWARE = Contender("flow-aware", "placement")
INTERMEDIATE = Contender("intermediate", "placement", settings={"selection": "intermediate"})
ELEMENTARY = Contender("elementary", "placement", settings={"selection": "elementary"})


def placed(bench: Bench) -> Outcome:
    home = bench.stage.work / "placed-rows"
    write_files(home)
    try:
        contenders = bench.contenders(STATIC, FLOW_AWARE, INTERMEDIATE, ELEMENTARY)
        return outcome([run(bench.stage, contender, home) for contender in contenders])
    finally:
        shutil.rmtree(home)


def outcome(runs: list[Run]) -> Outcome:
    by_name = {run.contender: run for run in runs}
    static, aware = by_name[STATIC.name], by_name[FLOW_AWARE.name]
    bars = [
        Bar("99th percentile of latency, flow-aware / static", late(aware) / late(static), SOONER, True),
        Bar(
            "bytes exchanged, flow-aware / static",
            sent(aware) / sent(static),
            MORE_BYTES,
            True,
        ),
        Bar(
            "bytes exchanged at the end / before, flow-aware",
            mean(e.exchanged for e in ending(aware)) / mean(e.exchanged for e in beginning(aware)),
            BACK,
            True,
        ),
    ]
    head = [
        "contender", "latency p50", "p99", "exchanged in all", "between sites", "exchanged at the end / before",
        "moves", "results", "others",
    ]  # fmt: skip
    table = [told(run) for run in runs]
    about = (
        f"{QUERIES} queries, each a join of two of {len(STREAMS)} streams with filters before it, at {EIGHT} sites; "
        f"files arrive every {TICK:.0f} s; {len(HOT)} streams have {TIMES} times the rows in {SURGE} of {FILES} files. "
        "All answers are DuckDB's"
    )
    setup = Setup(EIGHT, QUERIES, SERVICE)
    facts = {"rows": f"{ROWS} a file and stream", "emulation": setup.says()}
    lines = {run.contender: [(e.committed - begun(run), e.backlog) for e in run.epochs] for run in runs}
    charts = {"": Chart("Three times the rows of two streams: rows that wait", "rows", lines)}
    return Outcome("placed", about, facts, head, table, bars, charts, runs)


def told(run: Run) -> list[str]:
    back = mean(e.exchanged for e in ending(run)) / mean(e.exchanged for e in beginning(run))
    return [
        run.contender, f"{late(run, 0.5):.1f} s", f"{late(run):.1f} s", f"{sent(run):,.0f} B",
        f"{sum(e.between for e in run.epochs):,} B", f"{back:.2f}", str(run.moves), f"{run.results:,}",
        f"{run.others:.0%}",
    ]  # fmt: skip


def begun(run: Run) -> float:
    return min(run.arrived.values())


def late(run: Run, share: float = 0.99) -> float:
    """How late results are whose newest row came while there were more rows."""
    arrived = {file: at for file, at in run.arrived.items() if FIRST <= file < LAST}
    return quantile(latencies(list(run.given), arrived, run.committed()), share)


def sent(run: Run) -> float:
    """Bytes of rows that went from map tasks and sites to sites."""
    return float(sum(epoch.exchanged for epoch in run.epochs))


def beginning(run: Run) -> list[Epoch]:
    """Epochs with the rows of a tick, before there are more."""
    until = run.arrived[FIRST]
    return [epoch for epoch in run.epochs if begun(run) < epoch.committed <= until and epoch.rows == count_rows(0)]


def ending(run: Run) -> list[Epoch]:
    """The last ones, when there are no more any more."""
    return [epoch for epoch in run.epochs if epoch.rows == count_rows(0)][-5:]
