"""A join without an equality on 1, 2, 4 and 8 sites: its one unit is shared by all of them."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

from benchmarks.adapt.bench import EIGHT, Bench
from benchmarks.adapt.outcome import Bar, Chart, Outcome, over_time
from benchmarks.adapt.rows import Rows
from benchmarks.adapt.running import HYBRID, Run, Setup
from sluice.model.routing.sharing import best_grid, copied_rows

LINEAR = 0.7
"""Of what so many sites would do if work divided by itself."""
SITES = (1, 2, 4, 8)
ROWS = Rows("theta", files=24, rows=4_000, keys=100_000, within=1, where="A.key - B.key > 95000")
MATCHING = 0.5 * 0.05**2
"""Of all pairs near in time: two numbers drawn from 0 to 1 differ by more than 0.95."""
LAST = 5
"""Epochs at the end of a run that count."""


def theta(bench: Bench) -> Outcome:
    results = ROWS.rows * ROWS.rows * 2 * (ROWS.within or 0) / ROWS.seconds * MATCHING
    # a twentieth of the work is rows, the rest results, as pairs are what a nested loop has to do with
    work = EIGHT * bench.seconds / 3
    setup = Setup(1, EIGHT, 0.05 * work / (2 * ROWS.rows), result_service=0.95 * work / results)
    bench.contenders(HYBRID)
    runs = {sites: bench.stage.run(HYBRID, ROWS, replace(setup, sites=sites), bench.epochs(14)) for sites in SITES}
    return outcome(replace(setup, sites=EIGHT), runs)


def outcome(setup: Setup, runs: dict[int, Run]) -> Outcome:
    alone = busiest(runs[1])
    table, bars = [], []
    for sites, run in runs.items():
        last = run.epochs[-LAST:]
        speedup = alone / busiest(run)
        copies = 1 + sum(epoch.copied for epoch in last) / sum(epoch.rows for epoch in last)
        best = copied_rows(best_grid(sites, (1, 1)), (1, 1)) / 2
        table.append([
            str(sites), f"{busiest(run):.2f}", f"{speedup:.2f}", f"{speedup / sites:.0%}", f"{copies:.2f}",
            f"{best:.2f}", f"{median(e.seconds for e in last):.2f}", f"{run.others:.0%}",
        ])  # fmt: skip
        if sites > 1:
            bars.append(Bar(f"speed-up by site, {sites} sites", speedup / sites, LINEAR))
    head = [
        "sites", "busiest site, s", "speed-up", "of linear", "copies a row", "best grid on paper", "epoch, s", "others",
    ]  # fmt: skip
    title = "a join without an equality on more and more sites"
    charts = {"": Chart(title, "rows/s", {f"{sites} sites": over_time(run, 0) for sites, run in runs.items()})}
    facts = {"rows": ROWS.says(), "emulation": f"1 to {setup.says()}"}
    return Outcome("theta", title, facts, head, table, bars, charts, list(runs.values()))


def busiest(run: Run) -> float:
    """Seconds that the busiest site of an epoch works, at last."""
    return median(max(epoch.busy) for epoch in run.epochs[-LAST:])
