"""The runs of a site while an epoch changes them; references only, no bytes."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace

from sluice.model.epoch.segments import Manifest, RunRef, join_parts
from sluice.model.ids import InputNumber
from sluice.model.routing.unit_ranges import Ranges, intersect, subtract


class EpochRuns:
    """State as it was before the epoch, without what has left it; what is frozen; input that waits; and what the epoch
    has written."""

    def __init__(self, before: Iterable[RunRef]) -> None:
        runs = list(before)
        self._state = [run for run in runs if run.is_active]
        self._frozen = [run for run in runs if run.generation]
        self._waiting = [run for run in runs if run.segment.pending]
        self._new: list[RunRef] = []
        self._by_input: dict[InputNumber, list[RunRef]] | None = None

    @property
    def state(self) -> Manifest:
        """The runs of the state of before."""
        return tuple(self._state)

    def state_of(self, input_: InputNumber) -> Sequence[RunRef]:
        """The runs of an input's state of before."""
        if self._by_input is None:
            self._by_input = group_by_input(self._state)
        return self._by_input.get(input_, ())

    @property
    def waiting_inputs(self) -> set[InputNumber]:
        """The inputs with rows of earlier epochs whose turn has not come."""
        return {run.segment.input for run in self._waiting}

    @property
    def frozen(self) -> Manifest:
        """The runs of generations before the present one."""
        return tuple(self._frozen)

    @property
    def waiting(self) -> Manifest:
        """Rows of earlier epochs whose turn has not come."""
        return tuple(self._waiting)

    @property
    def new(self) -> Manifest:
        """What this epoch has written, state and input that waits, in that order."""
        return tuple(self._new)

    def take_waiting(self, input_: InputNumber, units: Ranges) -> list[RunRef]:
        """The rows of some units that waited, the oldest epoch's first; they wait no longer."""
        taken: list[RunRef] = []
        left: list[RunRef] = []
        for run in self._waiting:
            common = intersect(run.units, units) if run.segment.input == input_ else ()
            if common:
                taken.append(replace(run, units=common))
                run = _without(run, units)
            if run.units:
                left.append(run)
        self._waiting = left
        return sorted(taken, key=lambda run: run.segment.id)

    def add(self, run: RunRef) -> None:
        """A new run."""
        self._new.append(run)

    def relabel(self, units: Ranges, generation: int, other: int) -> list[RunRef]:
        """What some units have frozen in one generation is of another one from now on: the runs of it as they are then.
        If that is generation 0, they are state again."""
        parts = [run.of(units) for run in self._frozen if run.generation == generation]
        parts = [replace(part, generation=other) for part in parts if part.units]
        others = (_without(run, units) if run.generation == generation else run for run in self._frozen)
        self._frozen = [run for run in others if run.units]
        into = self._frozen if other else self._state
        self._by_input = None
        into[:] = join_parts([*into, *parts])
        touched = {part.segment.id for part in parts}
        return [run for run in into if run.segment.id in touched and run.generation == other]

    def forget_frozen(self, units: Ranges, segments: Container[str] | None = None) -> None:
        """What some units have frozen, in these segments or in all, is written anew."""
        frozen = (_without(r, units) if segments is None or r.segment.id in segments else r for r in self._frozen)
        self._frozen = [run for run in frozen if run.units]

    def set_aside(self, inputs: Sequence[InputNumber], units: Ranges) -> list[RunRef]:
        """Some units' rows of these inputs are state no longer; the runs that had some, as they are now."""
        left, touched = [], []
        for run in self._state:
            if run.segment.input in inputs and intersect(run.units, units):
                run = _without(run, units)
                touched.append(run)
            if run.units:
                left.append(run)
        self._state, self._by_input = left, None
        return touched

    def let_go(self, is_needed: Callable[[RunRef], bool]) -> list[RunRef]:
        """What is not needed is state no longer; the runs that were."""
        gone = [run for run in self._state if not is_needed(run)]
        if gone:
            self.remove({run.segment.id for run in gone})
        return gone

    def remove(self, segments: set[str]) -> None:
        """These segments are state no longer."""
        self._state, self._by_input = [run for run in self._state if run.segment.id not in segments], None

    def take_out(self, segments: set[str], units: Ranges) -> None:
        """Some units' rows of these segments are state no longer, nor part of what is new."""
        state = (_without(run, units) if run.segment.id in segments else run for run in self._state)
        self._state, self._by_input = [run for run in state if run.units], None
        # a new run stays in its place, with whatever is left of it: segments are named by it
        self._new = [_without(run, units) if run.segment.id in segments else run for run in self._new]


def group_by_input(runs: Iterable[RunRef]) -> dict[InputNumber, list[RunRef]]:
    """Runs by their input, in the order in which they come."""
    by_input: dict[InputNumber, list[RunRef]] = {}
    for run in runs:
        by_input.setdefault(run.segment.input, []).append(run)
    return by_input


def _without(run: RunRef, units: Ranges) -> RunRef:
    return replace(run, units=subtract(run.units, units))
