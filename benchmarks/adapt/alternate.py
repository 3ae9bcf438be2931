"""Two sites with memory for everything, one of which gets ten times the rows of the other, in turns: how often state is
relocated by which threshold, and what that costs (lazy/active-disk paper, Fig. 9 and 10)."""

from __future__ import annotations

from itertools import pairwise
from statistics import mean

from benchmarks.adapt import adaptations
from benchmarks.adapt.bench import AMPLE, Bench
from benchmarks.adapt.claims import judge, scaled
from benchmarks.adapt.outcome import Outcome
from benchmarks.adapt.rows import Rows, SiteLoad, Surge
from benchmarks.adapt.running import COLLECT, Contender, Run, Setup
from sluice.figures.claim import ANY, at_least
from sluice.figures.lazy_disk_relocation import LAZY_9

SKIPPED = 2  # epochs at the start of a run that load code
SETTLED = 8  # epochs after which memory is looked at, the paper's ten minutes
LOAD = SiteLoad(units=48, loaded=(48, 48), surge=Surge(times=10, first=4, files=8))
ROWS = Rows("alternating", files=48, rows=10_000, keys=120_000, within=None, streams="ABC", load=LOAD)
SETUP = Setup(len(LOAD.loaded), LOAD.all_units, options={"siteMemory": AMPLE})
NO_RELOCATION = Contender("no relocation", "static")
BY_THETA = {
    theta: Contender(f"θ {100 * theta:.0f} %", "lazy-disk", settings={"theta": theta}) for theta in (0.5, 0.7, 0.9)
}
FEW, MANY = min(BY_THETA), max(BY_THETA)
CLAIMS = (
    scaled(
        LAZY_9,
        "same",
        0.93,
        1.25,
        "of the rows a second without relocation, epoch by epoch in turns, smallest",
        "what a move copies may make an epoch a tenth longer; a load spread over two real cores makes it shorter",
    ),
    scaled(LAZY_9, "few", 1, 4, "relocations", "as in the simulator: after two of them the busy units are spread"),
    scaled(
        LAZY_9,
        "many",
        6,
        24,
        "relocations",
        "a round takes two or three epochs on Spark: 48 epochs have room for 16 to 24, and a third of them are used",
    ),
    at_least(
        "grows",
        "a larger θ has more relocations",
        0,
        "relocations more than with the next smaller θ, smallest",
        "between neighbours equally many may be chance; the claims on the smallest and the largest part them",
    ),
    scaled(
        LAZY_9,
        "balanced",
        0.8,
        ANY,
        f"of the fuller site's at the other, mean after {SETTLED} epochs",
        "a round takes a third of a turn of eight epochs, where the paper's 45 seconds are a thirteenth of it",
    ),
    scaled(
        LAZY_9,
        "alternates",
        -ANY,
        0.7,
        f"of the fuller site's at the other, smallest after {SETTLED} epochs",
        "after 12 epochs site 0 has had 48 parts and site 1 84: 0.57",
    ),
)


def alternate(bench: Bench) -> Outcome:
    files = bench.epochs(ROWS.files)
    contenders = (NO_RELOCATION, *BY_THETA.values())
    in_turns = bench.stage.in_turns(bench.contenders(*contenders), ROWS, SETUP, files)
    runs = {run.contender: run for run in in_turns}
    about = (
        f"all state fits into memory; statistics are collected for {COLLECT} at least before units are relocated. The "
        f"contenders take turns epoch by epoch. How even memory is, is what the site with least has of what that with "
        f"most has, after the first {SETTLED} epochs. All answers are DuckDB's in the end"
    )
    head = ["contender", "rows/s", "relocations", "units moved", "memory even, mean", "at worst", "others"]
    shown = {name: runs[name] for name in (NO_RELOCATION.name, BY_THETA[MANY].name) if name in runs}
    charts = {
        "": adaptations.results_chart("Load that alternates between two sites: results so far", in_turns),
        "memory": adaptations.memory_chart(
            "Load that alternates between two sites: memory",
            [(f"{name}, site {site}", run, site) for name, run in shown.items() for site in (0, 1)],
        ),
    }
    return Outcome(
        "alternate",
        about,
        {"rows": ROWS.says(files), "results": f"{in_turns[0].results:,}", "emulation": SETUP.says()},
        head,
        [cells(run) for run in in_turns],
        charts=charts,
        runs=in_turns,
        verdicts=judge(CLAIMS, values(runs)) if len(runs) == len(contenders) else (),
    )


def values(runs: dict[str, Run]) -> dict[str, float]:
    alone, by_theta = runs[NO_RELOCATION.name], {theta: runs[c.name] for theta, c in BY_THETA.items()}
    counts = {theta: adaptations.relocations(run) for theta, run in by_theta.items()}
    return {
        "same": min(throughput(run) / throughput(alone) for run in by_theta.values()),
        "few": float(counts[FEW]),
        "many": float(counts[MANY]),
        "grows": float(min(larger - smaller for smaller, larger in pairwise(counts.values()))),
        "balanced": mean(evenness(by_theta[MANY])),
        "alternates": min(evenness(alone)),
    }


def throughput(run: Run) -> float:
    """Rows a second over all epochs together: a median would leave out those in which units move."""
    epochs = run.epochs[SKIPPED:]
    return sum(epoch.rows for epoch in epochs) / sum(epoch.seconds for epoch in epochs)


def evenness(run: Run) -> list[float]:
    epochs = run.epochs[SETTLED:] or run.epochs
    return [adaptations.evenness(epoch) for epoch in epochs]


def cells(run: Run) -> list[str]:
    even = evenness(run)
    return [
        run.contender, f"{throughput(run):,.0f}", str(adaptations.relocations(run)), str(run.moves),
        f"{mean(even):.2f}", f"{min(even):.2f}", f"{run.others:.0%}",
    ]  # fmt: skip
