"""A short load that goes from site to site: with a time budget an epoch leaves the rest of a slow site's input for
later, without one it waits (Flux, Fig. 3)."""

from __future__ import annotations

from typing import Any

from benchmarks.adapt.bench import EIGHT, SLOWED_TO, WARM, Bench
from benchmarks.adapt.outcome import Bar, Chart, Outcome, over_time, rate
from benchmarks.adapt.running import Contender, Run, Step
from sluice.experiments import slowDown

FASTER = 1.5
STAYS = 2  # epochs for which a site is slow
ROUNDS = 16  # epochs in which every site has been slow once
ROOM = 1.15  # the budget, as a multiple of a site's undisturbed work: less than it loses while it is slow
HIGHEST_BACKLOG = "256m"


def rotate(bench: Bench) -> Outcome:
    setup, rows = bench.eight(), bench.even
    budget = f"{bench.seconds * ROOM:.2f} seconds"
    pair = bench.contenders(
        Contender("without backlog", "static"),
        Contender("with backlog", "static", {"epochBudget": budget, "backlog": HIGHEST_BACKLOG}),
    )
    epochs = bench.epochs(ROUNDS)
    steps = {WARM + i: slow_next(i // STAYS, setup.service) for i in range(0, 2 * epochs, STAYS)}
    runs = [bench.stage.run(c, rows, setup, WARM + epochs, steps) for c in pair]
    table = [
        [run.contender, f"{rate(run.epochs[2:WARM]):,.0f}", f"{through(run):,.0f}",
         f"{max(e.backlog for e in run.epochs):,}", str(len(run.epochs)), f"{run.others:.0%}"]
        for run in runs
    ]  # fmt: skip
    bars = [Bar("rows/s, with backlog / without", through(runs[1]) / through(runs[0]), FASTER)] if runs[1:] else []
    about = (
        f"one of {EIGHT} sites is slowed by {1 - SLOWED_TO:.0%}, another every {STAYS} epochs; units stay where they "
        f"are, and the budget of a site is {budget} an epoch. What is left over at the end is part of the time"
    )
    facts = {"rows": rows.says(), "emulation": setup.says()}
    chart = Chart(
        "A short load from site to site", "rows/s", {r.contender: over_time(r, WARM) for r in runs}, at={"load": 0.0}
    )
    head = ["contender", "rows/s before", "rows/s under the load", "most rows behind", "epochs", "others"]
    return Outcome("rotate", about, facts, head, table, bars, {"": chart}, runs)


def through(run: Run) -> float:
    """Rows a second from the beginning of the load until nothing waits."""
    loaded = run.epochs[WARM:]
    return sum(epoch.rows for epoch in loaded) / sum(epoch.seconds for epoch in loaded)


def slow_next(turn: int, service: float) -> Step:
    """The load leaves the site before and comes to the next."""

    def step(query: Any) -> None:
        slowDown(query, (turn - 1) % EIGHT, f"{service * 1e6} microseconds")
        slowDown(query, turn % EIGHT, f"{service / SLOWED_TO * 1e6} microseconds")

    return step
