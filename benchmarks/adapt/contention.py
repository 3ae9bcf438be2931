"""Real contention instead of emulation: one executor shares its core with processes that only burn time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from benchmarks.adapt.bench import WARM, Bench
from benchmarks.adapt.epochs import Epoch
from benchmarks.adapt.outcome import Bar, Chart, Outcome, over_time, rate
from benchmarks.adapt.pinning import burning, executors, pinned
from benchmarks.adapt.rows import Rows
from benchmarks.adapt.running import HYBRID, STATIC, Contender, Run, Setup

BURNERS = 2
STEADY = 10
# Ten results a row: what sites do is most of the work, and what splits do, which no policy moves, the least.
ROWS = Rows("matching", files=40, rows=100_000, keys=40_000)
SETUP = Setup(sites=2, units=64)


def contention(bench: Bench) -> Outcome:
    files = {STATIC.name: WARM + bench.epochs(16), HYBRID.name: WARM + bench.epochs(24)}
    with cores_of_their_own():
        runs = [contended(bench, c, files[c.name]) for c in bench.contenders(STATIC, HYBRID)]
    rows = [
        [run.contender, f"{rate(run.epochs[2:WARM]):,.0f}", f"{rate(steady(run)):,.0f}",
         f"{rate(steady(run)) / rate(run.epochs[2:WARM]):.0%}", str(run.moves), f"{run.others:.0%}"]
        for run in runs
    ]  # fmt: skip
    bars = []
    if len(runs) == 2:
        bars.append(Bar("rows/s under contention, hybrid / static", rate(steady(runs[1])) / rate(steady(runs[0])), 1.0))
    about = f"two executors, each on a core of its own; from epoch {WARM} on {BURNERS} processes burn the core of one"
    facts = {"rows": ROWS.says(), "emulation": SETUP.says()}
    lines = {run.contender: over_time(run, WARM) for run in runs}
    chart = Chart("Real contention for one core", "rows/s", lines, at={"contended": 0.0})
    head = ["policy", "rows/s before", "rows/s after", "of before", "moves", "others"]
    return Outcome("contention", about, facts, head, rows, bars, {"": chart}, runs)


def contended(bench: Bench, contender: Contender, files: int) -> Run:
    with ExitStack() as burners:

        def begin(_: Any) -> None:
            burners.enter_context(burning(BURNERS, core=0))

        return bench.stage.run(contender, ROWS, SETUP, files, {WARM: begin})


def steady(run: Run) -> list[Epoch]:
    after = run.epochs[WARM:]
    return list(after[STEADY:] if len(after) > STEADY else after[1:])


@contextmanager
def cores_of_their_own() -> Iterator[None]:
    with ExitStack() as pins:
        for core, pid in enumerate(executors()):
            pins.enter_context(pinned(pid, {core}))
        yield
