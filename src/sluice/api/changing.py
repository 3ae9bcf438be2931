"""What writers want that are added to a running flow, checked as far as that can be before anything is touched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sluice.api.options import OPTIONS, QUERY
from sluice.api.relation import Registry
from sluice.api.request import WriterChoices, choose_sink, refuse_shared_paths
from sluice.api.settling import check_that_rows_settle
from sluice.engine.flow_plan import FlowPlan, FlowQuery
from sluice.model.errors import FlowError
from sluice.model.plan.plan import Plan
from sluice.model.plan.planning import plan_of
from sluice.model.plan.query_names import name_queries
from sluice.spark.running import RunningQuery
from sluice.spark.sink_choice import SinkChoice
from sluice.spark.sinks import SinkKind


def check_added(
    running: RunningQuery, registry: Registry | None, given: Mapping[str, Any], writers: Sequence[WriterChoices]
) -> tuple[FlowQuery, ...]:
    """The queries that writers describe, as they can be added to a running flow; `given` are the options that it was
    started with. Their sinks are ready to take results then."""
    flow = running.epochs.standing.flow
    for writer in writers:
        if writer.rows.registry is not registry:
            raise FlowError("writers that are added to a running query must be of its Flow")
        _refuse_what_holds_for_all(writer, running, given)
    names = name_queries([writer.name for writer in writers], [output.name for output in flow.plan.outputs])
    choices = [choose_sink(writer, name) for writer, name in zip(writers, names, strict=True)]
    _refuse_paths(running, flow, choices)
    relations = [writer.output for writer in writers]
    plan = plan_of(relations, names, None, flow.streams)
    check_that_rows_settle(plan, running.closes_at_end)
    _refuse_other_sources(plan, flow)
    sinks = [
        choice.build(running.session, running.location, output.schema)
        for choice, output in zip(choices, plan.outputs, strict=True)
    ]
    for sink in sinks:
        sink.check_new(running.id)
    for sink in sinks:
        sink.open(running.id, running.epochs.standing.no_results_yet)
    return tuple(FlowQuery(*query) for query in zip(names, relations, sinks, strict=True))


def _refuse_what_holds_for_all(writer: WriterChoices, running: RunningQuery, given: Mapping[str, Any]) -> None:
    """What concerns the query as a whole was said when it was started."""
    rows = (row for row in OPTIONS if row.scope == QUERY and row.name in writer.options)
    other = next((row.name for row in rows if writer.options[row.name] != given.get(row.name)), None)
    if writer.trigger and writer.trigger != running.trigger:
        other = "trigger"
    if writer.policy is not None:
        other = "policy"
    if other is not None:
        raise FlowError(
            f"{other} holds for the whole query, which runs already; leave it out of writers that are added"
        )


def _refuse_paths(running: RunningQuery, flow: FlowPlan, choices: Sequence[SinkChoice]) -> None:
    shown = [sink.shown for sink in flow.sinks if SinkKind(sink.kind).has_path]
    refuse_shared_paths([*(choice.path for choice in choices), *shown])
    durable = next((choice.kind for choice in choices if choice.kind.has_path), None)
    if running.is_temporary and durable is not None:
        raise FlowError(
            f"the {durable.value} sink needs a query that was started with option('checkpointLocation', DIRECTORY), to "
            "show no result twice"
        )


def _refuse_other_sources(plan: Plan, flow: FlowPlan) -> None:
    """Spark reads the sources of a query as it was started."""
    others = plan.sources[len(flow.streams) :]
    if others:
        raise FlowError(
            f"the running query does not read stream {others[0].name!r}, and Spark cannot add a source to it; its "
            f"streams are {', '.join(stream.name for stream in flow.streams)}. Start another query"
        )
    for number, source in enumerate(flow.plan.sources):
        for expression in plan.by_spark(number):
            if expression.name not in source.schema.names:
                raise FlowError(
                    f"stream {source.name!r}: Spark would have to compute {expression.text!r}, and what it computes of "
                    "a running query's streams cannot change. Restart the query with this writer, or say it otherwise"
                )
