"""Split and merge: which hashes are a unit (extendible hashing; parallel window joins).

A split ends one unit and begins two or more, a merge ends two and begins one; all others stay as they are. No row is
written anew. First the sites profile the hashes of a unit that is to be split: whether its rows have more than one, and
which is the most frequent. Then they count, segment by segment, the rows below the hashes where the unit may be cut.
With that the units are others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import msgspec

from sluice.model.epoch.decision import Verb
from sluice.model.errors import ProtocolError
from sluice.model.ids import Unit
from sluice.model.routing.directory import MOST_BITS, MOST_UNITS, HashRange, halves
from sluice.model.routing.routing import Routing
from sluice.verbs.base import Event, Instruction, Situation, UnitAction, VerbProtocol, take_number


class ProfileHashes(Instruction, frozen=True, tag=True):
    """In the next epoch the holders of a unit tell which hashes its rows have."""

    unit: Unit


class CountBelow(Instruction, frozen=True, tag=True):
    """In the next epoch the holders of a unit count its rows below some hashes, segment by segment."""

    unit: Unit
    hashes: tuple[int, ...]


class Divide(Instruction, frozen=True, tag=True):
    """Two units take the place of one; parts of it are halved `further`, each given by its hashes."""

    unit: Unit
    further: tuple[HashRange, ...]


class Unite(Instruction, frozen=True, tag=True):
    """One unit takes the place of two buddies."""

    unit: Unit
    buddy: Unit


class HashProfile(Event, frozen=True, tag=True):
    """What a site has of a unit at one level of operators, or all have together: how many rows, their least and
    greatest hash, the most frequent one, about, and its rows."""

    rows: int
    least: int
    greatest: int
    frequent: int
    frequent_rows: int

    @classmethod
    def total(cls, profiles: Sequence[HashProfile]) -> HashProfile:
        """What all holders and levels have of a unit.

        >>> HashProfile.total([HashProfile(3, 7, 9, 14, 9, 4), HashProfile(3, 2, 1, 9, 9, 1)])
        HashProfile(unit=3, rows=9, least=1, greatest=14, frequent=9, frequent_rows=5)
        """
        most = max(profiles, key=lambda profile: profile.frequent_rows)
        return cls(
            most.unit,
            rows=sum(profile.rows for profile in profiles),
            least=min(profile.least for profile in profiles),
            greatest=max(profile.greatest for profile in profiles),
            frequent=most.frequent,
            frequent_rows=sum(profile.frequent_rows for profile in profiles if profile.frequent == most.frequent),
        )


class RowsBelow(Event, frozen=True, tag=True):
    """Of the rows that a unit has in a segment, so many have hashes below one."""

    segment: str
    hash: int
    below: int


class Profiled(Event, frozen=True, tag=True):
    """The hashes of a unit's rows are known; there is no profile if it has no row."""

    profile: HashProfile | None = None


class Counted(Event, frozen=True, tag=True):
    """How many `rows` a unit has is known, and how many of them are below the hashes that were asked for."""

    rows: int = 0
    below: dict[int, int] = msgspec.field(default_factory=dict)


class Unmergeable(Event, frozen=True, tag=True):
    """Two units cannot become one."""

    why: str


