"""Many queries over the same streams: one flow of Sluice, Spark's own queries in one session, and single flows.

    python -m benchmarks.run --only many --json many.json

Rows a second are counted for every query: a row that two queries take in counts twice. So runs of different numbers of
queries can be compared.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.bars import Verdict
from benchmarks.contenders import awaited, launch, reason
from benchmarks.footprint import NOTHING, Footprint, Sample
from benchmarks.many.arrivals import ManyRows, prepare
from benchmarks.many.queries import STREAMS, draw_queries

SPARK_RATIO, NEARLY_EMPTY, SHARED_MEMORY, LONGER_EPOCH = 20.0, 4.0, 1.5, 1.2
SHARING = 16


@dataclass(frozen=True)
class Scale:
    """How many queries, and how much of everything."""

    queries: int = 500
    rows: ManyRows = field(default_factory=ManyRows)
    epochs: int = 6
    few: int = 6
    checked: int = 20
    alone: int = 5
    spark: tuple[int, ...] = (16, 64, 250, 500)
    """How many queries Spark is given, one number after the other as long as it ends in time."""
    spark_epochs: int = 3
    seconds: float = 600.0
    """How long one run may take."""


QUICK = Scale(
    queries=40, rows=ManyRows(rows=2_000, epochs=14, few=6), epochs=3, few=3, checked=8, alone=2, spark=(4, 16),
    spark_epochs=2, seconds=300.0,
)  # fmt: skip


@dataclass(frozen=True)
class ManyRun:
    """What one process measured, and what it took."""

    name: str
    figures: dict[str, Any]
    peak: Sample = NOTHING
    cpu_seconds: float = 0.0
    others: float = 0.0
    failure: str = ""


def run_many(scale: Scale, cache: Path) -> dict[str, Any]:
    """Everything, shown and as values."""
    home = prepare(scale.rows, cache)
    kinds = [query.kind for query in draw_queries(scale.queries)]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds)))
    print(f"\nmany: {scale.queries} queries ({counts}) over {len(STREAMS)} streams", flush=True)
    print(
        f"  {scale.rows.rows:,} rows a stream and epoch, {scale.rows.seconds} s of event time, {scale.rows.keys:,} keys"
    )
    runs = {}
    for run in _runs(scale, home, cache / "logs"):
        runs[run.name] = run
        _show_run(run)
    found = verdicts(runs)
    _show_memory(runs)
    report.closing(found, {})
    return {
        "scale": asdict(scale),
        "runs": [asdict(run) for run in runs.values()],
        "bars": [asdict(v) | {"ratio": v.ratio, "met": v.met} for v in found],
        "wrong": wrong(runs),
    }


def wrong(runs: dict[str, ManyRun]) -> list[str]:
    """Runs of Sluice that failed, and results that are not DuckDB's."""
    failed = [f"{run.name}: {run.failure}" for run in runs.values() if run.failure and "spark" not in run.name]
    return [*failed, *(text for run in runs.values() for text in run.figures.get("wrong", ()))]


def _runs(scale: Scale, home: Path, logs: Path) -> Iterator[ManyRun]:
    flow, spark = "benchmarks.many.flow_job", "benchmarks.many.spark_job"
    measured = ["--epochs", str(scale.epochs), "--few", str(scale.few)]
    many = ["--count", str(scale.queries), "--checked", str(scale.checked), "--add"]
    yield _run("flow", flow, home, logs, scale, [*many, *measured])
    yield _run("flow of 1", flow, home, logs, scale, ["--count", "1", *measured])
    yield _run("sharing 16", flow, home, logs, scale, ["--sharing", str(SHARING), "--epochs", str(scale.epochs)])
    yield _run("sharing 1", flow, home, logs, scale, ["--sharing", "1", "--epochs", str(scale.epochs)])
    chosen = np.random.default_rng(1).choice(scale.queries, scale.alone, replace=False)
    alone = ["--alone", ",".join(map(str, sorted(chosen.tolist()))), "--epochs", str(scale.spark_epochs)]
    yield _run("single flows", flow, home, logs, scale, alone)
    for count in scale.spark:
        arguments = ["--count", str(count), "--epochs", str(scale.spark_epochs)]
        run = _run(f"spark {count}", spark, home, logs, scale, arguments)
        yield run
        if run.failure:
            return


