"""The files that an epoch takes in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class InputFile:
    """One file of a `readFiles` stream: the number of its source in the plan, where it lies, and its size in bytes."""

    source: int
    path: str
    size: int
