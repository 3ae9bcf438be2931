"""How much of the machine others took during a run: figures of a machine that is not quiet are not to be trusted."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from benchmarks.footprint import cpu_seconds, machine_busy, tree


@dataclass(frozen=True)
class Moment:
    """Processor seconds so far, of the whole machine and of this process with all below it."""

    at: float
    machine: float
    own: dict[int, float]

    def since(self, before: Moment) -> float:
        """The share of the machine that was in other hands."""
        own = sum(seconds - before.own.get(pid, 0.0) for pid, seconds in self.own.items())
        whole = (self.at - before.at) * (os.cpu_count() or 1)
        return max(0.0, self.machine - before.machine - own) / whole


def others() -> Moment:
    own = {}
    for pid in tree(os.getpid()):
        try:
            own[pid] = cpu_seconds(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return Moment(time.monotonic(), machine_busy(), own)
