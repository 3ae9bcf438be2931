"""A consumer's dealings beside tuples (Flux-Cons): it answers messages, moves state, and keeps within its memory.

Whatever takes time is a task, a generator that yields when it needs CPU, disk or a unit's pending input processed, and
goes on when that is done. A site does one task at a time and no tuples meanwhile; messages wait between two tasks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from types import GeneratorType

import numpy as np

from sluice.model.ids import Unit
from sluice.sim.event_queue import EventQueue
from sluice.sim.hardware import Hardware
from sluice.sim.worlds.flux import core
from sluice.sim.worlds.flux.cluster import NOBODY, Cluster, Costs
from sluice.state.paging import Fetch, Paging, SpillUnit

CPU, DISK, PENDING = "work", "disk", "draining"
"""What a task needs, by the column of its node: so many seconds of each, or a unit's pending input processed."""
Task = Iterator[tuple[str, float]]
Message = Callable[[], object]


class FluxSite:
    """One consumer instance with its memory."""

    def __init__(
        self,
        number: int,
        cluster: Cluster,
        costs: Costs,
        hardware: Hardware,
        events: EventQueue,
        rng: np.random.Generator,
        sets_aside: bool,
    ) -> None:
        """`sets_aside`: it has the buffers of section 6.1, to which in-flight input can go when a unit has to leave."""
        self.number, self.cluster, self.costs, self.hardware, self.events = number, cluster, costs, hardware, events
        self.paging = Paging[Unit](hardware.memory)
        self.sizes: dict[Unit, int] = {}
        self.sets_aside = sets_aside
        self.fetch_times: list[float] = []
        """When units that were on disk were in memory again."""
        self._rng = rng
        self._inbox: deque[Message] = deque()
        self._task: Task | None = None
        self._awaited: list[tuple[int, int, Message]] = []
        self._alarm = float("inf")

    # --- messages ---

    def post(self, message: Message) -> None:
        """Delivers a message; it is read between two tuples, or after the task at hand."""
        self._inbox.append(message)
        if core.interrupt(self.cluster, self.number):
            self.attend()

    def when_handled(self, producer: int, count: int, message: Message) -> None:
        """Delivers a message when the first `count` tuples of a producer have been processed."""
        if core.await_handled(self.cluster, producer, self.number, count):
            self.post(message)
        else:
            self._awaited.append((producer, count, message))

    def when_dry(self, producer: int, count: int, message: Message) -> None:
        """Delivers a message when the first `count` tuples of a producer have been processed, or set aside."""

        def look() -> None:
            if self.sets_aside:
                core.set_aside(self.cluster, self.costs, self.number)
            self.when_handled(producer, count, message)

        self.post(look)

    def expect_to_leave(self, unit: Unit) -> None:
        """A unit that is to move should not be spilled just before."""
        self.paging.defer(unit)

    def attend(self) -> None:
        """Reads messages and does what has to be done, until something takes time or tuples have their turn."""
        handled = self.cluster.pair["handled"][:, self.number]
        for entry in [a for a in self._awaited if handled[a[0]] >= a[1]]:
            self._awaited.remove(entry)
            self._inbox.append(entry[2])
        while not self._go_on():
            if self._inbox:
                task = self._inbox.popleft()()
                self._task = task if isinstance(task, GeneratorType) else None
            else:
                self._task = self._keep_within_memory()
                if self._task is None:
                    break
        core.resume(self.cluster, self.costs, self.number)

    def _go_on(self) -> bool:
        """Takes the task at hand on; False if there is none any more."""
        node = self.cluster.node[self.number]
        if self._task is None:
            return False
        if node["work"] > 0 or node["draining"] != NOBODY:
            return True  # asked for another reason: what the task needs is not done yet
        for need, amount in self._task:
            node[need] = amount if need == PENDING else node[need] + max(amount, 1e-9)
            return True
        self._task = None
        return False

    # --- state ---

    def hold(self, unit: Unit, size: int) -> None:
        """A unit's state is here from now on, in memory."""
        self.sizes[unit] = size
        self.paging.arrive(unit, size)
        self.cluster.unit["resident"][unit] = True

    def extract(self, unit: Unit, done: Callable[[], None]) -> Task:
        """Takes a unit's state out, with all its input processed; one on disk is read first. Its memory is free from
        then on: the state is in the hands of the network."""
        size = self.sizes[unit]
        if not self.paging.is_resident(unit):
            yield DISK, self._read(unit, size)
            self.cluster.unit["resident"][unit] = True
        core.claim_aside(self.cluster, self.number, unit)
        if self.cluster.unit["pending"][unit]:
            yield PENDING, unit
        yield CPU, self._handling(size)
        self.paging.leave(unit)
        del self.sizes[unit]
        done()

    def install(self, unit: Unit, size: int, done: Callable[[], None]) -> Task:
        yield CPU, self._handling(size)
        self.hold(unit, size)
        done()

    def resize(self, change: int) -> None:
        """The memory for state grows, or shrinks by a negative change."""
        if change >= 0:
            self.paging.donate(change)
        else:
            self.paging.relinquish(-change)

    def _keep_within_memory(self) -> Task | None:
        step = self.paging.step(self.events.now)
        if isinstance(step, SpillUnit):
            return self._spill(step.unit)
        if isinstance(step, Fetch):
            return self._fetch(step.unit)
        due = self.paging.due
        if due is not None and due != self._alarm:
            self._alarm = due
            self.events.at(due, lambda: self.post(lambda: None))
        return None

    def _spill(self, unit: Unit) -> Task:
        size = self.sizes[unit]
        yield CPU, self._handling(size)
        yield DISK, self._seek() + size / self.hardware.disk_rate
        self.paging.note_spilled(unit)
        self.cluster.unit["resident"][unit] = False

    def _fetch(self, unit: Unit) -> Task:
        size = self.sizes[unit]
        began = self.events.now
        yield DISK, self._read(unit, size)
        yield CPU, self._handling(size)
        self.paging.note_fetched(unit, self.events.now, self.events.now - began)
        self.fetch_times.append(self.events.now)
        self.cluster.unit["resident"][unit] = True
        if self.cluster.unit["pending"][unit]:
            yield PENDING, unit

    def _read(self, unit: Unit, size: int) -> float:
        """Seconds to read a unit's state and the run of its input."""
        waiting = self.cluster.unit[unit]
        run = int(waiting["pending"]) * self.hardware.tuple_bytes - int(waiting["unwritten"])
        spooled = self._seek() + run / self.hardware.disk_rate if run > 0 else 0.0
        return self._seek() + size / self.hardware.disk_rate + spooled

    def _seek(self) -> float:
        return max(0.0, self._rng.normal(self.hardware.seek, self.hardware.seek_spread))

    def _handling(self, size: int) -> float:
        return self.hardware.state_tuples(size) * self.hardware.handle_state
