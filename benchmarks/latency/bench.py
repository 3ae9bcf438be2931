"""Latency of Sluice beside Spark's own join, Pathway and Bytewax, over the same files that arrive by a clock.

    python -m benchmarks.run --only latency --json latency.json
    python -m benchmarks.run --only first --json first.json

A result's latency begins when the later of its two rows has arrived, which is when its file was put in place, and
ends when a reader of the sink sees the file with the result. What arrives in the first seconds warms everybody up and
is not counted.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import report
from benchmarks.bars import Verdict
from benchmarks.contenders import Result, awaited, end, launch, missing, peer_python, reason
from benchmarks.duckdb_queries import relation
from benchmarks.figures_file import restore_result
from benchmarks.footprint import Footprint
from benchmarks.latency.arrivals import Feeder, arriving, file_of, link_files, prepare
from benchmarks.latency.job import READY, RESULTS, tell_to_stop
from benchmarks.latency.sink_reader import Shown, SinkFormat, SinkReader, SparkLog, WholeFiles
from benchmarks.workloads import FIRST_EVENT, Workload

PEERS = ("spark-heap", "spark-rocksdb", "pathway", "bytewax")
FIRST_PEERS = ("spark-heap", "spark-rocksdb")
P50_SECONDS, P99_SECONDS, BELOW_SPARK = 0.4, 1.2, 0.25
PERCENTILES = (50, 95, 99)


@dataclass(frozen=True)
class Scale:
    """How long rows arrive, how much of that warms up, and how often a query is started."""

    seconds: int = 80
    warm_up_seconds: int = 20
    drain_seconds: int = 120
    """How long after the last arrival results may still come."""
    start_seconds: int = 180
    starts: int = 8
    first_files: int = 10
    """Files of each stream that are there when a query is started."""


QUICK = Scale(seconds=20, warm_up_seconds=10, drain_seconds=60, starts=3)


def run_latency(
    scale: Scale, cache: Path, peers: list[str], sluice: bool = True, earlier: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Every contender's latency, shown and as values. Runs of an earlier call of this scale stay, unless they are
    taken again."""
    w = arriving(scale.seconds)
    report.opening(w)
    print(
        f"  {scale.seconds} s, of which the first {scale.warm_up_seconds} s warm up and do not count; Parquet out; "
        "latency is from the later row's arrival to its result being readable",
        flush=True,
    )
    home = prepare(w, cache)
    right = right_results(w, home)
    runs = _earlier_runs(earlier, scale)
    for name in [*(["sluice"] if sluice else []), *(peer for peer in peers if peer in PEERS)]:
        runs[name] = replace(_run_contender(name, w, scale, home, cache, right[0]), expected=right)
        _show_latency(runs[name])
    left_out = {peer: why for peer in PEERS if peer not in runs and (why := missing(peer))}
    return _closing(scale, runs, latency_verdicts(runs)) | {"left_out": left_out}


