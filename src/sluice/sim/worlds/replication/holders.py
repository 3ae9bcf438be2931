"""The state of a simulated plan: portions of tuples by place in the stream, stored by holders, and results.

A step's tuples are one place of the stream. Each holder of a unit takes the places in their order, at its own time: the
machine with the split at once, others later by the network's latency. What a holder stores, finds and lets expire hangs
on the place alone. So whoever stores a tuple, and however late, the results are the same. The merge behind an operator
hands results on in the order of the stream, when the slowest holder is sure to have come so far.
"""

from __future__ import annotations

import numpy as np

from sluice.model.ids import Site, Unit
from sluice.sim.worlds.replication.scenario import ReplicationScenario

_FOREVER = np.iinfo(np.int64).max


class Holders:
    """All arrays. T steps, J joins, U units, S sites; a join has two inputs, the second is the stream of its own."""

    def __init__(self, scenario: ReplicationScenario) -> None:
        self.scenario = scenario
        joins, units, sites, steps = scenario.joins, scenario.units, scenario.sites, scenario.steps
        all_units = len(joins) * units
        self.join_of = np.repeat(np.arange(len(joins)), units)
        self._select = np.array([join.select for join in joins])[self.join_of] / units
        self._window = np.array([scenario.in_steps(join.window) for join in joins])[self.join_of]
        self._partner, self._match, self._chance = self._matching()
        self.rows = np.zeros((steps, all_units, 2))
        """(T, U, 2): what a unit's split sends at each place; of a join's results it is not known before their step."""
        streams = scenario.streams()
        self.rows[:, :, 1] = streams[:, self.join_of + 1] * self._select
        self.rows[:, :units, 0] = streams[:, :1] * self._select[:units]
        self.stored_at = np.zeros((steps, all_units, 2, sites))
        """(T, U, 2, S): what each holder has of each place, until it expires."""
        self.stored = np.zeros((all_units, 2, sites))
        self.storing = np.zeros((all_units, 2, sites))
        """(U, 2, S): the part of new tuples that each holder stores: 1 with the token, less in turn, 0 without."""
        self.holds = np.zeros((all_units, sites), dtype=bool)
        self.paused = np.zeros(all_units, dtype=bool)
        self.next_place = np.zeros((all_units, sites), dtype=np.int64)
        """(U, S): the place of the stream that a holder takes next."""
        self.end_place = np.full((all_units, sites), _FOREVER)
        split = np.array([scenario.split_site(Unit(unit)) for unit in range(all_units)])
        self.delay = np.where(np.arange(sites) == split[:, None], 0, scenario.latency_steps)
        self.received = np.zeros((all_units, 2, sites))
        """(U, 2, S): tuples that reached each holder."""
        self.results = np.zeros((all_units, sites))
        self.handed_on = np.zeros((steps + scenario.latency_steps + 2, len(joins)))
        """(T, J): results by the step in which the merge hands them on."""
        for unit, site in enumerate(scenario.routing().holders):
            self.open_link(Unit(unit), site, 0)
            self.storing[unit, :, site] = 1.0

    def _matching(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For each unit: how many steps ahead a 1:1 tuple's partner came, how many of them match, and by what chance
        two tuples of an n:m join do."""
        scenario, joins = self.scenario, self.scenario.joins
        partner = [0 if j.partner_after is None else scenario.in_steps(j.partner_after) for j in joins]
        match = [0.0 if j.partner_after is None else j.fan_out for j in joins]
        chance = [j.fan_out / (2 * scenario.rate * j.window) if j.partner_after is None else 0.0 for j in joins]
        of_unit = self.join_of
        return np.array(partner)[of_unit], np.array(match)[of_unit], np.array(chance)[of_unit] * scenario.units

    # --- what changes who holds and stores a unit ---

    def open_link(self, unit: Unit, site: Site, place: int) -> None:
        """A split sends a unit's tuples to this site, too, from a place on."""
        self.holds[unit, site] = True
        self.next_place[unit, site], self.end_place[unit, site] = place, _FOREVER

    def close_link(self, unit: Unit, site: Site, place: int) -> None:
        """A split sends no more tuples to a site from a place on; what is on its way arrives."""
        self.end_place[unit, site] = place

    def relocate(self, unit: Unit, source: Site, target: Site) -> None:
        """A unit whose link is closed has its state at another site, which waits for the restart to take what comes."""
        for column in (self.stored_at[:, unit], self.stored[unit], self.storing[unit]):
            column[..., target] = column[..., source]
            column[..., source] = 0.0
        self.open_link(unit, target, int(self.next_place[unit, source]))
        self.paused[unit] = True

    def restart(self, unit: Unit) -> None:
        self.paused[unit] = False

    # --- a step ---

    def bring(self, step: int) -> None:
        """The splits behind the first get what the merge of the join before hands on in a step."""
        later = self.scenario.units
        self.rows[step, later:, 0] = self.handed_on[step, self.join_of[later:] - 1] * self._select[later:]

    def take_in(self, step: int) -> None:
        """Every holder takes what has reached it; a unit that was paused catches up."""
        behind = True
        while behind:
            reached = np.minimum(step - self.delay, self.end_place - 1)
            due = self.holds & (self.next_place <= reached) & ~self.paused[:, None]
            unit, site = np.nonzero(due)
            place = self.next_place[unit, site]
            self._take_place(step, unit, site, place)
            self.next_place[unit, site] = place + 1
            behind = bool((reached[unit, site] > place).any())

    def _take_place(self, step: int, unit: np.ndarray, site: np.ndarray, place: np.ndarray) -> None:
        """Some holders each take one place of their unit's stream: tuples of the second input are stored first, so that
        two of one place meet where that one is, as on Spark."""
        came = self.rows[place, unit]
        state = self.stored[unit, :, site] - self._expired(unit, site, place)
        new = came * self.storing[unit, :, site]
        any_two = came[:, 0] * (state[:, 1] + new[:, 1]) + came[:, 1] * state[:, 0]
        results = self._chance[unit] * any_two + self._partners(unit, site, place, came[:, 1])
        self.stored[unit, :, site] = state + new
        self.stored_at[place, unit, :, site] = new
        self.received[unit, :, site] += came
        self.results[unit, site] += results
        in_order = np.maximum(place + self.scenario.latency_steps, step) + 1
        np.add.at(self.handed_on, (in_order, self.join_of[unit]), results)

    def _expired(self, unit: np.ndarray, site: np.ndarray, place: np.ndarray) -> np.ndarray:
        old = place - self._window[unit]
        expired: np.ndarray = self.stored_at[np.maximum(old, 0), unit, :, site] * (old >= 0)[:, None]
        return expired

    def _partners(self, unit: np.ndarray, site: np.ndarray, place: np.ndarray, came: np.ndarray) -> np.ndarray:
        """Results of 1:1 joins: of the tuples that came ahead, those that this holder has and whose partner is here."""
        ahead = place - self._partner[unit]
        came_ahead = np.maximum(ahead, 0)
        sent = self.rows[came_ahead, unit, 0]
        there = np.minimum(1.0, came / np.where(sent > 0, sent, 1.0))
        results: np.ndarray = self._match[unit] * self.stored_at[came_ahead, unit, 0, site] * there * (ahead >= 0)
        return results

    # --- what can be seen ---

    @property
    def site_tuples(self) -> np.ndarray:
        """How many tuples each machine has stored."""
        tuples: np.ndarray = self.stored.sum(axis=(0, 1))
        return tuples
