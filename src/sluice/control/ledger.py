"""What becomes of decisions from one epoch's record to the next: each is under way until it is done, or abandoned for a
reason. Nothing is kept here beyond a step: what is under way is in the record.

| verb | is done with the epoch |
| --- | --- |
| move | whose routing has the unit at its target |
| split, merge | whose routing has the other units |
| scale | that has as many sites |
| share, release, pass token, lay out | whose routing has the unit shared so: a later one if much is copied before |
| freeze, clean up | whose sites say so |
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from sluice.control.loop import ControlLoop
from sluice.model.decision import Decision, Ended, UnderWay, name_units
from sluice.model.ids import Unit
from sluice.model.redivision import in_their_place
from sluice.model.verb import Verb

RESTARTED = "the driver was started again"
"""Why a decision is abandoned that nobody is at any more."""
RUN_AGAIN = "its epoch failed, and was run again with another number of sites"
SUPERSEDED = "another number of sites was asked for"
_SHARING = frozenset((Verb.SHARE, Verb.RELEASE, Verb.PASS_TOKEN, Verb.LAY_OUT))
_LASTING = _SHARING | {Verb.MOVE, Verb.FREEZE, Verb.CLEAN_UP, Verb.SPLIT, Verb.MERGE, Verb.SCALE}
"""Verbs that may not be done with the epoch that they are decided for."""
_LOST_WITH_AN_EPOCH = _SHARING | {Verb.FREEZE}
"""Verbs of which nothing is left if their epoch is not committed."""
_log = logging.getLogger(__name__)


class Ledger:
    """The decisions made in one step from an epoch to the next, and those that are under way or end with it."""

    def __init__(self, under_way: Iterable[UnderWay] = ()) -> None:
        self.decisions: list[Decision] = []
        self.ended: list[Ended] = []
        self.under_way = list(under_way)

    def add(self, decisions: Iterable[Decision]) -> None:
        """Decisions for the epoch to come."""
        for decision in decisions:
            self.decisions.append(decision)
            if decision.refused is None and decision.action in _LASTING:
                units = () if decision.unit is None else (decision.unit,)
                self.under_way.append(UnderWay(decision, units))

    def recover(self, decisions: Sequence[Decision], ended: Sequence[Ended]) -> None:
        """What was decided for an epoch that came to nothing and is decided anew. What its routing was to end has not
        ended, as there is another one."""
        asked = [decision for decision in decisions if decision.action not in (Verb.PLACE, Verb.RESIZE)]
        self.add(asked)
        for decision in asked:
            if decision.refused is None and decision.action in _LOST_WITH_AN_EPOCH:
                self._end(decision, RUN_AGAIN)
        for end in ended:
            if end.abandoned is not None or end.decision.action in (Verb.SPLIT, Verb.MERGE):
                self._end(end.decision, end.abandoned, end.new_units)

    def end(
        self, verb: Verb, unit: Unit | None, abandoned: str | None = None, new_units: tuple[Unit, ...] = ()
    ) -> None:
        """What is under way about a unit is done, or abandoned; `new_units` are in the place of one that was split or
        merged."""
        for one in list(self.under_way):
            if one.decision.action == verb and (unit is None or unit in one.units):
                self._end(one.decision, abandoned, new_units)

    def follow(self, successors: Mapping[Unit, tuple[Unit, ...]]) -> None:
        """What is under way about units that were split or merged goes on for those in their place."""
        self.under_way = [
            UnderWay(one.decision, tuple(in_their_place(one.units, successors))) for one in self.under_way
        ]

    def units_under(self, verb: Verb) -> list[Unit]:
        """The units that are under way by a verb."""
        return list(dict.fromkeys(unit for one in self.under_way if one.decision.action == verb for unit in one.units))

    def conclude(self, loop: ControlLoop) -> None:
        """End what the loop's routing ends, and what the loop is not at any more."""
        scales = [one for one in self.under_way if one.decision.action == Verb.SCALE]
        for one in list(self.under_way):
            decision = one.decision
            match decision.action:
                case Verb.MOVE:
                    unit = one.units[0]
                    if loop.routing.holder(unit) == decision.site:
                        self._end(decision)
                    elif unit not in loop.moves or loop.moves[unit].target != decision.site:
                        self._end(decision, RESTARTED)
                case verb if verb in _SHARING:
                    self._conclude_sharing(one, loop)
                case Verb.SPLIT | Verb.MERGE:
                    if one.units[0] not in loop.redivisions:
                        self._end(decision, RESTARTED)
                case Verb.SCALE:
                    if loop.scaling is None:
                        self._end(decision, RESTARTED)
                    elif one is not scales[-1]:
                        self._end(decision, SUPERSEDED)
                    elif loop.scaling.is_over(loop.routing):
                        self._end(decision)

    def _conclude_sharing(self, one: UnderWay, loop: ControlLoop) -> None:
        wishes = [wish for wish in loop.handovers.get(one.units[0], ()) if wish.is_of(one.decision)]
        if any(wish.routed is None for wish in wishes):
            return
        if wishes:
            self._end(one.decision)
        elif one.decision.epoch < loop.epoch:
            self._end(one.decision, RESTARTED)
        else:  # it is done with the epoch that it was decided for
            self.under_way.remove(one)

    def _end(self, decision: Decision, abandoned: str | None = None, new_units: tuple[Unit, ...] = ()) -> None:
        self.under_way = [one for one in self.under_way if one.decision != decision]
        self.ended.append(Ended(decision, abandoned, new_units))
        what = decision.action if decision.unit is None else f"{decision.action} unit {decision.unit}"
        done = f"done, {name_units(new_units)} in its place" if new_units else "done"
        outcome = done if abandoned is None else f"abandoned, {abandoned}"
        _log.info("%s: %s of epoch %d: %s", decision.policy, what, decision.epoch, outcome)
