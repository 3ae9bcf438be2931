"""The compiled core of many queries: every tuple passes the pieces that want it, site by site.

All compiled functions and the arrays they work on are in this one file, because Numba's cache of compiled code does not
notice a change in another. What happens seldom (messages, moves, rates that change) is done in Python between two calls
of `advance`.

A site takes what comes to it in the order of its arrival. A tuple of a stream passes all pieces at the site that read
the stream, one after the other, and what they hand to each other there; then the site takes the next one. What goes to
another site waits for the one network, which carries things in the order in which they were given to it. Three kinds
of things happen, each with one next time at most: a stream brings a tuple, a site is through with a piece, the network
delivers. So the next one is the least of a short array.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from sluice.sim.worlds.placement.queries import NOWHERE, Pieces
from sluice.sim.worlds.placement.scenario import PlacementScenario

TIME, NO_ROOM, STATE_ARRIVED = 0, 1, 2
"""Why `advance` has returned: the time has come, there are more tuples under way than records, state has arrived."""

_OF_STREAM, _FOR_PIECE, _STATE = 0, 1, 2
_I, _F = np.int64, np.float64

RECORD = np.dtype(
    [
        ("kind", _I),
        ("target", _I),  # the stream that the tuple is of, or the piece that it, or state, is for
        ("operator", _I),  # at which a piece begins with it; of state, the bytes that are still to be sent
        ("sequence", _I),  # its number in its stream
        ("origin", _I),  # the piece that read it from its stream, if one has
        ("born", _F),  # when it came into the system
        ("worked", _F),  # seconds that operators have spent on it so far
        ("source", _I),  # the site that sends it
        ("site", _I),  # the site that it goes to
        ("arrives", _F),
        ("next", _I),
        ("next_of_stream", _I),  # the next tuple of its stream that is under way to its site, or waits there
    ]
)
"""Something under way: a tuple, or a part of a piece's state. Records make up linked lists."""
PIECE = np.dtype(
    [
        ("site", _I),
        ("paused", _I),  # whether its tuples are held back
        ("since", _I),  # the first tuple of its stream that it takes as one of the stream's
        ("busy", _F),  # seconds of work
        ("taken", _I),  # tuples of its stream that it has taken
        ("first_held", _I),
        ("last_held", _I),
        ("results", _I),  # of tuples that it has read from its stream, since these were last taken
        ("delay", _F),  # the sum of their delays
        ("work", _F),  # the sum of what operators have spent on them
    ]
)
SITE = np.dtype(
    [
        ("first", _I),  # what waits there
        ("last", _I),
        ("current", _I),  # what it is at
        ("cursor", _I),  # of a stream's tuple, the next of the pieces that read it
        ("handing_on", _I),  # the piece whose output the current one is when it is through; NOWHERE if it was dropped
        ("worked", _F),  # seconds that operators have spent on that
        ("origin", _I),
        ("busy", _F),
    ]
)
STREAM = np.dtype([("home", _I), ("rate", _F), ("sequence", _I)])

compiled = njit(cache=True, boundscheck=False)


class PlacementState(NamedTuple):
    """Everything that changes.

    `times` has when each stream, each site and the network have something next. `ends` are the first and last thing in
    the network, the first free record, and how many of these there are. `clock` is the time, and until when the network
    is busy. `sent` are bytes of tuples by the sites that they went from and to, `sent_state` those of state.
    `first_of_stream` and `last_of_stream` have by stream and site the first and the last tuple of the stream that is
    under way to the site or waits there: whoever looks for those of one stream does not look at all others.
    """

    record: np.ndarray
    piece: np.ndarray
    site: np.ndarray
    stream: np.ndarray
    times: np.ndarray
    ends: np.ndarray
    clock: np.ndarray
    sent: np.ndarray
    sent_state: np.ndarray
    arrived: np.ndarray
    random: np.ndarray
    marks: np.ndarray
    first_of_stream: np.ndarray
    last_of_stream: np.ndarray


class PlacementCosts(NamedTuple):
    """What does not change beside the pieces."""

    tuple_bytes: float
    bandwidth: float
    latency: float


