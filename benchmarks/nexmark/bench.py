"""The queries of Nexmark on Sluice, Spark and Flink, one after the other, over the same rows.

    python -m benchmarks.run --only nexmark --json nexmark.json
    python -m benchmarks.run --only nexmark --queries q9,q20 --peers flink --quick

A contender that refuses a query is shown with its reason. Rows a second count the rows of the streams that a query
reads. The number of results is compared with DuckDB's, where all of them are there at the end.
"""

from __future__ import annotations

import re
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from benchmarks import report
from benchmarks.bars import Verdict
from benchmarks.contenders import Result, awaited, launch, missing, peer_python, reason
from benchmarks.figures_file import restore_result
from benchmarks.footprint import Footprint
from benchmarks.nexmark import flink_queries
from benchmarks.nexmark.generator import SIDE_TABLE, STREAMS, Events, make_side_table
from benchmarks.nexmark.queries import QUERIES, NexmarkQuery
from benchmarks.nexmark.rows import first, load, prepare, prepare_csv

PEERS = ("spark-heap", "spark-rocksdb", "flink", "flink-rocksdb")
USUAL_PEERS = ("spark-heap", "flink")
"""Who takes part unless named: of each peer's two kinds of state the faster one."""
RATIO = 5.0
RATIOS = {"q9": 10.0, "q20": 10.0}
"""How many times as fast as a peer Sluice has to be on queries with state, where it is another than `RATIO`."""
FLINK_TRIGGERS = 2
"""What Flink gets, in triggers of everybody else's size: it knows no triggers, and runs all of it several times. Sluice
and Spark get every file, so that their state is as full."""
_REFUSAL = re.compile(r"^(?:pyspark\.\S+|(?:Caused by: )?(?:\w+\.)+\w*(?:Exception|Error)): (.+)")


@dataclass(frozen=True)
class Scale:
    """How many events, and which queries."""

    events: Events = field(default_factory=lambda: Events(count=12_000_000, files=96))
    queries: tuple[str, ...] = tuple(query.name for query in QUERIES)
    trigger_rows: int = 920_000
    """A trigger takes in as many files as have so many rows of the streams that a query reads."""
    seconds: float = 600.0
    """How long one run may take; then it is cut off."""

    def files_per_trigger(self, query: NexmarkQuery) -> int:
        """How many files of each stream: several, for a reader on every core, and at most a third of them."""
        in_a_file = sum(self.events.rows_by_stream[stream] for stream in query.streams) / self.events.files
        return max(1, min(round(self.trigger_rows / in_a_file), self.events.files // 3)) if in_a_file else 1

    def files_given(self, contender: str, query: NexmarkQuery) -> int:
        """How many files of each stream a contender reads."""
        return FLINK_TRIGGERS * self.files_per_trigger(query) if contender.startswith("flink") else self.events.files


QUICK = Scale(Events(count=100_000, files=16), trigger_rows=25_000)


def run_nexmark(
    scale: Scale,
    cache: Path,
    peers: Sequence[str],
    sluice: bool = True,
    earlier: dict[str, Any] | None = None,
    keep: Callable[[dict[str, Any]], None] = lambda figures: None,
) -> dict[str, Any]:
    """All queries by all contenders, shown and as values, which are kept after every query.

    Runs of an earlier call over the same rows stay, unless they are taken again.
    """
    whole = prepare(scale.events, cache)
    print(
        f"\nnexmark: {scale.events.count:,} events in {scale.events.files} files, seed {scale.events.seed}", flush=True
    )
    runs = _earlier_runs(earlier, scale)
    for query in (query for query in QUERIES if query.name in scale.queries):
        print(f"  {query.name:<4} {query.asks}", flush=True)
        if query.missing:
            print(f"       sluice: not there, {query.missing}", flush=True)
        for name in line_up(query, peers, sluice):
            run = _run(name, query, first(whole, scale.files_given(name, query)), cache / "logs", scale)
            runs[query.name, name] = run
            _show(run)
        keep(as_values(scale, list(runs.values())))
    report.closing(verdicts(list(runs.values())), {})
    return as_values(scale, list(runs.values()))


def as_values(scale: Scale, runs: list[Result]) -> dict[str, Any]:
    """All that was measured, for a file of figures."""
    return {
        "scale": asdict(scale),
        "runs": [asdict(run) | {"check": run.check} for run in runs],
        "bars": [asdict(v) | {"ratio": v.ratio, "met": v.met} for v in verdicts(runs)],
        "wrong": wrong(runs),
    }


def _earlier_runs(earlier: dict[str, Any] | None, scale: Scale) -> dict[tuple[str, str], Result]:
    if not earlier or earlier["scale"]["events"] != asdict(scale.events):
        return {}
    return {(run.workload, run.contender): run for run in map(restore_result, earlier["runs"])}


def line_up(query: NexmarkQuery, peers: Sequence[str], sluice: bool) -> list[str]:
    """Who runs a query, in this order."""
    if query.missing:
        return []
    return [*(["sluice"] if sluice else []), *(peer for peer in PEERS if peer in peers and not missing(peer))]


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
    files = load(home).files
    if name.startswith("flink") and query.name in flink_queries.MISSING:
        return Result(name, query.name, files, {}, failure=flink_queries.MISSING[query.name])
    log = logs / f"nexmark-{query.name}-{name}.log"
    process = launch(_command(name, query, home, scale), log)
    with Footprint(process.pid) as footprint:
        figures = awaited(process, scale.seconds)
    for left in (*home.glob("run-*"), *home.glob("csv/run-*")):
        shutil.rmtree(left, ignore_errors=True)  # what a killed process could not clear away
    failure = "" if figures else explain_failure(process.returncode, log, scale.seconds)
    return Result(
        name, query.name, files, figures, footprint.peak, footprint.cpu_seconds, footprint.others,
        (count_results(query, home), None) if is_counted(name, query) else None, failure,
    )  # fmt: skip


def explain_failure(code: int, log: Path, seconds: float) -> str:
    """Why there are no figures: the run was cut off, or Spark or Flink has refused the query, in its own words; of
    several causes the last."""
    lines = [] if code == -signal.SIGKILL else log.read_text().splitlines()
    causes = [match.group(1)[:200] for line in lines if (match := _REFUSAL.match(line))]
    return causes[-1] if causes else reason(code, log, seconds)


def _command(name: str, query: NexmarkQuery, home: Path, scale: Scale) -> list[str]:
    kind, _, variant = name.partition("-")
    module = f"benchmarks.nexmark.{kind}_job"
    trigger = ["--files-per-trigger", str(scale.files_per_trigger(query))]
    if kind == "sluice":
        return [sys.executable, "-m", module, str(home), query.name, *trigger]
    if kind == "spark":
        return [sys.executable, "-m", module, str(home), query.name, variant, *trigger]
    rows = load(home).rows_by_stream
    read = str(sum(rows[stream] for stream in query.streams))
    csv = str(prepare_csv(home))
    return [str(peer_python("flink")), "-m", module, csv, query.name, variant or "heap", "--rows", read]


def _show(run: Result) -> None:
    if run.failure:
        print(f"       {run.contender:<14} has not run it: {run.failure}", flush=True)
        return
    results = f", {run.figures['rows_out']:,} results, {run.check}" if "rows_out" in run.figures else ""
    print(f"       {run.contender:<14} {run.figures['warm_rate']:>12,.0f} rows/s{results}", flush=True)
