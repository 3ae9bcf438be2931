"""The rhythm of load balancing: collect statistics, move, collect again (Flux, section 5.3)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sluice.model.errors import FlowError


@dataclass(frozen=True)
class Rounds:
    """How long statistics are collected: as long as the last move phase took, so that even poor decisions cost no more
    than half the time; half as long as before when nothing moved; never below a minimum. All in seconds.

    >>> rounds = Rounds(minimum=0.25)
    >>> rounds.collect
    0.25
    >>> rounds = rounds.after(moving=2.0)
    >>> rounds.collect, rounds.after(None).collect, rounds.after(moving=0.1).collect
    (2.0, 1.0, 0.25)
    """

    minimum: float
    collect: float = 0.0

    def __post_init__(self) -> None:
        if not self.minimum > 0:
            raise FlowError(f"statistics must be collected for more than {self.minimum} seconds")
        object.__setattr__(self, "collect", max(self.minimum, self.collect))

    def after(self, moving: float | None) -> Rounds:
        """The round after one whose move phase took `moving` seconds; None if nothing was moved in it."""
        return replace(self, collect=self.collect / 2 if moving is None else moving)
