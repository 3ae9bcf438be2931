"""Three sites, one with two thirds of the load, and memory for less than all state even together: what relocation does
for the results and for the cleanup (lazy/active-disk paper, Fig. 12)."""

from __future__ import annotations

from benchmarks.adapt import adaptations, late_results
from benchmarks.adapt.bench import Bench
from benchmarks.adapt.claims import judge, scaled
from benchmarks.adapt.outcome import Outcome
from benchmarks.adapt.rows import Rows, SiteLoad
from benchmarks.adapt.running import Contender, Run
from sluice.figures.claim import ANY, ClaimKind, at_least, at_most
from sluice.figures.lazy_disk_strategies import LAZY_12

MEMORY = 0.2  # of all state at each site, as 100 MB are of the 504 MB that the simulator's hour comes to
LOAD = SiteLoad(units=64, loaded=(64, 16, 16))
ROWS = Rows("scarce", files=48, rows=10_000, keys=160_000, within=None, streams="ABC", load=LOAD)
LAZY = Contender("lazy-disk", "lazy-disk", settings={"theta": 0.8})
NO_RELOCATION = Contender("no-relocation", "no-relocation")
CLAIMS = (
    scaled(
        LAZY_12,
        "above",
        1.05,
        ANY,
        "times the results without relocation, with the same input",
        "twice the memory for two thirds of the units in the middle of the run; 5 % at least is to be seen",
    ),
    scaled(LAZY_12, "all overloaded", 3, ANY, "sites", "the memory is chosen so that it is so"),
    scaled(LAZY_12, "one overloaded", -ANY, 1, "sites", "the memory is chosen so that it is so"),
    at_least(
        "by one",
        "cleanup is done by one machine without relocation",
        0.9,
        "of the sites' time in cleanup is the busiest site's",
        "only one has anything frozen; the others look and find nothing",
    ),
    at_most(
        "by three",
        "evenly by three with it",
        0.45,
        "of the sites' time in cleanup is the busiest site's",
        "a third, and a third of that more: what is frozen where hangs on when units moved",
        0.33,
        ClaimKind.DERIVED,
    ),
    scaled(
        LAZY_12,
        "evenly",
        1.2,
        ANY,
        "times as long without relocation",
        "three sites have two real cores here, so twice at most; ending the query takes everybody as long",
    ),
)


def scarce(bench: Bench) -> Outcome:
    files = bench.epochs(ROWS.files)
    setup, about = adaptations.short_of_memory(ROWS, LOAD, files, MEMORY)
    contenders = (LAZY, NO_RELOCATION)
    runs = {c.name: bench.stage.run(c, ROWS, setup, files) for c in bench.contenders(*contenders)}
    all_runs = list(runs.values())
    head = [
        "contender", "results with all input", "of all", "spills", "sites that spilled", "relocations", "units moved",
        "all input after", "cleanup", "results it found", "of the sites' time in it, by site", "others",
    ]  # fmt: skip
    return Outcome(
        "scarce",
        about,
        {"rows": ROWS.says(files), "results": f"{all_runs[0].results:,}", "emulation": setup.says()},
        head,
        [cells(run) for run in all_runs],
        charts={"": adaptations.results_chart("Memory for 60 % of the state, two thirds at one site", all_runs)},
        runs=all_runs,
        verdicts=judge(CLAIMS, values(runs)) if len(runs) == len(contenders) else (),
    )


def values(runs: dict[str, Run]) -> dict[str, float]:
    lazy, alone = runs[LAZY.name], runs[NO_RELOCATION.name]
    return {
        "above": adaptations.results_in(lazy, 0) / max(1, adaptations.results_in(alone, 0)),
        "all overloaded": float(len(spilling_sites(lazy))),
        "one overloaded": float(len(spilling_sites(alone))),
        "by one": max(cleanup_shares(alone), default=float("nan")),
        "by three": max(cleanup_shares(lazy), default=float("nan")),
        "evenly": late_results.cleanup_seconds(alone) / late_results.cleanup_seconds(lazy),
    }


def spilling_sites(run: Run) -> set[int]:
    return {site for _, site in adaptations.spills(run)}


def cleanup_shares(run: Run) -> list[float]:
    """The part of all sites' time after the last input that each of them worked; nothing where there was no cleanup."""
    after = [epoch.busy for epoch in run.epochs if epoch.number > late_results.last_input(run).number]
    by_site = [sum(busy) for busy in zip(*after, strict=True)]
    return [busy / sum(by_site) for busy in by_site]


def cells(run: Run) -> list[str]:
    results = adaptations.results_in(run, 0)
    return [
        run.contender, f"{results:,}", f"{results / run.results:.0%}", str(len(adaptations.spills(run))),
        str(len(spilling_sites(run))), str(adaptations.relocations(run)), str(run.moves),
        f"{late_results.input_seconds(run):.0f} s", f"{late_results.cleanup_seconds(run):.1f} s",
        f"{late_results.cleaned_up(run):,}", ", ".join(f"{share:.0%}" for share in cleanup_shares(run)),
        f"{run.others:.0%}",
    ]  # fmt: skip
