"""How much of the machine others took during a run: figures of a machine that is not quiet are not to be trusted."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from benchmarks.footprint import Times, machine_busy, read_times, tree, worked


@dataclass(frozen=True)
class Moment:
    """Processor seconds so far, of the whole machine and of this process with all below it."""

    at: float
    machine: float
    own: dict[int, Times]

    def since(self, before: Moment) -> float:
        """The share of the machine that was in other hands."""
        whole = (self.at - before.at) * (os.cpu_count() or 1)
        return max(0.0, self.machine - before.machine - worked(before.own, self.own)) / whole


def others() -> Moment:
    return Moment(time.monotonic(), machine_busy(), read_times(tree(os.getpid())))
