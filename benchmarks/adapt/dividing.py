"""Units are split and merged while the query runs at the machine's own speed: what that adds to their epochs, and
whether any row is written anew."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

import numpy as np

from benchmarks.adapt.bench import Bench
from benchmarks.adapt.outcome import Bar, Chart, Outcome, over_time, seconds
from benchmarks.adapt.rows import Rows
from benchmarks.adapt.running import STATIC, Contender, Run, Setup
from sluice.model.view import ClusterView
from sluice.policies import Policy
from sluice.verbs import Action
from sluice.verbs.split import Merge, Split

SLOWER, SAME = 1.02, 1.001
ROWS = Rows("busy-long", files=48, rows=300_000, keys=1_000_000, within=60)
SETUP = Setup(sites=2, units=64)
FILLING = 14  # epochs until the window is full
EVERY = 5  # epochs from one round to the next: two or three of them are concerned, in the others nothing happens
REPEATS = 6


@dataclass
class BackAndForth(Policy):
    """Splits some units, and merges them again, in turn."""

    units: int = 8
    name: str = "back and forth"

    def decide(self, view: ClusterView) -> tuple[Action, ...]:
        if view.period.epoch % EVERY:
            return ()
        halves = np.flatnonzero(view.units.buddy > np.arange(len(view.units.buddy)))
        if len(halves):
            return tuple(Merge(unit, "to see what it costs") for unit in view.units.id[halves].tolist())
        return tuple(Split(unit, "to see what it costs") for unit in view.units.id[: self.units].tolist())


DIVIDED = Contender("split and merged", BackAndForth())


def dividing(bench: Bench) -> Outcome:
    """Two queries take turns epoch by epoch, so that they see the same machine; units of one are split and merged."""
    files = FILLING + bench.epochs(ROWS.files - FILLING)
    pairs = []
    for repeat in range(1 if bench.quick else REPEATS):
        order = 1 if repeat % 2 else -1  # of the two each has its turn first every other time
        pairs.append(bench.stage.in_turns([STATIC, DIVIDED][::order], ROWS, SETUP, files)[::order])
    ratios: dict[bool, list[float]] = {True: [], False: []}
    for plain, divided in pairs:
        during = concerned(divided)
        for one, other in zip(plain.epochs[FILLING:-1], divided.epochs[FILLING:-1], strict=True):
            ratios[other.number in during].append(other.seconds / one.seconds)
    runs = [run for pair in pairs for run in pair]
    verbs = [d["action"] for run in runs for d in run.decisions if not d["refused"]]
    bars = [
        Bar(f"epoch, {what}, / the other query's beside it", median(found), SLOWER, True, ".3f")
        for what, found in (("units split or merged", ratios[True]), ("neither", ratios[False]))
        if found
    ]
    bars.append(Bar("bytes of state written / the other query's", written(pairs), SAME, True, ".4f"))
    rows = [
        [run.contender, f"{seconds(run.epochs[FILLING:-1]):.3f}", f"{sum(e.written for e in run.epochs) / 2**20:,.1f}"]
        for run in runs
    ]
    about = f"{verbs.count('split')} units are split and {verbs.count('merge')} pairs merged, every {EVERY} epochs some"
    facts = {"rows": ROWS.says(), "emulation": SETUP.says(), "others": f"{max(run.others for run in runs):.0%}"}
    lines = {f"{run.contender} {place // 2 + 1}": over_time(run, FILLING) for place, run in enumerate(runs)}
    head = ["query", "s an epoch", "MiB of state written"]
    chart = Chart("Units are split and merged", "rows/s", lines)
    return Outcome("dividing", about, facts, head, rows, bars, {"": chart}, runs)


def concerned(run: Run) -> set[int]:
    """The epochs in which sites find out what a split takes, and the first with other units."""
    lasts = {"split": 3, "merge": 2}
    asked = [(d["epoch"], lasts[d["action"]]) for d in run.decisions if not d["refused"]]
    return {first + step for first, last in asked for step in range(last)}


def written(pairs: list[list[Run]]) -> float:
    """Bytes of state that the divided queries wrote, as a multiple of what the others did."""
    plain, divided = (sum(epoch.written for pair in pairs for epoch in pair[place].epochs) for place in (0, 1))
    return divided / plain
