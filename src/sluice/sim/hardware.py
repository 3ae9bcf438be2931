"""What a simulated cluster is made of; the values are those of the Flux paper, section 3, unless said otherwise."""

from __future__ import annotations

from dataclasses import dataclass

from sluice.sim.notation import ByteRate, Bytes, Count, Delay, Seconds

MB = 1_000_000
MICRO = 1e-6


@dataclass(frozen=True)
class Hardware:
    """A node's processor, memory and disk, and the network between nodes. Seconds and bytes.

    The paper gives no scheduler. Here threads of a node run to the end of their burst, in turn, and `switch` is what it
    costs to go from one thread to another; with packets of 12 tuples, 5 µs make the paper's unloaded rate.
    """

    tuple_bytes: Bytes = 80
    process: Seconds = 45 * MICRO
    process_spread: Delay = 3 * MICRO
    produce: Delay = 0.5 * MICRO
    spool: Delay = 0.5 * MICRO
    """CPU to put a tuple of a spilled unit aside; not in the paper."""
    handle_state: Delay = 0.2 * MICRO
    """CPU per tuple of a unit's state to take it out or to install it (section 5.4)."""
    switch: Delay = 5 * MICRO
    packet_tuples: Count = 12
    queue_packets: Count = 2
    full_packets: bool = False
    """Whether a transient skew buffer sends full packets only, or every tuple as soon as its queue has room."""
    latency: Delay = 70 * MICRO
    memory: Bytes = 1024 * MB
    disk_rate: ByteRate = 20 * MB
    seek: Delay = 5e-3
    seek_spread: Delay = 0.2e-3
    spool_buffer: Bytes = 64 << 10
    """Bytes of input that are collected before they are written to a spilled unit's run; not in the paper."""
    link_rate: ByteRate = 250e6 / 8
    cross_rate: ByteRate = 500e6 / 8
    """Bytes a second for moving state: between two nodes, and from one half of the nodes to the other (section 5.4)."""

    @property
    def queue_tuples(self) -> int:
        return self.packet_tuples * self.queue_packets

    def state_tuples(self, size: int) -> int:
        """How many tuples a unit's state of this size holds."""
        return size // self.tuple_bytes
