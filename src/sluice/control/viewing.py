"""The cluster as a policy sees it, from what the epochs of a round add up to."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from sluice.model.epoch.segments import unit_bytes
from sluice.model.epoch.stats import Slices
from sluice.model.ids import Fragment, Unit
from sluice.model.plan.plan import Abilities
from sluice.model.routing.unit_ranges import Ranges, numbers
from sluice.model.view import ClusterView
from sluice.record.epoch import EpochRecord


def view_cluster(
    newest: EpochRecord,
    seconds: float,
    unit_rows: np.ndarray,
    unit_results: np.ndarray,
    unit_first_rows: np.ndarray,
    slices: Slices,
    state_bytes: np.ndarray,
    site_busy: np.ndarray,
    site_memory: Sequence[int],
    site_occupancy: np.ndarray,
    site_done: np.ndarray,
    elapsed: float,
    arriving: float,
    outlook: float,
    abilities: Abilities,
    single_key_units: Collection[Unit],
    unmergeable_units: Collection[Unit],
    unit_size: int,
) -> ClusterView:
    """Sums are over the `seconds` that the busiest sites worked: for what is missing to them a site was idle. Where
    units are, what lies on disk, is frozen and waits is as the newest epoch left it.
    Units with a single key are not split, unmergeable ones not merged."""
    sites = newest.routing.sites
    return ClusterView(
        epoch=newest.number,
        seconds=seconds,
        unit_id=newest.routing.ids.array,
        unit_site=np.array(newest.routing.holders),
        unit_rows=unit_rows,
        unit_bytes=state_bytes,
        unit_spilled=_spilled_units(newest),
        unit_pending=newest.stats.units.pending,
        site_idle=seconds - site_busy,
        site_memory=np.array(site_memory),
        unit_memory=newest.stats.units.memory,
        unit_yielded=newest.stats.units.yielded,
        unit_frozen=unit_bytes((r for m in newest.manifests for r in m if r.generation), newest.routing.units),
        unit_freezable=_units_of(newest, abilities.freezable),
        unit_results=unit_results,
        unit_first_rows=unit_first_rows,
        unit_inputs=_inputs_of_units(newest, abilities),
        unit_unready=_marked(newest.unready_units, newest.routing.units),
        shared=newest.routing.shared,
        slices=slices,
        unit_buddy=_buddies(newest, unmergeable_units),
        unit_single=np.isin(newest.routing.ids.array, list(single_key_units)) | _of_one_hash(newest),
        unit_divisible=_units_of(newest, [f for f in abilities.divisible if newest.routing.directories[f].has_room()]),
        unit_size=unit_size,
        site_occupancy=site_occupancy,
        site_done=site_done,
        elapsed=elapsed,
        arriving=arriving,
        outlook=outlook,
        least_sites=abilities.least_sites if abilities.scalable else sites,
        most_sites=abilities.most_sites if abilities.scalable else sites,
    )


def _buddies(record: EpochRecord, unmergeable_units: Collection[Unit]) -> np.ndarray:
    """The place of the unit with which each can be merged, -1 where there is none."""
    found = np.array([buddy for directory in record.routing.directories for buddy in directory.buddies()])
    found[np.isin(record.routing.ids.array, list(unmergeable_units))] = -1
    return found


def _of_one_hash(record: EpochRecord) -> np.ndarray:
    """Which units are as small as can be."""
    widths = [np.diff(d.least_hashes(np.arange(d.range[0], d.range[1] + 1))) for d in record.routing.directories]
    narrow: np.ndarray = np.concatenate(widths) == 1
    return narrow


def _inputs_of_units(record: EpochRecord, abilities: Abilities) -> np.ndarray:
    """How many inputs the join of each unit has that can be shared."""
    found = np.zeros(record.routing.units, dtype=np.int64)
    for fragment, inputs in abilities.shareable.items():
        found[slice(*record.routing.directories[fragment].range)] = len(inputs)
    return found


def _units_of(record: EpochRecord, fragments: Collection[Fragment]) -> np.ndarray:
    ranges = tuple(record.routing.directories[fragment].range for fragment in sorted(fragments))
    return _marked(ranges, record.routing.units)


def _marked(units: Ranges, count: int) -> np.ndarray:
    """Which of so many units are among these."""
    found = np.zeros(count, dtype=bool)
    found[numbers(units)] = True
    return found


def _spilled_units(record: EpochRecord) -> np.ndarray:
    """Units that lie on disk while their input waits (where the rotation keeps up, none does) or, where disks are
    probed, those of which any state is there."""
    units = record.stats.units
    if not record.queues:
        on_disk: np.ndarray = units.disk > 0
        return on_disk
    spilled = [unit for queue in record.queues for unit in queue.disk]
    waiting: np.ndarray = np.isin(np.arange(record.routing.units), spilled) & (units.pending > 0)
    return waiting
