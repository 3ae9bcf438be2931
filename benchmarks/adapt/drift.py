"""Skewed keys that drift, at a steady rate of arrival: how much gets through, and how late results are."""

from __future__ import annotations

from statistics import mean

from benchmarks.adapt.bench import EIGHT, UNITS, Bench
from benchmarks.adapt.epochs import Epoch
from benchmarks.adapt.exact import quantile
from benchmarks.adapt.feeder import Schedule
from benchmarks.adapt.outcome import Bar, Chart, Outcome
from benchmarks.adapt.rows import Hot, Rows
from benchmarks.adapt.running import HYBRID, STATIC, Contender, Run, Setup

FASTER, SOONER = 2.0, 10.0
WARM = 24  # files that are there at the start, for everybody to warm up on, and to adapt to the first skew
MINUTE = 60
SERVICE = 200e-6
RATE = 20_000  # rows that arrive in a second: half of what eight sites could do if Spark's epochs cost nothing
AT_ONCE = 4  # files of a stream that an epoch takes at most: who is behind gets no larger epochs, so all react as fast
HOT = Hot(units=12, of=UNITS, share=0.8, first=WARM, files=MINUTE, step=4)
ROWS = Rows("drift", files=WARM + 150, rows=RATE // 2, keys=200_000, seconds=1, within=10, hot=HOT)
SETUP = Setup(EIGHT, UNITS, SERVICE, files_at_once=AT_ONCE)
BUDGETED = Contender("hybrid, 2 s budget", "hybrid", {"epochBudget": "2 seconds"})


def drift(bench: Bench) -> Outcome:
    files = WARM + (20 if bench.quick else ROWS.files - WARM)
    schedule = Schedule.steady(WARM, files - WARM, 1.0)
    runs = [bench.stage.run(c, ROWS, SETUP, schedule=schedule) for c in bench.contenders(STATIC, HYBRID, BUDGETED)]
    rows = [told(run) for run in runs]
    by_name = {run.contender: run for run in runs}
    static = by_name.get(STATIC.name)
    bars = []
    for run in runs:
        if static and run is not static:
            faster, sooner = rate(run) / rate(static), late(static, 0.99) / late(run, 0.99)
            bars.append(Bar(f"rows/s, {run.contender} / static", faster, FASTER))
            bars.append(Bar(f"99th percentile of latency, static / {run.contender}", sooner, SOONER))
    head = [
        "contender", "rows/s", "of what arrived", "latency p50", "p99", "busiest site", "moves", "others",
    ]  # fmt: skip
    about = (
        f"{RATE:,} rows a second arrive as a file of each stream every second; the hot keys change every {MINUTE} "
        f"seconds. Results are late by the time from their newest row's due arrival to their epoch's commit. The "
        f"busiest site is the most loaded one, as a multiple of the mean, over all epochs"
    )
    facts = {"rows": ROWS.says(), "emulation": SETUP.says(), "epochs": f"at most {AT_ONCE} files of a stream"}
    charts = {
        "": Chart("Skew that drifts: throughput", "rows/s", {r.contender: paced(r) for r in runs}, at=changes(files)),
        "latency": Chart(
            "Skew that drifts: latency",
            "seconds",
            {r.contender: lateness(r) for r in runs},
            at=changes(files),
            log=True,
        ),
    }
    return Outcome("drift", about, facts, head, rows, bars, charts, runs)


def told(run: Run) -> list[str]:
    busiest = mean(max(e.busy) * len(e.busy) / sum(e.busy) for e in fed(run))
    return [
        run.contender, f"{rate(run):,.0f}", f"{rate(run) / RATE:.0%}", f"{late(run, 0.5):.1f} s",
        f"{late(run, 0.99):.1f} s", f"{busiest:.1f}", str(run.moves), f"{run.others:.0%}",
    ]  # fmt: skip


def fed(run: Run) -> list[Epoch]:
    """The epochs since files arrive by the clock."""
    return [epoch for epoch in run.epochs if epoch.committed > begun(run)]


def begun(run: Run) -> float:
    return min(run.arrived.values())


def rate(run: Run) -> float:
    """Rows a second from the first file's arrival until all were done."""
    return len(run.arrived) * ROWS.rows * 2 / (run.epochs[-1].committed - begun(run))


def late(run: Run, share: float) -> float:
    return quantile(run.latencies(), share)


def paced(run: Run) -> list[tuple[float, float]]:
    return [(epoch.committed - begun(run), epoch.rate) for epoch in fed(run)]


def lateness(run: Run) -> list[tuple[float, float]]:
    """The 99th percentile of what each epoch gave."""
    committed = run.committed()
    points: list[tuple[float, float]] = []
    for epoch in fed(run):
        given = sorted(
            (committed[e] - run.arrived[file], n)
            for file, e, n in run.given
            if e == epoch.number and file in run.arrived
        )
        if given:
            points.append((epoch.committed - begun(run), quantile(given, 0.99)))
    return points


def changes(files: int) -> dict[str, float]:
    return {f"change {i}": float(i * MINUTE) for i in range(1, -(-(files - WARM) // MINUTE))}
