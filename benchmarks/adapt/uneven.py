"""Three sites that begin with 60 %, 20 % and 20 % of the load, and memory for all of it in all but not at the first
site: it freezes state, or gives it to the others (lazy/active-disk paper, Fig. 11)."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

from benchmarks.adapt import adaptations, late_results
from benchmarks.adapt.bench import AMPLE, Bench
from benchmarks.adapt.claims import judge, scaled
from benchmarks.adapt.outcome import Outcome
from benchmarks.adapt.rows import Rows, SiteLoad
from benchmarks.adapt.running import Contender, Run
from sluice.figures.claim import ANY, ClaimKind
from sluice.figures.lazy_disk_relocation import LAZY_11

MEMORY = 0.4  # of all state at each site, as 200 MB are of the 504 MB that the simulator's hour comes to
FIVE_MINUTES, TEN_MINUTES = 4, 8  # epochs, where 48 of them are the paper's hour
LOAD = SiteLoad(units=60, loaded=(60, 20, 20))
ROWS = Rows("uneven", files=48, rows=6_000, keys=86_400, within=None, streams="ABC", load=LOAD)
ALL_IN_MEMORY = Contender("all in memory", "static", {"siteMemory": AMPLE})
WITH = Contender("lazy-disk", "lazy-disk", settings={"theta": 0.8})
WITHOUT = Contender("no-relocation", "no-relocation")
CLAIMS = (
    replace(
        scaled(LAZY_11, "full", 37.5, 42.5, "minutes", "the memory is chosen to meet it; an epoch is 1.25 minutes"),
        kind=ClaimKind.FITTED,
    ),
    scaled(
        LAZY_11,
        "drops",
        -ANY,
        0.95,
        f"of the results with relocation, in the {FIVE_MINUTES} epochs after the first spill",
        "30 % of the state of a site with 60 % of the units: about 0.18 of the results, less what yields little",
    ),
    scaled(
        LAZY_11,
        "stays down",
        -ANY,
        0.85,
        f"of the results with relocation, in the last {TEN_MINUTES} epochs",
        "by then state was frozen a second time",
    ),
    scaled(LAZY_11, "no spill", -ANY, 0, "spills", "all state in 1.2 times the memory, and θ is 0.8"),
    scaled(
        LAZY_11,
        "maximal",
        0.98,
        1.01,
        "of the results of all in memory so far, after the epoch with the least",
        "a unit that moves has a site in every epoch, so nothing is late",
    ),
)


def uneven(bench: Bench) -> Outcome:
    files = bench.epochs(ROWS.files)
    setup, about = adaptations.short_of_memory(ROWS, LOAD, files, MEMORY)
    contenders = (ALL_IN_MEMORY, WITH, WITHOUT)
    runs = {c.name: bench.stage.run(c, ROWS, setup, files) for c in bench.contenders(*contenders)}
    all_runs = list(runs.values())
    head = [
        "contender", "results with all input", "of all", "first spill in epoch", "spills", "relocations",
        "units moved", "in memory at the end, by site", "all input after", "cleanup", "others",
    ]  # fmt: skip
    return Outcome(
        "uneven",
        about,
        {"rows": ROWS.says(files), "results": f"{all_runs[0].results:,}", "emulation": setup.says()},
        head,
        [cells(run) for run in all_runs],
        charts={"": adaptations.results_chart("60 % of the load at one of three sites: results so far", all_runs)},
        runs=all_runs,
        verdicts=judge(CLAIMS, values(runs, files)) if len(runs) == len(contenders) else (),
    )


def values(runs: dict[str, Run], files: int) -> dict[str, float]:
    every, with_it, without = (runs[c.name] for c in (ALL_IN_MEMORY, WITH, WITHOUT))
    spills = adaptations.spills(without)
    full = spills[0][0] if spills else files
    shortly = full + 1, full + 1 + FIVE_MINUTES
    return {
        "full": (full + 1) * 60 / files if spills else float("nan"),
        "drops": part_of(without, with_it, *shortly),
        "stays down": part_of(without, with_it, files - TEN_MINUTES, files),
        "no spill": float(len(adaptations.spills(with_it))),
        "maximal": min(here / max(1, there) for here, there in zip(so_far(with_it), so_far(every), strict=True)),
    }


def part_of(run: Run, other: Run, first: int, last: int) -> float:
    """The results of some epochs, as a part of the other's; not a number where there are none."""
    theirs = adaptations.results_in(other, first, last)
    return adaptations.results_in(run, first, last) / theirs if theirs else float("nan")


def so_far(run: Run) -> list[int]:
    """The results that were there after each epoch with input."""
    return list(accumulate(epoch.results for epoch in adaptations.input_epochs(run)))


def cells(run: Run) -> list[str]:
    results, spills = adaptations.results_in(run, 0), adaptations.spills(run)
    return [
        run.contender, f"{results:,}", f"{results / run.results:.0%}", str(spills[0][0]) if spills else "-",
        str(len(spills)), str(adaptations.relocations(run)), str(run.moves),
        adaptations.memory_by_site(late_results.last_input(run)),
        f"{late_results.input_seconds(run):.0f} s", f"{late_results.cleanup_seconds(run):.1f} s", f"{run.others:.0%}",
    ]  # fmt: skip