class Split(UnitAction, frozen=True, tag=True):
    """Have two units in place of one, by one more bit of the hash. If one key has most of its rows, it is split so
    often that this key is alone. No row is rewritten.

    Args:
        unit: its id.
        reason: why, as users read it.
        bits: by how many; two give four units, three eight.

    >>> Split(3, "to see")
    Split(unit=3, reason='to see', bits=1)
    """

    verb: ClassVar[Verb] = Verb.SPLIT
    impossible: ClassVar[str] = "the units stay as they are here"

    reason: str
    bits: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        take_number(self, "bits", "number of bits")

    @property
    def needs(self) -> tuple[type[Instruction], ...]:
        return ProfileHashes, CountBelow, Divide

    def refuse(self, situation: Situation) -> str | None:
        refused = super().refuse(situation) or _why_indivisible(self.unit, situation)
        if refused:
            return refused
        if not 1 <= self.bits <= MOST_BITS:
            return f"a unit is split by 1 to {MOST_BITS} bits at a time, not by {self.bits}"
        routing = situation.routing
        splits = 1 + len(situation.in_flight.of(SplitProtocol))
        if not routing.directories[routing.fragment_of(self.unit)].has_room(splits):
            return f"an operator's state has at most {MOST_UNITS:,} units"
        try:
            routing.split(self.unit, situation.epoch)
        except ProtocolError as problem:
            return str(problem)
        return None

    def protocol(self, situation: Situation) -> SplitProtocol:
        return SplitProtocol(self, situation.routing.hashes_of(self.unit))


class Merge(UnitAction, frozen=True, tag=True):
    """Have one unit in place of a unit and its buddy. No row is rewritten.

    Args:
        unit: its id.
        reason: why, as users read it.

    >>> Merge(3, "to see")
    Merge(unit=3, reason='to see')
    """

    verb: ClassVar[Verb] = Verb.MERGE
    impossible: ClassVar[str] = Split.impossible

    reason: str

    @property
    def needs(self) -> tuple[type[Instruction], ...]:
        return (Unite,)

    def touches(self, routing: Routing) -> tuple[Unit, ...]:
        buddy = routing.buddy_of(self.unit) if routing.has_unit(self.unit) else None
        return (self.unit,) if buddy is None else (self.unit, buddy)

    def refuse(self, situation: Situation) -> str | None:
        refused = super().refuse(situation) or _why_indivisible(self.unit, situation)
        if refused:
            return refused
        for unit in self.touches(situation.routing):
            unready = situation.conditions.why_unready(unit)
            if unready:
                return f"unit {unit} {unready}"
        try:
            situation.routing.merge(self.unit, situation.epoch)
        except ProtocolError as problem:
            return str(problem)
        return None

    def protocol(self, situation: Situation) -> MergeProtocol:
        buddy = situation.routing.buddy_of(self.unit)
        assert buddy is not None, "a unit without a buddy is not merged"
        return MergeProtocol(self.unit, buddy)


def _why_indivisible(unit: Unit, situation: Situation) -> str | None:
    if situation.routing.fragment_of(unit) in situation.capabilities.divisible:
        return None
    return f"units are split and merged by the hashes of their keys, and unit {unit} has none"


class SplitProtocol(VerbProtocol):
    """A unit with these `hashes` that is to be split.

    >>> split = SplitProtocol(Split(7, "to see"), (0, 16))
    >>> split.begin()
    [ProfileHashes(unit=7)]
    >>> split.handle(Profiled(7, HashProfile(7, rows=9, least=2, greatest=14, frequent=3, frequent_rows=1)))
    [CountBelow(unit=7, hashes=(8,))]
    >>> split.handle(Counted(7, rows=9, below={8: 5}))
    [Divide(unit=7, further=())]
    """

    def __init__(self, action: Split, hashes: HashRange) -> None:
        super().__init__((action.unit,))
        self.action, self.unit, self.hashes = action, action.unit, hashes
        self.single_key: HashRange | None = None
        """The hashes that have one key alone, as far as is known."""
        self._halved: list[HashRange] = []
        """What is to be halved, one after the other."""
        self._frequent: int | None = None
        """A hash that most rows have."""

    def describe(self, unit: Unit) -> str:
        return f"unit {unit} is to be split or merged"

    def is_done(self, routing: Routing) -> bool:
        return not routing.has_unit(self.unit)

    def replace_units(self, successors: Mapping[Unit, tuple[Unit, ...]]) -> None:
        self.new_units = successors.get(self.unit, self.new_units)

    def begin(self) -> list[Instruction]:
        return [ProfileHashes(self.unit)]

    def handle(self, event: Event) -> list[Instruction]:
        match event:
            case Profiled(profile=profile):
                return self._plan(profile)
            case Counted(rows=rows, below=below):
                if self._frequent is not None:
                    self._halved = _until_alone(self._halved, self._frequent, rows, below)
                    self.single_key = _half_with(self._frequent, self._halved[-1])
                return [Divide(self.unit, tuple(self._halved[1:]))]
        raise ProtocolError(f"{event} does not fit a unit that is to be split")

    def _plan(self, profile: HashProfile | None) -> list[Instruction]:
        """Where the unit may be cut; nowhere if its rows have one hash."""
        if profile is not None and profile.least == profile.greatest:
            self.single_key = self.hashes
            self.failure = f"all rows of unit {self.unit} have one key"
            return []
        if profile is not None and 2 * profile.frequent_rows > profile.rows:
            self._frequent = profile.frequent
            self._halved = halved_around(self.hashes, profile.frequent)
        else:
            self._halved = halved_into(self.hashes, profile, self.action.bits)
        edges = {edge for part in self._halved for half in halves(part) for edge in half}
        return [CountBelow(self.unit, tuple(sorted(edges - set(self.hashes))))]


