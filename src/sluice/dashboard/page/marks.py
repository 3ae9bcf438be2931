"""What was decided, as marks on the map and rows of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sluice.dashboard.decision_text import DecisionSummary, group_decisions, summarize_group
from sluice.dashboard.page.frames import UnitFrame
from sluice.model.epoch.decision import Decision, DecisionOutcome, Ended, UnderWay, outcomes

MOST_MARKS = 1000
"""Decisions that the page gets: the newest ones."""


@dataclass(frozen=True)
class DecidedEpoch:
    """What an epoch's record says of decisions."""

    number: int
    decisions: tuple[Decision, ...]
    under_way: tuple[UnderWay, ...]
    ended: tuple[Ended, ...]


@dataclass(frozen=True)
class Mark:
    """A decision, or several of one kind about one site: who wanted what of which unit and site, why, what has become
    of it and why not. `came_from` is the site that held the unit until then."""

    epoch: int
    policy: str
    verb: str
    unit: int | None
    site: int | None
    came_from: int | None
    action: str
    reason: str
    fate: str
    outcome: str
    ended: int | None


def marks_of(decided: Sequence[DecidedEpoch], units: Mapping[int, UnitFrame]) -> list[Mark]:
    """What some epochs decided, oldest first, and of much the newest; `units` has the units of each epoch."""
    groups = group_decisions(outcomes(decided))[-MOST_MARKS:]
    return [_mark(group, summarize_group(group), units) for group in groups]


def _mark(group: Sequence[DecisionOutcome], summary: DecisionSummary, units: Mapping[int, UnitFrame]) -> Mark:
    first = group[0]
    before = units.get(first.epoch - 1)
    came_from = before.holder_of(first.unit) if before is not None and first.unit is not None else None
    return Mark(
        epoch=first.epoch,
        policy=first.policy,
        verb=first.action.value,
        unit=first.unit,
        site=first.site,
        came_from=came_from,
        action=summary.action,
        reason=summary.reason,
        fate=summary.fate,
        outcome=summary.outcome,
        ended=summary.ended,
    )