def run_first(
    scale: Scale, cache: Path, peers: list[str], sluice: bool = True, earlier: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Time from `start()` to the first result in a session that has run the query before, shown and as values.

    Runs of an earlier call stay as for latency.
    """
    w = arriving(scale.seconds)
    print(f"\nfirst: from start() to the first result, {scale.first_files} files of each stream are there", flush=True)
    home = prepare(w, cache)
    runs = _earlier_runs(earlier, scale)
    for name in [*(["sluice"] if sluice else []), *(peer for peer in peers if peer in FIRST_PEERS)]:
        runs[name] = _run_starts(name, w, scale, home, cache)
        _show_first(runs[name])
    return _closing(scale, runs, first_verdicts(runs))


def _earlier_runs(earlier: dict[str, Any] | None, scale: Scale) -> dict[str, Result]:
    if not earlier or earlier["scale"] != asdict(scale):
        return {}
    return {run.contender: run for run in map(restore_result, earlier["runs"])}


def right_results(w: Workload, home: Path) -> tuple[int, int]:
    """The number of results, and the sum of both times of all of them, by DuckDB."""
    times = " + ".join(f"epoch_us({stream}.ts) - {FIRST_EVENT}" for stream in w.streams)
    with duckdb.connect(config={"threads": 2}) as db:
        count, total = db.execute(f"SELECT count(*), sum({times}) FROM {relation(w, home)}").fetchall()[0]
    return int(count), int(total)


def _run_contender(name: str, w: Workload, scale: Scale, home: Path, cache: Path, results: int) -> Result:
    """One contender over rows that arrive, until it has shown so many results or its time is up."""
    log = cache / "logs" / f"latency-{name}.log"
    as_csv = name == "pathway"
    with _scratch(home) as work:
        source = home / "csv" if as_csv else home
        feeder = Feeder(w, source, work / "in", "csv" if as_csv else "parquet")
        reader = SinkReader(_sink_format(name, work / RESULTS))
        process = launch(_command(name, work), log)
        with Footprint(process.pid) as footprint:
            if not _await_ready(process, scale.start_seconds):
                end(process)
                process.wait()
                failure = reason(process.returncode, log, scale.start_seconds)
                return _result(name, "latency", w.files, {}, footprint, failure)
            reader.start()
            feeder.start()
            feeder.join()
            _await_rows(reader, results, scale.drain_seconds)
            drained = time.monotonic() - float(feeder.arrived.max())
            tell_to_stop(work)
            figures = awaited(process)
        reader.stop()
        if not figures:
            return _result(name, "latency", w.files, {}, footprint, reason(process.returncode, log))
        figures |= measured(reader.shown, feeder.arrived, scale.warm_up_seconds) | {
            "rows_in": w.rows_in,
            "drained_seconds": drained,
            "latest_arrival_seconds": feeder.latest_by,
        }
    return _result(name, "latency", w.files, figures, footprint, "")


def _run_starts(name: str, w: Workload, scale: Scale, home: Path, cache: Path) -> Result:
    """One contender that starts its query again and again, over the first files."""
    log = cache / "logs" / f"first-{name}.log"
    with _scratch(home) as work:
        link_files(home, work / "in", replace(w, files=scale.first_files), scale.first_files)
        process = launch([*_command(name, work), "--first", str(scale.starts)], log)
        with Footprint(process.pid) as footprint:
            figures = awaited(process)
    if figures:
        cold, *warm = figures["starts"]
        figures |= {"cold": cold, "warm": median(warm)}
    failure = "" if figures else reason(process.returncode, log)
    return _result(name, "first", scale.first_files, figures, footprint, failure)


def measured(shown: list[Shown], arrived: np.ndarray, warm_up_seconds: float) -> dict[str, Any]:
    """Latencies of the results that count, and what all results are checked by."""
    latencies, moments, rows_out, total = [np.empty(0)], set(), 0, 0
    counted_from = arrived.min() + warm_up_seconds
    for one in shown:
        times = [_micros(pq.read_table(one.path, columns=[f"{stream}_ts"]).column(0)) for stream in "AB"]
        rows_out += one.rows
        total += int(sum((at - FIRST_EVENT).sum() for at in times))
        later = np.maximum(*(arrived[side, file_of(at)] for side, at in enumerate(times)))
        counted = later >= counted_from
        if counted.any():
            latencies.append(one.at - later[counted])
            moments.add(one.at)
    every = np.concatenate(latencies)
    if not len(every):
        return {"rows_out": rows_out, "total": total, "results": 0, "batches": 0}
    percentiles = dict(zip((f"p{p}" for p in PERCENTILES), np.percentile(every, PERCENTILES).tolist(), strict=True))
    return percentiles | {
        "rows_out": rows_out,
        "total": total,
        "results": len(every),
        "most": float(every.max()),
        "batches": len(moments),
    }


def _micros(times: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(times.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_numpy())


def _command(name: str, work: Path) -> list[str]:
    if name in ("pathway", "bytewax"):
        return [str(peer_python(name)), "-m", f"benchmarks.latency.{name}_job", str(work)]
    return [sys.executable, "-m", "benchmarks.latency.spark_jobs", str(work), name.removeprefix("spark-")]


def _sink_format(name: str, directory: Path) -> SinkFormat:
    return WholeFiles(directory) if name in ("pathway", "bytewax") else SparkLog(directory)


def _await_ready(process: subprocess.Popen[str], seconds: float) -> bool:
    """Whether the contender's query runs; its process is ended if that takes too long."""
    too_long = threading.Timer(seconds, end, [process])
    too_long.start()
    try:
        return any(line.strip() == READY for line in process.stdout or ())
    finally:
        too_long.cancel()


def _await_rows(reader: SinkReader, rows: int, seconds: float) -> None:
    begin = time.monotonic()
    while reader.rows < rows and time.monotonic() - begin < seconds:
        time.sleep(0.05)


@contextmanager
def _scratch(home: Path) -> Iterator[Path]:
    """A run's own directory, on the disk that holds the rows."""
    work = Path(tempfile.mkdtemp(prefix="run-", dir=home))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _result(
    name: str, workload: str, files: int, figures: dict[str, Any], footprint: Footprint, failure: str
) -> Result:
    return Result(
        name, workload, files, figures, footprint.peak, footprint.cpu_seconds, footprint.others, failure=failure
    )


def latency_verdicts(runs: dict[str, Result]) -> list[Verdict]:
    """Every bar for which both sides were measured."""
    found: list[Verdict] = []
    ours = runs["sluice"].figures if "sluice" in runs else {}
    if "p50" not in ours:
        return found
    for percentile, most in (("p50", P50_SECONDS), ("p99", P99_SECONDS)):
        found.append(Verdict("latency", f"{percentile} / {most:g} s", ours[percentile], most, "s", 1.0, at_most=True))
    for name, run in runs.items():
        if name != "sluice" and "p50" in run.figures:
            bar = BELOW_SPARK if name.startswith("spark") else None
            for percentile in ("p50", "p99"):
                theirs, what = run.figures[percentile], f"{percentile}, sluice / {name}"
                found.append(Verdict("latency", what, ours[percentile], theirs, "s", bar, at_most=True))
    return found


def first_verdicts(runs: dict[str, Result]) -> list[Verdict]:
    ours = runs["sluice"].figures if "sluice" in runs else {}
    return [
        Verdict("first", f"start() to the first result, sluice / {name}", ours["warm"], run.figures["warm"], "s", None)
        for name, run in runs.items()
        if ours and name != "sluice" and run.figures
    ]


def _closing(scale: Scale, runs: dict[str, Result], found: list[Verdict]) -> dict[str, Any]:
    by_name = {(run.workload, name): run for name, run in runs.items()}
    report.settings(by_name)
    report.memory(by_name)
    report.closing(found, by_name)
    return as_values(scale, runs, found)


def as_values(scale: Scale, runs: dict[str, Result], found: list[Verdict]) -> dict[str, Any]:
    """What is kept of a benchmark's runs."""
    return {
        "scale": asdict(scale),
        "runs": [asdict(run) | {"check": run.check} for run in runs.values()],
        "bars": [asdict(v) | {"ratio": v.ratio, "met": v.met} for v in found],
        "wrong": [f"{n}: {r.failure or r.check}" for n, r in runs.items() if r.failure or "WRONG" in r.check],
    }


def _show_latency(run: Result) -> None:
    if run.failure:
        print(f"  {run.contender:<15} FAILED: {run.failure}", flush=True)
        return
    f = run.figures
    text = ", ".join(f"p{p} {f[f'p{p}']:.3f} s" for p in PERCENTILES if f"p{p}" in f) or "no result of a counted row"
    print(
        f"  {run.contender:<15} {text}, {f['results']:,} results in {f['batches']} batches; all {f['rows_out']:,} "
        f"({run.check}) {f['drained_seconds']:.1f} s after the last arrival; others {run.others:.0%}",
        flush=True,
    )


def _show_first(run: Result) -> None:
    if run.failure:
        print(f"  {run.contender:<15} FAILED: {run.failure}", flush=True)
        return
    f = run.figures
    print(
        f"  {run.contender:<15} {f['warm']:.3f} s, median of {len(f['starts']) - 1}; the first of the session "
        f"{f['cold']:.3f} s; others {run.others:.0%}",
        flush=True,
    )
