"""The units as a policy sees them, from what the epochs of a round add up to."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from sluice.model.epoch.segments import unit_bytes
from sluice.model.ids import Fragment, Unit
from sluice.model.plan.plan import Capabilities
from sluice.model.routing.unit_ranges import Ranges, numbers
from sluice.model.view import UnitTable
from sluice.record.epoch import EpochRecord


def view_units(
    newest: EpochRecord,
    capabilities: Capabilities,
    stream_rows: np.ndarray,
    rows: np.ndarray,
    first_rows: np.ndarray,
    results: np.ndarray,
    state_bytes: np.ndarray,
    single_key_units: Collection[Unit],
    unmergeable_units: Collection[Unit],
) -> UnitTable:
    """The units of the newest epoch, with sums over all epochs of a round. Units with a single key are not split,
    unmergeable ones not merged."""
    routing, stats = newest.routing, newest.stats.units
    has_room = [fragment for fragment in capabilities.divisible if routing.directories[fragment].has_room()]
    return UnitTable(
        site=routing.holders.array,
        id=routing.ids.array,
        rows=rows,
        first_rows=first_rows,
        results=results,
        bytes=state_bytes,
        memory=stats.memory,
        results_produced=stats.results_produced,
        frozen=unit_bytes((r for m in newest.manifests for r in m if r.generation), routing.units),
        freezable=_units_of(newest, capabilities.freezable),
        spilled=_spilled_units(newest),
        pending=stats.pending,
        inputs=_inputs_of_units(newest, capabilities),
        unready=_marked(newest.unready_units, routing.units),
        buddy=_buddies(newest, unmergeable_units),
        divisible=_units_of(newest, has_room),
        single_key=np.isin(routing.ids.array, list(single_key_units)) | _of_one_hash(newest),
        home=capabilities.data_flow.homes(routing, stream_rows),
    )


def _buddies(record: EpochRecord, unmergeable_units: Collection[Unit]) -> np.ndarray:
    """The place of the unit with which each can be merged, -1 where there is none."""
    buddies = np.full(record.routing.units, -1)
    for directory in record.routing.directories:
        buddies[slice(*directory.range)] = directory.buddies()
    buddies[np.isin(record.routing.ids.array, list(unmergeable_units))] = -1
    return buddies


def _of_one_hash(record: EpochRecord) -> np.ndarray:
    """Which units are as small as can be."""
    narrow = np.zeros(record.routing.units, dtype=bool)
    for directory in record.routing.directories:
        first, end = directory.range
        narrow[first:end] = np.diff(directory.least_hashes(np.arange(first, end + 1))) == 1
    return narrow


def _inputs_of_units(record: EpochRecord, capabilities: Capabilities) -> np.ndarray:
    """How many inputs the join of each unit has that can be shared."""
    counts = np.zeros(record.routing.units, dtype=np.int64)
    for fragment, inputs in capabilities.shareable.items():
        counts[slice(*record.routing.directories[fragment].range)] = len(inputs)
    return counts


def _units_of(record: EpochRecord, fragments: Collection[Fragment]) -> np.ndarray:
    ranges = tuple(record.routing.directories[fragment].range for fragment in sorted(fragments))
    return _marked(ranges, record.routing.units)


def _marked(units: Ranges, count: int) -> np.ndarray:
    """Which of so many units are among these."""
    marks = np.zeros(count, dtype=bool)
    marks[numbers(units)] = True
    return marks


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
