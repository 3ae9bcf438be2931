"""Sites that come and go: which units those that join get, where those that leave send theirs, which moves end.

A move to a site that is to join is planned when the site is asked for, and begins when it is there (`ArrivalProtocol`).
Sites that leave hand over what they hold from epoch to epoch, and go when they hold nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from sluice.control.collection import EpochCollection
from sluice.control.copying import fetched_bytes
from sluice.control.loop import SITES, ControlLoop
from sluice.model.epoch.decision import Decision
from sluice.model.ids import Site, Unit
from sluice.model.routing.routing import Routing
from sluice.policies.planning.draining import drain
from sluice.record.epoch import EpochRecord
from sluice.record.reassignment import reassign
from sluice.record.rebalancing import rebalance
from sluice.verbs import Action
from sluice.verbs.move import Move, MoveProtocol, Phase
from sluice.verbs.scale import JOIN_TIMEOUT_S, ArrivalProtocol, Backoff
from sluice.verbs.share import Release, SharingPhase, SharingProtocol
from sluice.verbs.split import MergeProtocol, SplitProtocol

MAX_CONCURRENT_MOVES = 64
"""Units that are on their way from leaving or to joining sites at a time: each is set apart in segments of its own."""


def planned_moves(loop: ControlLoop) -> list[Move]:
    """What sites that join are to get when they are there."""
    return [move for arrival in loop.in_flight.of(ArrivalProtocol) for move in arrival.moves]


def plan_arrivals(loop: ControlLoop, moves: Iterable[Move], now: float) -> None:
    """Have sites that join get these units, in place of what was planned for them."""
    for arrival in loop.in_flight.of(ArrivalProtocol):
        loop.forget(arrival, now)
    loop.begin(ArrivalProtocol(moves), now)


def fill_sites(loop: ControlLoop, now: float) -> tuple[Decision, ...]:
    """Have sites that have joined get more of what is planned for them."""
    planned = planned_moves(loop)
    if not planned:
        return ()
    due = [move for move in planned if move.site < loop.routing.sites]
    begun = {move.unit: move for move in due[: max(0, MAX_CONCURRENT_MOVES - len(loop.moves))]}
    plan_arrivals(loop, [move for move in planned if move.unit not in begun], now)
    return loop.decide(SITES, list(begun.values()), now)


def units_to_set_apart(loop: ControlLoop, slots: int | None) -> tuple[Unit, ...]:
    """Those that move or are to be shared otherwise, and of those that are to move to sites that join as soon as their
    executors are ready as many as are to be moving at a time. Units for sites whose executors have not come stay with
    the others, and so do those that are to be frozen, split or merged. There are executors for so many `slots`."""
    units = {move.unit for move in loop.moves if move.phase in (Phase.EXTRACTING, Phase.TRANSFERRING)}
    units |= {one.unit for one in loop.in_flight.of(SharingProtocol) if one.phase is SharingPhase.PREPARING}
    awaited = [
        move.unit
        for move in planned_moves(loop)
        if not (loop.routing.sharing(move.unit) or loop.in_flight.at(move.unit))
        and (slots is None or move.site < slots)
    ]
    units |= set(awaited[: max(0, MAX_CONCURRENT_MOVES - len(units))])
    return tuple(sorted(units, key=loop.routing.index_of))


def drain_sites(loop: ControlLoop, now: float) -> tuple[Decision, ...]:
    """Have the sites that are to leave hand over more of what they hold."""
    scaling = loop.scaling
    if scaling is None or not scaling.leaving:
        return ()
    routing, units = loop.routing, loop.collector.view().units
    releases: list[Action] = []
    for sharing in routing.shared:
        if loop.in_flight.at(sharing.unit):  # it is being released
            continue
        gone = [site for site in sharing.holders if site in scaling.leaving]
        staying = len(gone) < len(sharing.holders)
        releases += [Release(sharing.unit, site, scaling.reason) for site in (gone if staying else gone[1:])]
    targets = drain(
        units.site,
        units.rows + units.results,
        units.bytes,
        [Site(site) for site in scaling.leaving],
        [Site(site) for site in range(scaling.target_sites)],
    )
    moves = [Move(units.unit_at(index), site, scaling.reason) for index, site in targets]
    ready = [move for move in moves if not loop.in_flight.at(move.unit) and not routing.sharing(move.unit)]
    left = MAX_CONCURRENT_MOVES - len(loop.moves) - len(loop.in_flight.of(SharingProtocol))
    return loop.decide(SITES, [*releases, *ready[: max(0, left)]], now)


def change_sites(
    loop: ControlLoop,
    collection: EpochCollection,
    record: EpochRecord,
    sites: int,
    why: str,
    allowance: float,
    now: float,
) -> tuple[bool, str]:
    """From the epoch after a committed one on there is another number of sites. Tells whether sites join that get units
    by ordinary moves, and what has changed.

    If the number was asked for, those that left held nothing, and units begin to move to those that join as was
    planned. Else as few units move as can be: all at once, unless sites have come and would have to read more than is
    allowed in an epoch. A move in flight is abandoned if one of its sites is gone or its unit is needed elsewhere; the
    others go on.
    """
    before, another = record.routing, f"there is another number of sites: {sites}"
    loop.backoff = Backoff()
    for protocol in (*loop.in_flight.of(SplitProtocol), *loop.in_flight.of(MergeProtocol)):
        if not protocol.is_done(loop.routing):
            loop.abandon(protocol, another, now)
    for wish in loop.in_flight.of(SharingProtocol):  # one that is done has been committed, and is over
        loop.abandon(wish, another, now)
    scaling = loop.scaling
    if scaling is None or not scaling.leads_to(sites, before):  # it was about other sites
        if scaling is not None and not scaling.is_done(loop.routing):
            loop.abandon(scaling, another, now)
        plan_arrivals(loop, (), now)
    if loop.scaling:
        why = loop.scaling.action.reason
    routing = rebalance(before, sites, record.number + 1)
    joining = sites > before.sites and loop.scaling is not None
    if joining and loop.scaling:
        collection.forecast.join_seconds = now - loop.scaling.since
    elif sites > before.sites and collection.has_begun and not _is_little(record, routing, allowance):
        joining = True
        plan_arrivals(loop, _moves_to(routing, before, f"{why}; sites: {before.sites}, now {sites}"), now)
    if joining:
        routing = before.with_added_sites(sites, record.number + 1)
    stop_moves(
        loop,
        [
            move
            for move in loop.moves
            if _is_without_site(move, routing) or routing.holder(move.unit) != before.holder(move.unit)
        ],
        routing,
        now,
    )
    return joining, f"{why}; sites: {before.sites}, now {sites}; {routing.moves_since(before)} units moved"


def go_back_to(loop: ControlLoop, routing: Routing, now: float) -> None:
    """There are as many sites as under a committed routing: the epoch with another number came to nothing."""
    stop_moves(loop, [move for move in loop.moves if _is_without_site(move, routing)], routing, now)
    if loop.scaling is None:
        _keep_arrivals(loop, now)
    loop.collector.begin(routing, now, loop.rounds.collect)


def stop_moves(loop: ControlLoop, moves: Sequence[MoveProtocol], routing: Routing, now: float) -> None:
    """End moves that cannot go on under a routing, which holds from now on. Those to sites that are still awaited begin
    anew when these are there."""
    for move in moves:
        loop.abandon(move, None if move.is_done(routing) else _explain_abandonment(move, routing.sites), now)
    loop.routing = routing
    if loop.scaling:
        awaited = range(routing.sites, loop.scaling.target_sites)
        again = [move.action for move in moves if move.phase is Phase.ABANDONED and move.target in awaited]
        plan_arrivals(loop, [*again, *planned_moves(loop)], now)


def stop_waiting(loop: ControlLoop, now: float) -> None:
    """Go on with the sites that are there, if those that were to join have not come for too long."""
    scaling, policy = loop.scaling, loop.policy
    if scaling is None or not scaling.is_given_up(now):
        return
    _keep_arrivals(loop, now)
    loop.backoff = loop.backoff.after(now)
    there = f"sites: {loop.routing.sites}; nobody else came within {JOIN_TIMEOUT_S:.0f} s"
    if policy.scales:
        there += f", and {policy.name} waits {loop.backoff.seconds:.0f} s before it asks again"
    loop.abandon(scaling, there, now)


def _keep_arrivals(loop: ControlLoop, now: float) -> None:
    """Only sites that are there still get what is planned for them."""
    plan_arrivals(loop, [move for move in planned_moves(loop) if move.site < loop.routing.sites], now)


def _moves_to(routing: Routing, before: Routing, reason: str) -> tuple[Move, ...]:
    """The moves by which units come to where they are under another routing; those that are shared stay."""
    changed = np.flatnonzero(before.holders.array != routing.holders.array)
    units = before.units_at(changed)
    return tuple(Move(unit, routing.holder(unit), reason) for unit in units if not before.sharing(unit))


def _is_little(record: EpochRecord, routing: Routing, allowance: float) -> bool:
    """Whether no site that is new under a routing has to read more than this to have its units at once."""
    arriving = reassign(record.manifests, record.routing, routing)[record.routing.sites :]
    return all(fetched_bytes(runs) <= allowance for runs in arriving)


def _is_without_site(move: MoveProtocol, routing: Routing) -> bool:
    """Whether a site that a move is from, or to, is not there under a routing."""
    return max(move.source, move.target) >= routing.sites


def _explain_abandonment(move: MoveProtocol, sites: int) -> str:
    gone = next((site for site in (move.source, move.target) if site >= sites), None)
    return "its unit is needed elsewhere" if gone is None else f"site {gone} is gone"
