"""Whose a checkpoint is: what has to be the same whenever a flow goes on with it. Fields have their names there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StreamIdentity:
    """A stream: its columns, each with its type, its event time, and how late its rows may be (microseconds)."""

    name: str
    columns: tuple[tuple[str, str], ...]
    eventTime: str
    delay: int | None


@dataclass(frozen=True, kw_only=True)
class PlanIdentity:
    """What is computed. Operators and outputs have what they themselves say, as JSON has it."""

    streams: tuple[StreamIdentity, ...] = ()
    operators: tuple[dict[str, Any], ...] = ()
    outputs: tuple[dict[str, Any], ...] = ()
    timeZone: str = ""


@dataclass(frozen=True, kw_only=True)
class FlowIdentity(PlanIdentity):
    """A flow: its name, what it computes, and how many units operators on one key begin with; and words for it."""

    name: str
    partitions: int
    says: str = ""
    queries: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CheckpointIdentity(FlowIdentity):
    """Whose a checkpoint is: the `id` of its query, where its results are `shown`, and its flow."""

    id: str
    shown: tuple[str | None, ...] = ()
