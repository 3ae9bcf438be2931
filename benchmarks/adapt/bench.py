"""What all scenarios share: sizes, the emulated service time, and who takes part."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.adapt.rows import Rows
from benchmarks.adapt.running import STATIC, Contender, Setup, Stage

EIGHT = 8
UNITS = 64
"""Eight units a site: a round of the policy takes one from a site, so more of them would only take longer to move."""
SLOWED_TO = 0.43
"""What is left of a site's speed: the Flux paper's external process takes 57 %."""
WARM = 5
"""Epochs before a disturbance: two to load code and fill the window, three to be compared with."""
EPOCH_ROWS = 160_000
ROW_BYTES = 32
"""Of state: key, time, id, and the place in the order."""
SLOW_DISK = "50m"
"""Bytes a second of each site's disk, where it is emulated."""
AMPLE = "1g"
"""Memory for all state of a site."""
EVEN = Rows("even", files=40, rows=EPOCH_ROWS // 2, keys=200_000)


class NobodyTakesPart(Exception):
    """A scenario of which no contender's policy was asked for."""


@dataclass(frozen=True)
class Bench:
    """One call of the benchmark."""

    stage: Stage
    policies: tuple[str, ...]
    seconds: float = 3.0  # emulated work that a site has in an epoch
    quick: bool = False

    @property
    def even(self) -> Rows:
        return EVEN

    def warm_up(self, sites: int) -> None:
        """A run that nobody looks at: new executors load code and compile, and the first contender would pay for it."""
        self.stage.run(STATIC, EVEN, Setup(sites, UNITS), self.epochs(4 * WARM))

    def eight(self, **options: str) -> Setup:
        """Eight sites whose rows take so long that an epoch is mostly this."""
        return Setup(EIGHT, UNITS, self.seconds / (EPOCH_ROWS / EIGHT), options=options)

    def contenders(self, *all_: Contender) -> list[Contender]:
        """Those whose policy was asked for."""
        chosen = [c for c in all_ if c.policy in self.policies]
        if not chosen:
            raise NobodyTakesPart(f"it compares {', '.join(sorted({str(c.policy) for c in all_}))}")
        return chosen

    def epochs(self, wanted: int) -> int:
        """Fewer of them for a quick look, which shows that it runs and little else."""
        return max(4, wanted // 4) if self.quick else wanted
