"""Nothing is disturbed: what a policy costs that has nothing to do. At the machine's own speed, where it shows most."""

from __future__ import annotations

from statistics import median

from benchmarks.adapt.bench import Bench
from benchmarks.adapt.outcome import Bar, Chart, Outcome, over_time, rate, seconds
from benchmarks.adapt.rows import Rows
from benchmarks.adapt.running import HYBRID, STATIC, Run, Setup

OVERHEAD = 1.03
REPEATS = 4
SKIPPED = 3  # epochs at the start of a run that load code and fill the window
ROWS = Rows("busy", files=60, rows=300_000, keys=1_000_000)
SETUP = Setup(sites=2, units=256)


def quiet(bench: Bench) -> Outcome:
    """Both take turns epoch by epoch: the machine's speed changes by more than what is looked for, within seconds."""
    files = SKIPPED + bench.epochs(ROWS.files - SKIPPED)
    pair = bench.contenders(STATIC, HYBRID)
    runs: list[Run] = []
    for repeat in range(1 if bench.quick else REPEATS):
        runs += sorted(
            bench.stage.in_turns(pair if repeat % 2 else pair[::-1], ROWS, SETUP, files), key=lambda r: r.contender
        )
    epochs = {c.name: [e for r in runs if r.contender == c.name for e in r.epochs[SKIPPED:-1]] for c in pair}
    rows = [
        [name, f"{rate(some):,.0f}", f"{seconds(some):.3f}", str(len(some)), moves(runs, name), others(runs, name)]
        for name, some in epochs.items()
    ]
    bars = []
    if len(pair) == 2:
        ratios = [h.seconds / s.seconds for h, s in zip(epochs[HYBRID.name], epochs[STATIC.name], strict=True)]
        bars.append(Bar("epoch, hybrid / static beside it, median", median(ratios), OVERHEAD, True, ".3f"))
    head = ["policy", "rows/s", "s an epoch", "epochs", "moves", "others"]
    lines = {f"{run.contender} {i // len(pair) + 1}": over_time(run) for i, run in enumerate(runs)}
    about = f"a balanced join that nobody disturbs, {len(runs)} runs; two at a time take turns epoch by epoch"
    facts = {"rows": ROWS.says(), "emulation": SETUP.says()}
    chart = Chart("Nothing to do", "rows/s", lines)
    return Outcome("quiet", about, facts, head, rows, bars, {"": chart}, runs)


def moves(runs: list[Run], name: str) -> str:
    return str(sum(run.moves for run in runs if run.contender == name))


def others(runs: list[Run], name: str) -> str:
    return f"{max(run.others for run in runs if run.contender == name):.0%}"
