"""What a run has found by when, where some results come late: while input comes in, and by cleaning up after it.

Time begins with the commit of the first epoch: what a query takes to start is nobody's merit.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.adapt.epochs import Epoch
from benchmarks.adapt.outcome import Chart
from benchmarks.adapt.running import Run


def last_input(run: Run) -> Epoch:
    """The epoch with which all input had been taken in."""
    return next(epoch for epoch in reversed(run.epochs) if epoch.rows)


def input_seconds(run: Run) -> float:
    """How long it took until all input had been taken in."""
    return last_input(run).committed - run.epochs[0].committed


def first_to_take_all(runs: Sequence[Run]) -> float:
    """When the fastest of some runs had taken in all input: the moment at which they are compared."""
    return min(input_seconds(run) for run in runs)


def until(run: Run, seconds: float) -> list[Epoch]:
    """The epochs that had been committed by then."""
    return [epoch for epoch in run.epochs if epoch.committed - run.epochs[0].committed <= seconds]


def output(run: Run, seconds: float) -> int:
    """The results that were there by then."""
    return sum(epoch.results for epoch in until(run, seconds))


def taken_in(run: Run, seconds: float) -> float:
    """The part of all rows that had been taken in by then."""
    return sum(epoch.rows for epoch in until(run, seconds)) / sum(epoch.rows for epoch in run.epochs)


def cleanup_seconds(run: Run) -> float:
    """From the last input to the end of the query, when nothing is missing."""
    return run.ended - last_input(run).committed


def cleaned_up(run: Run) -> int:
    """The results that came after the last input."""
    return sum(epoch.results for epoch in run.epochs if epoch.number > last_input(run).number)


def found_with_input(run: Run) -> float:
    """The part of all results that were there with the last input, however long that took: the machine's speed, and
    who else uses it, is no part of it."""
    return 1 - cleaned_up(run) / max(1, run.results)


def state_bytes(run: Run) -> int:
    """The state of all sites when all input had been taken in, wherever it lay."""
    return last_input(run).durable


def most_in_memory(run: Run) -> float:
    """The most that any site had in memory at any moment, as a multiple of what it may have."""
    limits = run.epochs[0].limits
    held = [sample for _, sample in run.resident] or [epoch.memory for epoch in run.epochs]
    return max(here / limit for sample in held for here, limit in zip(sample, limits, strict=True))


def over_time(title: str, runs: Sequence[Run], compared: float) -> Chart:
    """The results so far, of every run."""
    lines = {}
    for run in runs:
        begun, so_far, points = run.epochs[0].committed, 0, []
        for epoch in run.epochs:
            so_far += epoch.results
            points.append((epoch.committed - begun, float(so_far)))
        lines[run.contender] = points
    return Chart(title, "results", lines, at={"compared": compared})