_FIRST_SENT, _LAST_SENT, _FIRST_FREE, FREE = 0, 1, 2, 3
_NOW, _SENT_UNTIL = 0, 1
PACKET = 1500
"""Bytes of state that are sent at a time: an Ethernet frame. Tuples get their turn between two."""


def new_state(scenario: PlacementScenario, pieces: Pieces, records: int = 1 << 16) -> PlacementState:
    """Nothing is under way; every piece is native where it is."""
    sites, streams = scenario.sites, scenario.streams
    piece = np.zeros(len(pieces.home), PIECE)
    piece["site"], piece["first_held"], piece["last_held"] = pieces.home, NOWHERE, NOWHERE
    site = np.zeros(sites, SITE)
    for name in ("first", "last", "current", "handing_on"):
        site[name] = NOWHERE
    stream = np.zeros(streams, STREAM)
    stream["rate"] = 1 / scenario.arrival
    readers = pieces.reads != NOWHERE
    stream["home"] = np.arange(streams) // scenario.streams_per_site
    stream["home"][pieces.reads[readers]] = pieces.home[readers]
    times = np.full(streams + sites + 1, np.inf)
    seed = np.array([scenario.seed * 0x9E3779B97F4A7C15 % (1 << 64) or 1], np.uint64)
    state = PlacementState(
        np.zeros(0, RECORD),
        piece,
        site,
        stream,
        times,
        np.array([NOWHERE, NOWHERE, NOWHERE, 0]),
        np.zeros(2),
        np.zeros((sites, sites)),
        np.zeros((sites, sites)),
        np.array([NOWHERE]),
        seed,
        np.full(sites, NOWHERE),
        np.full((streams, sites), NOWHERE),
        np.full((streams, sites), NOWHERE),
    )
    state = with_room(state, records)
    begin_streams(state)
    return state


def with_room(state: PlacementState, records: int) -> PlacementState:
    """The same with more records."""
    before = len(state.record)
    record = np.zeros(before + records, RECORD)
    record[:before] = state.record
    record["next"][before:] = np.append(np.arange(before + 1, before + records), state.ends[_FIRST_FREE])
    state.ends[_FIRST_FREE] = before
    state.ends[FREE] += records
    return state._replace(record=record)


@compiled
def _uniform(state: PlacementState) -> float:
    """Evenly from 0 to 1, by splitmix64."""
    state.random[0] += np.uint64(0x9E3779B97F4A7C15)
    bits = state.random[0]
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    return float((bits >> np.uint64(11)) * (1.0 / 9007199254740992.0))


@compiled
def _exponential(state: PlacementState, mean: float) -> float:
    return float(-mean * np.log(1.0 - _uniform(state)))


@compiled
def begin_streams(state: PlacementState) -> None:
    for stream in range(len(state.stream)):
        state.times[stream] = state.clock[_NOW] + _exponential(state, 1.0 / state.stream["rate"][stream])


@compiled
def _new_record(state: PlacementState, kind: int, target: int, born: float) -> int:
    record = int(state.ends[_FIRST_FREE])
    state.ends[_FIRST_FREE] = state.record["next"][record]
    state.ends[FREE] -= 1
    one = state.record[record]
    one["kind"], one["target"], one["born"], one["next"] = kind, target, born, NOWHERE
    one["operator"], one["sequence"], one["origin"], one["worked"] = 0, 0, NOWHERE, 0.0
    return record


@compiled
def _free(state: PlacementState, record: int) -> None:
    state.record["next"][record] = state.ends[_FIRST_FREE]
    state.ends[_FIRST_FREE] = record
    state.ends[FREE] += 1


