"""One key has half of all rows: no placement can part it, so its unit is shared or its site is the bottleneck."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.adapt.bench import EIGHT, UNITS, Bench
from benchmarks.adapt.outcome import Bar, Chart, Outcome, over_time, rate
from benchmarks.adapt.rows import Rows
from benchmarks.adapt.running import Contender, Run, Setup

TIMES, WITHIN = 3.0, 20  # the throughput without sharing, and the epochs until it is there
ROWS = Rows("hot-key", files=30, rows=2_000, keys=20_000, within=1, one_key=0.5)
SHARING = Contender("hybrid", "hybrid")
ALONE = Contender("hybrid without sharing", "hybrid", settings={"share": False})
LAST = 5
"""Epochs at the end of a run whose rate counts."""


def hot_key(bench: Bench) -> Outcome:
    results = expected_results(ROWS)
    setup = Setup(EIGHT, UNITS, 10e-6, result_service=EIGHT * bench.seconds / 3 / results)
    epochs = {SHARING.name: bench.epochs(26), ALONE.name: bench.epochs(14)}
    runs = [bench.stage.run(c, ROWS, setup, epochs[c.name]) for c in bench.contenders(ALONE, SHARING)]
    return outcome(setup, runs)


def expected_results(rows: Rows) -> float:
    """Of the hot key in an epoch, about."""
    hot = rows.one_key * rows.rows
    return hot * hot * 2 * (rows.within or 0) / rows.seconds


def outcome(setup: Setup, runs: Sequence[Run]) -> Outcome:
    table, charts = [], {}
    for run in runs:
        last, shared = run.epochs[-LAST:], sum(d["action"] == "share" and not d["refused"] for d in run.decisions)
        busiest = max(max(epoch.busy) for epoch in last)
        copies = 1 + sum(epoch.copied for epoch in last) / sum(epoch.rows for epoch in last)
        table.append([
            run.contender, f"{rate(run.epochs[2:5]):,.0f}", f"{rate(last):,.0f}", f"{busiest:.1f}", f"{copies:.2f}",
            str(shared), str(run.moves), f"{run.others:.0%}",
        ])  # fmt: skip
        charts[run.contender] = over_time(run, 0)
    by_name = {run.contender: run for run in runs}
    bars = []
    if len(runs) == 2:
        alone, sharing = rate(by_name[ALONE.name].epochs[-LAST:]), by_name[SHARING.name]
        reached = [epoch.rate >= TIMES * alone for epoch in sharing.epochs]
        first = next((i + 1 for i in range(len(reached) - 2) if all(reached[i : i + 3])), 999)
        bars = [
            Bar("rows/s, as a multiple of hybrid without sharing", rate(sharing.epochs[-LAST:]) / alone, TIMES),
            Bar(f"epochs until {TIMES:.0f} times, for three in a row", float(first), WITHIN, at_most=True, style=".0f"),
        ]
    head = [
        "policy", "rows/s at first", "rows/s at last", "busiest site, s", "copies a row", "shares", "moves", "others",
    ]  # fmt: skip
    title = "one key has half of all rows"
    facts = {"rows": ROWS.says(), "emulation": setup.says()}
    return Outcome("hot-key", title, facts, head, table, bars, {"": Chart(title, "rows/s", charts)}, runs)
