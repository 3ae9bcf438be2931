"""The same rows with few large units and with many small ones: what a row costs by the size of its unit, and how long
the slots of the executors wait in an epoch, which is all that handing rows out in turns could win."""

from __future__ import annotations

from statistics import mean, median

from benchmarks.adapt.bench import Bench
from benchmarks.adapt.outcome import Bar, Chart, Outcome, over_time, rate, seconds
from benchmarks.adapt.rows import Rows
from benchmarks.adapt.running import Contender, Run, Setup

SLOWER = 1.1
SITES = 2
ROWS = Rows("busy", files=60, rows=300_000, keys=1_000_000)
NUMBERS = (2, 64, 1024)
SKIPPED = 5  # epochs at the start of a run that load code and fill the window


def unit_sizes(bench: Bench) -> Outcome:
    """They take turns epoch by epoch, so that they see the same machine."""
    files = SKIPPED + bench.epochs(25)
    setup = Setup(SITES, NUMBERS[0])
    contenders = [Contender(f"{units} units", "static", {"partitions": str(units)}) for units in NUMBERS]
    runs = bench.stage.in_turns(contenders, ROWS, setup, files)
    rows = [
        [run.contender, f"{rate(run.epochs[SKIPPED:-1]):,.0f}", f"{seconds(run.epochs[SKIPPED:-1]):.3f}", idle(run)]
        for run in runs
    ]
    pairs = zip(runs[0].epochs[SKIPPED:-1], runs[-1].epochs[SKIPPED:-1], strict=True)
    slower = median(large.seconds / small.seconds for large, small in pairs)
    bars = [Bar(f"epoch, {NUMBERS[0]} units / {NUMBERS[-1]} units beside it, median", slower, SLOWER, True, ".3f")]
    about = f"the same rows in {', '.join(map(str, NUMBERS))} units at {SITES} sites; epochs in turns"
    facts = {"rows": ROWS.says(), "emulation": setup.says(), "others": f"{max(run.others for run in runs):.0%}"}
    chart = Chart("Units of different sizes", "rows/s", {run.contender: over_time(run, SKIPPED) for run in runs})
    head = ["units", "rows/s", "s an epoch", "of it slots wait"]
    return Outcome("unit-sizes", about, facts, head, rows, bars, {"": chart}, runs)


def idle(run: Run) -> str:
    """The part of an epoch's job in which a slot has no task, on average."""
    return f"{mean(1 - epoch.tasks / (SITES * epoch.job) for epoch in run.epochs[SKIPPED:-1]):.0%}"
