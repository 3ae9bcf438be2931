"""How many examples a property gets that takes longer than others."""

from __future__ import annotations

from hypothesis import settings


def one_in(divisor: int) -> int:
    """A part of the profile's examples, rounded up, and at least two: the first one is the simplest there is."""
    return max(2, -(-settings().max_examples // divisor))
