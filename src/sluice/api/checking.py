"""From what is wanted to what can be started: the plan, its sources as Spark reads them, and how the query runs. What
is refused here has touched nothing."""

from __future__ import annotations

from dataclasses import replace

from sluice.api.request import QueryRequest
from sluice.api.settling import check_that_rows_settle
from sluice.control.controller import Controller
from sluice.control.identity import identify
from sluice.control.journal import Journal
from sluice.control.site_assignment import SiteCount
from sluice.engine.checkpoint import PlanOnRecord
from sluice.engine.settings import QuerySettings
from sluice.model.errors import FlowError
from sluice.model.identity import BATCHES, FILES
from sluice.model.plan.plan import Plan
from sluice.model.plan.planning import plan_of
from sluice.model.plan.stream import Stream
from sluice.record.epoch import EpochRecord
from sluice.spark.checked_query import CheckedQuery
from sluice.spark.executors import await_executors
from sluice.spark.locations import absolute
from sluice.spark.sources import combine_sources, read_as_planned, ways_to_read
from sluice.spark.starting import names_in_use
from sluice.state.files.storage import Storage
from sluice.state.files.workspace import Places


def check_request(request: QueryRequest) -> CheckedQuery:
    """The query that was asked for, as it can be started."""
    _refuse_end_without_end(request)
    spark, registry, options = request.registry.session, request.registry, request.options
    location = _locate_checkpoint(request)
    on_record = None if location is None else PlanOnRecord.read(Journal(Storage(location)))
    streams, assigned = _streams_on_record(request, on_record), on_record.assignment if on_record else None

    plan = plan_of(request.outputs, request.names, assigned, streams)
    check_that_rows_settle(plan, options.close_at_end)
    streams = plan.sources
    by_spark = [plan.by_spark(number) for number in range(len(plan.sources))]
    sources = read_as_planned(spark, [registry.sources[stream.name] for stream in plan.sources], by_spark)
    zone = registry.time_zone if plan.has_expressions else ""
    plan = replace(plan, sources=tuple(source.stream for source in sources), time_zone=zone)
    all_files = all(source.is_found_here for source in sources)
    frame, reading = None if all_files else combine_sources(spark, sources), ways_to_read(sources)

    least, most = options.bounds
    slots = sum(executor.slots for executor in await_executors(spark))
    sites = options.sites or max(least, min(slots, most))
    follows = options.sites is None and not options.scales
    settings = query_settings(request, plan, sites, SiteCount(sites, options.partitions) if follows else None)
    return CheckedQuery(
        spark=spark,
        name=_name_in_session(request),
        plan=plan,
        sources=sources,
        frame=frame,
        reading=reading,
        relations=request.outputs,
        streams=streams,
        time_zone=registry.time_zone,
        tables=registry.tables,
        settings=settings,
        sinks=request.sinks,
        trigger=request.trigger,
        identity=identify(registry.flow, streams, options.partitions, FILES if all_files else BATCHES),
        first=record_before_all(request, plan, sites),
        location=location,
        made_for=on_record.file if on_record else "",
        change_queries=options.change_queries,
        fails_fast=options.fail_fast,
        closes_at_end=options.close_at_end,
    )


def _refuse_end_without_end(request: QueryRequest) -> None:
    if request.options.close_at_end and "availableNow" not in request.trigger:
        raise FlowError(
            "closeAtEnd says that no input comes after this run, and without trigger(availableNow=True) the run has no "
            "end: give that trigger, or leave closeAtEnd out"
        )


def query_settings(request: QueryRequest, plan: Plan, sites: int, site_count: SiteCount | None = None) -> QuerySettings:
    """How the query runs that was asked for, from so many sites on."""
    options, choice, capabilities = request.options, request.policy, plan.capabilities
    if options.scales:
        least, most = options.bounds
        capabilities = replace(capabilities, scalable=True, least_sites=least, most_sites=most)
    return QuerySettings(
        sites=sites,
        site_count=site_count,
        partitions=options.partitions,
        site_memory=options.site_memory,
        places=Places(options.memory_dir, options.disk_dir),
        freezing=choice.policy.freezing,
        controller=Controller(
            choice.policy,
            options.site_memory,
            choice.minimum,
            choice.advise,
            capabilities,
            options.backlog,
            options.unit_size,
        ),
        seconds=options.epoch_budget,
        backlog=options.backlog,
        spill=options.spill,
    )


def record_before_all(request: QueryRequest, plan: Plan, sites: int) -> EpochRecord:
    """What the query goes on from where the checkpoint is new."""
    routing = plan.first_routing(request.options.partitions, sites)
    if request.policy.policy.begins_at_home:
        routing = plan.data_flow.placed_at_home(routing)
    return EpochRecord.before_all(routing, len(plan.sources))


def _streams_on_record(request: QueryRequest, on_record: PlanOnRecord | None) -> tuple[Stream, ...]:
    """The streams that the checkpoint's queries were over, in their order: they are read whether they are needed now or
    not, since each goes on where it was."""
    sources = request.registry.sources
    names = [stream.name for stream in on_record.streams] if on_record else []
    return tuple(sources[name].stream for name in names if name in sources)


def _name_in_session(request: QueryRequest) -> str | None:
    """What the query is called in the session. No two of one name run at once, so of several that a flow runs, each of
    many writers, the first has the flow's."""
    if len(request.outputs) == 1:
        return request.name
    return None if request.name in names_in_use(request.registry.session) else request.name


def _locate_checkpoint(request: QueryRequest) -> str | None:
    """Where the checkpoint is; None if the query may have one that goes with it."""
    if request.options.checkpoint:
        return absolute(request.options.checkpoint)
    durable = next((sink.kind for sink in request.sinks if sink.kind.has_path), None)
    if durable is not None:
        raise FlowError(
            f"the {durable.value} sink needs option('checkpointLocation', DIRECTORY) to show no result twice"
        )
    if not str(request.registry.session.sparkContext.master).startswith("local"):
        raise FlowError(
            "on a cluster a query needs option('checkpointLocation', DIRECTORY) that every executor can reach"
        )
    return None
