"""What a flow computes, as its checkpoint has it: a file for each of the plans that it went by.

Queries are added and dropped while a flow runs. The record of an epoch names the plan that the epoch went by.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RecordedQuery:
    """One of a flow's queries: its name, a digest of what it computes and words for it, the kind of its sink, and where
    that shows results, if they stay."""

    name: str
    structure: str
    says: str = ""
    sink: str = ""
    shown: str | None = None


@dataclass(frozen=True)
class RecordedPlan:
    """The queries of a flow, in the order of its outputs, and what they compute in words."""

    queries: tuple[RecordedQuery, ...] = ()
    says: str = ""
    timeZone: str = ""


@dataclass(frozen=True)
class FormerPlan:
    """The file of a plan that epochs before `until` went by, and none since."""

    file: str
    until: int
