"""Diffusive balancing: each site has a balancer that talks to a few partners, and to nobody else.

The paper on operator placement, sections 3.2 to 3.4. A balancer is a machine without a clock: it takes messages and
gives messages. The simulator carries them with the network's latency, the policy `placement` in turns.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from sluice.model.ids import Site
from sluice.policies.planning.piece_selection import HeldPieces, Selection
from sluice.policies.planning.workload import Fluctuation, SmoothedWorkload


@dataclass(frozen=True)
class DiffusionSettings:
    """How a balancer chooses partners, and when it asks for load."""

    partners: int = 5
    """max₁: how many partners it asks for; others may ask for half as many relations with it, rounded up (max₂)."""
    kappa: float = 1.2
    """κ: how much a workload changes before it is told, and how far below the average one asks for load."""
    alpha: float = Fluctuation().smoothing(1.2)
    tries: int = 5
    """MaximumTry: how many random sites are asked beside neighbours."""
    probes: int = 5
    """How many sites are probed in a round when all partners are overloaded."""
    overload: float = 0.9
    """From which workload on a site is overloaded."""
    selection: Selection = Selection.FLOW_AWARE

    @property
    def accepted(self) -> int:
        return (self.partners + 1) // 2


class Message(msgspec.Struct, frozen=True):
    """From one balancer to another; each tells the sender's workload beside what it is about."""

    sender: Site
    receiver: Site
    workload: float


class PartnerRequest(Message, frozen=True):
    """The sender wants the receiver as a partner."""


class PartnerReply(Message, frozen=True):
    """Whether the receiver's request was accepted."""

    accepted: bool


class PartnersNoMore(Message, frozen=True):
    """The sender chooses its partners anew; the two are none from now on."""


class WorkloadChanged(Message, frozen=True):
    """The sender's workload has changed enough to be told."""


class LoadRequest(Message, frozen=True):
    """The sender would take so much of the receiver's workload."""

    amount: float


class Probe(Message, frozen=True):
    """The sender and all its partners are overloaded, and it looks for somebody who is not."""


class ProbeReply(Message, frozen=True):
    """What a probe has come to; the two are partners if the workload is below the limit."""


class Migration(msgspec.Struct, frozen=True):
    """A piece goes to another site."""

    piece: int
    receiver: Site
    reason: str


