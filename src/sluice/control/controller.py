"""Between two epochs: collect what the sites saw, ask the policy, vet what it asks for, and have it carried out.

Rounds go as in section 5.3 of the Flux paper, with its δ in wall time: statistics are collected over as many epochs as
fit into it, then units move, and the time that took is the next δ. An epoch boundary is where everybody is at rest, so
pausing and draining have nothing to wait for; what remains of a move takes two epochs. In the first the source brings
the unit's state into pieces of its own, in the second the target reads them and goes on.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sluice.control.movement import Extract, Install, Instruction, Movement, Restart, Transfer
from sluice.control.rounds import Rounds
from sluice.model.epoch import EpochRecord
from sluice.model.routing import Routing
from sluice.model.view import ClusterView, Move
from sluice.policies import Policy

Decision = dict[str, Any]
MINIMUM = 5.0
"""Seconds over which statistics are collected at least, unless said otherwise."""
FEWEST = 2
"""Epochs whose statistics a decision needs at least: one alone shows more chance than load."""


@dataclass(frozen=True)
class Plan:
    """What the next epoch does: under which routing, which units their sites prepare to leave, and what was decided."""

    routing: Routing
    leaving: tuple[int, ...] = ()
    decisions: tuple[Decision, ...] = ()


@dataclass(frozen=True)
class _Sums:
    """Statistics of the collection phase so far."""

    since: float
    epochs: int
    seconds: float
    unit_rows: np.ndarray
    site_busy: np.ndarray

    @classmethod
    def none(cls, now: float, routing: Routing) -> _Sums:
        return cls(now, 0, 0.0, np.zeros(routing.units, dtype=np.int64), np.zeros(routing.sites))

    def plus(self, record: EpochRecord) -> _Sums:
        busy = np.array([site["busySeconds"] for site in record.figures["sites"]])
        return replace(
            self,
            epochs=self.epochs + 1,
            seconds=self.seconds + float(busy.max(initial=0.0)),
            unit_rows=self.unit_rows + np.array(record.figures["unitRows"]),
            site_busy=self.site_busy + busy,
        )


class Controller:
    """The policy's hand on a running query. The clock is handed in with every call."""

    def __init__(self, policy: Policy, site_memory: int, minimum: float = MINIMUM, advise: bool = False) -> None:
        self.policy, self.site_memory, self.advise = policy, site_memory, advise
        self.rounds = Rounds(minimum)
        self._sums: _Sums | None = None
        self._moving: dict[int, Movement] = {}
        self._moving_since: float | None = None
        self._asked: list[Move] = []
        self._lock = threading.Lock()

    def ask(self, move: Move) -> None:
        """A move that the user wants, beside the policy's."""
        with self._lock:
            self._asked.append(move)

    def after(self, record: EpochRecord, now: float) -> Plan:
        """What to do in the epoch that follows a committed one."""
        self._sums = _Sums.none(now, record.routing) if self._sums is None else self._sums.plus(record)
        routing = self._carried_out(record, now)
        sums = self._sums
        if self._moving:  # extracted: their sites change now
            return Plan(routing)
        with self._lock:
            asked, self._asked = self._asked, []
        moves: list[tuple[str, Move]] = [("you", move) for move in asked]
        if not moves and sums.epochs >= FEWEST and now - sums.since >= self.rounds.collect:
            moves = [(self.policy.name, move) for move in self.policy.decide(self.view(record, sums))]
            if not moves:
                self.rounds = self.rounds.after(None)
            self._sums = _Sums.none(now, routing)
        decisions = tuple(self._decided(who, move, record) for who, move in moves)
        if self._moving:
            self._moving_since = now
        return Plan(routing, tuple(sorted(self._moving)), decisions)

    def view(self, record: EpochRecord, sums: _Sums) -> ClusterView:
        """The cluster as the policy sees it. A unit counts as spilled where its site has state on disk."""
        sites, owners = record.figures["sites"], np.array(record.routing.owners)
        on_disk = np.array([site["diskBytes"] > 0 for site in sites])
        return ClusterView(
            epoch=record.number,
            seconds=sums.seconds,
            unit_site=owners,
            unit_rows=sums.unit_rows,
            unit_bytes=unit_bytes(record),
            unit_spilled=on_disk[owners],
            unit_pending=np.zeros(len(owners), dtype=np.int64),
            site_idle=sums.seconds - sums.site_busy,
            site_memory=np.full(len(sites), self.site_memory),
        )

    def _decided(self, who: str, move: Move, record: EpochRecord) -> Decision:
        """Begins a move that can be carried out; either way, says what became of it."""
        refused = vet(move, record.routing, self._moving)
        if refused is None and self.advise and who != "you":
            refused = "the policy only advises"
        if refused is None:
            movement = Movement(move.unit, record.routing.owners[move.unit], move.site, producers=())
            _expect(movement.begin(), Extract)
            self._moving[move.unit] = movement
        return {
            "epoch": record.number + 1,
            "policy": who,
            "action": "move",
            "unit": move.unit,
            "site": move.site,
            "reason": move.reason,
            "refused": refused,
        }

    def _carried_out(self, record: EpochRecord, now: float) -> Routing:
        """Takes the moves under way one step on, now that another epoch has committed; the routing from here on."""
        routing = record.routing
        done = [m for m in self._moving.values() if routing.owners[m.unit] == m.target]
        for movement in done:
            _expect(movement.transferred(), Install)
            _expect(movement.installed(), Restart)
            del self._moving[movement.unit]
        if done and not self._moving and self._moving_since is not None:
            self.rounds = self.rounds.after(now - self._moving_since)
            self._moving_since, self._sums = None, _Sums.none(now, routing)
        for movement in self._moving.values():
            _expect(movement.extracted(), Transfer)
            routing = routing.moved(movement.unit, movement.target, record.number + 1)
        return routing


def unit_bytes(record: EpochRecord) -> np.ndarray:
    """The state of each unit, from what the manifests say."""
    found = np.zeros(record.routing.units)
    for manifest in record.manifests:
        for run in manifest:
            units, rows = run.unit_rows
            found[units] += rows * (run.segment.length / max(1, run.segment.rows))
    return found


def vet(move: Move, routing: Routing, moving: dict[int, Movement] | None = None) -> str | None:
    """Why a move cannot be carried out, or None."""
    if not 0 <= move.unit < routing.units:
        return f"there is no unit {move.unit}"
    if not 0 <= move.site < routing.sites:
        return f"there is no site {move.site}"
    if routing.owners[move.unit] == move.site:
        return f"unit {move.unit} is at site {move.site} already"
    if moving and move.unit in moving:
        return f"unit {move.unit} is on its way to site {moving[move.unit].target}"
    return None


def _expect(instructions: list[Instruction], kind: type[Instruction]) -> None:
    """The protocol's next step is the one that an epoch carries out."""
    assert instructions and isinstance(instructions[0], kind), instructions
