"""Flows tested without Spark: rows in, results out, in milliseconds; with trouble thrown in where that is asked for.

from sluice import Flow, testing

outcome = testing.run(pairs, {"trades": trades, "quotes": quotes}, disturb=7)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sluice.testing.arrivals import Arrival
    from sluice.testing.outcome import EpochOutcome, Outcome
    from sluice.testing.running import run

__all__ = ["Arrival", "EpochOutcome", "Outcome", "run"]

_MODULES = {
    "Arrival": "sluice.testing.arrivals",
    "EpochOutcome": "sluice.testing.outcome",
    "Outcome": "sluice.testing.outcome",
    "run": "sluice.testing.running",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'sluice.testing' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value
