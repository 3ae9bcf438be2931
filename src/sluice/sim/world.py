"""What a simulated world is to the simulation: sites that take messages, and what they can do and count."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar

import numpy as np

from sluice.control.loop import ControlLoop
from sluice.model.epoch.decision import Decision
from sluice.model.ids import Fragment, InputNumber, Site, Unit
from sluice.model.routing.routing import Routing
from sluice.model.view import ClusterView
from sluice.sim.network import Network
from sluice.sim.outcome import ControlRecord, Outcome, TimedDecision
from sluice.verbs import Action
from sluice.verbs.base import VerbAction
from sluice.verbs.move import Extract, Install, LetGo, MoveProtocol, Pause, Restart, Transfer

Call = Callable[[], object]
Done = Callable[[], None]
Handlers = Mapping[type, Callable[..., None]]
"""What a world can do, by the class of the instruction; what is not here it cannot do."""


class World(ABC):
    """A cluster at one moment: where its tuples are, and what happens to them until the next one.

    The control loop sits on a machine of its own and talks to sites by messages. A world says how long those take, has
    a handler for everything that its sites can do, and counts what they did.
    """

    name: ClassVar[str]
    """As it is called in messages to the user, such as "window join"."""
    producers: Sequence[int] = (0,)
    """Whoever sends tuples and has to pause before a unit can move."""
    reporters: Sequence[Site | None] = (None,)
    """Who reports statistics: sites one by one, or all of them together (None)."""
    inputs: Mapping[Fragment, tuple[InputNumber, ...]] = {}
    """The inputs of joins whose units can be shared."""

    def __init__(self, network: Network, routing: Routing, latency: float, minimum_collection: float) -> None:
        """`latency` is how long a message takes, `minimum_collection` how long statistics are collected at least."""
        self.network, self.events, self.routing = network, network.events, routing
        self.latency, self.minimum_collection = latency, minimum_collection
        self.decisions: list[TimedDecision] = []

    # --- time ---

    def start(self, loop: ControlLoop) -> None:
        """Everybody begins, and the loop is there that decides about them."""
        self.loop = loop

    @property
    @abstractmethod
    def over(self) -> bool:
        """Whether the run has come to its end."""

    @abstractmethod
    def advance(self, until: float) -> bool:
        """Lets time pass, and sets the clock of the events. True when events are due, at `until`; False when something
        happened before that, by which other events may have been planned."""

    def decide(self, who: str, actions: Sequence[Action]) -> None:
        """Has the loop vet and carry out what somebody else than its policy wants."""
        self.keep(self.loop.decide(who, actions, self.events.now))

    def keep(self, decisions: Iterable[Decision]) -> None:
        """What was decided just now."""
        self.decisions += [TimedDecision(**vars(decision), time=self.events.now) for decision in decisions]

    # --- messages ---

    def send(self, call: Call) -> None:
        """A message from or to the control loop takes the network's latency."""
        self.events.after(self.latency, call)

    def deliver(self, site: Site | None, call: Call) -> None:
        """Has a site do something when it gets to it."""
        call()

    def ask(self, site: Site | None, call: Call) -> None:
        """Asks for statistics."""
        self.send(lambda: self.deliver(site, call))

    # --- what it can do ---

    @property
    def handlers(self) -> Handlers:
        """Its list of capabilities; units can be moved in every world."""
        return {
            Pause: self.pause,
            Extract: self.extract,
            Transfer: self.transfer,
            Install: self.install,
            Restart: self.restart,
            LetGo: self.let_go,
        }

    def repartition(self) -> None:
        """All that was decided together has been begun: units that are to be split or merged are, if that can be."""
        return

    def why_not(self, action: VerbAction) -> str | None:
        """Why something that it has a handler for cannot be done just now; None if it can."""
        return None

    @abstractmethod
    def pause(self, move: MoveProtocol, acknowledge: Callable[[int], None]) -> None:
        """Has all producers hold back the tuples of a unit, and acknowledge behind those that they have sent."""

    def extract(self, move: MoveProtocol, done: Done) -> None:
        """Has the source take a unit's state out; that takes no time unless a world says so."""
        done()

    @abstractmethod
    def state_bytes(self, unit: Unit) -> float:
        """What of a unit has to be sent when it moves."""

    def transfer(self, move: MoveProtocol, size: float, done: Done) -> None:
        """Sends a unit's state."""
        self.network.transfer(move.source, move.target, int(size), done)

    @abstractmethod
    def install(self, move: MoveProtocol, done: Done) -> None:
        """Has the target take a unit's state in."""

    @abstractmethod
    def restart(self, unit: Unit, site: Site) -> None:
        """Has all producers send a unit's tuples to a site, first those that they held back."""

    def let_go(self, move: MoveProtocol, done: Done) -> None:
        """Source and target are free for other things."""
        done()

    # --- what it counts ---

    @abstractmethod
    def counts(self) -> tuple[np.ndarray, ...]:
        """Counters that only grow; statistics are what they have grown by."""

    @abstractmethod
    def observe(self, routing: Routing, grown: Sequence[np.ndarray], seconds: float) -> ClusterView:
        """The cluster as it is now, and what it did: its counters have grown by so much in so many seconds. A site that
        reports by itself is believed what concerns it."""

    @abstractmethod
    def outcome(self, control: ControlRecord) -> Outcome:
        """What was seen, when the run is over."""
