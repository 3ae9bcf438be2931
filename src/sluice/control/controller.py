"""Between two epochs: collect what the sites saw, ask the policy, vet what it asks for, and have it carried out.

Rounds go as in section 5.3 of the Flux paper, with its δ in wall time: statistics are collected over as many epochs as
fit into it, then units move, and the time that took is the next δ: that of the epochs in which they moved, without the
time in which no input came. An epoch boundary is where everybody is at rest, so
pausing and draining have nothing to wait for. What remains of a move goes beside the epochs' ordinary work: the source
brings the unit's state into pieces of its own, the target copies those ahead of time, and when what is missing is
little enough the routing changes. How much of this is done in one epoch is bounded by the time it takes.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, replace

import numpy as np

from sluice.control.movement import Extract, Install, Instruction, Movement, Phase, Restart, Transfer
from sluice.control.rounds import Rounds
from sluice.model.actions import Move
from sluice.model.codec import decode_column
from sluice.model.decision import Decision
from sluice.model.epoch import Attempt, EpochRecord
from sluice.model.routing import Routing, intersect
from sluice.model.state import SegmentRef, unit_bytes
from sluice.model.view import ClusterView
from sluice.policies import Policy

MINIMUM = 5.0
"""Seconds over which statistics are collected at least, unless said otherwise."""
SHARE = 0.1
"""How much longer copying for moves may make an epoch."""
COPIED = 50e6
"""Bytes that are copied in a second, as long as nothing was measured."""
LEAST = 1 << 20
"""Bytes that may always be copied in an epoch."""
RECENT = 10
"""Epochs over which a unit's state counts as large as it was at its largest: rows expire many at a time, and what fits
just after that would not for long."""


@dataclass(frozen=True)
class Plan:
    """What the next epoch does: under which routing, which units their sites prepare to leave, which segments sites
    copy for units on their way to them, at most how many bytes, and what was decided."""

    routing: Routing
    leaving: tuple[int, ...] = ()
    arriving: tuple[tuple[SegmentRef, ...], ...] = ()
    allowance: float = float("inf")
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

    def enough(self, now: float, collect: float) -> bool:
        """Whether so many seconds have been collected, as nearly as whole epochs can."""
        return self.epochs > 0 and (now - self.since) * (1 + 0.5 / self.epochs) >= collect

    def plus(self, record: EpochRecord) -> _Sums:
        busy = np.array([site["busySeconds"] for site in record.figures["sites"]])
        return replace(
            self,
            epochs=self.epochs + 1,
            seconds=self.seconds + float(busy.max(initial=0.0)),
            unit_rows=self.unit_rows + decode_column(record.figures["unitRows"]),
            site_busy=self.site_busy + busy,
        )


class Controller:
    """The policy's hand on a running query. The clock is handed in with every call."""

    def __init__(self, policy: Policy, site_memory: int, minimum: float = MINIMUM, advise: bool = False) -> None:
        self.policy, self.site_memory, self.advise = policy, site_memory, advise
        self.rounds = Rounds(minimum)
        self._memory: dict[int, int] = {}
        self._sums: _Sums | None = None
        self._sizes: deque[np.ndarray] = deque(maxlen=RECENT)
        self._moving: dict[int, Movement] = {}
        self._copied: dict[int, set[str]] = {}
        self._moving_for: float | None = None
        """Seconds of the epochs since units began to move; None while none do."""
        self._switched = 0.0
        self._rate = COPIED
        self._asked: list[Move] = []
        self._lock = threading.Lock()

    def ask(self, move: Move) -> None:
        """A move that the user wants, beside the policy's."""
        with self._lock:
            self._asked.append(move)

    def set_memory(self, site: int, size: int) -> None:
        """What a site may use for state from the next epoch on."""
        self._memory[site] = size

    def memory(self, sites: int) -> tuple[int, ...]:
        """What each site may use for state."""
        return tuple(self._memory.get(site, self.site_memory) for site in range(sites))

    def after(self, record: EpochRecord, now: float) -> Plan:
        """What to do in the epoch that follows a committed one."""
        self._sums = _Sums.none(now, record.routing) if self._sums is None else self._sums.plus(record)
        self._sizes.append(state_bytes(record))
        self._count_moving(record)
        allowance = self._allowance(record)
        routing, arriving = self._carried_out(record, now, allowance)
        sums = self._sums
        with self._lock:
            asked, self._asked = self._asked, []
        moves: list[tuple[str, Move]] = [("you", move) for move in asked]
        if not moves and not self._moving and sums.enough(now, self.rounds.collect):
            moves = [(self.policy.name, move) for move in self.policy.decide(self.view(record, sums))]
            if not moves:
                self.rounds = self.rounds.after(None)
            self._sums = _Sums.none(now, routing)
        decisions = tuple(self._decided(who, move, record) for who, move in moves)
        if self._leaving(routing) and self._moving_for is None:
            self._moving_for = 0.0
        return Plan(routing, self._leaving(routing), arriving, allowance, decisions)

    def resized(self, record: EpochRecord, sites: int, why: str, now: float) -> Plan:
        """What to do in the epoch from which on there is another number of sites.

        As few units move as can be, all at once. Statistics begin anew. A move under way is abandoned if one of its
        sites is gone or its unit is needed elsewhere; the others go on in the epoch after.
        """
        routing = record.routing.resized(sites, record.routing.version + 1, record.number + 1)
        decisions = []
        for movement in tuple(self._moving.values()):
            unit, at = movement.unit, record.routing.owners[movement.unit]
            if max(movement.source, movement.target) < sites and routing.owners[unit] == at:
                continue
            del self._moving[unit], self._copied[unit]
            if at != movement.target:
                movement.abandon()
                gone = next((site for site in (movement.source, movement.target) if site >= sites), None)
                refused = "needed elsewhere" if gone is None else f"site {gone} is gone"
                decisions.append(about_sites(record, "move", why, unit, movement.target, f"abandoned: {refused}"))
        self._count_moving(record)
        self._moving_for = self._moving_for if self._moving else None
        self._sums = _Sums.none(now, routing)
        moved = sum(a != b for a, b in zip(record.routing.owners, routing.owners, strict=True))
        reason = f"{why}; sites: {record.routing.sites}, now {sites}; {moved} units moved"
        return Plan(routing, decisions=(about_sites(record, "resize", reason), *decisions))

    def view(self, record: EpochRecord, sums: _Sums) -> ClusterView:
        """The cluster as the policy sees it. A unit counts as spilled if it lies on disk and its input waits (where the
        rotation keeps up, none does) or, where disks are probed, if any of its state is there."""
        sites, owners = record.figures["sites"], np.array(record.routing.owners)
        spilled, pending = decode_column(record.figures["unitDisk"]) > 0, decode_column(record.figures["unitPending"])
        if record.queues:
            on_disk = [unit for queue in record.queues for unit in queue.disk]
            spilled = np.isin(np.arange(len(owners)), on_disk) & (pending > 0)
        return ClusterView(
            epoch=record.number,
            seconds=sums.seconds,
            unit_site=owners,
            unit_rows=sums.unit_rows,
            unit_bytes=np.max(self._sizes, axis=0),
            unit_spilled=spilled,
            unit_pending=pending,
            site_idle=sums.seconds - sums.site_busy,
            site_memory=np.array(self.memory(len(sites))),
        )

    def _allowance(self, record: EpochRecord) -> float:
        """The bytes that a site may copy for moves in one epoch, by how long the last one took and copying takes."""
        sites = record.figures["sites"]
        seconds = sum(site["fetchSeconds"] for site in sites)
        if seconds:
            self._rate = (self._rate + sum(site["fetchedBytes"] for site in sites) / seconds) / 2
        epoch = float(record.figures["seconds"]["job"])
        return max(LEAST, SHARE * epoch * self._rate)

    def _count_moving(self, record: EpochRecord) -> None:
        """Add an epoch to the time that moving has taken."""
        if self._moving_for is not None:
            seconds = record.figures["seconds"]
            self._moving_for += float(seconds.get("total", seconds["job"]))

    def _leaving(self, routing: Routing) -> tuple[int, ...]:
        """The units whose rows are to be kept apart from others, as long as they have not left."""
        return tuple(sorted(m.unit for m in self._moving.values() if routing.owners[m.unit] == m.source))

    def _decided(self, who: str, move: Move, record: EpochRecord) -> Decision:
        """Begins a move that can be carried out; either way, says what became of it."""
        refused = vet(move, record.routing, self._moving)
        if refused is None and self.advise and who != "you":
            refused = "the policy only advises"
        if refused is None:
            movement = Movement(move.unit, record.routing.owners[move.unit], move.site, producers=())
            _expect(movement.begin(), Extract)
            self._moving[move.unit], self._copied[move.unit] = movement, set()
        return Decision(record.number + 1, who, move.verb, move.unit, move.site, move.reason, refused)

    def _carried_out(
        self, record: EpochRecord, now: float, allowance: float
    ) -> tuple[Routing, tuple[tuple[SegmentRef, ...], ...]]:
        """Takes the moves under way one step on, now that another epoch has committed: the routing from here on, and
        what each site copies ahead of time."""
        routing = record.routing
        for movement in [m for m in self._moving.values() if routing.owners[m.unit] == m.target]:
            _expect(movement.transferred(), Install)
            _expect(movement.installed(), Restart)
            del self._moving[movement.unit], self._copied[movement.unit]
            if not self._moving:  # this epoch's statistics are of the new routing already
                self._sums = _Sums.none(self._switched, routing).plus(record)
        left = [allowance] * routing.sites
        copies: list[list[SegmentRef]] = [[] for _ in range(routing.sites)]
        for movement in self._moving.values():
            own, shared = _pieces(record, movement)
            if movement.phase is Phase.EXTRACTING and not shared:
                _expect(movement.extracted(), Transfer)
            kept = self._copied[movement.unit]
            missing = [ref for ref in own if ref.id not in kept]
            newest = Attempt.prefix(record.number)
            # a unit that gets more in an epoch than may be copied would stay for good: what came last goes with it
            few = bool(kept) and all(r.id.startswith(newest) for r in missing)
            few = few or sum(r.length for r in missing) <= left[movement.target]
            if movement.phase is Phase.TRANSFERRING and few:
                routing = routing.moved(movement.unit, movement.target, record.number + 1)
                left[movement.target] -= sum(r.length for r in missing)
                continue
            for ref in missing:
                if ref.length <= left[movement.target] or (left[movement.target] == allowance and ref is missing[0]):
                    kept.add(ref.id)
                    left[movement.target] -= ref.length
            copies[movement.target] += [ref for ref in own if ref.id in kept]
        if self._moving_for is not None and all(routing.owners[m.unit] == m.target for m in self._moving.values()):
            self.rounds = self.rounds.after(self._moving_for)
            self._moving_for, self._switched = None, now
        return routing, tuple(tuple(refs) for refs in copies) if any(copies) else ()


