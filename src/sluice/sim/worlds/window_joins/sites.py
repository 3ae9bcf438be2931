"""The time of the sites of a simulated window join: they wait for the master's message, receive it, and join.

A site does one thing at a time. While the master is busy with others, and while a message or state comes in, it joins
nothing; this is what the paper measures as communication. A job that was begun is ended, also beyond the slot. Where
slots are shorter than the master's messages, it leaves those out that it has no time for, and sites wait through them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sluice.model.ids import Site
from sluice.sim.worlds.window_joins.progress import Progress


class WindowSites:
    """What every site did so far, in seconds, and what its results were late by."""

    def __init__(self, progress: Progress) -> None:
        self.progress, self.scenario = progress, progress.scenario
        most = self.scenario.most
        self.working, self.communicating = np.zeros((2, most))
        self.taking_part = np.zeros(most)
        """Seconds for which each site was one of those that take part."""
        self.occupancy = np.zeros(most)
        """How much of its buffer each site had filled when a message came, summed up."""
        self.messages = np.zeros(most, dtype=np.int64)
        self.results = 0.0
        self.delays = 0.0
        """Of all results together, in seconds, since it was measured last."""
        self._owed = np.zeros(most)
        """Seconds of work that was begun, or of state that comes in, beyond the last slot."""
        self._served_until = np.zeros(most)
        """When each site had received what the master sent it last."""
        self._master_free = 0.0

    def run_slot(self, slot: int, sites: int) -> None:
        """The master sends to the group whose turn it is, then all join until the slot ends."""
        start, end = slot * self.scenario.slot, (slot + 1) * self.scenario.slot
        turn = [Site(site) for site in range(slot % self.scenario.groups, sites, self.scenario.groups)]
        free_from = np.full(self.scenario.most, start)
        free_from[turn] += self._distribute(slot, turn)
        for site in range(sites):
            self.taking_part[site] += end - start
            self._join(Site(site), float(free_from[site]), end)

    def occupy(self, site: Site, seconds: float) -> None:
        """State that moves takes this long."""
        self._owed[site] += seconds
        self.communicating[site] += seconds

    def _distribute(self, slot: int, turn: Sequence[Site]) -> np.ndarray:
        """One site after the other: how long after the slot's start each has received."""
        scenario = self.scenario
        start = slot * scenario.slot
        late = np.maximum(self._served_until[turn] - start, 0.0)
        waits = max(self._master_free - start, 0.0)
        if waits >= scenario.slot:  # the master has not come to an end with an earlier slot
            self.communicating[turn] += np.maximum(scenario.slot - late, 0.0)
            self._served_until[turn] = np.maximum(self._served_until[turn], start + scenario.slot)
            return np.full(len(turn), scenario.slot)
        room = scenario.buffer / scenario.tuple_bytes - self.progress.buffered(scenario.most)
        filled = 1 - room[turn] * scenario.tuple_bytes / scenario.buffer
        self.occupancy[turn] += filled
        self.messages[turn] += 1
        tuples = np.array([self.progress.send(site, slot, float(room[site])) for site in turn])
        took = waits + np.cumsum(scenario.message + tuples * scenario.tuple_bytes / scenario.link_rate)
        self.communicating[turn] += took - late
        self._served_until[turn] = start + took
        self._master_free = start + float(took[-1]) if len(took) else self._master_free
        return took

    def _join(self, site: Site, now: float, end: float) -> None:
        """Jobs one after the other, as long as one can begin before the end."""
        began = min(now, end)
        now += float(self._owed[site])
        while now < end:
            jobs = self.progress.next_jobs(site)
            if jobs is None:
                break
            ends = now + np.cumsum(jobs.seconds)
            count = int(np.searchsorted(ends - jobs.seconds, end, side="left"))
            middles = (ends - jobs.seconds / 2)[:count]
            came = (jobs.slot + 0.5) * self.scenario.slot
            self.results += float(jobs.results[:count].sum())
            self.delays += float((jobs.results[:count] * (middles - came)).sum())
            self.progress.join(jobs, count)
            now = float(ends[count - 1])
        self.working[site] += max(0.0, min(now, end) - began)
        self._owed[site] = max(0.0, now - end)
