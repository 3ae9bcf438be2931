"""What a run's sites and its policy did: spills, relocations, and the state in memory that came of them.

The clock here is the epoch, one file of each stream: how much a site has in memory, and what it finds, is then a matter
of its input alone, however fast the machine is.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.adapt.bench import ROW_BYTES, SLOW_DISK
from benchmarks.adapt.epochs import Epoch
from benchmarks.adapt.outcome import Chart
from benchmarks.adapt.rows import Rows, SiteLoad
from benchmarks.adapt.running import Run, Setup


def short_of_memory(rows: Rows, load: SiteLoad, files: int, part: float) -> tuple[Setup, str]:
    """Sites that may each use a part of all state that so many files come to, with a slow disk; and that in words."""
    limit = int(files * rows.rows * len(rows.streams) * ROW_BYTES * part)
    setup = Setup(len(load.loaded), load.all_units, options={"siteMemory": str(limit)}, disk=SLOW_DISK)
    about = (
        f"each site may use {limit / 2**20:.1f} MiB, {part:.0%} of all state; site 0 begins with "
        f"{load.loaded[0] / sum(load.loaded):.0%} of the load. Results are compared with the same input. All answers "
        f"are DuckDB's in the end"
    )
    return setup, about


def spills(run: Run) -> list[tuple[int, int]]:
    """(epoch, site) of every time that a site froze units, however many at a time."""
    freezes = (d for d in run.decisions if d["action"] == "freeze" and not d["refused"])
    return sorted({(d["epoch"], d["site"]) for d in freezes})


def relocations(run: Run) -> int:
    """Rounds in which the policy had units moved, however many at a time."""
    return len({d["epoch"] for d in run.decisions if d["action"] == "move" and not d["refused"]})


def input_epochs(run: Run) -> list[Epoch]:
    """The epochs that took in rows; what comes after them is cleanup."""
    return [epoch for epoch in run.epochs if epoch.rows]


def results_in(run: Run, first: int, last: int | None = None) -> int:
    """Results of the epochs with input from the `first` on, up to but not including the `last`."""
    return sum(epoch.results for epoch in input_epochs(run)[first:last])


def highest_memory(run: Run) -> float:
    """The most that a site had in memory at the end of any epoch with input, as a multiple of what it may have."""
    return max(
        used / limit for epoch in input_epochs(run) for used, limit in zip(epoch.memory, epoch.limits, strict=True)
    )


def evenness(epoch: Epoch) -> float:
    """What the site with least state in memory has of what that with most has."""
    return min(epoch.memory) / max(1, *epoch.memory)


def memory_by_site(epoch: Epoch) -> str:
    """What each site has in memory, in words."""
    return ", ".join(f"{used / 2**20:.1f}" for used in epoch.memory) + " MiB"


def results_chart(title: str, runs: Sequence[Run]) -> Chart:
    """Results so far, epoch by epoch while input comes in."""
    lines = {}
    for run in runs:
        total, points = 0, []
        for epoch in input_epochs(run):
            total += epoch.results
            points.append((float(epoch.number), float(total)))
        lines[run.contender] = points
    return Chart(title, "results", lines, x="epochs")


def memory_chart(title: str, lines: Sequence[tuple[str, Run, int]]) -> Chart:
    """State in memory at the end of every epoch, at a site of each of some runs."""
    drawn = {
        name: [(float(epoch.number), float(epoch.memory[site])) for epoch in input_epochs(run)]
        for name, run, site in lines
    }
    return Chart(title, "bytes in memory", drawn, x="epochs")
