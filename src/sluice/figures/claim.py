"""What a paper says, as a number with a tolerance that was written down before the experiment ran."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any


class ClaimKind(Enum):
    """Where the number of a claim is from."""

    PUBLISHED = "published"
    """The paper prints the number, or says it in words and gives none."""
    DERIVED = "derived"
    """The paper prints no such number. It was worked out from those that it prints."""
    FITTED = "fitted"
    """Our model was made to meet the number, so that it holds says nothing."""


@dataclass(frozen=True)
class Claim:
    """A statement of a paper: the value it comes to, the range in which ours must lie, and why that range.

    >>> claim = Claim("felt", "the load is felt at about 5 s", 5.0, 3.5, 6.5, "s", "read off a plot by the second")
    >>> claim.verdict(5.2).held, claim.verdict(9.0).held
    (True, False)
    """

    name: str
    says: str
    value: float | None
    low: float
    high: float
    unit: str
    why: str
    kind: ClaimKind = ClaimKind.PUBLISHED

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
        claim = self.claim
        return {
            "claim": claim.name,
            "paper": claim.says,
            "value": claim.value,
            "kind": claim.kind.value,
            "measured": None if math.isnan(self.measured) else self.measured,
            "accepted": claim.accepted,
            "unit": claim.unit,
            "tolerance": claim.why,
            "held": self.held,
        }

    @property
    def word(self) -> str:
        return verdict_word(self.held, self.claim.kind)


def verdict_word(held: bool, kind: ClaimKind) -> str:
    """What became of a claim, in a word."""
    return "missed" if not held else "fitted" if kind is ClaimKind.FITTED else "held"


ANY = math.inf


def at_least(
    name: str,
    says: str,
    low: float,
    unit: str,
    why: str,
    value: float | None = None,
    kind: ClaimKind = ClaimKind.PUBLISHED,
) -> Claim:
    return Claim(name, says, value, low, ANY, unit, why, kind)


def at_most(
    name: str,
    says: str,
    high: float,
    unit: str,
    why: str,
    value: float | None = None,
    kind: ClaimKind = ClaimKind.PUBLISHED,
) -> Claim:
    return Claim(name, says, value, -ANY, high, unit, why, kind)
