"""How long a disk takes for what is read and written: for experiments with disks that are slower than this one."""

from __future__ import annotations

from dataclasses import dataclass

from sluice.model.clock import Clock


@dataclass(frozen=True)
class DiskSpeed:
    """A disk that takes `delay` seconds a byte longer than it really does, by sleeping; each site has one of its own.

    A page cache in front of it would hide a disk's speed for as long as all fits into it: so what is emulated has none.
    """

    clock: Clock
    delay: float = 0.0

    def spend(self, size: int) -> None:
        """Let the time pass that so many bytes take."""
        if self.delay and size:
            self.clock.sleep(size * self.delay)
