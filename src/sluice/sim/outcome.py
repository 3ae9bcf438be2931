"""What was seen of a simulation: what its control loop did, and the measures and curves that every world has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sluice.model.epoch.decision import Decision, Verb
from sluice.model.ids import Site, Unit


@dataclass(frozen=True)
class TimedMove:
    """A move: when it was decided and why, and when it was done (None: the simulation ended before)."""

    time: float
    unit: Unit
    source: Site
    target: Site
    reason: str
    done: float | None = None


@dataclass(frozen=True)
class TimedDecision(Decision):
    """A decision of the control loop, a refused one too, and when it was made."""

    time: float = 0.0


@dataclass(frozen=True)
class Measure:
    """A number of a run: its heading in a table, its name in a file, and what it counts."""

    heading: str
    name: str
    value: float
    unit: str = ""


@dataclass(frozen=True)
class Curve:
    """Something over the time of a run: its name, what is on its axis, and a value for each time."""

    name: str
    label: str
    unit: str
    values: np.ndarray
    log: bool = False


@dataclass(frozen=True, kw_only=True)
class ControlRecord:
    """What the control loop of a run did. `moves` are in the order in which they were decided, `unit_sites` is where
    units were in the end."""

    policy: str
    moves: tuple[TimedMove, ...] = ()
    decisions: tuple[TimedDecision, ...] = ()
    rounds: int = 0
    moved_bytes: float = 0.0
    unit_sites: tuple[Site, ...] = ()

    @property
    def timeline(self) -> list[TimedMove | TimedDecision]:
        """What was decided and not refused, in the order of time."""
        others = [one for one in self.decisions if one.action is not Verb.MOVE and one.refused is None]
        return sorted([*self.moves, *others], key=lambda one: one.time)


@dataclass(frozen=True, kw_only=True)
class Outcome(ControlRecord, ABC):
    """What was seen of a run: what the loop did, and what each world has beside it."""

    @property
    @abstractmethod
    def times(self) -> np.ndarray:
        """When the values of curves were measured, in seconds."""

    @property
    @abstractmethod
    def measures(self) -> Sequence[Measure]:
        """The numbers by which runs are compared."""

    @property
    @abstractmethod
    def curves(self) -> Sequence[Curve]:
        """What charts show, one a curve."""

    def within(self, start: float, end: float) -> np.ndarray:
        """Which of the times lie in a part of the run."""
        within: np.ndarray = (self.times > start + 1e-9) & (self.times <= end + 1e-9)
        return within
