"""The queries of Nexmark on Sluice, Spark and Flink, one after the other, over the same rows.

    python -m benchmarks.run --only nexmark --json nexmark.json

A contender that refuses a query is shown with its reason. Rows a second count the rows of the streams that a query
reads. The number of results is compared with DuckDB's, where all of them are there at the end.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb

from benchmarks import report
from benchmarks.bars import Verdict
from benchmarks.contenders import Result, awaited, launch, missing, peer_python, reason
from benchmarks.footprint import Footprint
from benchmarks.nexmark import flink_queries
from benchmarks.nexmark.generator import SIDE_TABLE, STREAMS, Events, make_side_table
from benchmarks.nexmark.queries import QUERIES, NexmarkQuery
from benchmarks.nexmark.rows import load, prepare, prepare_csv

PEERS = ("spark-heap", "spark-rocksdb", "flink", "flink-rocksdb")
RATIO = 5.0
RATIOS = {"q9": 10.0, "q20": 10.0}
"""How many times as fast as a peer Sluice has to be on queries with state, where it is another than `RATIO`."""


@dataclass(frozen=True)
class Scale:
    """How many events, and which queries."""

    events: Events = field(default_factory=lambda: Events(count=2_000_000, files=10))
    queries: tuple[str, ...] = tuple(query.name for query in QUERIES)
    seconds: float = 900.0
    """How long one run may take."""


QUICK = Scale(Events(count=100_000, files=4), seconds=300.0)


def run_nexmark(scale: Scale, cache: Path, peers: list[str], sluice: bool = True) -> dict[str, Any]:
    """All queries by all contenders, shown and as values."""
    home = prepare(scale.events, cache)
    print(
        f"\nnexmark: {scale.events.count:,} events in {scale.events.files} files, seed {scale.events.seed}", flush=True
    )
    runs = []
    for query in (query for query in QUERIES if query.name in scale.queries):
        print(f"  {query.name:<4} {query.asks}", flush=True)
        if query.missing:
            print(f"       sluice: not there, {query.missing}", flush=True)
        for name in line_up(query, peers, sluice):
            run = _run(name, query, home, cache / "logs", scale)
            runs.append(replace(run, expected=(count_results(query, home), None) if is_counted(name, query) else None))
            _show(runs[-1])
    found = verdicts(runs)
    report.closing(found, {})
    return {
        "scale": asdict(scale),
        "results": [asdict(run) | {"check": run.check} for run in runs],
        "bars": [asdict(v) | {"ratio": v.ratio, "met": v.met} for v in found],
        "missing": {query.name: query.missing for query in QUERIES if query.missing},
        "otherwise": {query.name: query.otherwise for query in QUERIES if query.otherwise},
        "wrong": wrong(runs),
    }


def line_up(query: NexmarkQuery, peers: list[str], sluice: bool) -> list[str]:
    """Who runs a query, in this order."""
    taking_part = [peer for peer in PEERS if peer in peers and not missing(peer)]
    if query.name not in flink_queries.QUERIES:
        taking_part = [peer for peer in taking_part if not peer.startswith("flink")]
    if not query.sql:
        taking_part = [peer for peer in taking_part if not peer.startswith("spark")]
    return [*(["sluice"] if sluice and not query.missing else []), *taking_part]


def is_counted(name: str, query: NexmarkQuery) -> bool:
    """Whether each result is there once, and all at the end. Flink shows changes; Spark's last windows stay open."""
    is_complete = name == "sluice" or (name.startswith("spark") and not query.has_windows)
    return is_complete and not query.changes


def count_results(query: NexmarkQuery, home: Path) -> int:
    """The number of results, by DuckDB."""
    with duckdb.connect(config={"threads": 2}) as db:
        db.execute("SET TimeZone = 'UTC'")
        for stream in STREAMS:
            db.execute(f"CREATE VIEW {stream} AS SELECT * FROM read_parquet('{home / stream}/*.parquet')")
        db.register(SIDE_TABLE, make_side_table())
        (count,) = db.execute(f"SELECT count(*) FROM ({query.batch_sql})").fetchall()[0]
    return int(count)


def wrong(runs: list[Result]) -> list[str]:
    """Runs of Sluice that failed, and numbers of results that are not DuckDB's. A peer may refuse a query."""
    ours = [run for run in runs if run.contender == "sluice"]
    failed = [f"{run.workload}: {run.failure}" for run in ours if run.failure]
    return [*failed, *(f"{run.workload}: {run.check}" for run in ours if "WRONG" in run.check)]


def verdicts(runs: list[Result]) -> list[Verdict]:
    """Sluice beside each peer that has run a query; those without state have no bar."""
    rates = {(run.workload, run.contender): run.figures["warm_rate"] for run in runs if run.figures}
    found = []
    for query in QUERIES:
        ours = rates.get((query.name, "sluice"))
        for peer in PEERS:
            theirs = rates.get((query.name, peer))
            if ours and theirs:
                bar = RATIOS.get(query.name, RATIO) if query.is_stateful else None
                found.append(Verdict("nexmark", f"{query.name}, sluice / {peer}", ours, theirs, "rows/s", bar))
    return found


def _run(name: str, query: NexmarkQuery, home: Path, logs: Path, scale: Scale) -> Result:
    log = logs / f"nexmark-{query.name}-{name}.log"
    process = launch(_command(name, query, home), log)
    with Footprint(process.pid) as footprint:
        figures = awaited(process, scale.seconds)
    for left in (*home.glob("run-*"), *home.glob("csv/run-*")):
        shutil.rmtree(left, ignore_errors=True)  # what a killed process could not clear away
    failure = "" if figures else reason(process.returncode, log, scale.seconds)
    return Result(
        name, query.name, scale.events.files, figures, footprint.peak, footprint.cpu_seconds, footprint.others,
        failure=failure,
    )  # fmt: skip


def _command(name: str, query: NexmarkQuery, home: Path) -> list[str]:
    kind, _, variant = name.partition("-")
    module = f"benchmarks.nexmark.{kind}_job"
    if kind == "sluice":
        return [sys.executable, "-m", module, str(home), query.name]
    if kind == "spark":
        return [sys.executable, "-m", module, str(home), query.name, variant]
    read = f"{sum(_rows_of(home)[stream] for stream in query.streams)}"
    csv = str(prepare_csv(home))
    return [str(peer_python("flink")), "-m", module, csv, query.name, variant or "heap", "--rows", read]


def _rows_of(home: Path) -> dict[str, int]:
    """How many rows each stream has."""
    return load(home).rows_by_stream


def _show(run: Result) -> None:
    if run.failure:
        print(f"       {run.contender:<14} has not run it: {run.failure}", flush=True)
        return
    results = f", {run.figures['rows_out']:,} results, {run.check}" if "rows_out" in run.figures else ""
    print(f"       {run.contender:<14} {run.figures['warm_rate']:>12,.0f} rows/s{results}", flush=True)
