"""One site whose memory is full again and again: 10 % to 100 % of its state is frozen at a time (lazy/active-disk
paper, Fig. 5 and 6)."""

from __future__ import annotations

from itertools import pairwise

from benchmarks.adapt import adaptations, late_results
from benchmarks.adapt.bench import AMPLE, ROW_BYTES, SLOW_DISK, Bench
from benchmarks.adapt.claims import judge, scaled
from benchmarks.adapt.outcome import Outcome
from benchmarks.adapt.rows import Rows
from benchmarks.adapt.running import Contender, Run, Setup
from sluice.figures.claim import ANY, at_least, at_most
from sluice.figures.lazy_disk_spill import LAZY_5

UNITS = 96
MEMORY = 0.4  # of the state, as 200 MB are of the 504 MB that the simulator's hour comes to
ROWS = Rows("one-site", files=40, rows=6_000, keys=40_000, within=None, streams="ABC")
ALL_IN_MEMORY = Contender("all in memory", "static", {"siteMemory": AMPLE})
PUSHED = {
    push: Contender(f"{100 * push:.0f} % pushed", "no-relocation", settings={"push": push, "order": "random"})
    for push in (0.1, 0.3, 0.5, 1.0)
}
"""Units are drawn at random, as in the paper's experiment."""
CLAIMS = (
    scaled(
        LAZY_5,
        "order",
        1.0,
        ANY,
        "times the results of the next larger push with the same input, smallest",
        "which units go is drawn at random, yet every step pushes at least 1.6 times as much as the one before",
    ),
    scaled(
        LAZY_5,
        "limit",
        -ANY,
        1.001,
        "of the limit at the end of any epoch, highest",
        "a site freezes before its epoch ends, so nothing above the limit is left",
    ),
    at_most(
        "any moment",
        "memory is controlled, while a site works too",
        1.1,
        "of the limit at any moment, highest",
        "the bar of all scenarios with a memory limit: an epoch's rows are a sixteenth of it",
    ),
    at_least(
        "saw-tooth",
        "memory falls with every spill by what is to be pushed",
        0.9,
        "of the part to be pushed that is gone after a spill, smallest",
        "whole units go, until it is enough; rows of state are reckoned with 32 bytes here, and not measured",
    ),
    scaled(
        LAZY_5,
        "spills",
        1.2,
        ANY,
        "times the spills of the next larger push, smallest",
        "spills are few with large pushes, so that a count of one more or less is much",
    ),
    scaled(
        LAZY_5,
        "favourable",
        -ANY,
        0.6,
        "of what 100 % costs against 10 %, lost with 50 %",
        "on a straight line it would be 0.44, as in the simulator",
    ),
)


def push(bench: Bench) -> Outcome:
    files = bench.epochs(ROWS.files)
    limit = int(files * ROWS.rows * len(ROWS.streams) * ROW_BYTES * MEMORY)
    setup = Setup(1, UNITS, options={"siteMemory": str(limit)}, disk=SLOW_DISK)
    contenders = (ALL_IN_MEMORY, *PUSHED.values())
    runs = {c.name: bench.stage.run(c, ROWS, setup, files) for c in bench.contenders(*contenders)}
    limited = [run for name, run in runs.items() if name != ALL_IN_MEMORY.name]
    about = (
        f"one site may use {limit / 2**20:.1f} MiB, {MEMORY:.0%} of the state that it has in the end; when that is "
        f"full, a part of it is frozen, units drawn at random. Results are compared with the same input. All answers "
        f"are DuckDB's in the end"
    )
    head = [
        "contender", "results with all input", "of all", "spills", "highest at the end of an epoch / limit",
        "at any moment", "all input after", "cleanup", "others",
    ]  # fmt: skip
    charts = {
        "": adaptations.results_chart(
            "Part of the state that is pushed at a time: results so far", list(runs.values())
        ),
        "memory": adaptations.memory_chart("The same runs: memory", [(run.contender, run, 0) for run in limited]),
    }
    return Outcome(
        "push",
        about,
        {"rows": ROWS.says(files), "results": f"{max(r.results for r in runs.values()):,}", "emulation": setup.says()},
        head,
        [cells(run) for run in runs.values()],
        charts=charts,
        runs=list(runs.values()),
        verdicts=judge(CLAIMS, values(runs)) if len(runs) == len(contenders) else (),
    )


def values(runs: dict[str, Run]) -> dict[str, float]:
    by_push = {push: runs[contender.name] for push, contender in PUSHED.items()}
    results = [adaptations.results_in(run, 0) for run in (runs[ALL_IN_MEMORY.name], *by_push.values())]
    spills = [len(adaptations.spills(run)) for run in by_push.values()]
    lost = results[1] - results[-1]
    return {
        "order": min(less / max(1, more) for less, more in pairwise(results)),
        "limit": max(adaptations.highest_memory(run) for run in by_push.values()),
        "any moment": max(late_results.most_in_memory(run) for run in by_push.values()),
        "saw-tooth": min(least_pushed(run) / push for push, run in by_push.items()),
        "spills": min(often / max(1, seldom) for often, seldom in pairwise(spills)),
        "favourable": (results[1] - results[3]) / lost if lost else float("nan"),
    }


def least_pushed(run: Run) -> float:
    """The part of the state in memory that was gone after a spill, smallest: of what was there before the epoch and of
    what its rows came to."""
    spilling = {epoch for epoch, _ in adaptations.spills(run)}
    pushed = [
        1 - after.memory[0] / (before.memory[0] + after.rows * ROW_BYTES)
        for before, after in pairwise(adaptations.input_epochs(run))
        if after.number in spilling
    ]
    return min(pushed, default=float("nan"))


def cells(run: Run) -> list[str]:
    results = adaptations.results_in(run, 0)
    return [
        run.contender, f"{results:,}", f"{results / run.results:.0%}", str(len(adaptations.spills(run))),
        f"{adaptations.highest_memory(run):.2f}", f"{late_results.most_in_memory(run):.2f}",
        f"{late_results.input_seconds(run):.0f} s", f"{late_results.cleanup_seconds(run):.1f} s", f"{run.others:.0%}",
    ]  # fmt: skip
