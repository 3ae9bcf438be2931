"""A query that has been checked: all that is needed to start it. Nothing of a checkpoint has been looked at yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from sluice.engine.settings import QuerySettings
from sluice.engine.split import Reading
from sluice.engine.static_tables import TableSource
from sluice.model.durations import seconds
from sluice.model.identity import FlowIdentity
from sluice.model.plan.plan import Plan
from sluice.model.plan.relation import Relation
from sluice.model.plan.stream import Stream
from sluice.record.epoch import EpochRecord
from sluice.spark.sink_choice import SinkChoice
from sluice.spark.sources import Source

Trigger = dict[str, Any]
"""The arguments of Spark's `trigger`; none is its default."""


@dataclass(frozen=True)
class CheckedQuery:
    """What is computed, out of what, how it runs and where its results go. There is a sink for each output of the
    plan."""

    spark: SparkSession
    name: str | None
    plan: Plan
    sources: tuple[Source, ...]
    frame: DataFrame | None
    """All sources as one streaming DataFrame; None if all are files that Sluice finds itself."""
    reading: tuple[Reading, ...]
    """How the split gets each source's rows out of it."""
    relations: tuple[Relation, ...]
    """What its outputs write, as users hold it."""
    streams: tuple[Stream, ...]
    """Its sources, as users hold them."""
    time_zone: str
    """The session's."""
    tables: Mapping[str, TableSource]
    """Those of the flow, by name."""
    settings: QuerySettings
    sinks: tuple[SinkChoice, ...]
    trigger: Trigger
    identity: FlowIdentity
    """What has to be the same whenever the flow goes on with its checkpoint."""
    first: EpochRecord
    """What it goes on from where the checkpoint is new."""
    location: str | None
    """Where its checkpoint is; None if it has one that goes with it."""
    made_for: str
    """The file of the plan that the newest epoch of the checkpoint went by; empty where the checkpoint is new."""
    change_queries: bool
    """Whether queries that the checkpoint has are exchanged for those of the writers."""
    fails_fast: bool
    """Whether a sink that raises ends all queries."""
    closes_at_end: bool
    """Whether all streams end with this run."""

    @property
    def title(self) -> str:
        """What messages call it."""
        return f"query {self.name!r}" if self.name else "the query"

    @property
    def interval(self) -> float:
        """Seconds between two batches, 0 if one follows the other."""
        return seconds(self.trigger.get("processingTime", "0 seconds"), "trigger's processingTime")
