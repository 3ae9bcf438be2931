"""The workload of a site as others are told it: smoothed, and told only when it has changed enough.

Section 3.3 of the paper on operator placement. A window's workload is the share of it in which the site was busy. A
low-pass filter takes short fluctuations out.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fluctuation:
    """What is not to be reacted to: the workload becomes `times` as much over `rising` windows, and stays so for
    `lasting` windows."""

    rising: int = 1
    lasting: int = 1
    times: float = 2.0

    def seen(self, alpha: float) -> float:
        """How many times the workload before it a filter shows at its end, by the paper's formula."""
        kept = alpha**self.lasting
        ramp = self.rising + 1 + (alpha ** (self.rising + 1) - 1) / (1 - alpha)
        return kept + kept * (self.times - 1) / self.rising * ramp + (1 - kept) * self.times

    def smoothing(self, kappa: float) -> float:
        """The least weight of the past (the paper's alpha) with which it stays below kappa.

        >>> round(Fluctuation().smoothing(1.2), 3)
        0.894
        """
        low, high = 0.0, 1.0 - 1e-9
        while high - low > 1e-9:
            middle = (low + high) / 2
            low, high = (low, middle) if self.seen(middle) <= kappa else (middle, high)
        return high


@dataclass
class SmoothedWorkload:
    """A site's workload, and what its partners were told last."""

    alpha: float
    kappa: float
    value: float = 0.0
    told: float | None = None

    def add_window(self, busy: float) -> None:
        """Take in the share of a window in which the site was busy."""
        self.value = busy if self.told is None else self.alpha * self.value + (1 - self.alpha) * busy

    def shift(self, load: float) -> None:
        """Count a load that comes or goes before windows show it."""
        self.value = max(0.0, self.value + load)

    @property
    def has_changed(self) -> bool:
        """Whether it is κ times what was told last, or more, or as many times less."""
        told = self.told
        return told is None or self.value >= self.kappa * told or self.value <= told / self.kappa
