"""The state of a simulated window join: how far each cell's tuples have been sent and joined, and by which site.

Tuples of a cell are joined in the order of their slots. So what is in its windows when those of a slot are joined hangs
on the slot alone, whoever joins them and however late: the tuples of the slots before it, one window's length. The
state of a cell is two numbers, the slots that were sent and those that were joined.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sluice.model.errors import ScenarioError
from sluice.model.ids import Site, Unit
from sluice.model.routing.routing import Routing
from sluice.sim.worlds.window_joins.cells import FINEST, Cells, arrivals
from sluice.sim.worlds.window_joins.scenario import WindowJoinScenario


@dataclass(frozen=True)
class Jobs:
    """Units whose tuples of one slot a site joins one after the other: how long each takes, and what it finds."""

    slot: int
    units: np.ndarray
    seconds: np.ndarray
    results: np.ndarray
    cells: np.ndarray
    """Those whose tuples are joined, of all units."""
    cell_results: np.ndarray


class Progress:
    """All arrays. T slots, 2 streams, C cells, U units."""

    def __init__(self, scenario: WindowJoinScenario, cells: Cells, routing: Routing) -> None:
        self.scenario, self.cells = scenario, cells
        self.arrivals = arrivals(scenario, cells)
        """(T, 2, C)"""
        zero = np.zeros((1, 2, cells.count), dtype=np.int32)
        self.came = np.concatenate([zero, np.cumsum(self.arrivals, axis=0, dtype=np.int32)])
        """(T + 1, 2, C): tuples of all slots before one."""
        self.sent = np.zeros(cells.count, dtype=np.int64)
        """(C): the slot whose tuples the master sends next."""
        self.joined = np.zeros(cells.count, dtype=np.int64)
        """(C): the slot whose tuples are joined next."""
        self.paused = np.zeros(cells.count, dtype=bool)
        self.site = np.zeros(cells.count, dtype=np.int64)
        self.rows, self.results = np.zeros((2, cells.count))
        """(C): tuples that were joined, and what was found."""
        self._each = np.arange(cells.count)
        self.divide(routing)
        self.site[:] = routing.holders.array[self.unit_of]

    def divide(self, routing: Routing) -> None:
        """Units are the ranges of cells that a routing has from now on."""
        self._ids, directory = routing.ids, routing.directories[0]
        self.unit_of = directory.unit_of(self.cells.middles)
        self.first_cells = np.flatnonzero(np.diff(self.unit_of, prepend=-1))
        if len(self.first_cells) != directory.units:
            raise ScenarioError(f"a partition of a simulated window join can be halved {FINEST} times, not more often")

    def by_unit(self, column: np.ndarray) -> np.ndarray:
        """Sums over the cells of each unit."""
        sums: np.ndarray = np.add.reduceat(column, self.first_cells, axis=-1)
        return sums

    def cells_of(self, unit: Unit) -> np.ndarray:
        cells: np.ndarray = np.flatnonzero(self.unit_of == self._ids.index_of(unit))
        return cells

    # --- what is where ---

    def waiting_at_master(self, slot: int) -> np.ndarray:
        """Tuples of each stream that came before a slot and were not sent."""
        waiting: np.ndarray = (self.came[slot] - self.came[self.sent, :, self._each].T).sum(axis=1)
        return waiting

    def buffered(self, sites: int) -> np.ndarray:
        """Tuples at each site that are not joined."""
        tuples = (self.came[self.sent, :, self._each] - self.came[self.joined, :, self._each]).sum(axis=1)
        return np.bincount(self.site, weights=tuples, minlength=sites)

    @property
    def stored(self) -> np.ndarray:
        """(C): tuples in both windows of each cell."""
        old = np.maximum(self.joined - self.scenario.window_slots, 0)
        windows: np.ndarray = (self.came[self.joined, :, self._each] - self.came[old, :, self._each]).sum(axis=1)
        return windows

    # --- what happens ---

    def send(self, site: Site, until: int, room: float) -> int:
        """The master sends what has come for a site before a slot, oldest first, as long as there is room; the tuples
        that it sends."""
        waiting = np.flatnonzero((self.site == site) & ~self.paused & (self.sent < until))
        total = 0
        while len(waiting):
            slot = int(self.sent[waiting].min())
            cells = waiting[self.sent[waiting] == slot]
            tuples = np.cumsum(self.arrivals[slot][:, cells].sum(axis=0))
            fit = int(np.searchsorted(tuples, room - total, side="right"))
            self.sent[cells[:fit]] += 1
            total += int(tuples[fit - 1]) if fit else 0
            if fit < len(cells):
                break
            waiting = waiting[self.sent[waiting] < until]
        return total

    def next_jobs(self, site: Site) -> Jobs | None:
        """What a site has to join next: its units' tuples of the oldest slot that it has; None if nothing waits."""
        ready = (self.site == site) & ~self.paused & (self.joined < self.sent)
        if not ready.any():
            return None
        slot = int(self.joined[ready].min())
        ready &= self.joined == slot
        new = self.arrivals[slot] * ready
        first, second = self.came[slot] - self.came[max(0, slot - self.scenario.window_slots)]
        results = (new[0] * second + new[1] * (first + new[0])) * self.cells.match
        fresh, unit_first, unit_second = self.by_unit(new), self.by_unit(first), self.by_unit(second)
        comparisons = fresh[0] * self._in_blocks(unit_second) + fresh[1] * self._in_blocks(unit_first + fresh[0])
        units = np.flatnonzero(self.by_unit(ready.astype(np.int64)))
        seconds = comparisons[units] * self.scenario.comparison
        cells = np.flatnonzero(ready)
        return Jobs(slot, units, seconds, self.by_unit(results)[units], cells, results[cells])

    def join(self, jobs: Jobs, count: int) -> None:
        """The first so many of the jobs are done."""
        done = self.unit_of[jobs.cells] <= jobs.units[count - 1]
        cells = jobs.cells[done]
        self.rows[cells] += self.arrivals[jobs.slot][:, cells].sum(axis=0)
        self.results[cells] += jobs.cell_results[done]
        self.joined[cells] += 1

    def _in_blocks(self, tuples: np.ndarray) -> np.ndarray:
        """Windows are scanned by whole blocks."""
        block = self.scenario.block_bytes // self.scenario.tuple_bytes
        whole: np.ndarray = -(-tuples // block) * float(block)
        return whole
