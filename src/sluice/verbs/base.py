"""What all verbs have in common: an action that can be refused, and a protocol that takes it to its end.

A verb is one file of this room. It has the action, why that can be refused, which units it touches, and its protocol: a
pure machine, events in, instructions out. The control loop keeps the protocols in flight and refuses what overlaps. An
executor, one for Spark and one for the simulator, carries instructions out and reports events.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import index
from typing import ClassVar, Protocol, SupportsIndex, TypeVar, cast

import msgspec
import numpy as np
from msgspec.structs import force_setattr

from sluice.model.epoch.decision import Decision, Ended, UnderWay, Verb
from sluice.model.errors import FlowError
from sluice.model.ids import Level, Site, Unit
from sluice.model.plan.plan import Capabilities
from sluice.model.routing.routing import Routing


class Instruction(msgspec.Struct, frozen=True, tag=True):
    """Something that an executor does next: a step of a protocol, or what sites do in the next epoch."""


class Event(msgspec.Struct, frozen=True, tag=True):
    """Something that has happened to a unit."""

    unit: Unit


class VerbAction(msgspec.Struct, frozen=True, tag=True):
    """What a policy, or a user by hand, may ask for. Every action has a `reason`."""

    verb: ClassVar[Verb]
    impossible: ClassVar[str] = "that cannot be done here"
    """Why it is refused where the executor has no handler for an instruction that it needs."""

    @property
    def needs(self) -> tuple[type[Instruction], ...]:
        """The instructions without which it cannot be done."""
        return ()

    @property
    def subject(self) -> Unit | None:
        """The unit that it is about, None if it is about none."""
        return None

    @property
    def destination(self) -> Site | None:
        """The site to which something comes, None if nothing does."""
        return None

    @property
    def named_site(self) -> Site | None:
        """The site that a decision about it names; the unit's holder if there is none."""
        return self.destination

    def touches(self, routing: Routing) -> tuple[Unit, ...]:
        """The units to which nothing else can be done meanwhile."""
        return ()

    def refuse(self, situation: Situation) -> str | None:
        """Why it cannot be done, None if it can. Whether it overlaps with others is the loop's to say."""
        raise NotImplementedError

    def protocol(self, situation: Situation) -> VerbProtocol:
        """What takes it to its end."""
        raise NotImplementedError


class UnitAction(VerbAction, frozen=True, tag=True):
    """Something about one unit."""

    unit: Unit

    def __post_init__(self) -> None:
        take_number(self, "unit")

    @property
    def subject(self) -> Unit:
        return self.unit

    def touches(self, routing: Routing) -> tuple[Unit, ...]:
        return (self.unit,)

    def refuse(self, situation: Situation) -> str | None:
        routing = situation.routing
        if not routing.has_unit(self.unit):
            return routing.ids.why_missing(self.unit)
        site = self.destination
        return None if site is None else situation.why_no_site(site)


def take_number(action: VerbAction, name: str, what: str = "") -> None:
    """Have a field of an action be a plain int."""
    force_setattr(action, name, whole_number(what or name, getattr(action, name)))


def whole_number(what: str, number: object) -> int:
    """A plain int from whatever counts as a whole number, numpy's too."""
    if type(number) is int:  # as nearly always; the check below takes long
        return number
    if isinstance(number, SupportsIndex) and not isinstance(number, bool | np.bool_):
        return index(number)
    raise FlowError(f"a {what} is given by its number, not by {number!r}")


def current_units(units: Iterable[Unit], successors: Mapping[Unit, tuple[Unit, ...]]) -> tuple[Unit, ...]:
    """Units, or those that are in the place of such as have ended, in their order, each once.

    >>> current_units([5, 1, 2], {1: (3, 4), 2: (4,)})
    (5, 3, 4)
    """
    return tuple(dict.fromkeys(new for unit in units for new in successors.get(unit, (unit,))))


class SiteWork(msgspec.Struct, frozen=True):
    """What the sites did about units in an epoch: which they froze, and which they cleaned up at which level of
    operators; and what was missing before it."""

    frozen: frozenset[Unit] = frozenset()
    cleaned: frozenset[tuple[Level, Unit]] = frozenset()
    missing: tuple[tuple[Level, Unit], ...] = ()


