"""Units are split when they have more than 2θ and merged when they have less than θ, as the rate of arrival goes up and
down; beside the same query with fixed units (parallel window joins, section IV-D and Fig. 7 to 10)."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.adapt.bench import Bench
from benchmarks.adapt.claims import judge, scaled
from benchmarks.adapt.epochs import Epoch
from benchmarks.adapt.outcome import Chart, Outcome
from benchmarks.adapt.rows import Rows, Slowdown
from benchmarks.adapt.running import Contender, Run, Setup
from sluice.figures.claim import ANY, Claim, ClaimKind, at_least, at_most
from sluice.figures.window_joins_delay import WINDOW_7, WINDOW_9

THETA = 300_000
"""The paper's 1.5 MB are 0.29 of what a partition has at 4,000 tuples a second, and these are 0.29 of what a unit has
of the window at the high rate."""
UNITS = 60
"""The paper's number of partitions."""
SITES = 4
FULL = 24  # files of the high rate in a window
HIGH = 40  # files that come at the high rate
ROWS = Rows(
    "tuning", files=60, rows=40_000, keys=1_000_000, within=5 * FULL, slowdown=Slowdown(first=HIGH, seconds=40)
)  # fmt: skip
LAST = 4
"""Epochs at the end of each rate that count."""
EVERY_EPOCH = {"collect": "1 millisecond"}
BY_SIZE = {"even": False, "hot": 1.0, "most": UNITS}  # units are split by bytes alone, and none moves
NO_WAITING = {"epochBudget": "5 minutes", "unitSize": str(THETA)}  # more than any epoch takes: no input waits
NO_SCALING = {"minSites": str(SITES), "maxSites": str(SITES)}
TUNED = Contender("tuned", "elastic", {**NO_WAITING, **NO_SCALING}, {**EVERY_EPOCH, **BY_SIZE})
FIXED = Contender("fixed units", "static", {"unitSize": str(THETA)}, EVERY_EPOCH)
CLAIMS = (
    at_most(
        "within 2θ",
        "a partition-group is kept within θ to 2θ: it is split above 2θ",
        2.4,
        "times θ, the largest unit in the last epochs at the high rate",
        "a split is asked for after an epoch and done within three more, in each of which a window gets a 24th",
        2.0,
    ),
    Claim(
        "grows",
        "with the arrival rate the sizes of the partitions increase",
        None,
        2.4,
        ANY,
        "times θ, the largest of the fixed units then",
        "θ is chosen so that it is so",
        ClaimKind.FITTED,
    ),
    at_least(
        "splits",
        "partitions are split by one more bit of the hash",
        2.0,
        "times the units at the start, at the high rate",
        "as units are of like size, each is split once at least where its window has 3.4θ",
        2.0,
        ClaimKind.DERIVED,
    ),
    Claim(
        "merges",
        "they are merged whenever a size falls below θ",
        1.0,
        1.0,
        1.25,
        "times the units at the start, after the low rate",
        "an eighth of the rate leaves an eighth of 3.4θ in a window: all can be merged; a quarter may still be under "
        "way, as state expires a run at a time",
        ClaimKind.DERIVED,
    ),
    scaled(
        WINDOW_7,
        "cpu, tuned",
        -ANY,
        0.6,
        "of the time that sites work without, epoch by epoch in turns, in the last epochs at the high rate",
        "40 % less at least for what is called significant",
    ),
    scaled(
        WINDOW_9,
        "communication",
        0.95,
        1.05,
        "times the bytes that sites write to the checkpoint and read from it without tuning",
        "rows go to their sites either way; what tuning could add is state that is handed over or written anew",
    ),
)


def tuning(bench: Bench) -> Outcome:
    files = bench.epochs(ROWS.files)
    rows = (
        replace(ROWS, name="tuning-quick", slowdown=Slowdown(HIGH * files // ROWS.files, 40)) if bench.quick else ROWS
    )
    setup = Setup(SITES, UNITS)
    contenders = bench.contenders(FIXED, TUNED)
    runs = {run.contender: run for run in bench.stage.in_turns(contenders, rows, setup, files)}
    all_runs = list(runs.values())
    high = rows.slowdown.first if rows.slowdown else files
    head = [
        "contender", "units at the start", "at the high rate", "after the low rate", "splits", "merges", "moves",
        "largest unit at the high rate", "sites worked then", "state written and read", "others",
    ]  # fmt: skip
    about = (
        f"θ is {THETA / 1000:.0f} kB; a unit of {UNITS} gets about 3.4 times that in a window at the high rate, and an "
        "eighth of it at the low one. Epochs in turns. All answers are DuckDB's"
    )
    lines = {run.contender: [(float(e.number), float(sum(e.units))) for e in run.epochs] for run in all_runs}
    return Outcome(
        "tuning",
        about,
        {"rows": rows.says(files), "results": f"{all_runs[0].results:,}", "emulation": setup.says()},
        head,
        [cells(run, high) for run in all_runs],
        charts={"": Chart("Units that are split above 2θ and merged below θ", "units", lines, x="epochs")},
        runs=all_runs,
        verdicts=judge(CLAIMS, values(runs, high)) if len(runs) == 2 else (),
    )


def values(runs: dict[str, Run], high: int = HIGH) -> dict[str, float]:
    """What was measured for each claim, where so many epochs were of the high rate."""
    fixed, tuned = runs[FIXED.name], runs[TUNED.name]
    at_start = max(1, sum(fixed.epochs[0].units))
    return {
        "within 2θ": largest(tuned, high) / THETA,
        "grows": largest(fixed, high) / THETA,
        "splits": sum(tuned.epochs[high - 1].units) / at_start,
        "merges": sum(tuned.epochs[-1].units) / at_start,
        "cpu, tuned": worked(tuned, high) / worked(fixed, high),
        "communication": exchanged(tuned) / max(1, exchanged(fixed)),
    }


def at_high_rate(run: Run, high: int) -> tuple[Epoch, ...]:
    """The last epochs of the high rate."""
    return run.epochs[high - LAST : high]


def largest(run: Run, high: int) -> int:
    """Bytes of the largest unit in these epochs."""
    return max(epoch.largest_unit for epoch in at_high_rate(run, high))


def worked(run: Run, high: int) -> float:
    """Seconds that all sites worked in these epochs."""
    return sum(sum(epoch.busy) for epoch in at_high_rate(run, high))


def exchanged(run: Run) -> int:
    """Bytes of state that sites wrote and read, new rows among them."""
    return sum(epoch.written + sum(epoch.fetched) for epoch in run.epochs)


def cells(run: Run, high: int) -> list[str]:
    splits, merges = (
        sum(d["action"] == verb and not d["refused"] for d in run.decisions) for verb in ("split", "merge")
    )
    return [
        run.contender, str(sum(run.epochs[0].units)), str(sum(run.epochs[high - 1].units)),
        str(sum(run.epochs[-1].units)), str(splits), str(merges), str(run.moves),
        f"{largest(run, high) / THETA:.2f} θ", f"{worked(run, high):.2f} s", f"{exchanged(run) / 2**20:,.0f} MiB",
        f"{run.others:.0%}",
    ]  # fmt: skip
