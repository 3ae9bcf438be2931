"""What a site keeps of each input of its operators: in which columns, of which units, and for how long."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from sluice.kernels.probe import Run
from sluice.model.directory import Directory
from sluice.model.ids import InputNumber
from sluice.model.state import SegmentRef
from sluice.model.unit_ranges import Ranges, intersect, unite_all
from sluice.state.segment import Layout


@dataclass(frozen=True)
class Retention:
    """What may leave the state of an input: rows below `keep_from`, and what `compacted` takes out of merged runs.

    `retention` is for how long rows are needed at most, in the state's time; None is for good. `shrinks` is whether
    merged runs are smaller than the runs were, because of what has been replaced.
    """

    keep_from: int | None
    retention: int | None
    compacted: Callable[[Run], Run]
    shrinks: bool

    def is_expired(self, segment: SegmentRef) -> bool:
        """Whether no row of a segment is needed any more. Input that waits does not expire."""
        return not segment.pending and self.keep_from is not None and segment.latest < self.keep_from


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

    @cached_property
    def unit_numbers(self) -> int:
        """How many entries an array needs to have one for each unit, by its number."""
        return max(directory.range[1] for directory in self.directories.values())

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