class MergeProtocol(VerbProtocol):
    """Two units that are to be one."""

    def __init__(self, unit: Unit, buddy: Unit) -> None:
        super().__init__((unit, buddy))
        self.unit, self.buddy = unit, buddy

    def describe(self, unit: Unit) -> str:
        return f"unit {unit} is to be split or merged"

    def is_done(self, routing: Routing) -> bool:
        return not routing.has_unit(self.unit)

    def replace_units(self, successors: Mapping[Unit, tuple[Unit, ...]]) -> None:
        self.new_units = successors.get(self.unit, self.new_units)

    def begin(self) -> list[Instruction]:
        return [Unite(self.unit, self.buddy)]

    def handle(self, event: Event) -> list[Instruction]:
        if not isinstance(event, Unmergeable):
            raise ProtocolError(f"{event} does not fit units that are to be merged")
        self.failure = event.why
        return []


def _half_with(key: int, hashes: HashRange) -> HashRange:
    lower, upper = halves(hashes)
    return upper if key >= upper[0] else lower


def halved_around(hashes: HashRange, key: int) -> list[HashRange]:
    """What is to be halved, one after the other, until a hash is alone.

    >>> halved_around((0, 8), 5)
    [(0, 8), (4, 8), (4, 6)]
    """
    parts = []
    while hashes[1] - hashes[0] > 1:
        parts.append(hashes)
        hashes = _half_with(key, hashes)
    return parts


def halved_into(hashes: HashRange, profile: HashProfile | None, bits: int) -> list[HashRange]:
    """What is to be halved, one after the other, until rows are parted, and from there on by so many bits.

    >>> halved_into((0, 16), HashProfile(3, 7, 9, 14, 9, 1), bits=2)
    [(0, 16), (8, 16), (8, 12), (12, 16)]
    """
    halved = []
    while profile is not None:
        sides = {_half_with(key, hashes) for key in (profile.least, profile.greatest)}
        if len(sides) == 2:
            break
        halved.append(hashes)
        hashes = sides.pop()
    parts = [hashes]
    for _ in range(bits):
        parts = [part for part in parts if part[1] - part[0] > 1]
        halved += parts
        parts = [half for part in parts for half in halves(part)]
    return halved


def _until_alone(parts: Sequence[HashRange], key: int, rows: int, below: Mapping[int, int]) -> list[HashRange]:
    """Of what is to be halved until a hash is alone, as much as it takes until no other row is left beside it; `below`
    is how many of the rows have hashes below each edge."""
    if not rows:
        return list(parts[:1])
    counted = {parts[0][0]: 0, parts[0][1]: rows, **below}
    left = [counted[high] - counted[low] for low, high in (_half_with(key, part) for part in parts)]
    return list(parts[: 1 + left.index(left[-1])])