class Balancer:
    """The part of one site. `neighbours` are the native sites of its pieces' neighbours, by falling neighbouring
    factor; `sites` is how many sites there are."""

    def __init__(
        self, site: Site, sites: int, neighbours: Sequence[Site], settings: DiffusionSettings, seed: int = 0
    ) -> None:
        self.site, self.sites, self.settings = site, sites, settings
        self.neighbours = tuple(neighbours)
        self.workload = SmoothedWorkload(settings.alpha, settings.kappa)
        self.chosen: set[Site] = set()
        """Partners by its own request: the paper's g₁."""
        self.accepted: set[Site] = set()
        """The others: the paper's g₂."""
        self.loads: dict[Site, float] = {}
        """What partners have told of their workloads."""
        self._random = random.Random(seed * 1_000_003 + site)
        self._asked: set[Site] = set()
        """Whose reply is still to come."""
        self._refused: set[Site] = set()
        self._cursor = 0
        self._requests: list[LoadRequest] = []
        self._exportable = 0.0
        """Half the workload at the beginning of the round, less what was given away since."""
        self._probes = 0

    @property
    def partners(self) -> set[Site]:
        return self.chosen | self.accepted

    # --- partners (Algorithm 1) ---

    def choose_partners(self) -> list[Message]:
        """Begin anew: neighbours by falling factor, then sites by chance."""
        ended = [PartnersNoMore(self.site, other, self.workload.value) for other in sorted(self.partners)]
        self.chosen, self.accepted, self.loads = set(), set(), {}
        self._asked, self._refused, self._cursor = set(), set(), 0
        return [*ended, *self._ask_for_partners()]

    def _ask_for_partners(self) -> list[Message]:
        requests: list[Message] = []
        last = len(self.neighbours) + self.settings.tries
        while len(self.chosen) + len(self._asked) < self.settings.partners and self._cursor < last:
            other = self._candidate(self._cursor)
            self._cursor += 1
            if other is None or other in self.chosen or other in self._asked:
                continue
            if other in self.accepted:
                self.accepted.discard(other)
                self.chosen.add(other)
            else:
                self._asked.add(other)
                requests.append(PartnerRequest(self.site, other, self.workload.value))
        return requests

    def _candidate(self, cursor: int) -> Site | None:
        if cursor < len(self.neighbours):
            return self.neighbours[cursor]
        return self._stranger(self.chosen | self._asked | self._refused | set(self.neighbours))

    def _stranger(self, others: set[Site]) -> Site | None:
        """A site by chance that is not among these."""
        if len(others | {self.site}) >= self.sites:
            return None
        while (site := Site(self._random.randrange(self.sites))) in others or site == self.site:
            pass
        return site

    # --- messages ---

    def handle(self, message: Message) -> list[Message]:
        """Take a message; what it answers."""
        other = message.sender
        if other in self.partners or isinstance(message, PartnerRequest | PartnerReply | Probe | ProbeReply):
            self.loads[other] = message.workload
        replies: list[Message] = []
        match message:
            case PartnerRequest():
                replies = [PartnerReply(self.site, other, self.workload.value, self._accept(other))]
            case PartnerReply(accepted=accepted):
                self._asked.discard(other)
                if accepted:
                    self._befriend(other)
                else:
                    self._refused.add(other)
                replies = self._ask_for_partners()
            case PartnersNoMore():
                self.chosen.discard(other)
                self.accepted.discard(other)
                replies = self._ask_for_partners()
            case LoadRequest():
                self._requests.append(message)
            case Probe():
                if self.workload.value < self.settings.overload:
                    self.accepted.add(other)
                replies = [ProbeReply(self.site, other, self.workload.value)]
            case ProbeReply():
                if message.workload < self.settings.overload:
                    self._befriend(other)
                else:
                    replies = self._probe()
        if other not in self.partners and other not in self._asked:
            self.loads.pop(other, None)
        return replies

    def _accept(self, other: Site) -> bool:
        if other in self.chosen or other in self._asked:
            self._asked.discard(other)
            self._befriend(other)
            return True
        if other not in self.accepted and len(self.accepted) >= self.settings.accepted:
            return False
        self.accepted.add(other)
        return True

    def _befriend(self, other: Site) -> None:
        self.accepted.discard(other)
        self.chosen.add(other)

    # --- windows and rounds ---

    def end_window(self, busy: float) -> list[Message]:
        """A window is over, of which the site was busy a share; partners hear of it if that has changed enough."""
        self.workload.add_window(busy)
        if not self.workload.has_changed:
            return []
        self.workload.told = self.workload.value
        return [WorkloadChanged(self.site, other, self.workload.value) for other in sorted(self.partners)]

    def begin_round(self) -> list[Message]:
        """Ask the partner with most for load, if this site has clearly less than the average (Algorithm 2); look for
        other partners if all of them have too much."""
        own, settings = self.workload.value, self.settings
        self._exportable, self._probes = own / 2, 0
        loads = {other: self.loads[other] for other in sorted(self.partners) if other in self.loads}
        if not loads:
            return []
        if min(own, *loads.values()) >= settings.overload:
            return self._probe()
        most = max(loads, key=lambda other: loads[other])
        if settings.kappa * own >= (own + sum(loads.values())) / (1 + len(loads)):
            return []
        return [LoadRequest(self.site, most, own, (loads[most] - own) / 2)]

    def _probe(self) -> list[Message]:
        self._probes += 1
        other = self._stranger(self.partners) if self._probes <= self.settings.probes else None
        return [] if other is None else [Probe(self.site, other, self.workload.value)]

    def serve(self, pieces: Callable[[], HeldPieces]) -> list[Migration]:
        """Give pieces to those who have asked, larger requests first, up to half the workload a round."""
        requests, self._requests = sorted(self._requests, key=lambda one: -one.amount), []
        if not requests or self._exportable <= 0.0:
            return []
        migrations, held = [], pieces()
        for request in requests:
            rows, load = held.choose(
                self.site, request.sender, request.amount, self._exportable, self.settings.selection
            )
            held.load[rows] = 0.0  # given away
            self._exportable -= load
            self.workload.shift(-load)
            reason = f"site {request.sender} asked for {request.amount:.2f} of site {self.site}'s load"
            migrations += [Migration(int(held.number[row]), request.sender, reason) for row in rows]
        return migrations

    def take_in(self, load: float) -> None:
        """A piece is on its way here that is so much of a workload."""
        self.workload.shift(load)
