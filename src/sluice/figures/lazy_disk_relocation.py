"""Lazy/active disk, section 4.2: relocation when the load alternates, and instead of spilling (Fig. 9 to 11)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sluice.dashboard.chart import Mark
from sluice.figures.claim import Claim, ClaimKind, at_least, at_most
from sluice.figures.experiment import Experiment, Reading, Trial
from sluice.figures.join_charts import MINUTE, LazyDiskOutcomes, last, memory_chart, rate_chart, results_chart
from sluice.figures.lazy_disk_spill import ALL_MEM
from sluice.sim.hardware import MB
from sluice.sim.worlds.lazy_disk.scenario import CLUSTER, LazyDiskScenario, Surge
from sluice.sim.worlds.lazy_disk.world import LazyDiskOutcome

# --- Fig. 9 and 10 --------------------------------------------------------------------------------------------------

_TURNS = (0.0, *(300.0 + 600.0 * turn for turn in range(6)))
_ALTERNATING = LazyDiskScenario(
    "load that alternates between two sites",
    seconds=3600,
    interval=30,
    placement=(0.5, 0.5),
    surges=tuple(Surge(start, turn % 2) for turn, start in enumerate(_TURNS)),
    hardware=replace(CLUSTER, memory=1000 * MB),
)
_THETAS = (0.5, 0.6, 0.7, 0.8, 0.9)
_SETTLED = 600.0


def _theta(theta: float) -> str:
    return f"θ {theta:.0%}".replace("%", " %")


def _evenness(outcome: LazyDiskOutcome) -> np.ndarray:
    """What the site with least has of what that with most has, after the first ten minutes."""
    memory = outcome.memory[outcome.times > _SETTLED]
    even: np.ndarray = memory.min(axis=1) / np.maximum(memory.max(axis=1), 1)
    return even


def _fig9(outcomes: LazyDiskOutcomes) -> Reading:
    alone, even = outcomes[ALL_MEM], outcomes[_theta(0.9)]
    totals = {theta: last(outcomes[_theta(theta)].total) / last(alone.total) for theta in _THETAS}
    values = {
        "same": min(totals.values()),
        "few": float(len(outcomes[_theta(0.5)].relocations)),
        "many": float(len(even.relocations)),
        "balanced": float(_evenness(even).mean()),
        "alternates": float(_evenness(alone).min()),
    }
    shown = {"no relocation": alone, "θ 90 %": even}
    sites = [(f"{name}, site {site}", one, site) for name, one in shown.items() for site in (0, 1)]
    charts = {
        "": results_chart("Fig. 9: thresholds of relocation while the load alternates", outcomes),
        "-memory": memory_chart("Fig. 10: memory without relocation, and with θ 90 %", sites),
    }
    data = {name: {"relocations": len(one.relocations), "moves": len(one.moves)} for name, one in outcomes.items()}
    return Reading(values, charts, data | {"results against all in memory": totals})


LAZY_9: Experiment[LazyDiskOutcome] = Experiment(
    "lazy-disk-9",
    "two sites that get ten times the load of the other in turn, θ from 50 % to 90 % (Fig. 9 and 10)",
    (
        Claim(
            "same",
            "the throughput is almost the same for all θ, and as with all in memory",
            1.0,
            0.97,
            1.01,
            "of all in memory, smallest",
            "nothing is lost for good; what is late at the end of the run is at most a relocation's time",
        ),
        Claim(
            "few",
            "2 relocations with θ 50 %",
            2,
            1,
            4,
            "relocations",
            "how long the run was is not said; an hour is taken here, as for most others",
        ),
        Claim(
            "many",
            "24 relocations with θ 90 %",
            24,
            12,
            48,
            "relocations",
            "a factor of two, since the length of the run is not said",
        ),
        at_least(
            "balanced",
            "memory remains largely balanced with θ 90 %",
            0.85,
            "of the fuller site's at the other, mean after ten minutes",
            "θ is 0.9, and up to 45 seconds pass before a difference is seen",
        ),
        at_most(
            "alternates",
            "without relocation it changes in turn",
            0.7,
            "of the fuller site's at the other, smallest after ten minutes",
            "after 15 minutes site 0 has had 60 parts and site 1 105: 0.57",
        ),
    ),
    {
        ALL_MEM: Trial(_ALTERNATING),
        **{_theta(theta): Trial(_ALTERNATING, "lazy-disk", (("theta", theta),)) for theta in _THETAS},
    },
    _fig9,
)

# --- Fig. 11 --------------------------------------------------------------------------------------------------------

_SKEWED = LazyDiskScenario(
    "60 %, 20 % and 20 % of the units", seconds=3600, interval=60, placement=(0.6, 0.2, 0.2), hardware=CLUSTER
)
_WITH, _WITHOUT = "with relocation", "no relocation"


def _fig11(outcomes: LazyDiskOutcomes) -> Reading:
    with_it, without = outcomes[_WITH], outcomes[_WITHOUT]
    full = without.spills[0].time if without.spills else float("nan")
    shortly = full + MINUTE, full + 6 * MINUTE
    values = {
        "full": full / MINUTE,
        "drops": without.mean_rate(*shortly) / with_it.mean_rate(*shortly) if without.spills else float("nan"),
        "stays down": without.mean_rate(3000) / with_it.mean_rate(3000),
        "no spill": float(len(with_it.spills)),
        "maximal": last(with_it.total) / last(outcomes[ALL_MEM].total),
    }
    marks = [Mark("paper: drops", x=40.0)]
    charts = {"": rate_chart("Fig. 11: relocation or spilling", outcomes, marks)}
    data = {name: {"relocations": len(o.relocations), "spills": len(o.spills)} for name, o in outcomes.items()}
    return Reading(values, charts, data)


LAZY_11: Experiment[LazyDiskOutcome] = Experiment(
    "lazy-disk-11",
    "three sites of 200 MB with 60 %, 20 % and 20 % of the units, θ 80 % (Fig. 11)",
    (
        Claim(
            "full",
            "without relocation memory overflows after 40 minutes",
            40.0,
            38.0,
            42.0,
            "minutes",
            "the size of a tuple is chosen to meet it",
            kind=ClaimKind.FITTED,
        ),
        at_most(
            "drops",
            "then the throughput drops",
            0.95,
            "of that with relocation, in the five minutes after the first",
            "30 % of the state of a site with 60 % of the units: about 0.18 of the results, less what yields little",
        ),
        at_most(
            "stays down",
            "and results wait for the cleanup",
            0.85,
            "of that with relocation, in the last ten minutes",
            "by then state was pushed a second time",
        ),
        at_most(
            "no spill",
            "with relocation all states are kept in memory",
            0.0,
            "spills",
            "504 MB in an hour, and 600 MB are there",
            0.0,
        ),
        Claim(
            "maximal",
            "it generates output continuously at a maximal rate",
            1.0,
            0.98,
            1.01,
            "of all in memory",
            "what waits at the splits is late by a second",
        ),
    ),
    {
        ALL_MEM: Trial(_SKEWED),
        _WITH: Trial(_SKEWED, "lazy-disk"),
        _WITHOUT: Trial(_SKEWED, "no-relocation"),
    },
    _fig11,
)
