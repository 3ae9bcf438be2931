"""Nothing is disturbed: what a policy costs that has nothing to do. At the machine's own speed, where it shows most."""

from __future__ import annotations

from benchmarks.adapt.bench import Bench
from benchmarks.adapt.outcome import Bar, Chart, Outcome, over_time, rate, seconds
from benchmarks.adapt.rows import Rows
from benchmarks.adapt.running import HYBRID, STATIC, Setup

OVERHEAD = 1.03
REPEATS = 6
SKIPPED = 3  # epochs at the start of a run that fill the window
ROWS = Rows("busy", files=16, rows=300_000, keys=1_000_000)
SETUP = Setup(sites=2, units=256)


def quiet(bench: Bench) -> Outcome:
    """Runs alternate, so that a machine that becomes slower does so for both."""
    files = SKIPPED + bench.epochs(13)
    pair = bench.contenders(STATIC, HYBRID)
    order = [c for repeat in range(1 if bench.quick else REPEATS) for c in (pair if repeat % 2 else pair[::-1])]
    runs = [bench.stage.run(c, ROWS, SETUP, files) for c in order]
    epochs = {c.name: [e for r in runs if r.contender == c.name for e in r.epochs[SKIPPED:]] for c in pair}
    rows = [
        [name, f"{rate(some):,.0f}", f"{seconds(some):.3f}", str(len(some)), moves(runs, name), others(runs, name)]
        for name, some in epochs.items()
    ]
    bars = []
    if len(pair) == 2:
        cost = seconds(epochs[HYBRID.name]) / seconds(epochs[STATIC.name])
        bars.append(Bar("median epoch, hybrid / static", cost, OVERHEAD, at_most=True, style=".3f"))
    head = ["policy", "rows/s", "s an epoch", "epochs", "moves", "others"]
    lines = {f"{run.contender} {i // 2 + 1}": over_time(run) for i, run in enumerate(runs)}
    about = f"a balanced join that nobody disturbs, {len(runs)} runs in turns"
    facts = {"rows": ROWS.says(), "emulation": SETUP.says()}
    chart = Chart("Nothing to do", "rows/s", lines)
    return Outcome("quiet", about, facts, head, rows, bars, {"": chart}, runs)


def moves(runs: list, name: str) -> str:
    return str(sum(run.moves for run in runs if run.contender == name))


def others(runs: list, name: str) -> str:
    return f"{max(run.others for run in runs if run.contender == name):.0%}"