@compiled
def _send(state: PlacementState, costs: PlacementCosts, record: int, source: int, site: int, size: float) -> None:
    """Give something to the network, or put it into the site's own queue."""
    one = state.record[record]
    one["source"], one["site"], one["next"] = source, site, NOWHERE
    if source == site:
        _arrive(state, record)
        return
    begun = max(state.clock[_NOW], state.clock[_SENT_UNTIL])
    state.clock[_SENT_UNTIL] = begun + size / costs.bandwidth
    one["arrives"] = state.clock[_SENT_UNTIL] + costs.latency
    if state.ends[_LAST_SENT] == NOWHERE:
        state.ends[_FIRST_SENT] = record
        state.times[-1] = one["arrives"]
    else:
        state.record["next"][state.ends[_LAST_SENT]] = record
    state.ends[_LAST_SENT] = record


@compiled
def _send_tuple(state: PlacementState, costs: PlacementCosts, record: int, source: int, site: int) -> None:
    if source != site:
        state.sent[source, site] += costs.tuple_bytes
    _send(state, costs, record, source, site, costs.tuple_bytes)


@compiled
def _arrive(state: PlacementState, record: int) -> None:
    """Something joins the queue of its site."""
    state.record["next"][record] = NOWHERE
    site = state.site[state.record["site"][record]]
    if site["last"] == NOWHERE:
        site["first"] = record
    else:
        state.record["next"][site["last"]] = record
    site["last"] = record


@compiled
def _hold(state: PlacementState, record: int, piece: int) -> None:
    """A tuple waits, where it is, until its piece is at another site."""
    state.record["next"][record] = NOWHERE
    one = state.piece[piece]
    if one["last_held"] == NOWHERE:
        one["first_held"] = record
    else:
        state.record["next"][one["last_held"]] = record
    one["last_held"] = record


@compiled
def _hold_stream_tuple(
    state: PlacementState, pieces: Pieces, piece: int, born: float, sequence: int, site: int
) -> None:
    record = _new_record(state, _FOR_PIECE, piece, born)
    one = state.record[record]
    one["operator"], one["sequence"], one["origin"] = pieces.first[piece], sequence, piece
    one["source"] = site
    _hold(state, record, piece)


@compiled
def _emit(state: PlacementState, pieces: Pieces, costs: PlacementCosts, stream: int) -> None:
    """A stream brings a tuple: one copy for every site with a piece that reads it."""
    now, own = state.clock[_NOW], state.stream[stream]
    home, sequence = own["home"], own["sequence"]
    own["sequence"] += 1
    state.times[stream] = now + _exponential(state, 1.0 / own["rate"])
    for place in range(pieces.stream_first[stream], pieces.stream_first[stream + 1]):
        piece = pieces.of_stream[place]
        site = state.piece["site"][piece]
        if state.piece["paused"][piece]:
            _hold_stream_tuple(state, pieces, piece, now, sequence, home)
        elif state.marks[site] != stream:
            state.marks[site] = stream
            record = _new_record(state, _OF_STREAM, stream, now)
            state.record["sequence"][record] = sequence
            _note_on_its_way(state, record, stream, site)
            _send_tuple(state, costs, record, home, site)
    state.marks[:] = NOWHERE
    _wake(state, pieces, costs, home)


@compiled
def _note_on_its_way(state: PlacementState, record: int, stream: int, site: int) -> None:
    """A stream's tuple is the last one under way to a site. All come from the stream's home, in their order."""
    state.record["next_of_stream"][record] = NOWHERE
    last = state.last_of_stream[stream, site]
    if last == NOWHERE:
        state.first_of_stream[stream, site] = record
    else:
        state.record["next_of_stream"][last] = record
    state.last_of_stream[stream, site] = record


@compiled
def _note_its_turn(state: PlacementState, record: int, stream: int, site: int) -> None:
    """The site takes the first of a stream's tuples that wait there."""
    following = state.record["next_of_stream"][record]
    state.first_of_stream[stream, site] = following
    if following == NOWHERE:
        state.last_of_stream[stream, site] = NOWHERE


@compiled
def _wake(state: PlacementState, pieces: Pieces, costs: PlacementCosts, site: int) -> None:
    if state.site["current"][site] == NOWHERE:
        _work(state, pieces, costs, site)


