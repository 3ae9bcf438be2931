"""What has to be known of units before they are split: which hashes their rows have, and how many are below some."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from sluice.kernels.order import hash_part
from sluice.kernels.probe import Run
from sluice.model.ids import Unit
from sluice.model.redivision import Cut, CutPlan, UnitFindings, UnitWeight
from sluice.model.state import Manifest, RunRef
from sluice.model.unit_ranges import intersect, only

SAMPLE = 4096
"""About as many rows of a unit are looked at to find its most frequent hash: one that most rows have is found by
far fewer."""
Opening = Callable[[RunRef], list[Run]]


def look_at_units(manifest: Manifest, weigh: Iterable[Unit], cut: Iterable[CutPlan], open_run: Opening) -> UnitFindings:
    """Weigh some units, and count the rows of others below some hashes; `open_run` brings a run's rows."""
    weights = [weight for unit in weigh for weight in _weigh(unit, _runs_of(unit, manifest), open_run)]
    cuts = [found for plan in cut for found in _cut(plan, _runs_of(plan.unit, manifest), open_run)]
    return UnitFindings(tuple(weights), tuple(cuts))


def _runs_of(unit: Unit, manifest: Manifest) -> list[RunRef]:
    alone = only(unit)
    runs = (run.of(alone) for run in manifest if intersect(run.units, alone))
    return [run for run in runs if run.rows]


def _weigh(unit: Unit, runs: Iterable[RunRef], open_run: Opening) -> list[UnitWeight]:
    """Nothing if the unit has no row."""
    parts = [part for run in runs for part in open_run(run) if len(part)]
    if not parts:
        return []
    rows = sum(len(part) for part in parts)
    step = -(-rows // SAMPLE)
    sampled = hash_part(np.concatenate([part.order[::step] for part in parts]))
    hashes, of = np.unique(sampled, return_inverse=True)
    stands_for = np.concatenate([np.diff(np.arange(0, len(part) + step, step).clip(max=len(part))) for part in parts])
    frequent = int(hashes[np.bincount(of, weights=stands_for).argmax()])
    return [
        UnitWeight(
            unit=unit,
            rows=rows,
            least=min(part.hash_span[0] for part in parts),
            greatest=max(part.hash_span[1] for part in parts),
            frequent=frequent,
            frequent_rows=sum(_below(part, frequent + 1) - _below(part, frequent) for part in parts),
        )
    ]


def _cut(plan: CutPlan, runs: Iterable[RunRef], open_run: Opening) -> list[Cut]:
    found: dict[tuple[str, int], int] = {}
    for run in runs:
        for part in open_run(run):
            for edge in plan.edges:
                key = run.segment.id, edge
                found[key] = found.get(key, 0) + _below(part, edge)
    return [Cut(segment, plan.unit, edge, below) for (segment, edge), below in found.items()]


def _below(part: Run, edge: int) -> int:
    """How many rows have hashes below one; the end of all hashes has 33 bits, and all are below it."""
    return len(part) if edge >> 32 else int(np.searchsorted(part.order, np.uint64(edge) << np.uint64(32)))
