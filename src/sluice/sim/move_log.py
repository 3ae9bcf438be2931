"""What a simulated cluster moved, and when."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sluice.control.moves import MoveInFlight
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


class MoveLog:
    """All moves in the order in which they were decided."""

    def __init__(self) -> None:
        self.moves: list[TimedMove] = []
        self._last: dict[Unit, int] = {}
        """The place of each unit's last move among all."""

    def begin(self, move: MoveInFlight, now: float) -> None:
        self._last[move.unit] = len(self.moves)
        self.moves.append(TimedMove(now, move.unit, move.source, move.target, move.action.reason))

    def end(self, move: MoveInFlight, now: float) -> None:
        last = self._last[move.unit]
        self.moves[last] = replace(self.moves[last], done=now)
