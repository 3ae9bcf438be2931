"""What a site keeps of each input of its operators: in which columns, of which units, and for how long."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sluice.kernels.probe import Run
from sluice.model.epoch.segments import RunRef
from sluice.model.ids import InputNumber
from sluice.model.routing.directory import Directory
from sluice.model.routing.unit_ranges import Ranges, intersect, to_ranges, unite_all
from sluice.state.segment import Layout

KEEPS_ALL = int(np.iinfo(np.int64).min)
"""In place of the time from which rows are kept: nothing expires."""


@dataclass(frozen=True, eq=False)
class Retention:
    """What may leave the state of an input, by unit: rows below the unit's entry in `keep_from`, and what `compacting`
    takes out of merged runs, which has a function for the units that have come equally far.

    `retention` is for how long rows are needed at most, in the state's time; None is for good. `shrinks` is whether
    merged runs are smaller than the runs were, because of what has been replaced.
    """

    directory: Directory
    keep_from: np.ndarray
    """By the places of the units, from 0 on; `KEEPS_ALL` where nothing expires, the latest time where a unit is not
    held."""
    compacting: tuple[tuple[Ranges, Callable[[Run], Run]], ...]
    retention: int | None
    shrinks: bool

    def needed_part(self, run: RunRef) -> RunRef | None:
        """What of a run is of units that may need it still, None if nothing is. Input that waits does not expire."""
        latest = run.segment.latest
        if run.segment.pending or latest >= self._latest_bound:
            return run
        units, rows = run.unit_rows
        needed = self.keep_from[units] <= latest
        if needed.all():
            return run
        return RunRef(run.segment, to_ranges(units[needed].tolist()), run.generation) if rows[needed].any() else None

    def expired_part(self, run: RunRef) -> np.ndarray:
        """Which part of its rows each unit of a run does not need any more, by the run's earliest, middle and latest
        time."""
        segment = run.segment
        times = [segment.earliest, segment.middle, segment.latest]
        expired: np.ndarray = np.interp(self.keep_from[run.unit_rows[0]], times, [0.0, 0.5, 1.0])
        return expired

    def earliest_needed(self, run: RunRef) -> int | None:
        """From which time on a unit of a run needs rows; None is from any time on."""
        if self._earliest_bound == self._latest_bound:
            return None if self._latest_bound == KEEPS_ALL else self._latest_bound
        earliest = int(self.keep_from[run.unit_rows[0]].min(initial=self._latest_bound))
        return None if earliest == KEEPS_ALL else earliest

    def bounds_of(self, runs: Sequence[Run]) -> int | np.ndarray | None:
        """From which time on each row of some runs is needed, by its unit: one number where it is the same for all
        units, None where nothing expires."""
        first, end = self.directory.range
        bounds = self.keep_from[first:end]
        if bounds.min() < bounds.max():
            return np.concatenate([self.keep_from[self.directory.unit_of(run.hashes)] for run in runs])
        return None if bounds[0] == KEEPS_ALL else int(bounds[0])

    @cached_property
    def _latest_bound(self) -> int:
        first, end = self.directory.range
        return int(self.keep_from[first:end].max())

    @cached_property
    def _earliest_bound(self) -> int:
        first, end = self.directory.range
        return int(self.keep_from[first:end].min())


@dataclass(frozen=True)
class InputLayouts:
    """What the segments of an input hold: rows of its state, and rows as they come in, whose turn has not come."""

    state: Layout
    pending: Layout


@dataclass(frozen=True)
class Holdings:
    """What a site holds at one level: the state of these `units`, by input. Inputs have the directory of their
    fragment."""

    layouts: Mapping[InputNumber, InputLayouts]
    units: Ranges
    directories: Mapping[InputNumber, Directory]
    freezable: tuple[InputNumber, ...] = ()
    """Inputs of operators whose units can be frozen."""

    @property
    def inputs(self) -> Collection[InputNumber]:
        """The inputs of whose state something is held."""
        return self.layouts.keys()

    @cached_property
    def unit_numbers(self) -> int:
        """How many entries an array needs to have one for each unit, by its place."""
        return max((directory.range[1] for directory in self.directories.values()), default=0)

    @cached_property
    def freezable_units(self) -> Ranges:
        """The units that are held and can be frozen."""
        return intersect(self.units, unite_all(self.directories[input_].range for input_ in self.freezable))

    def units_of(self, input_: InputNumber) -> Ranges:
        """The units held of an input's fragment."""
        return intersect(self.units, (self.directories[input_].range,))

    def layout_of(self, input_: InputNumber, pending: bool) -> Layout:
        """What the segments of an input hold."""
        return self.layouts[input_].pending if pending else self.layouts[input_].state
