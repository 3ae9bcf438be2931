"""A decision about units or sites, as the journal keeps it and users read it, and what has become of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, Literal, Protocol

from sluice.model.ids import Site, Unit

_NONE = -1
"""Stands, for users, for the unit and the site of a decision that is about none."""
ROTATION, FREEZING = "rotation", "freezing"
"""By whom a site's own decisions were made."""
Fate = Literal["refused", "waiting", "done", "abandoned"]
"""What can become of a decision."""


class Verb(str, Enum):
    """The verbs of decisions; each is its text, too.

    >>> Verb.PASS_TOKEN == "pass token", f"{Verb.MOVE} unit 3"
    (True, 'move unit 3')
    """

    MOVE = "move"
    FREEZE = "freeze"
    CLEAN_UP = "clean up"
    SHARE = "share"
    RELEASE = "release"
    PASS_TOKEN = "pass token"
    LAY_OUT = "lay out"
    SPLIT = "split"
    MERGE = "merge"
    SCALE = "scale"
    SPILL = "spill"
    """A site's own: a unit goes to disk, and its input waits."""
    FETCH = "fetch"
    """A site's own: a unit comes back to memory."""
    PLACE = "place"
    """Nobody asks for it: sites are elsewhere."""
    RESIZE = "resize"
    """Nobody asks for it: there is another number of sites."""

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True)
class Decision:
    """Who wanted what from which epoch on, why, and why not if it was refused.

    Args:
        epoch: from which on.
        policy: the policy's name, "you" for what a user asked for, "sites" where executors came or went, "rotation" for
            what a site spilled and fetched.
        action: the verb.
        unit: None where it is not about one.
        site: None where it is not about one.
        reason: why.
        refused: why it was refused, if it was.

    >>> Decision(7, "sites", Verb.RESIZE, None, None, "executors joined: 1").as_dict()["unit"]
    -1
    """

    epoch: int
    policy: str
    action: Verb
    unit: Unit | None
    site: Site | None
    reason: str
    refused: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """As a plain dictionary; -1 stands for no unit and no site."""
        unit, site = (_NONE if number is None else number for number in (self.unit, self.site))
        own = {field.name: vars(self)[field.name] for field in fields(Decision)}
        return own | {"action": self.action.value, "unit": unit, "site": site}


@dataclass(frozen=True)
class UnderWay:
    """A decision that was accepted and has not come to its end, with the `units` that it still concerns: of one that
    was split meanwhile, its parts."""

    decision: Decision
    units: tuple[Unit, ...]


@dataclass(frozen=True)
class Ended:
    """A decision that came to its end with an epoch: it is done, or was `abandoned` for this reason. `new_units` are
    those that there are since, if units were split or merged by it."""

    decision: Decision
    abandoned: str | None = None
    new_units: tuple[Unit, ...] = ()


@dataclass(frozen=True)
class DecisionOutcome(Decision):
    """A decision and what has become of it.

    Args:
        epoch: from which on.
        policy: who wanted it.
        action: the verb.
        unit: None where it is not about one.
        site: None where it is not about one.
        reason: why.
        refused: why it was refused, if it was.
        ended: the epoch that ended it, None while it is under way.
        abandoned: why it was abandoned, if it was.
        new_units: the units that there are since, if units were split or merged by it.

    >>> move = DecisionOutcome(7, "you", Verb.MOVE, 3, 1, "to see", ended=9)
    >>> move.outcome, move.done, move.as_dict()["done"]
    ('done', 9, 9)
    """

    ended: int | None = None
    abandoned: str | None = None
    new_units: tuple[Unit, ...] = ()

    @classmethod
    def of(
        cls, decision: Decision, ended: int | None, abandoned: str | None = None, new_units: tuple[Unit, ...] = ()
    ) -> DecisionOutcome:
        """What has become of a decision."""
        return cls(**vars(decision), ended=ended, abandoned=abandoned, new_units=new_units)

    @property
    def outcome(self) -> Fate:
        """In a word."""
        if self.refused is not None:
            return "refused"
        if self.ended is None:
            return "waiting"
        return "done" if self.abandoned is None else "abandoned"

    @property
    def done(self) -> int | None:
        """The epoch with which it was carried out, None if it was not."""
        return self.ended if self.outcome == "done" else None

    def as_dict(self) -> dict[str, Any]:
        """As a plain dictionary."""
        became = {"outcome": self.outcome, "done": self.done, "abandoned": self.abandoned, "new_units": self.new_units}
        return super().as_dict() | became


class DecisionRecord(Protocol):
    """What an epoch's record says of decisions."""

    @property
    def number(self) -> int: ...
    @property
    def decisions(self) -> tuple[Decision, ...]: ...
    @property
    def under_way(self) -> tuple[UnderWay, ...]: ...
    @property
    def ended(self) -> tuple[Ended, ...]: ...


def outcomes(records: Sequence[DecisionRecord]) -> list[DecisionOutcome]:
    """What has become of the decisions that some records, one after the other, tell of, oldest first. Of those that are
    older than the records it is told if they ended in one of them, or have not ended yet.

    An accepted decision is done with the epoch that made it, unless that one's record has it among those under way or
    abandoned.
    """
    if not records:
        return []
    ends = {
        end.decision: DecisionOutcome.of(end.decision, record.number, end.abandoned, end.new_units)
        for record in records
        for end in record.ended
    }
    waiting = {one.decision for one in records[-1].under_way}
    first = records[0].number
    earlier = _distinct(decision for decision in (*ends, *waiting) if decision.epoch < first)
    made = [decision for record in records for decision in record.decisions]
    return [
        DecisionOutcome.of(decision, None)
        if decision in waiting
        else ends.get(decision) or DecisionOutcome.of(decision, decision.epoch)
        for decision in (*sorted(earlier, key=lambda decision: decision.epoch), *made)
    ]


def name_units(units: Sequence[Unit]) -> str:
    """The units that one was split into, whose ids follow each other, or the one that it was merged into.

    >>> name_units((12,)), name_units((12, 13)), name_units((12, 13, 14))
    ('unit 12', 'units 12 and 13', 'units 12 to 14')
    """
    if len(units) == 1:
        return f"unit {units[0]}"
    return f"units {units[0]} {'and' if len(units) == 2 else 'to'} {units[-1]}"


def describe_end(unit: Unit, new_units: Sequence[Unit]) -> str:
    """Why there is no unit any more that was split or merged.

    >>> describe_end(7, (12, 13)), describe_end(7, (14,))
    ('there is no unit 7; it was split into 12 and 13', 'there is no unit 7; it was merged into 14')
    """
    into = name_units(new_units).split(" ", 1)[1]
    return f"there is no unit {unit}; it was {'split' if len(new_units) > 1 else 'merged'} into {into}"


def _distinct(decisions: Iterable[Decision]) -> list[Decision]:
    return list(dict.fromkeys(decisions))