@compiled
def _work(state: PlacementState, pieces: Pieces, costs: PlacementCosts, number: int) -> None:
    """The site goes on: with the next piece for the tuple that it is at, or with the next tuple."""
    site = state.site[number]
    while True:
        if site["current"] == NOWHERE:
            if site["first"] == NOWHERE:
                state.times[len(state.stream) + number] = np.inf
                return
            record = site["first"]
            site["first"] = state.record["next"][record]
            if site["first"] == NOWHERE:
                site["last"] = NOWHERE
            site["current"] = record
            one = state.record[record]
            if one["kind"] == _OF_STREAM:
                site["cursor"] = pieces.stream_first[one["target"]]
                _note_its_turn(state, record, one["target"], number)
        record = site["current"]
        one = state.record[record]
        if one["kind"] == _FOR_PIECE:
            piece = one["target"]
            site["current"] = NOWHERE
            if state.piece["paused"][piece]:  # it is about to leave, and so is what has come late
                one["source"] = number
                _hold(state, record, piece)
                continue
            if state.piece["site"][piece] != number:  # it has left
                _send_tuple(state, costs, record, number, state.piece["site"][piece])
                continue
            site["current"] = record
            seconds = _pass_pieces(state, pieces, site, number, piece, one["operator"], one["origin"], one["worked"])
            one["kind"] = -1  # done with, when the site is through
            break
        piece = NOWHERE
        if one["kind"] == _OF_STREAM:
            end = pieces.stream_first[one["target"] + 1]
            while site["cursor"] < end:
                candidate = pieces.of_stream[site["cursor"]]
                site["cursor"] += 1
                at = state.piece[candidate]
                if at["site"] == number and not at["paused"] and one["sequence"] >= at["since"]:
                    piece = candidate
                    break
        if piece == NOWHERE:  # no piece is left
            _free(state, record)
            site["current"] = NOWHERE
            continue
        seconds = _pass_pieces(state, pieces, site, number, piece, pieces.first[piece], piece, 0.0)
        break
    site["busy"] += seconds
    state.times[len(state.stream) + number] = state.clock[_NOW] + seconds


@compiled
def _pass_pieces(
    state: PlacementState,
    pieces: Pieces,
    site: np.void,
    number: int,
    piece: int,
    operator: int,
    origin: int,
    worked: float,
) -> float:
    """A tuple goes through a piece, and through those at the same site that it is handed to, until it is dropped."""
    seconds = 0.0
    if worked == 0.0 and origin == piece:
        state.piece["taken"][piece] += 1
    site["origin"] = origin
    while True:
        own = 0.0
        passed = True
        for place in range(operator, pieces.first[piece + 1]):
            own += _exponential(state, pieces.cost[place])
            if _uniform(state) >= pieces.selectivity[place]:
                passed = False
                break
        seconds += own
        state.piece["busy"][piece] += own
        site["handing_on"] = piece if passed else NOWHERE
        following = pieces.downstream[piece]
        if not passed or following == NOWHERE:
            break
        there = state.piece[following]
        if there["site"] != number or there["paused"]:
            break
        piece, operator = following, pieces.entry[piece]
    site["worked"] = worked + seconds
    return seconds


@compiled
def _finish(state: PlacementState, pieces: Pieces, costs: PlacementCosts, number: int) -> None:
    """A site is through with a piece: what came of it is a result, or goes on to another piece."""
    site = state.site[number]
    record, piece = site["current"], site["handing_on"]
    one = state.record[record]
    if piece != NOWHERE:
        following = pieces.downstream[piece]
        if following == NOWHERE:
            origin = state.piece[site["origin"]]
            origin["results"] += 1
            origin["delay"] += state.clock[_NOW] - one["born"]
            origin["work"] += site["worked"]
        else:
            copy = _new_record(state, _FOR_PIECE, following, one["born"])
            made = state.record[copy]
            made["operator"], made["origin"], made["worked"] = pieces.entry[piece], site["origin"], site["worked"]
            if state.piece["paused"][following]:
                made["source"] = number
                _hold(state, copy, following)
            else:
                _send_tuple(state, costs, copy, number, state.piece["site"][following])
    if one["kind"] == -1:
        _free(state, record)
        site["current"] = NOWHERE
    _work(state, pieces, costs, number)


