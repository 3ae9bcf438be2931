"""The checkpoint of a query that is started: Sluice's part of it, opened, and Spark's part, if there is one, which fits
it."""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass
from functools import partial

from sluice.control.journal import Journal
from sluice.engine.checkpoint import OpenCheckpoint, open_checkpoint
from sluice.engine.flow_plan import FlowPlan
from sluice.model.clock import Clock
from sluice.spark.checked_query import CheckedQuery
from sluice.spark.locations import make_temporary, remove_temporary
from sluice.spark.sink_choice import restore_sink
from sluice.spark.sinks import MemorySink
from sluice.spark.sources import directories_of_lists
from sluice.spark.sparks_part import SparksPart
from sluice.state.files.storage import Storage
from sluice.state.files.workspace import Workspace

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class QueryCheckpoint:
    """The parts of a checkpoint, what the query runs, `workspace`, which this run has in the local tiers, and whether
    the checkpoint is temporary: then it goes with the query. Spark has a part where it plans the input."""

    opened: OpenCheckpoint
    flow: FlowPlan
    sparks_part: SparksPart | None
    workspace: Workspace
    temporary: bool

    @property
    def location(self) -> str:
        """Where it is, as every executor understands it."""
        return self.opened.storage.uri

    def discard(self) -> None:
        """Remove the checkpoint of a query that could not be started, if it is temporary."""
        if self.temporary:
            remove_temporary(self.location)

    def leave(self) -> None:
        """The query is over: remove a temporary checkpoint, unless it has a view, which is for looking at afterwards,
        too."""
        if not any(isinstance(sink, MemorySink) for sink in self.opened.delivery.sinks_of(self.opened.newest)):
            self.discard()


def take_checkpoint(query: CheckedQuery, clock: Clock) -> QueryCheckpoint:
    """Take over the checkpoint of a query, or make one for it. What does not fit the query is refused, untouched."""
    temporary = query.location is None
    location = query.location or make_temporary()
    try:
        storage = Storage(location)
        sparks_part = _open_sparks_part(query, storage)
        sinks = [
            choice.build(query.spark, location, output.schema)
            for choice, output in zip(query.sinks, query.plan.outputs, strict=True)
        ]
        flow = FlowPlan(query.plan, tuple(sinks), query.relations, query.streams, query.time_zone, query.tables)
        opened = open_checkpoint(
            storage,
            uuid.uuid4().hex[:16],
            query.identity,
            query.first,
            flow,
            clock,
            query.made_for,
            partial(restore_sink, query.spark, location) if query.change_queries else None,
            query.fails_fast,
        )
    except BaseException:
        if temporary:
            remove_temporary(location)
        raise
    _log_recovery(opened)
    workspace = Workspace(query.settings.places, opened.query, opened.run)
    return QueryCheckpoint(opened, flow, sparks_part, workspace, temporary)


def _open_sparks_part(query: CheckedQuery, storage: Storage) -> SparksPart | None:
    """Spark's part, if it plans the input; one that does not fit the journal is refused. A checkpoint of the other kind
    is refused when it is claimed."""
    if query.frame is None:
        return None
    sparks_part = SparksPart(storage, directories_of_lists(query.frame))
    sparks_part.check_with(Journal(storage))
    return sparks_part


def _log_recovery(opened: OpenCheckpoint) -> None:
    query, where, newest = opened.query, opened.storage.uri, opened.newest.number
    if newest < 0:
        log.info("query %s begins on the new checkpoint %s", query, where)
    else:
        log.info("query %s takes over the checkpoint %s, from epoch %d on", query, where, newest)
