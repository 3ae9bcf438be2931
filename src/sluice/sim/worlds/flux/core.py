"""The compiled core of the simulator: tuples, packets, queues, threads and the CPU they share.

Everything that happens to a tuple happens here, event by event. What happens seldom (messages, moves, memory) is done
in Python between two calls of `advance`, which returns when its time has come or a consumer has to ask what to do.

All compiled functions are in this one file, because Numba's cache of compiled code does not notice a change in another.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from sluice.sim.worlds.flux.cluster import (
    BLOCKED,
    CONSUMER,
    EVENTS,
    EXCHANGE,
    EXTERNAL,
    FLUX,
    IDLE,
    NEVER,
    NOBODY,
    NOT_AWAITED,
    PRODUCER,
    READY,
    RUNNING,
    Cluster,
    Costs,
)

_CPU, _LOAD, _DISK, _INPUT = 0, 1, 2, 3  # events: a burst ends, the load wakes, the disk is done, input arrives
_SELF = -2  # in place of the producer: tuples that were set aside
_PACKET, _PENDING, _WORK = 0, 1, 2  # what a burst of a consumer is spent on

compiled = njit(cache=True, boundscheck=False)


# --- chance ---------------------------------------------------------------------------------------------------------


@compiled
def _bits(w: Cluster) -> np.uint64:
    """The next 64 random bits (SplitMix64)."""
    w.random[0] += np.uint64(0x9E3779B97F4A7C15)
    z = w.random[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.uint64(z ^ (z >> np.uint64(31)))


@compiled
def _uniform(w: Cluster) -> float:
    return float(_bits(w) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@compiled
def _normal(w: Cluster) -> float:
    return math.sqrt(-2.0 * math.log(1.0 - _uniform(w))) * math.cos(2.0 * math.pi * _uniform(w))


@compiled
def _unit(w: Cluster) -> int:
    """The unit of the next tuple, by its share of the load (Vose's alias method)."""
    spin = _uniform(w) * len(w.share)
    at = int(spin)
    share = w.share[at]
    return at if spin - at < share.chance else share.other


# --- events ---------------------------------------------------------------------------------------------------------


@compiled
def _schedule(w: Cluster, node: int, kind: int, time: float) -> None:
    at = (len(w.events) >> 1) + node * EVENTS + kind
    w.events[at] = time
    while at > 1:
        at >>= 1
        least = min(w.events[2 * at], w.events[2 * at + 1])
        if w.events[at] == least:
            break
        w.events[at] = least


@compiled
def _next_event(w: Cluster) -> int:
    """The place of the earliest event: its node times EVENTS plus its kind."""
    at, half = 1, len(w.events) >> 1
    while at < half:
        at *= 2
        if w.events[at] > w.events[at + 1]:
            at += 1
    return at - half


# --- the CPU of a node ----------------------------------------------------------------------------------------------


@compiled
def _wants(w: Cluster, c: Costs, node: int, thread: int) -> None:
    """A thread is ready to run."""
    w.waiting[node, w.node[node].waiting_count] = thread
    w.node[node].waiting_count += 1
    if w.node[node].running == NOBODY:
        _run_next(w, c, node)


@compiled
def _run_next(w: Cluster, c: Costs, node: int) -> None:
    if w.node[node].waiting_count == 0:
        w.node[node].running = NOBODY
        return
    thread = w.waiting[node, 0]
    w.node[node].waiting_count -= 1
    for i in range(w.node[node].waiting_count):
        w.waiting[node, i] = w.waiting[node, i + 1]
    switch = c.switch if w.node[node].last != thread else 0.0
    w.node[node].running = thread
    w.node[node].last = thread
    if thread == CONSUMER:
        w.node[node].consumer = RUNNING
        length = w.node[node].burst
    elif thread == PRODUCER:
        w.node[node].producer = RUNNING
        length = _produce(w, c, node, switch)
    else:
        length = c.load_on
    _schedule(w, node, _CPU, w.now[0] + switch + length)


# --- producers ------------------------------------------------------------------------------------------------------


@compiled
def _send(w: Cluster, c: Costs, producer: int, to: int, unit: int, arrival: float) -> None:
    """Puts a tuple into a queue that has room."""
    capacity = w.queue.shape[2]
    pair = w.pair[producer, to]
    at = pair.queue_head + pair.queue_size
    if at >= capacity:
        at -= capacity
    w.queue[producer, to, at].unit = unit
    w.queue[producer, to, at].time = arrival
    pair.queue_size += 1
    pair.sent += 1
    if w.node[to].consumer == IDLE:
        at = (len(w.events) >> 1) + to * EVENTS + _INPUT
        if arrival < w.events[at]:
            _schedule(w, to, _INPUT, arrival)


@compiled
def _append(w: Cluster, producer: int, to: int, unit: int) -> None:
    """Puts a tuple into the buffer, behind those for the same destination."""
    slot = w.node[producer].free_slot
    w.node[producer].free_slot = w.slot[producer, slot].next
    w.slot[producer, slot].unit = unit
    w.slot[producer, slot].next = NOBODY
    if w.pair[producer, to].list_head == NOBODY:
        w.pair[producer, to].list_head = slot
    else:
        w.slot[producer, w.pair[producer, to].list_tail].next = slot
    w.pair[producer, to].list_tail = slot
    w.pair[producer, to].list_size += 1


@compiled
def _drop_first(w: Cluster, producer: int, to: int) -> int:
    """Takes the oldest tuple for a destination out of the buffer; its unit."""
    slot = w.pair[producer, to].list_head
    unit = w.slot[producer, slot].unit
    w.pair[producer, to].list_head = w.slot[producer, slot].next
    w.slot[producer, slot].next = w.node[producer].free_slot
    w.node[producer].free_slot = slot
    w.pair[producer, to].list_size -= 1
    return int(unit)


@compiled
def _produce(w: Cluster, c: Costs, node: int, switch: float) -> float:
    """What a producer does when it gets the CPU: it goes on until it is blocked. How long that takes."""
    if c.kind == FLUX:
        made = _fill_and_forward(w, c, node, switch)
    elif c.kind == EXCHANGE:
        made = _route(w, c, node, switch)
    else:
        made = _distribute(w, c, node, switch)
    return made * c.produce


@compiled
def _fill_and_forward(w: Cluster, c: Costs, node: int, switch: float) -> int:
    """Flux-Prod (section 4): fill the transient skew buffer, forward what unblocked destinations can take."""
    nodes = len(w.node)
    capacity = w.queue.shape[2]
    made = 0
    moved = True
    while moved:
        moved = False
        arrival = w.now[0] + switch + made * c.produce + c.latency
        for to in range(nodes):
            pair = w.pair[node, to]
            while pair.list_size >= c.least and pair.queue_size + c.least <= capacity:
                for _ in range(c.least):
                    _send(w, c, node, to, _drop_first(w, node, to), arrival)
                w.node[node].buffered -= c.least
                moved = True
        while w.node[node].buffered < c.buffer:
            unit = _unit(w)
            made += 1
            w.node[node].buffered += 1
            if w.route[node, unit].stalled:
                w.route[node, unit].stalled_count += 1
            else:
                _append(w, node, w.route[node, unit].owner, unit)
                moved = True
    return made


@compiled
def _route(w: Cluster, c: Costs, node: int, switch: float) -> int:
    """Ex-Prod (section 2.3): the next tuple goes where it must, and blocks all others if there is no room."""
    capacity = w.queue.shape[2]
    made = 0
    while True:
        unit = w.node[node].held
        if unit == NOBODY:
            unit = _unit(w)
            made += 1
        to = w.route[node, unit].owner
        if w.route[node, unit].stalled or w.pair[node, to].queue_size == capacity:
            w.node[node].held = unit
            return made
        w.node[node].held = NOBODY
        _send(w, c, node, to, unit, w.now[0] + switch + made * c.produce + c.latency)


@compiled
def _distribute(w: Cluster, c: Costs, node: int, switch: float) -> int:
    """RiverDQ (section 2.4): any consumer may get a tuple, the more probably the emptier its queue."""
    nodes = len(w.node)
    capacity = w.queue.shape[2]
    room = 0
    for to in range(nodes):
        room += capacity - w.pair[node, to].queue_size
    made = 0
    while room > 0:
        pick = int(_uniform(w) * room)
        to = 0
        while pick >= capacity - w.pair[node, to].queue_size:
            pick -= capacity - w.pair[node, to].queue_size
            to += 1
        made += 1
        room -= 1
        _send(w, c, node, to, _unit(w), w.now[0] + switch + made * c.produce + c.latency)
    return made


@compiled
def _wake_producer(w: Cluster, c: Costs, node: int) -> None:
    if w.node[node].producer == IDLE:
        w.node[node].producer = READY
        _wants(w, c, node, PRODUCER)
    elif w.node[node].producer == RUNNING:
        w.node[node].again = True


# --- consumers ------------------------------------------------------------------------------------------------------


@compiled
def _go_on(w: Cluster, c: Costs, node: int) -> bool:
    """The consumer's next burst, or its wait. False if it has to ask first what to do."""
    if w.node[node].mail:
        return False
    if w.node[node].disk > 0.0:
        w.node[node].consumer = BLOCKED
        _schedule(w, node, _DISK, w.now[0] + w.node[node].disk)
        w.node[node].disk = 0.0
        return True
    most = 1 if w.node[node].loaded else c.packet  # a loaded node's threads take turns tuple by tuple
    if w.node[node].work > 0.0:
        w.node[node].burst_kind, w.node[node].burst_tuples = _WORK, 0
        w.node[node].burst = w.node[node].work
    elif w.node[node].draining != NOBODY:
        count = min(most, w.unit[w.node[node].draining].pending)
        w.node[node].burst_kind, w.node[node].burst_tuples = _PENDING, count
        w.node[node].burst = _service(w, c, count)
    else:
        aside = 0
        if w.node[node].packet_input == NOBODY:
            aside = _take_packet(w, c, node)
            if w.node[node].packet_input == NOBODY:
                return True  # idle
        count = min(most, w.node[node].packet_size - w.node[node].packet_done)
        w.node[node].burst_kind, w.node[node].burst_tuples = _PACKET, count
        w.node[node].burst = aside * c.spool + _service(w, c, count)
    w.node[node].burst_from = w.now[0]
    w.node[node].consumer = READY
    _wants(w, c, node, CONSUMER)
    return True


@compiled
def _service(w: Cluster, c: Costs, count: int) -> float:
    if count == 0:
        return 0.0
    return max(0.0, count * c.process + math.sqrt(count) * c.process_spread * _normal(w))


@compiled
def _take_packet(w: Cluster, c: Costs, node: int) -> int:
    """Polls the inputs in turn for tuples that have arrived. How many of them were put aside for spilled units.

    Without any, the consumer is idle until the first arrives.
    """
    if w.node[node].aside_size > 0:
        return _take_aside(w, c, node)
    nodes = len(w.node)
    now = w.now[0]
    earliest = NEVER
    producer = w.node[node].next_input
    for _ in range(nodes):
        pair = w.pair[producer, node]
        if pair.queue_size > 0:
            first = w.queue[producer, node, pair.queue_head].time
            if first <= now:
                w.node[node].next_input = producer + 1 if producer + 1 < nodes else 0
                return _take_from(w, c, node, producer)
            earliest = min(earliest, first)
        producer = producer + 1 if producer + 1 < nodes else 0
    w.node[node].consumer = IDLE
    w.node[node].idle_since = now
    _schedule(w, node, _INPUT, earliest)
    return 0


@compiled
def _take_from(w: Cluster, c: Costs, node: int, producer: int) -> int:
    capacity = w.queue.shape[2]
    now = w.now[0]
    taken = aside = 0
    pair = w.pair[producer, node]
    while taken < c.packet and pair.queue_size > 0:
        first = w.queue[producer, node, pair.queue_head]
        if first.time > now:
            break
        unit = first.unit
        pair.queue_size -= 1
        pair.queue_head += 1
        if pair.queue_head == capacity:
            pair.queue_head = 0
        taken += 1
        if w.unit[unit].resident and w.unit[unit].pending == 0:  # nothing overtakes input that waits
            w.packet[node, taken - aside - 1] = unit
        else:
            aside += 1
            _put_aside(w, c, node, unit, now)
    w.node[node].packet_input = producer
    w.node[node].packet_taken = taken
    w.node[node].packet_size = taken - aside
    w.node[node].packet_done = 0
    w.node[node].packet_waited = 0.0
    _room_for(w, c, producer, node)
    return aside


@compiled
def _room_for(w: Cluster, c: Costs, producer: int, node: int) -> None:
    """A queue has room again: its producer goes on if it was blocked by it."""
    if c.kind == FLUX:
        blocked = w.pair[producer, node].list_size >= c.least
    elif c.kind == EXCHANGE:
        blocked = w.node[producer].held != NOBODY and w.route[producer, w.node[producer].held].owner == node
    else:
        blocked = True
    if blocked:
        _wake_producer(w, c, producer)


@compiled
def _take_aside(w: Cluster, c: Costs, node: int) -> int:
    """A packet of the tuples that were set aside, oldest first."""
    me = w.node[node]
    taken = aside = 0
    waited = 0.0
    while taken < c.packet and me.aside_size > 0:
        unit, came = _next_aside(w, node)
        taken += 1
        if w.unit[unit].resident and w.unit[unit].pending == 0:
            w.packet[node, taken - aside - 1] = unit
            waited += w.now[0] - came
        else:
            aside += 1
            _put_aside(w, c, node, unit, came)
    me.packet_input = _SELF
    me.packet_taken, me.packet_size, me.packet_done = taken, taken - aside, 0
    me.packet_waited = waited
    return aside


@compiled
def _next_aside(w: Cluster, node: int) -> tuple[int, float]:
    me = w.node[node]
    first = w.aside[node, me.aside_head]
    me.aside_head = me.aside_head + 1 if me.aside_head + 1 < w.aside.shape[1] else 0
    me.aside_size -= 1
    return first.unit, first.time


@compiled
def _set_aside(w: Cluster, node: int, unit: int) -> None:
    me = w.node[node]
    at = (me.aside_head + me.aside_size) % w.aside.shape[1]
    w.aside[node, at].unit = unit
    w.aside[node, at].time = w.now[0]
    me.aside_size += 1


@compiled
def _put_aside(w: Cluster, c: Costs, node: int, unit: int, came: float) -> None:
    """Spools a tuple; a full output buffer is written to the unit's run on disk, after a seek."""
    w.unit[unit].pending += 1
    w.unit[unit].pending_entered += came
    w.unit[unit].unwritten += c.tuple_bytes
    if w.unit[unit].unwritten >= c.spool_buffer:
        w.node[node].disk += c.seek + w.unit[unit].unwritten / c.disk_rate
        w.unit[unit].unwritten = 0


@compiled
def _finish_burst(w: Cluster, c: Costs, node: int) -> None:
    """Accounts for what the consumer did in its burst."""
    now = w.now[0]
    slot = min(int(now / c.bin), len(w.delay) - 1)
    count = w.node[node].burst_tuples
    if w.node[node].burst_kind == _WORK:
        w.node[node].work = 0.0
        w.node[node].mail = True
    elif w.node[node].burst_kind == _PENDING:
        unit = w.node[node].draining
        entered = w.unit[unit].pending_entered / max(1, w.unit[unit].pending)
        w.unit[unit].pending -= count
        w.unit[unit].pending_entered -= count * entered
        w.unit[unit].processed += count
        w.rate[slot, node] += count
        w.delay[slot] += count * (now - entered)
        if w.unit[unit].pending == 0:
            w.unit[unit].pending_entered = 0.0
            w.unit[unit].unwritten = 0
            w.node[node].draining = NOBODY
            w.node[node].mail = True
    else:
        for i in range(w.node[node].packet_done, w.node[node].packet_done + count):
            w.unit[w.packet[node, i]].processed += 1
        w.node[node].packet_done += count
        w.rate[slot, node] += count
        # alone in its burst, a tuple's latency is what it waited for the CPU too
        if count > 0:
            w.delay[slot] += now - w.node[node].burst_from
        if w.node[node].packet_done == w.node[node].packet_size:
            producer = w.node[node].packet_input
            w.node[node].packet_input = NOBODY
            if w.node[node].packet_size > 0:
                w.delay[slot] += w.node[node].packet_waited
            if producer == _SELF:
                return
            w.pair[producer, node].handled += w.node[node].packet_taken
            if w.pair[producer, node].handled >= w.pair[producer, node].awaited:
                w.pair[producer, node].awaited = NOT_AWAITED
                w.node[node].mail = True


# --- what Python calls ----------------------------------------------------------------------------------------------


@compiled
def advance(w: Cluster, c: Costs, until: float) -> int:
    """Lets time pass. Returns a consumer that has to be told what to do, or NOBODY when the time has come."""
    while True:
        if w.events[1] > until:
            w.now[0] = until
            return NOBODY
        place = _next_event(w)
        node, kind = place // EVENTS, place % EVENTS
        w.now[0] = w.events[1]
        _schedule(w, node, kind, NEVER)
        goes_on = True
        if kind == _CPU:
            thread = w.node[node].running
            w.node[node].running = NOBODY
            if thread == CONSUMER:
                _finish_burst(w, c, node)
                goes_on = _go_on(w, c, node)
            elif thread == PRODUCER:
                w.node[node].producer = IDLE
                if w.node[node].again:
                    w.node[node].again = False
                    _wake_producer(w, c, node)
            else:
                w.node[node].external = IDLE
                if w.node[node].loaded:
                    _schedule(w, node, _LOAD, w.now[0] + c.load_off)
            if w.node[node].running == NOBODY:
                _run_next(w, c, node)
        elif kind == _LOAD:
            w.node[node].external = READY
            _wants(w, c, node, EXTERNAL)
        elif kind == _DISK:
            w.node[node].mail = True
            goes_on = False
        else:
            w.node[node].idle += w.now[0] - w.node[node].idle_since
            w.node[node].consumer = READY  # or a tuple that its own node sends it now would wake it again
            goes_on = _go_on(w, c, node)
        if not goes_on:
            w.node[node].consumer = BLOCKED  # until `resume`
            return node


@compiled
def resume(w: Cluster, c: Costs, node: int) -> None:
    """The consumer was told what to do and goes on."""
    w.node[node].mail = False
    _go_on(w, c, node)


@compiled
def interrupt(w: Cluster, node: int) -> bool:
    """There is a message for the consumer. True if it has nothing else to do, so that it can be told at once."""
    if w.node[node].consumer != IDLE:
        w.node[node].mail = True
        return False
    w.node[node].idle += w.now[0] - w.node[node].idle_since
    w.node[node].consumer = BLOCKED
    _schedule(w, node, _INPUT, NEVER)
    return True


@compiled
def start(w: Cluster, c: Costs) -> None:
    """Everybody begins."""
    for node in range(len(w.node)):
        w.node[node].consumer = IDLE
        w.node[node].idle_since = w.now[0]
        _wake_producer(w, c, node)


@compiled
def set_load(w: Cluster, c: Costs, node: int, loaded: bool) -> None:
    """An external process appears at a node, or goes."""
    if loaded and not w.node[node].loaded:
        w.node[node].loaded = True
        if w.node[node].external == IDLE:
            _schedule(w, node, _LOAD, w.now[0])
    elif not loaded:
        w.node[node].loaded = False
        _schedule(w, node, _LOAD, NEVER)


@compiled
def stall(w: Cluster, producer: int, unit: int, at: int) -> None:
    """Sets a unit's tuples in the buffer, until now meant for `at`, apart."""
    before = NOBODY
    slot = w.pair[producer, at].list_head
    while slot != NOBODY:
        after = w.slot[producer, slot].next
        if w.slot[producer, slot].unit == unit:
            w.route[producer, unit].stalled_count += 1
            w.pair[producer, at].list_size -= 1
            if before == NOBODY:
                w.pair[producer, at].list_head = after
            else:
                w.slot[producer, before].next = after
            if w.pair[producer, at].list_tail == slot:
                w.pair[producer, at].list_tail = before
            w.slot[producer, slot].next = w.node[producer].free_slot
            w.node[producer].free_slot = slot
        else:
            before = slot
        slot = after


@compiled
def unstall(w: Cluster, c: Costs, producer: int, unit: int, to: int) -> None:
    """Has a unit's tuples go to `to` from now on, first those that were set apart."""
    for _ in range(w.route[producer, unit].stalled_count):
        _append(w, producer, to, unit)
    w.route[producer, unit].stalled_count = 0
    _wake_producer(w, c, producer)


@compiled
def await_handled(w: Cluster, producer: int, node: int, count: int) -> bool:
    """Whether the consumer has handled so many tuples of a producer. If not, it gets mail when it has."""
    if w.pair[producer, node].handled >= count:
        return True
    w.pair[producer, node].awaited = count
    return False


@compiled
def set_aside(w: Cluster, c: Costs, node: int) -> bool:
    """Takes all tuples that have arrived out of the queues and keeps them for later, so that the input of a unit to be
    moved has run dry. False if there is no room for them."""
    me = w.node[node]
    nodes, capacity = len(w.node), w.queue.shape[2]
    if me.aside_size + nodes * capacity + c.packet > w.aside.shape[1]:
        return False
    if me.packet_input != NOBODY:
        for i in range(me.packet_done, me.packet_size):
            _set_aside(w, node, w.packet[node, i])
        if me.packet_input != _SELF:
            w.pair[me.packet_input, node].handled += me.packet_taken
        me.packet_input = NOBODY
    for producer in range(nodes):
        pair = w.pair[producer, node]
        while pair.queue_size > 0 and w.queue[producer, node, pair.queue_head].time <= w.now[0]:
            _set_aside(w, node, w.queue[producer, node, pair.queue_head].unit)
            pair.queue_head = pair.queue_head + 1 if pair.queue_head + 1 < capacity else 0
            pair.queue_size -= 1
            pair.handled += 1
        _room_for(w, c, producer, node)
    return True


@compiled
def claim_aside(w: Cluster, node: int, unit: int) -> None:
    """Makes a unit's tuples among those set aside its pending input."""
    me = w.node[node]
    for _ in range(me.aside_size):
        other, came = _next_aside(w, node)
        if other == unit:
            w.unit[unit].pending += 1
            w.unit[unit].pending_entered += came
        else:
            at = (me.aside_head + me.aside_size) % w.aside.shape[1]
            w.aside[node, at].unit = other
            w.aside[node, at].time = came
            me.aside_size += 1