@compiled
def _deliver(state: PlacementState, pieces: Pieces, costs: PlacementCosts) -> bool:
    """What the network carries first has arrived; True if that was the last of a piece's state."""
    record = state.ends[_FIRST_SENT]
    one = state.record[record]
    state.ends[_FIRST_SENT] = one["next"]
    if one["next"] == NOWHERE:
        state.ends[_LAST_SENT] = NOWHERE
        state.times[-1] = np.inf
    else:
        state.times[-1] = state.record["arrives"][one["next"]]
    if one["kind"] == _STATE:
        if one["operator"] > 0:
            _send_packet(state, costs, record)
            return False
        state.arrived[0] = one["target"]
        _free(state, record)
        return True
    _arrive(state, record)
    _wake(state, pieces, costs, one["site"])
    return False


@compiled
def _send_packet(state: PlacementState, costs: PlacementCosts, record: int) -> None:
    one = state.record[record]
    size = min(PACKET, one["operator"])
    one["operator"] -= size
    state.sent_state[one["source"], one["site"]] += size
    _send(state, costs, record, one["source"], one["site"], size)


@compiled
def advance(state: PlacementState, pieces: Pieces, costs: PlacementCosts, until: float) -> int:
    """Let time pass, to `until` unless something is to be done before."""
    streams, most_new = len(state.stream), len(state.piece) + len(state.site)
    while True:
        next_ = int(np.argmin(state.times))
        time = state.times[next_]
        if time > until:
            state.clock[_NOW] = until
            return TIME
        if state.ends[FREE] < most_new:
            return NO_ROOM
        state.clock[_NOW] = time
        if next_ < streams:
            _emit(state, pieces, costs, next_)
        elif next_ < len(state.times) - 1:
            _finish(state, pieces, costs, next_ - streams)
        elif _deliver(state, pieces, costs):
            return STATE_ARRIVED


@compiled
def pause(state: PlacementState, pieces: Pieces, piece: int) -> None:
    """Hold a piece's tuples back, also those that wait for it at its site or are on their way there."""
    own = state.piece[piece]
    own["paused"] = 1
    stream, number = pieces.reads[piece], own["site"]
    if stream == NOWHERE:
        return
    site = state.site[number]
    current = site["current"]
    if current != NOWHERE:
        one = state.record[current]
        if one["kind"] == _OF_STREAM and one["target"] == stream and one["sequence"] >= own["since"]:
            for place in range(site["cursor"], pieces.stream_first[stream + 1]):
                if pieces.of_stream[place] == piece:
                    _hold_stream_tuple(state, pieces, piece, one["born"], one["sequence"], number)
    record = state.first_of_stream[stream, number]
    while record != NOWHERE:
        one = state.record[record]
        if one["sequence"] >= own["since"]:
            _hold_stream_tuple(state, pieces, piece, one["born"], one["sequence"], number)
        record = one["next_of_stream"]


@compiled
def send_state(state: PlacementState, costs: PlacementCosts, piece: int, source: int, target: int, size: float) -> None:
    record = _new_record(state, _STATE, piece, state.clock[_NOW])
    one = state.record[record]
    one["source"], one["site"], one["operator"] = source, target, max(size, 1)
    _send_packet(state, costs, record)


@compiled
def resume(state: PlacementState, pieces: Pieces, costs: PlacementCosts, piece: int, target: int) -> None:
    """The piece is at its new site: what was held back goes there."""
    own = state.piece[piece]
    own["site"], own["paused"] = target, 0
    if pieces.reads[piece] != NOWHERE:
        own["since"] = state.stream["sequence"][pieces.reads[piece]]
    record = own["first_held"]
    own["first_held"] = own["last_held"] = NOWHERE
    while record != NOWHERE:
        following = state.record["next"][record]
        _send_tuple(state, costs, record, state.record["source"][record], target)
        record = following
    _wake(state, pieces, costs, target)
