"""What was decided about units, in words: the same in the terminal, in `sluice inspect` and in the report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sluice.model.decision import Decision
from sluice.model.ids import Unit
from sluice.model.unit_ranges import ranges

_MANY_AT_ONCE = ("spill", "fetch", "freeze", "clean up")
"""What a site does to many units at a time."""
_WHERE = {
    **dict.fromkeys(_MANY_AT_ONCE, "of"),
    "share": "with",
    "release": "from",
    "lay out": "of",
    "split": "of",
    "merge": "of",
}
"""How an action is said to be about a site, where it does not bring a unit there."""
_LISTED = 3  # ranges of units that are named


@dataclass(frozen=True)
class DecisionSummary:
    """A decision, or what a site spilled or fetched in an epoch: who did what, why, and why not if it was refused."""

    epoch: int
    policy: str
    action: str
    reason: str
    refused: str | None

    @property
    def outcome(self) -> str:
        return f"refused: {self.refused}" if self.refused else "done"


def summarize(decisions: Iterable[Decision]) -> list[DecisionSummary]:
    """Decisions in words. Spills of a site in one epoch are told as one, as its fetches are: there may be hundreds.

    >>> spills = [Decision(4, "memory", "spill", unit, site=0, reason="full") for unit in (9, 7, 8, 2)]
    >>> [(one.action, one.reason) for one in summarize(spills)]
    [('spill units 2, 7-9 of site 0', 'full')]
    >>> summarize([Decision(4, "you", "release", 3, site=1, reason="to see")])[0].action
    'release unit 3 from site 1'
    """
    groups: dict[tuple[object, ...], list[Decision]] = {}
    for number, d in enumerate(decisions):
        alone = None if d.action in _MANY_AT_ONCE else number
        groups.setdefault((d.epoch, d.policy, d.action, d.site, alone), []).append(d)
    return [_told(group) for group in groups.values()]


def _told(group: list[Decision]) -> DecisionSummary:
    first = group[0]
    if first.unit is None:  # it is not about units
        return DecisionSummary(first.epoch, first.policy, first.action, first.reason, first.refused)
    more = "; …" if any(d.reason != first.reason for d in group) else ""
    units = _units([d.unit for d in group if d.unit is not None])
    action = f"{first.action} {units} {_WHERE.get(first.action, 'to')} site {first.site}"
    return DecisionSummary(first.epoch, first.policy, action, first.reason + more, first.refused)


def _units(units: list[Unit]) -> str:
    found = ranges(sorted(set(units)))
    listed = ", ".join(f"{low}" if high == low + 1 else f"{low}-{high - 1}" for low, high in found[:_LISTED])
    return f"unit{'s' if len(set(units)) > 1 else ''} {listed}{', …' if len(found) > _LISTED else ''}"


def adapted_text(moves: int, spills: int, fetches: int) -> str:
    """How many units changed their place.

    >>> adapted_text(3, 1, 0)
    '3 moves, 1 spill, 0 fetches'
    """
    counts = ((moves, "move", "moves"), (spills, "spill", "spills"), (fetches, "fetch", "fetches"))
    return ", ".join(f"{count:,} {one if count == 1 else more}" for count, one, more in counts)
