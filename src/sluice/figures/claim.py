"""What a paper says, as a number with a tolerance that was written down before the experiment ran."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Claim:
    """A published statement: the value it comes to, the range in which ours must lie, and why that range.

    >>> claim = Claim("felt", "the load is felt at about 5 s", 5.0, 3.5, 6.5, "s", "read off a plot by the second")
    >>> claim.verdict(5.2).held, claim.verdict(9.0).held
    (True, False)
    """

    name: str
    says: str
    published: float | None
    low: float
    high: float
    unit: str
    why: str
    fitted: bool = False
    """Our model was made to meet it, so that it holds says nothing."""

    def verdict(self, measured: float) -> Verdict:
        return Verdict(self, measured, math.isfinite(measured) and self.low <= measured <= self.high)

    @property
    def accepted(self) -> str:
        """The range in words."""
        if math.isinf(self.high):
            return f"at least {self.low:g} {self.unit}".rstrip()
        if math.isinf(self.low):
            return f"at most {self.high:g} {self.unit}".rstrip()
        return f"{self.low:g} to {self.high:g} {self.unit}".rstrip()


@dataclass(frozen=True)
class Verdict:
    """What was measured for a claim."""

    claim: Claim
    measured: float
    held: bool

    def as_json(self) -> dict[str, Any]:
        known = self.claim
        return {
            "claim": known.name,
            "paper": known.says,
            "published": known.published,
            "measured": None if math.isnan(self.measured) else self.measured,
            "accepted": known.accepted,
            "unit": known.unit,
            "tolerance": known.why,
            "held": self.held,
            "fitted": known.fitted,
        }

    @property
    def word(self) -> str:
        return "missed" if not self.held else "fitted" if self.claim.fitted else "held"


ANY = math.inf


def at_least(name: str, says: str, low: float, unit: str, why: str, published: float | None = None) -> Claim:
    return Claim(name, says, published, low, ANY, unit, why)


def at_most(name: str, says: str, high: float, unit: str, why: str, published: float | None = None) -> Claim:
    return Claim(name, says, published, -ANY, high, unit, why)
