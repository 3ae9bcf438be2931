"""Charts of simulated joins, over minutes: results so far, results a second, memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sluice.dashboard.chart import Axis, Line, Mark, chart
from sluice.dashboard.quantity import BYTES, COUNT, ROWS, ROWS_PER_SECOND
from sluice.sim.worlds.lazy_disk.world import LazyDiskOutcome

LazyDiskOutcomes = Mapping[str, LazyDiskOutcome]

MINUTE = 60.0
_TIME = Axis("minutes", COUNT, low=0.0)


def minutes(outcome: LazyDiskOutcome) -> list[float]:
    times: list[float] = (outcome.times / MINUTE).tolist()
    return times


def results_chart(title: str, outcomes: LazyDiskOutcomes, marks: Sequence[Mark] = (), note: str = "") -> str:
    """Results since the beginning."""
    lines = [Line(name, minutes(one), one.total.tolist()) for name, one in outcomes.items()]
    return chart(title, _TIME, Axis("results so far", ROWS), lines, marks, note)


def rate_chart(title: str, outcomes: LazyDiskOutcomes, marks: Sequence[Mark] = (), note: str = "") -> str:
    """Results a second."""
    lines = [Line(name, minutes(one), one.rate.tolist()) for name, one in outcomes.items()]
    return chart(title, _TIME, Axis("results", ROWS_PER_SECOND), lines, marks, note)


def memory_chart(title: str, lines: Sequence[tuple[str, LazyDiskOutcome, int]], marks: Sequence[Mark] = ()) -> str:
    """State in memory at a site of each of some outcomes."""
    drawn = [Line(name, minutes(one), one.memory[:, site].tolist()) for name, one, site in lines]
    return chart(title, _TIME, Axis("state in memory", BYTES), drawn, marks)


def last(values: np.ndarray) -> float:
    return float(values[-1])
