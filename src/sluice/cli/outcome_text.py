"""What came out of simulated runs, as text: a line a run, and what was moved when and why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from sluice.dashboard.quantity import COUNT, LATENCY, ROWS_PER_SECOND, Quantity
from sluice.sim.disturbance import in_bytes
from sluice.sim.scenario_file import Comparison, Trial

if TYPE_CHECKING:
    from sluice.sim.move_log import TimedMove
    from sluice.sim.simulation import Outcome

SHOWN = 20
COLUMNS = ("policy", "tuples", "last quarter", "latency", "worst interval", "moves", "on disk")


def heading(comparison: Comparison) -> str:
    """The scenario in a line or two."""
    scenario = comparison.scenario
    cluster = (
        f"{scenario.name}: {scenario.sites} sites, {scenario.units_per_site} units of "
        f"{in_bytes(scenario.unit_bytes)} each, {scenario.seconds:g} seconds, seed {scenario.seed}"
    )
    return f"{cluster}\n{comparison.about}" if comparison.about else cluster


def table(outcomes: Sequence[tuple[Trial, Outcome]]) -> str:
    """A line a run."""
    rows = [COLUMNS, *(_row(trial, outcome) for trial, outcome in outcomes)]
    wide = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    return "\n".join(
        "  ".join([row[0].ljust(wide[0]), *(cell.rjust(width) for cell, width in zip(row[1:], wide[1:], strict=True))])
        for row in rows
    )


def _row(trial: Trial, outcome: Outcome) -> tuple[str, ...]:
    numbers = figures(outcome)
    return (
        trial.label,
        _told(ROWS_PER_SECOND, numbers["meanThroughput"]),
        _told(ROWS_PER_SECOND, numbers["lastQuarterThroughput"]),
        _told(LATENCY, numbers["meanLatency"]),
        _told(LATENCY, numbers["worstLatency"]),
        _told(COUNT, numbers["moves"]),
        _told(COUNT, numbers["unitsOnDisk"]),
    )


def figures(outcome: Outcome) -> dict[str, float]:
    """The numbers of a run: tuples a second, seconds, counts; NaN for the latency of no tuples."""
    known = outcome.latency[~np.isnan(outcome.latency)]
    return {
        "meanThroughput": outcome.mean_throughput(),
        "lastQuarterThroughput": outcome.mean_throughput(start=0.75 * outcome.scenario.seconds),
        "meanLatency": outcome.mean_latency(),
        "worstLatency": float(known.max()) if len(known) else math.nan,
        "moves": sum(decision.done is not None for decision in outcome.decisions),
        "unitsOnDisk": int(np.count_nonzero(outcome.spilled)),
    }


def decisions_text(label: str, outcome: Outcome, every: bool) -> str:
    """The time line of a run's decisions: the first of them, or every one."""
    decisions = outcome.decisions
    if not decisions:
        return f"{label}: nothing was moved"
    shown = decisions if every else decisions[:SHOWN]
    left = len(decisions) - len(shown)
    rest = [f"  … and {left:,} more (--decisions shows all)"] if left else []
    count = f"{len(decisions):,} move{'s' if len(decisions) > 1 else ''}"
    return "\n".join([f"{label}: {count} decided", *map(_line, shown), *rest])


def _line(move: TimedMove) -> str:
    under_way = "; still under way at the end" if move.done is None else ""
    where = f"unit {move.unit} from site {move.source} to {move.target}"
    return f"  {move.time:8.3f} s  {where}: {move.reason}{under_way}"


def _told(quantity: Quantity, value: float) -> str:
    return "none" if math.isnan(value) else quantity.text(value)
