"""State under another routing: which site has which runs from now on. References change hands, no data moves yet.

What a unit's one holder had goes to the next one. Where units are shared, a site keeps what it stored as long as it is
one of the holders; only where holders stand on a grid, before or after, their runs are dealt out anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sluice.model.epoch.segments import Manifest, RunRef, join_parts
from sluice.model.ids import InputNumber, Site, Unit, UnitIndex
from sluice.model.routing.routing import Routing
from sluice.model.routing.sharing import SharedUnit
from sluice.model.routing.unit_ranges import Ranges, divide, holds, single_unit, subtract


def reassign(manifests: Sequence[Manifest], before: Routing, routing: Routing) -> tuple[Manifest, ...]:
    """The manifests of one routing under another: runs are split along the units' new sites.

    Runs whose units all stay are left as they are. Most runs of a site are of the same units: those are divided once.
    """
    dealt = _dealt_anew(before, routing)
    staying: list[list[RunRef]] = [[] for _ in range(max(routing.sites, len(manifests)))]
    arriving: list[list[RunRef]] = [[] for _ in staying]
    divided: dict[Ranges, dict[Site, Ranges]] = {}
    holders = routing.holders.array
    for site, manifest in enumerate(manifests):
        if routing.shared:
            holders, divided = _holders_for(Site(site), routing), {}
        for run in manifest:
            parts = divided.get(run.units)
            if parts is None:
                parts = divided[run.units] = divide(subtract(run.units, dealt) if dealt else run.units, holders)
            if parts.keys() == {site} and parts[Site(site)] == run.units:
                staying[site].append(run)
            else:
                for target, units in parts.items():
                    arriving[target].append(replace(run, units=units))
    for low, _ in dealt:
        for target, runs in _redistribute_runs(manifests, before, routing, low).items():
            arriving[target] += runs
    return tuple(_unite_parts(staying[site], arriving[site]) for site in range(routing.sites))


def reassign_unit(
    manifests: Sequence[Manifest], before: Routing, routing: Routing, unit: Unit
) -> tuple[tuple[RunRef, ...], ...]:
    """The runs of one unit at each site, as `reassign` has them, without a look at any other unit."""
    index = before.index_of(unit)
    if before.sharing(unit) == routing.sharing(unit) and before.holder(unit) == routing.holder(unit):
        alone = single_unit(index)
        return tuple(tuple(run.of(alone) for run in m if holds(run.units, index)) for m in manifests)
    dealt = _redistribute_runs(manifests, before, routing, index)
    return tuple(tuple(dealt.get(Site(site), ())) for site in range(routing.sites))


def _unite_parts(staying: list[RunRef], arriving: list[RunRef]) -> Manifest:
    """A site's runs; if any arrive all are in order, and parts of one segment are one run."""
    return join_parts([*staying, *arriving]) if arriving else tuple(staying)


def _holders_for(site: Site, routing: Routing) -> np.ndarray:
    """Where a site's runs of each unit are from now on: of shared ones here, if it is a holder."""
    holders = routing.holders.array.copy()
    for sharing in routing.shared:
        if site in sharing.holders:
            holders[routing.index_of(sharing.unit)] = site
    return holders


def _dealt_anew(before: Routing, routing: Routing) -> Ranges:
    """The units, each as a range, whose runs do not simply stay or follow the unit: on a grid there are copies."""
    units = {routing.index_of(sharing.unit): sharing.unit for sharing in (*before.shared, *routing.shared)}
    pairs = [(index, before.sharing(unit), routing.sharing(unit)) for index, unit in sorted(units.items())]
    return tuple(single_unit(index)[0] for index, old, new in pairs if old != new and (_is_grid(old) or _is_grid(new)))


def _is_grid(sharing: SharedUnit | None) -> bool:
    return sharing is not None and bool(sharing.grid_shape)


def _redistribute_runs(
    manifests: Sequence[Manifest], before: Routing, routing: Routing, index: UnitIndex
) -> dict[Site, list[RunRef]]:
    """A unit's runs, each once, at those who are to have them."""
    unit = routing.unit_at(index)
    runs_by_site: dict[Site, list[RunRef]] = {}
    by_input: dict[InputNumber, list[tuple[Site, RunRef]]] = {}
    for site, run in _distinct(manifests, before.sharing(unit), index):
        by_input.setdefault(run.segment.input, []).append((site, run))
    sharing = routing.sharing(unit)
    for input_, runs in by_input.items():
        if sharing is not None and sharing.grid_shape:
            placed = _grid_places(sharing, input_, runs)
        else:
            placed = _single_places(routing, unit, runs)
        for run, sites in placed:
            for site in sites:
                runs_by_site.setdefault(site, []).append(run)
    return runs_by_site


def _distinct(manifests: Sequence[Manifest], sharing: SharedUnit | None, index: UnitIndex) -> list[tuple[Site, RunRef]]:
    """A unit's runs and where they are; of those along a line of a grid, which all have the same rows, the first's."""
    alone = single_unit(index)
    runs = [
        (Site(site), run.of(alone))
        for site, manifest in enumerate(manifests)
        for run in manifest
        if holds(run.units, index)
    ]
    if sharing is None or not sharing.grid_shape:
        return runs
    first = {
        input_: {sharing.storing(input_, line)[0] for line in range(sharing.line_count(input_))}
        for input_ in sharing.inputs
    }
    return [(site, run) for site, run in runs if site in first[run.segment.input]]


def _single_places(
    routing: Routing, unit: Unit, runs: Sequence[tuple[Site, RunRef]]
) -> list[tuple[RunRef, tuple[Site, ...]]]:
    """The one site that has each run: where it was, if that is a holder, else the first."""
    holders = routing.holders_of(unit)
    return [(run, (site if site in holders else holders[0],)) for site, run in runs]


def _grid_places(
    sharing: SharedUnit, input_: InputNumber, runs: Sequence[tuple[Site, RunRef]]
) -> list[tuple[RunRef, tuple[Site, ...]]]:
    """The sites that have each of an input's runs: those along a line, so that all lines have about as many bytes."""
    loads = [0.0] * sharing.line_count(input_)
    placed = []
    for _, run in sorted(runs, key=lambda entry: (-entry[1].bytes, entry[1].segment.id)):
        line = loads.index(min(loads))
        loads[line] += run.bytes
        placed.append((run, sharing.storing(input_, line)))
    return placed