class VerbProtocol:
    """One action on its way to its end, a pure machine: it is told what has happened and answers with what is to be
    done next. `decision` is the one that it carries out, None if nobody asked for it. `units` are those that it is at.
    When it is `over` the loop forgets it; with a `failure` it has come to nothing, for this reason."""

    def __init__(self, units: Iterable[Unit] = ()) -> None:
        self.units = tuple(units)
        self.decision: Decision | None = None
        self.over = False
        self.failure: str | None = None
        self.has_delayed_policy = False
        self.new_units: tuple[Unit, ...] = ()
        """The units that there are since, if it split or merged some."""

    voids_statistics: ClassVar[bool] = False
    """Whether statistics of the time before it was over are of other holders."""

    @property
    def delays_policy(self) -> bool:
        """Whether the policy is not asked while it is in flight: what it would see is about to change."""
        return True

    def begin(self) -> Sequence[Instruction]:
        """What is to be done first."""
        raise NotImplementedError

    def expects(self, event: Event) -> bool:
        """Whether an event about one of its units is for it, if others are at that unit, too."""
        return True

    def handle(self, event: Event) -> Sequence[Instruction]:
        """Something has happened: what is to be done now."""
        raise NotImplementedError

    def tolerates(self, action: VerbAction) -> bool:
        """Whether another action on one of its units can be begun before it is over."""
        return False

    def describe(self, unit: Unit) -> str:
        """What is about to happen to one of its units."""
        raise NotImplementedError

    def abandon(self) -> Sequence[Instruction]:
        """It comes to nothing: what is to be done so that all is as it was."""
        self.over = True
        return ()

    def replace_units(self, successors: Mapping[Unit, tuple[Unit, ...]]) -> None:
        """Units were split or merged, and others take their places."""

    def end_units(self, ended: Collection[Unit]) -> None:
        """Units have ended with the queries that they were of."""
        self.units = tuple(unit for unit in self.units if unit not in ended)

    def takes_epochs(self, routing: Routing, now: float) -> bool:
        """Whether it goes on after an epoch with this routing, though no input comes."""
        return True

    def is_done(self, routing: Routing) -> bool:
        """Whether the action is done with the epoch that has this routing."""
        return False

    def settle(self, number: int, routing: Routing, work: SiteWork) -> UnderWay | Ended | None:
        """What has become of its decision with an epoch, which has this routing and in which sites did this; None if it
        was done in the very epoch that it was decided for, or there is no decision."""
        if self.decision is None:
            return None
        if not self.is_done(routing):
            return UnderWay(self.decision, self.units)
        return Ended(self.decision, None, self.new_units) if self.decision.epoch < number else None

    def commit(self, under_way: UnderWay | None) -> None:
        """What it was at is committed: what is still under way of its decision, None if that has ended."""
        self.over = under_way is None


AProtocol = TypeVar("AProtocol", bound=VerbProtocol)


class InFlight:
    """The protocols in flight, in the order in which they were begun."""

    def __init__(self) -> None:
        self._protocols: dict[VerbProtocol, tuple[Unit, ...]] = {}
        self._by_unit: dict[Unit, list[VerbProtocol]] = {}
        self._by_kind: dict[type[VerbProtocol], dict[VerbProtocol, None]] = {}

    def __iter__(self) -> Iterator[VerbProtocol]:
        return iter(tuple(self._protocols))  # others may be begun meanwhile, from this thread or another

    def __contains__(self, protocol: object) -> bool:
        return protocol in self._protocols

    def at(self, unit: Unit) -> Sequence[VerbProtocol]:
        """Those that have a unit to themselves."""
        return tuple(self._by_unit.get(unit, ()))

    def of(self, kind: type[AProtocol]) -> list[AProtocol]:
        """Those of a kind."""
        return cast("list[AProtocol]", list(self._by_kind.get(kind, ())))

    def add(self, protocol: VerbProtocol, units: tuple[Unit, ...]) -> None:
        """One more, which has these units to itself."""
        self._protocols[protocol] = units
        self._by_kind.setdefault(type(protocol), {})[protocol] = None
        for unit in units:
            self._by_unit.setdefault(unit, []).append(protocol)

    def remove(self, protocol: VerbProtocol) -> None:
        del self._by_kind[type(protocol)][protocol]
        for unit in self._protocols.pop(protocol):
            self._by_unit[unit].remove(protocol)
            if not self._by_unit[unit]:
                del self._by_unit[unit]


class UnitConditions(Protocol):
    """In which condition units are."""

    @property
    def missing_units(self) -> tuple[Unit, ...]:
        """Frozen units whose results are missing."""

    def why_unready(self, unit: Unit) -> str | None:
        """Why a unit cannot be shared otherwise than it is now, None if it can."""


class AllReady:
    """The condition of units of which nothing waits and none is frozen."""

    missing_units: tuple[Unit, ...] = ()

    def why_unready(self, unit: Unit) -> str | None:
        return None


@dataclass(frozen=True)
class Situation:
    """What a verb looks at when it is asked for: the routing that holds from an `epoch` on, what can be done to the
    units of the plan, in which condition they are, what is in flight, and who sends rows."""

    routing: Routing
    capabilities: Capabilities = field(default_factory=Capabilities)
    in_flight: InFlight = field(default_factory=InFlight)
    conditions: UnitConditions = field(default_factory=AllReady)
    epoch: int = 0
    now: float = 0.0
    producers: tuple[int, ...] = ()

    def why_no_site(self, site: Site) -> str | None:
        """Why nothing can come to a site, None if it can."""
        sites = self.routing.sites
        if 0 <= site < sites:
            return None
        return f"there is no site {site}; they are numbered from 0 to {sites - 1}"
