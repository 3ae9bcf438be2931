"""The units that took most time lately."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sluice.dashboard.page.frames import UnitFrame

MOST_UNITS = 50


@dataclass(frozen=True)
class HotUnits:
    """Units after an epoch, the hottest first: seconds, rows and results over `epochs`, and what each has then."""

    epoch: int
    epochs: int
    unit: list[int]
    site: list[int]
    holders: list[int]
    seconds: list[float]
    rows: list[float]
    results: list[float]
    memory: list[float]
    disk: list[float]
    pending: list[float]


def hot_units(epoch: int, frames: Sequence[UnitFrame]) -> HotUnits:
    """The units of the last of some epochs by the seconds that they took in all of them, then by rows; those with
    nothing to do are left out. A unit that was split counts from then on."""
    if not frames:
        return HotUnits(epoch, 0, *([] for _ in range(9)))
    last = frames[-1]
    order = np.argsort(last.id)
    sums = {name: np.zeros(len(last)) for name in ("seconds", "rows", "results")}
    for frame in frames:
        places = order[np.searchsorted(last.id[order], frame.id).clip(max=max(0, len(last) - 1))]
        here = last.id[places] == frame.id
        for name, total in sums.items():
            total[places[here]] += getattr(frame, name)[here]
    hottest = np.lexsort((-sums["rows"], -sums["seconds"]))[:MOST_UNITS]
    hottest = hottest[(sums["seconds"] + sums["rows"])[hottest] > 0]
    columns = (last.id, last.site, last.holders, *sums.values(), last.memory, last.disk, last.pending)
    return HotUnits(epoch, len(frames), *(column[hottest].tolist() for column in columns))
