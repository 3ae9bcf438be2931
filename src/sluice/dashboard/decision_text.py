"""What was decided about units, in words: the same in the terminal, in `sluice inspect` and in the report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sluice.model.epoch.decision import DecisionOutcome, Fate, Verb, name_units
from sluice.model.ids import Unit
from sluice.model.routing.unit_ids import list_units

_MANY_AT_ONCE = (Verb.SPILL, Verb.FETCH, Verb.FREEZE, Verb.CLEAN_UP)
"""What a site does to many units at a time."""
_WHERE = {
    **dict.fromkeys(_MANY_AT_ONCE, "of"),
    Verb.SHARE: "with",
    Verb.RELEASE: "from",
    Verb.LAY_OUT: "of",
    Verb.SPLIT: "of",
    Verb.MERGE: "of",
}
"""How an action is said to be about a site, where it does not bring a unit there."""
_LISTED = 3  # runs of units that are named


@dataclass(frozen=True)
class DecisionSummary:
    """A decision, or what a site spilled or fetched in an epoch: who did what, why, and what has become of it. `ended`
    is the epoch that ended it, `why` says why it was refused or abandoned, `new_units` what came of units by it."""

    epoch: int
    policy: str
    action: str
    reason: str
    fate: Fate
    ended: int | None
    why: str | None
    new_units: str | None = None

    @property
    def outcome(self) -> str:
        """
        >>> DecisionSummary(7, "you", "scale", "to see", "abandoned", 9, "nobody came").outcome
        'abandoned in epoch 9: nobody came'
        """
        later = "" if self.ended in (None, self.epoch) or self.fate == "refused" else f" in epoch {self.ended}"
        outcome = self.why or self.new_units
        return f"{self.fate}{later}" + (f": {outcome}" if outcome else "")


def summarize(outcomes: Iterable[DecisionOutcome]) -> list[DecisionSummary]:
    """Decisions in words. Spills of a site in one epoch are told as one, as its fetches are: there may be hundreds.

    >>> spills = [DecisionOutcome(4, "memory", Verb.SPILL, unit, 0, "full", ended=4) for unit in (9, 7, 8, 2)]
    >>> [(one.action, one.reason) for one in summarize(spills)]
    [('spill units 2, 7-9 of site 0', 'full')]
    >>> summarize([DecisionOutcome(4, "you", Verb.RELEASE, 3, site=1, reason="to see", ended=4)])[0].action
    'release unit 3 from site 1'
    >>> summarize([DecisionOutcome(4, "you", Verb.SPLIT, 3, 1, "to see", ended=6, new_units=(8, 9))])[0].outcome
    'done in epoch 6: now units 8 and 9'
    """
    return [summarize_group(group) for group in group_decisions(outcomes)]


def group_decisions(outcomes: Iterable[DecisionOutcome]) -> list[list[DecisionOutcome]]:
    """Decisions one by one, but those together of what a site did to many units in an epoch."""
    groups: dict[tuple[object, ...], list[DecisionOutcome]] = {}
    for number, one in enumerate(outcomes):
        alone = None if one.action in _MANY_AT_ONCE else number
        fate = one.ended, one.abandoned, one.refused
        groups.setdefault((one.epoch, one.policy, one.action, one.site, *fate, alone), []).append(one)
    return list(groups.values())


def summarize_group(group: Sequence[DecisionOutcome]) -> DecisionSummary:
    """Decisions of one group in words."""
    first = group[0]
    action, reason = str(first.action), first.reason
    if first.unit is not None:  # else it is not about units
        units = _units([one.unit for one in group if one.unit is not None])
        action = f"{action} {units} {_WHERE.get(first.action, 'to')} site {first.site}"
        reason += "; …" if any(one.reason != reason for one in group) else ""
    why = first.refused or first.abandoned
    new_units = f"now {name_units(first.new_units)}" if first.new_units else None
    return DecisionSummary(first.epoch, first.policy, action, reason, first.outcome, first.ended, why, new_units)


def _units(units: list[Unit]) -> str:
    return f"unit{'s' if len(set(units)) > 1 else ''} {list_units(units, _LISTED)}"


def adapted_text(moves: int, spills: int, fetches: int) -> str:
    """How many units changed their place.

    >>> adapted_text(3, 1, 0)
    '3 moves, 1 spill, 0 fetches'
    """
    counts = ((moves, "move", "moves"), (spills, "spill", "spills"), (fetches, "fetch", "fetches"))
    return ", ".join(f"{count:,} {one if count == 1 else more}" for count, one, more in counts)
