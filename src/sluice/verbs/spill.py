"""Spill and fetch: on which tier a unit's state lies (Flux, section 6.1). Nobody asks for it: sites do it."""

from __future__ import annotations

from sluice.verbs.base import Event


class UnitSpilled(Event, frozen=True, tag=True):
    """A unit's state went to disk, and its input waits."""

    reason: str


class UnitFetched(Event, frozen=True, tag=True):
    """A unit's state came back from disk."""

    reason: str
