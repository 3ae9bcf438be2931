"""Some of eight sites become slow and stay so: what the rest can do is what a policy is measured by (Flux, Fig. 7, 8).

Capacity left is what an epoch would take if the emulated work were spread in proportion to the sites' speeds, and
everything that Spark costs stayed as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.adapt.bench import EIGHT, SLOWED_TO, WARM, Bench
from benchmarks.adapt.epochs import Epoch
from benchmarks.adapt.outcome import Bar, Chart, Outcome, over_time, rate, seconds
from benchmarks.adapt.running import HYBRID, STATIC, Run, Setup
from sluice.experiments import slowDown

RECOVERED, WITHIN = 0.9, 20  # share of the capacity left, and the epochs until it is there
STEADY = 15  # epochs after which the rate counts as the one that stays


@dataclass(frozen=True)
class Left:
    """What is left when some sites are slow."""

    before: float  # seconds of an epoch while all are fast
    work: float  # emulated seconds of an epoch, all sites together
    capacity: float  # fast sites that the sites amount to
    rows: int

    @property
    def seconds(self) -> float:
        """The shortest epoch that is possible now."""
        return self.before + self.work / self.capacity - self.work / EIGHT

    @property
    def rate(self) -> float:
        return self.rows / self.seconds

    def share(self, epochs: Sequence[Epoch]) -> float:
        return rate(epochs) / self.rate

    def share_of_work(self, epochs: Sequence[Epoch]) -> float:
        """The same for the sites alone, without what Spark costs."""
        return self.work / self.capacity / median(max(epoch.busy) for epoch in epochs)

    def reached(self, epochs: Sequence[Epoch]) -> int | None:
        """After how many epochs the recovered share was there, and stayed for three."""
        good = [epoch.rate >= RECOVERED * self.rate for epoch in epochs]
        return next((i + 1 for i in range(len(good) - 2) if all(good[i : i + 3])), None)


def slow(bench: Bench, slowed: int) -> Outcome:
    setup, rows = bench.eight(), bench.even
    after = {STATIC.name: bench.epochs(6), HYBRID.name: bench.epochs(26)}

    def disturb(query: Any) -> None:
        for site in range(slowed):
            slowDown(query, site, f"{setup.service / SLOWED_TO * 1e6} microseconds")

    runs = [
        bench.stage.run(c, rows, setup, WARM + after[c.name], {WARM: disturb}) for c in bench.contenders(STATIC, HYBRID)
    ]
    return outcome(f"slow-{slowed}", slowed, setup, rows.says(), runs)


def outcome(name: str, slowed: int, setup: Setup, rows: str, runs: Sequence[Run]) -> Outcome:
    capacity = EIGHT - slowed * (1 - SLOWED_TO)
    table, bars, charts = [], [], {}
    for run in runs:
        before, after = run.epochs[2:WARM], run.epochs[WARM:]
        work = before[0].rows * setup.service
        left = Left(seconds(before), work, capacity, before[0].rows)
        steady = after[STEADY:] if len(after) > STEADY else after[1:]
        reached = left.reached(after)
        table.append([
            run.contender, f"{rate(before):,.0f}", f"{rate(steady):,.0f}", f"{left.rate:,.0f}",
            f"{left.share(steady):.0%}", f"{left.share_of_work(steady):.0%}",
            str(reached) if reached else "not", str(run.moves), f"{run.others:.0%}",
        ])  # fmt: skip
        charts[run.contender] = over_time(run, WARM)
        if run.contender == HYBRID.name:
            bars.append(Bar("share of the capacity left, hybrid", left.share(steady), RECOVERED))
            if slowed == 1:
                epochs = float(reached or 999)
                bars.append(Bar("epochs until 90 % of it", epochs, WITHIN, at_most=True, style=".0f"))
            marks = {"capacity left": left.rate}
    head = [
        "policy", "rows/s before", "rows/s after", "capacity left", "share of it", "sites alone",
        "epochs to 90 %", "moves", "others",
    ]  # fmt: skip
    title = f"{slowed} of {EIGHT} sites slowed by {1 - SLOWED_TO:.0%}"
    chart = Chart(title, "rows/s", charts, marks if bars else {}, {"slowed": 0.0})
    about = f"{title} from epoch {WARM} on; {capacity / EIGHT:.1%} of the emulated capacity is left"
    facts = {"rows": rows, "emulation": setup.says()}
    return Outcome(name, about, facts, head, table, bars, {"": chart}, runs)
