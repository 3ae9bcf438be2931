"""The network while state moves: no transfer is faster than a link, and those from one half of the sites to the other
share the cross-section."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sluice.sim.event_queue import EventQueue

Done = Callable[[], None]


@dataclass
class _Transfer:
    left: float
    crosses: bool
    done: Done


class Network:
    """Transfers under way."""

    def __init__(self, events: EventQueue, sites: int, link_rate: float, cross_rate: float) -> None:
        self.events, self.middle, self.link_rate, self.cross_rate = events, sites // 2, link_rate, cross_rate
        self._under_way: list[_Transfer] = []
        self._since = 0.0
        self._plan = 0

    def transfer(self, source: int, target: int, size: int, done: Done) -> None:
        """Begins to send so many bytes; `done` is called when they have arrived."""
        self._progress()
        crosses = (source < self.middle) != (target < self.middle)
        self._under_way.append(_Transfer(float(size), crosses, done))
        self._look_ahead()

    def _rate(self, one: _Transfer) -> float:
        if not one.crosses:
            return self.link_rate
        return min(self.link_rate, self.cross_rate / sum(other.crosses for other in self._under_way))

    def _progress(self) -> None:
        passed = self.events.now - self._since
        for one, rate in [(one, self._rate(one)) for one in self._under_way]:
            one.left -= passed * rate
        self._since = self.events.now

    def _look_ahead(self) -> None:
        """Plans the end of the next transfer; an older plan no longer holds."""
        self._plan += 1
        if self._under_way:
            plan, soonest = self._plan, min(max(0.0, one.left) / self._rate(one) for one in self._under_way)
            self.events.after(soonest, lambda: self._arrived(plan))

    def _arrived(self, plan: int) -> None:
        if plan != self._plan:
            return
        self._progress()
        arrived = [one for one in self._under_way if one.left <= 0.5]
        self._under_way = [one for one in self._under_way if one.left > 0.5]
        self._look_ahead()
        for one in arrived:
            one.done()
