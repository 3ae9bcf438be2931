"""The simulated cluster as arrays of records, which the compiled core works on and the protocol machines share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sluice.sim.hardware import Hardware

# These numbers are compiled into `core`: after a change of one, remove core's files from __pycache__.
FLUX, EXCHANGE, RIVER = 0, 1, 2
"""How producers hand tuples on: through a transient skew buffer; straight into bounded queues; to whoever has room."""
IDLE, READY, RUNNING, BLOCKED = 0, 1, 2, 3
"""What a thread does: waits for something to do, waits for the CPU, has it, waits for the disk."""
CONSUMER, PRODUCER, EXTERNAL = 0, 1, 2
"""The threads of a node."""
EVENTS = 4
"""Kinds of event a node can have ahead of it, one of each at most; `core` names them."""
ASIDE = 64
"""How many times all its queues a consumer can set aside."""
NEVER = np.inf
NOBODY = -1
NOT_AWAITED = np.iinfo(np.int64).max

_I, _F, _B = np.int64, np.float64, np.bool_


def _columns(kind: type, *names: str) -> list[tuple[str, type]]:
    return [(name, kind) for name in names]


NODE = np.dtype(
    # its CPU: the thread that runs, the one that ran last, how many wait; whether an external process is there
    _columns(_I, "running", "last", "waiting_count", "external")
    + _columns(_B, "loaded")
    # its consumer: what it does, whether it has to ask before it goes on, and what it has to do before more tuples: CPU
    # seconds of other work, seconds of disk, a unit whose pending input comes first
    + _columns(_I, "consumer", "draining", "burst_kind", "burst_tuples", "next_input")
    + _columns(_F, "work", "disk", "burst", "burst_from", "idle", "idle_since")
    + _columns(_B, "mail")
    # the packet at hand: tuples to process, those done, the producer it came from, all that were taken; the seconds its
    # tuples were set aside before, summed; tuples that came in before their turn, to let a unit's input run dry
    + _columns(_I, "packet_size", "packet_done", "packet_input", "packet_taken", "aside_head", "aside_size")
    + _columns(_F, "packet_waited")
    # its producer: what it does, whether there is more to do, the unit of the tuple that an exchange is blocked by
    + _columns(_I, "producer", "held", "buffered", "free_slot")
    + _columns(_B, "again")
)
PAIR = np.dtype(
    # from a producer to a consumer: the tuples in the buffer, the queue, and counts of what ever went through it
    _columns(_I, "list_head", "list_tail", "list_size", "queue_head", "queue_size", "sent", "handled", "awaited")
)
UNIT = np.dtype(
    # tuples put aside while it is spilled, the sum of the times they came, bytes put aside since the last write
    [("resident", _B), *_columns(_I, "processed", "pending", "unwritten"), ("pending_entered", _F)]
)
SHARE = np.dtype([("chance", _F), ("other", _I)])
"""Alias table of the units' shares of the load."""
ROUTE = np.dtype([("owner", np.int32), ("stalled_count", np.int32), ("stalled", _B)])
"""Of a producer and a unit: where its tuples go, or how many wait in the buffer while they go nowhere."""
SLOT = np.dtype([("unit", np.int32), ("next", np.int32)])
IN_FLIGHT = np.dtype([("time", _F), ("unit", _I)])


class Costs(NamedTuple):
    """The numbers the core needs, in seconds and tuples."""

    kind: int
    produce: float
    process: float
    process_spread: float
    spool: float
    switch: float
    latency: float
    load_on: float
    load_off: float
    packet: int
    least: int  # tuples for a destination that a transient skew buffer collects before it sends them
    buffer: int
    tuple_bytes: int
    spool_buffer: int
    disk_rate: float
    seek: float
    bin: float


class Cluster(NamedTuple):
    """Every array of the simulation. N nodes, U units, B buffer slots of a producer, C tuples that a queue holds."""

    now: np.ndarray
    random: np.ndarray
    events: np.ndarray  # a tree of minima over N * EVENTS times: the root is the next event's
    node: np.ndarray  # (N,)
    waiting: np.ndarray  # (N, 3) threads in the order in which they get the CPU
    packet: np.ndarray  # (N, packet) units of the tuples at hand
    pair: np.ndarray  # (N, N)
    queue: np.ndarray  # (N, N, C)
    aside: np.ndarray  # (N, ASIDE * N * C)
    slot: np.ndarray  # (N, B) the transient skew buffers
    unit: np.ndarray  # (U,)
    share: np.ndarray  # (U,)
    route: np.ndarray  # (N, U)
    rate: np.ndarray  # (bins, N) tuples processed
    delay: np.ndarray  # (bins,) their latency, summed


def new_cluster(
    nodes: int, holders: np.ndarray, hardware: Hardware, kind: int, buffer: int, bins: int, seed: int
) -> Cluster:
    """A cluster at rest, its units held as `holders` says. An exchange has the buffer's space in its queues."""
    slots = buffer if kind == FLUX else 1
    capacity = hardware.queue_tuples + (0 if kind == FLUX else buffer // nodes)
    leaves = 1 << (nodes * EVENTS - 1).bit_length()
    cluster = Cluster(
        now=np.zeros(1),
        random=np.array([seed], dtype=np.uint64),
        events=np.full(2 * leaves, NEVER),
        node=np.zeros(nodes, dtype=NODE),
        waiting=np.zeros((nodes, 3), dtype=np.int64),
        packet=np.zeros((nodes, hardware.packet_tuples), dtype=np.int64),
        pair=np.zeros((nodes, nodes), dtype=PAIR),
        queue=np.zeros((nodes, nodes, capacity), dtype=IN_FLIGHT),
        aside=np.zeros((nodes, ASIDE * nodes * capacity), dtype=IN_FLIGHT),
        slot=np.zeros((nodes, slots), dtype=SLOT),
        unit=np.zeros(len(holders), dtype=UNIT),
        share=np.ones(len(holders), dtype=SHARE),
        route=np.zeros((nodes, len(holders)), dtype=ROUTE),
        rate=np.zeros((bins, nodes), dtype=np.int64),
        delay=np.zeros(bins),
    )
    for field in ("running", "last", "draining", "packet_input", "held"):
        cluster.node[field] = NOBODY
    for field in ("list_head", "list_tail"):
        cluster.pair[field] = NOBODY
    cluster.pair["awaited"] = NOT_AWAITED
    cluster.slot["next"] = np.arange(1, slots + 1)
    cluster.slot["next"][:, -1] = NOBODY
    cluster.unit["resident"] = True
    cluster.route["owner"] = holders
    return cluster
