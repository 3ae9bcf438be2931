"""A tenth of all state moves while the query runs at the machine's own speed: how much longer epochs take meanwhile."""

from __future__ import annotations

from typing import Any

from benchmarks.adapt.bench import Bench
from benchmarks.adapt.outcome import Bar, Chart, Outcome, over_time, rate, seconds
from benchmarks.adapt.rows import Rows
from benchmarks.adapt.running import STATIC, Setup, Step

SLOWER, LATE = 1.1, 1
UNITS = 260  # a tenth of them: 13 from each of two sites to the other, so that both keep as many
ROWS = Rows("busy-long", files=48, rows=300_000, keys=1_000_000, within=60)
SETUP = Setup(sites=2, units=UNITS)
FILLING = 14  # epochs until the window is full
ASIDE = 8  # epochs before and after that are compared with


def moving(bench: Bench) -> Outcome:
    """One unit each way is asked for before every epoch of the phase. A move takes two epochs: four are under way."""
    pairs = bench.epochs(UNITS // 20)
    aside = bench.epochs(ASIDE)
    first = FILLING + aside
    last = first + pairs + 1  # the last pair is asked for before epoch `last - 2`, and settles in the one after it
    steps = {first + i: swap(i) for i in range(pairs)}
    run = bench.stage.run(STATIC, ROWS, SETUP, last + aside, steps)
    during = run.epochs[first:last]
    around = [*run.epochs[FILLING:first], *run.epochs[last:]]
    late = max(epoch - file for file, epoch, _ in run.given)
    rows = [
        [what, str(len(some)), f"{seconds(some):.3f}", f"{rate(some):,.0f}"]
        for what, some in (
            ("before", run.epochs[FILLING:first]),
            ("while units move", during),
            ("after", run.epochs[last:]),
        )
    ]
    slower = seconds(during) / seconds(around)
    bars = [
        Bar("median epoch while moving / before and after", slower, SLOWER, at_most=True, style=".3f"),
        Bar("epochs by which a result is late, at most", float(late), LATE, at_most=True, style=".0f"),
    ]
    about = f"{run.moves} of {UNITS} units change places between two sites, one each way before every epoch"
    facts = {"rows": ROWS.says(), "emulation": SETUP.says(), "others": f"{run.others:.0%}"}
    chart = Chart("A tenth of the state moves", "rows/s", {"rows/s": over_time(run, first)}, at={"moving": 0.0})
    return Outcome("moving", about, facts, ["epochs", "number", "s an epoch", "rows/s"], rows, bars, {"": chart}, [run])


def swap(number: int) -> Step:
    """The numberth unit of either site goes to the other."""

    def ask(query: Any) -> None:
        query.move(number, 1)
        query.move(UNITS - 1 - number, 0)

    return ask
