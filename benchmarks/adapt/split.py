"""Eight units on eight sites, one of them with a quarter of all rows: moving cannot help, splitting can."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from benchmarks.adapt.bench import EIGHT, EPOCH_ROWS, Bench
from benchmarks.adapt.epochs import Epoch
from benchmarks.adapt.outcome import Bar, Chart, Outcome, rate
from benchmarks.adapt.rows import Hot, Rows
from benchmarks.adapt.running import HYBRID, STATIC, Contender, Run, Setup

EVEN, WITHIN, FIXED = 1.25, 15, 1.8  # busiest/mean, the epochs until it is there, and what fixed units cannot be below
FILES = 20
ROWS = Rows(
    "split",
    files=FILES,
    rows=EPOCH_ROWS // 2,
    keys=200_000,
    hot=Hot(units=1, of=EIGHT, share=0.25, first=FILES, files=FILES, step=0),
)
FIXED_SITES = {"minSites": str(EIGHT), "maxSites": str(EIGHT)}
BUDGET = {"epochBudget": "5 minutes"}  # more than any epoch takes: no input waits
ELASTIC = Contender("elastic", "elastic", BUDGET | FIXED_SITES)
HYBRID_FIXED = Contender("hybrid, fixed units", "hybrid", settings={"divide": False, "share": False})
LAST = 5
"""Epochs at the end of a run that count."""


def split(bench: Bench) -> Outcome:
    setup = Setup(EIGHT, EIGHT, bench.seconds / (EPOCH_ROWS / EIGHT))
    epochs = {STATIC.name: 6, HYBRID_FIXED.name: 10, HYBRID.name: 20, ELASTIC.name: 20}
    contenders = bench.contenders(STATIC, HYBRID_FIXED, HYBRID, ELASTIC)
    runs = [bench.stage.run(c, ROWS, setup, bench.epochs(epochs[c.name])) for c in contenders]
    return outcome(setup, runs)


def busiest(epoch: Epoch) -> float:
    """How much longer than the mean the busiest site worked."""
    return max(epoch.busy) / mean(epoch.busy)


def outcome(setup: Setup, runs: Sequence[Run]) -> Outcome:
    table, lines, bars = [], {}, []
    for run in runs:
        last = run.epochs[-LAST:]
        splits, merges = (
            sum(d["action"] == verb and not d["refused"] for d in run.decisions) for verb in ("split", "merge")
        )
        table.append([
            run.contender, f"{busiest(run.epochs[2]):.2f}", f"{mean(map(busiest, last)):.2f}", f"{rate(last):,.0f}",
            f"{sum(run.epochs[-1].units)}", str(splits), str(merges), str(run.moves), f"{run.others:.0%}",
        ])  # fmt: skip
        lines[run.contender] = [(float(epoch.number), busiest(epoch)) for epoch in run.epochs[1:]]
    by_name = {run.contender: run for run in runs}
    if ELASTIC.name in by_name and STATIC.name in by_name:
        fixed = min(map(busiest, by_name[STATIC.name].epochs[1:]))
        reached = [busiest(epoch) <= EVEN for epoch in by_name[ELASTIC.name].epochs]
        first = next((i + 1 for i in range(len(reached) - 2) if all(reached[i : i + 3])), 999)
        bars = [
            Bar("busiest/mean of fixed units, at the least", fixed, FIXED),
            Bar("busiest/mean at last, elastic", mean(map(busiest, by_name[ELASTIC.name].epochs[-LAST:])), EVEN, True),
            Bar(f"epochs until {EVEN}, for three in a row", float(first), WITHIN, at_most=True, style=".0f"),
        ]
    head = [
        "policy", "busiest/mean at first", "at last", "rows/s at last", "units", "splits", "merges", "moves", "others",
    ]  # fmt: skip
    title = "one of eight units has a quarter of all rows"
    facts = {"rows": ROWS.says(), "emulation": setup.says()}
    return Outcome("split", title, facts, head, table, bars, {"": Chart(title, "busiest/mean", lines)}, runs)
