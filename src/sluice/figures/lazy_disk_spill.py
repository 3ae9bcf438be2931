"""Lazy/active disk, section 3.2: how much to spill at a time, and what (Fig. 5 to 7)."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from sluice.dashboard.chart import Mark
from sluice.figures.claim import Claim, ClaimKind, at_least, at_most
from sluice.figures.experiment import Experiment, Reading, Trial
from sluice.figures.join_charts import LazyDiskOutcomes, last, memory_chart, results_chart
from sluice.sim.worlds.lazy_disk.scenario import LazyDiskScenario, Population
from sluice.sim.worlds.lazy_disk.world import LazyDiskOutcome

# --- Fig. 5 and 6 ---------------------------------------------------------------------------------------------------

_ONE_SITE = LazyDiskScenario("one site of 200 MB, join rate 3", seconds=3600, interval=15)
_PUSHED = (0.1, 0.3, 0.5, 1.0)
ALL_MEM = "all in memory"


def _percent(push: float) -> str:
    return f"{push:.0%} pushed".replace("%", " %")


def _fig5(outcomes: LazyDiskOutcomes) -> Reading:
    by_push = [outcomes[_percent(push)] for push in _PUSHED]
    totals = [last(outcome.total) for outcome in (outcomes[ALL_MEM], *by_push)]
    spills = [len(outcome.spills) for outcome in by_push]
    limit = _ONE_SITE.hardware.memory
    lost = totals[1] - totals[-1]
    values = {
        "order": min(less / max(more, 1) for less, more in pairwise(totals)),
        "limit": max(outcome.peak.max() for outcome in by_push) / limit,
        "spills": min(often / max(seldom, 1) for often, seldom in pairwise(spills)),
        "favourable": (totals[1] - totals[3]) / lost if lost else float("nan"),
    }
    charts = {
        "": results_chart("Fig. 5: part of the state that is pushed at a time", outcomes),
        "-memory": memory_chart(
            "Fig. 6: the same runs, memory",
            [(name, one, 0) for name, one in outcomes.items() if name != ALL_MEM],
            [Mark("spills above 200 MB", y=float(limit))],
        ),
    }
    data = {name: {"results": last(one.total), "spills": len(one.spills)} for name, one in outcomes.items()}
    return Reading(values, charts, data)


LAZY_5: Experiment[LazyDiskOutcome] = Experiment(
    "lazy-disk-5",
    "one site, memory full again and again: 10 % to 100 % of the state pushed at a time (Fig. 5 and 6)",
    (
        at_least(
            "order",
            "the more states are pushed each time, the smaller the throughput; all in memory has most",
            1.0,
            "times the results of the next larger push after an hour, smallest",
            "which units go is drawn at random, yet every step pushes at least 1.6 times as much as the one before",
        ),
        at_most(
            "limit",
            "memory is controlled: it stays under 200 MB",
            1.001,
            "of 200 MB, highest",
            "a site notices with the tuple that is too much: one of 143,000",
            1.0,
        ),
        at_least(
            "spills",
            "the more is pushed, the fewer times spilling is triggered",
            1.2,
            "times the spills of the next larger push, smallest",
            "spills are few with large pushes, so that a count of one more or less is much",
        ),
        at_most(
            "favourable",
            "10 % to 50 % is most favourable",
            0.6,
            "of what 100 % costs against 10 %, lost with 50 %",
            "on a straight line it would be 0.44; more than 0.6 and most of the loss would come before 50 %",
        ),
    ),
    {
        ALL_MEM: Trial(_ONE_SITE),
        **{
            _percent(push): Trial(_ONE_SITE, "no-relocation", (("push", push), ("order", "random"))) for push in _PUSHED
        },
    },
    _fig5,
)

# --- Fig. 7 ---------------------------------------------------------------------------------------------------------

_THIRDS = tuple(Population(1 / 3, rate) for rate in (4.0, 2.0, 1.0))
_MIXED = replace(_ONE_SITE, name="one site, join rates 4, 2 and 1", seconds=2400, interval=30, populations=_THIRDS)
_LESS, _MORE = "less productive first", "more productive first"


def _fig7(outcomes: LazyDiskOutcomes) -> Reading:
    less, more = outcomes[_LESS], outcomes[_MORE]
    values = {
        "better": last(less.total) / last(more.total),
        "missing": float(less.missing_results),
        "missing of more": float(more.missing_results),
        "missing ratio": more.missing_results / max(less.missing_results, 1),
        "cleanup": less.cleanup_seconds,
        "cleanup of more": more.cleanup_seconds,
    }
    data = {
        name: {
            "results": one.run_results,
            "spills": len(one.spills),
            "cleanup": [vars(site) for site in one.cleanup],
            "rate of the last five minutes": one.mean_rate(2100),
        }
        for name, one in outcomes.items()
    }
    return Reading(values, {"": results_chart("Fig. 7: which units are pushed first", outcomes)}, data)


LAZY_7: Experiment[LazyDiskOutcome] = Experiment(
    "lazy-disk-7",
    "one site, join rates 4, 2 and 1 by thirds, 40 minutes: less or more productive units pushed first (Fig. 7)",
    (
        Claim(
            "better",
            "about 70 % better after 40 minutes",
            1.7,
            1.4,
            2.0,
            "times the results of more productive first",
            "read as results so far; 30 points either way, since when memory is first full hangs on the tuples' size",
        ),
        Claim(
            "missing",
            "194,308 tuples in the cleanup of less productive first",
            194_308,
            97_000,
            389_000,
            "results",
            "a factor of two: results grow with the third power of time",
        ),
        Claim(
            "missing of more",
            "992,893 in that of more productive first",
            992_893,
            496_000,
            1_986_000,
            "results",
            "a factor of two, as before",
        ),
        Claim(
            "missing ratio",
            "so about five times as many",
            5.11,
            2.5,
            10.2,
            "times",
            "a factor of two",
            ClaimKind.DERIVED,
        ),
        Claim(
            "cleanup",
            "26,879 ms for it",
            26.879,
            24.0,
            30.0,
            "s",
            "the time to find a missing result is chosen to meet it",
            kind=ClaimKind.FITTED,
        ),
        Claim(
            "cleanup of more",
            "359,396 ms for more productive first",
            359.396,
            180.0,
            719.0,
            "s",
            "a factor of two, with what was chosen for the other",
        ),
    ),
    {
        _LESS: Trial(_MIXED, "no-relocation"),
        _MORE: Trial(_MIXED, "no-relocation", (("order", "more-productive"),)),
    },
    _fig7,
)