def _run(name: str, module: str, home: Path, logs: Path, scale: Scale, arguments: list[str]) -> ManyRun:
    log = logs / f"many-{name.replace(' ', '-')}.log"
    process = launch([sys.executable, "-m", module, str(home), *arguments], log)
    with Footprint(process.pid) as footprint:
        figures = awaited(process, scale.seconds)
    for left in home.glob("run-*"):
        shutil.rmtree(left, ignore_errors=True)  # what a killed process could not clear away
    failure = "" if figures else reason(process.returncode, log, scale.seconds)
    return ManyRun(name, figures, footprint.peak, footprint.cpu_seconds, footprint.others, failure)


def verdicts(runs: dict[str, ManyRun]) -> list[Verdict]:
    """Every bar for which both sides were measured."""
    found: list[Verdict] = []
    flow, one = (runs[name].figures if name in runs else {} for name in ("flow", "flow of 1"))
    survived = [run.figures for run in runs.values() if run.name.startswith("spark") and run.figures]
    if flow and survived:
        best = max(survived, key=lambda figures: figures["query_rate"])
        what = f"{flow['queries']} in one flow / Spark's own, the best of them {best['queries']} at a time"
        found.append(Verdict("many", what, flow["query_rate"], best["query_rate"], "rows/s", SPARK_RATIO))
    alone = runs["single flows"].figures if "single flows" in runs else {}
    if flow and alone:
        seconds = mean(alone["alone_seconds"].values()) / alone["epochs"] * flow["queries"]
        what = "an epoch of all: single flows, one after the other / one flow"
        found.append(Verdict("many", what, seconds, flow["seconds"] / flow["epochs"], "s", None))
    if flow and one and "few_epoch_seconds" in flow and "few_epoch_seconds" in one:
        what = f"nearly empty epoch, {flow['queries']} queries / 1"
        ours, theirs = flow["few_epoch_seconds"], one["few_epoch_seconds"]
        found.append(Verdict("many", what, ours, theirs, "s", NEARLY_EMPTY, at_most=True))
    shared = [runs[name].figures.get("state_bytes") if name in runs else None for name in ("sharing 16", "sharing 1")]
    if shared[0] and shared[1]:
        what = f"state, {SHARING} queries that can share / 1"
        found.append(Verdict("many", what, shared[0] / 1e6, shared[1] / 1e6, "MB", SHARED_MEMORY, at_most=True))
    if flow.get("add_epoch_seconds"):
        what = "the epoch of an add / an ordinary one"
        ours, theirs = flow["add_epoch_seconds"], flow["add_ordinary_seconds"]
        found.append(Verdict("many", what, ours, theirs, "s", LONGER_EPOCH, at_most=True))
    return found


def _show_run(run: ManyRun) -> None:
    if run.failure:
        print(f"  {run.name:<13} FAILED: {run.failure}", flush=True)
        return
    f = run.figures
    if "alone_seconds" in f:
        each = mean(f["alone_seconds"].values()) / f["epochs"]
        print(f"  {run.name:<13} {each:.2f} s an epoch and query, mean of {len(f['alone_seconds'])}", flush=True)
        return
    by_query = f["seconds"] / f["epochs"] / f["queries"] * 1000
    text = f"{f['query_rate']:>12,.0f} rows/s of {f['queries']} queries, {f['rate']:,.0f} rows/s read"
    text += f", {f['seconds'] / f['epochs']:.2f} s an epoch, {by_query:,.1f} ms a query"
    text += f", started in {f['start_seconds']:.1f} s"
    if "few_epoch_seconds" in f:
        text += f", nearly empty {f['few_epoch_seconds']:.2f} s"
    if f.get("checked"):
        text += f", {f['checked']} checked: {'; '.join(f['wrong']) or 'as DuckDB'}"
    print(f"  {run.name:<13} {text}", flush=True)


def _show_memory(runs: dict[str, ManyRun]) -> None:
    head = ["run", "total", "driver", "JVM", "python workers", "tmpfs", "state", "CPU s", "others' CPU"]
    rows = [
        [run.name]
        + [f"{v:,.0f}" for v in (run.peak.total, run.peak.driver, run.peak.jvm, run.peak.workers, run.peak.tmpfs)]
        + [f"{run.figures.get('state_bytes', 0) / 1e6:,.1f}", f"{run.cpu_seconds:,.0f}", f"{run.others:.0%}"]
        for run in runs.values()
        if run.figures
    ]
    report.table("Peak memory in MB, and the state of all sites", head, rows)
