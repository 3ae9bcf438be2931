"""Passing a storage token: from some place of the stream on, another holder stores its rows (D-CAPE proposal, Fig. 2).

Every row of a shared unit goes from a split to all holders, and the one that has the token of the row's input stores
it. The coordinator tells the split, the split puts a command into the stream, and each holder does as the command says
when it comes to it: the old holder gives the token up, the new one takes it. By the clock there may be two of them
meanwhile, or none, as the network delays what it carries. By the stream there is always exactly one.

The machine says what has to be done next and is told when it is done. Whoever drives it does the work, and owes it:

- What the coordinator tells a split is done in the order in which it was told.
- A command reaches a holder behind all rows that the split sent before it and ahead of all that it sends after it. How
  long that takes, and which of the holders it reaches first, does not matter.
- A new holder gets the stream from a place before the command that gives it the token.
- All holders take the rows of *both* inputs in one order. The proposal has a split for each input and does not ask for
  this, but without it a pair of rows whose holders see it in different orders is found twice, or by nobody.

On Spark all of it is one step: at an epoch boundary nothing is on its way, so the routing of the next epoch is split,
command and stream at once, and the epoch carrier reshares directly. The simulator runs the protocol as it is here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from sluice.model.errors import ProtocolError
from sluice.model.ids import InputNumber, Site, Unit


class PassPhase(Enum):
    """How far a token has come on its way."""

    DECIDED = "decided"
    ORDERED = "ordered"
    IN_STREAM = "in the stream"
    PASSED = "passed"


@dataclass(frozen=True)
class PutCommand:
    """The split puts the command into the stream that it sends to all these holders."""

    unit: Unit
    input: InputNumber
    holders: tuple[Site, ...]


@dataclass(frozen=True)
class StartStoring:
    """A holder stores rows of the input from here on: of so many behind the command the one whose turn it is. Who has
    the token alone stores 1 of 1."""

    unit: Unit
    input: InputNumber
    site: Site
    turn: int
    turns: int


@dataclass(frozen=True)
class StopStoring:
    """A holder stores no more rows of the input from here on."""

    unit: Unit
    input: InputNumber
    site: Site


PassInstruction: TypeAlias = PutCommand | StartStoring | StopStoring


class TokenPassing:
    """The token of one input of a shared unit on its way from those that store its rows to those that will. That is one
    holder each, or several that store in turn.

    >>> passing = TokenPassing(unit=7, input_=1, holders=(0, 1), storing=(0,), target=(1,))
    >>> passing.begin()
    [PutCommand(unit=7, input=1, holders=(0, 1))]
    >>> passing.put()
    >>> passing.reached(1), passing.phase.value  # the network was faster to site 1
    ([StartStoring(unit=7, input=1, site=1, turn=0, turns=1)], 'in the stream')
    >>> passing.reached(0), passing.phase.value
    ([StopStoring(unit=7, input=1, site=0)], 'passed')
    """

    def __init__(
        self, unit: Unit, input_: InputNumber, holders: Sequence[Site], storing: Sequence[Site], target: Sequence[Site]
    ) -> None:
        """`holders` are all that get the stream when the command is put into it."""
        self.unit, self.input = unit, input_
        self.holders, self.storing, self.target = tuple(holders), tuple(storing), tuple(target)
        if not self.target or self.storing == self.target:
            raise ProtocolError(f"{self} goes nowhere")
        strangers = sorted({*self.storing, *self.target} - {*self.holders})
        if strangers:
            raise ProtocolError(f"{self} concerns site {strangers[0]}, which does not hold the unit")
        self.phase = PassPhase.DECIDED
        self._unreached = set(self.holders)

    def begin(self) -> list[PassInstruction]:
        """Tell the split."""
        self._advance(PassPhase.DECIDED, PassPhase.ORDERED, "begin")
        return [PutCommand(self.unit, self.input, self.holders)]

    def put(self) -> None:
        """The command is in the stream; it cannot be taken back, only be followed by another."""
        self._advance(PassPhase.ORDERED, PassPhase.IN_STREAM, "the command in the stream")

    def reached(self, site: Site) -> list[PassInstruction]:
        """A holder has processed all rows ahead of the command, and none behind it."""
        if self.phase is not PassPhase.IN_STREAM or site not in self._unreached:
            raise self._misplaced(f"the command at site {site}")
        self._unreached.remove(site)
        if not self._unreached:
            self.phase = PassPhase.PASSED
        if site in self.target:
            return [StartStoring(self.unit, self.input, site, self.target.index(site), len(self.target))]
        return [StopStoring(self.unit, self.input, site)] if site in self.storing else []

    def _advance(self, finished: PassPhase, following: PassPhase, event: str) -> None:
        if self.phase is not finished:
            raise self._misplaced(event)
        self.phase = following

    def _misplaced(self, event: str) -> ProtocolError:
        return ProtocolError(f"{event} does not fit {self}, which is {self.phase.value}")

    def __str__(self) -> str:
        source, target = (" and ".join(map(str, sites)) for sites in (self.storing, self.target))
        return f"the token of unit {self.unit}, input {self.input}, from site {source} to site {target}"