def _pieces(record: EpochRecord, movement: Movement) -> tuple[list[SegmentRef], bool]:
    """The segments that hold nothing but a unit's rows, and whether others hold some of them."""
    alone = ((movement.unit, movement.unit + 1),)
    runs = [r for r in record.manifests[movement.source] if not r.segment.pending and intersect(r.units, alone)]
    own = [run.segment for run in runs if run.units == alone]
    shared = [run for run in runs if run.units != alone and replace(run, units=alone).rows]
    return own, bool(shared)


def about_sites(
    record: EpochRecord,
    action: str,
    reason: str,
    unit: int | None = None,
    site: int | None = None,
    refused: str | None = None,
) -> Decision:
    """A decision that no policy makes: executors came or went."""
    return Decision(record.number + 1, "sites", action, unit, site, reason, refused)


def state_bytes(record: EpochRecord) -> np.ndarray:
    """The state of each unit, from what the manifests say; input that waits is none yet."""
    runs = (run for manifest in record.manifests for run in manifest if not run.segment.pending)
    return unit_bytes(runs, record.routing.units)


def vet(move: Move, routing: Routing, moving: dict[int, Movement] | None = None) -> str | None:
    """Why a move cannot be carried out, or None."""
    missing = no_such("unit", move.unit, routing.units) or no_such("site", move.site, routing.sites)
    if missing:
        return missing
    if routing.owners[move.unit] == move.site:
        return f"unit {move.unit} is at site {move.site} already"
    if moving and move.unit in moving:
        return f"unit {move.unit} is on its way to site {moving[move.unit].target}"
    return None


def no_such(what: str, number: int, count: int) -> str | None:
    """Why this is not the number of a unit or a site, of which there are so many; None if it is.

    >>> no_such("site", 4, 4), no_such("unit", 3, 4)
    ('there is no site 4; they are numbered from 0 to 3', None)
    """
    return None if 0 <= number < count else f"there is no {what} {number}; they are numbered from 0 to {count - 1}"


def _expect(instructions: list[Instruction], kind: type[Instruction]) -> None:
    """The protocol's next step is the one that an epoch carries out."""
    assert instructions and isinstance(instructions[0], kind), instructions
