"""The network while state moves: every transfer gets an equal part of the cross-section, at most a link's rate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sluice.sim.agenda import Agenda

Done = Callable[[], None]


@dataclass
class _Transfer:
    left: float
    done: Done


class Network:
    """Transfers under way."""

    def __init__(self, agenda: Agenda, link_rate: float, cross_rate: float) -> None:
        self.agenda, self.link_rate, self.cross_rate = agenda, link_rate, cross_rate
        self._under_way: list[_Transfer] = []
        self._since = 0.0
        self._plan = 0

    def transfer(self, size: int, done: Done) -> None:
        """Begins to send so many bytes; `done` is called when they have arrived."""
        self._progress()
        self._under_way.append(_Transfer(float(size), done))
        self._look_ahead()

    def _rate(self) -> float:
        return min(self.link_rate, self.cross_rate / max(1, len(self._under_way)))

    def _progress(self) -> None:
        passed = self.agenda.now - self._since
        for one in self._under_way:
            one.left -= passed * self._rate()
        self._since = self.agenda.now

    def _look_ahead(self) -> None:
        """Plans the end of the next transfer; an older plan no longer holds."""
        self._plan += 1
        if self._under_way:
            plan, soonest = self._plan, min(one.left for one in self._under_way)
            self.agenda.after(max(0.0, soonest) / self._rate(), lambda: self._arrived(plan))

    def _arrived(self, plan: int) -> None:
        if plan != self._plan:
            return
        self._progress()
        arrived = [one for one in self._under_way if one.left <= 0.5]
        self._under_way = [one for one in self._under_way if one.left > 0.5]
        self._look_ahead()
        for one in arrived:
            one.done()
