"""What the writers of a query want together: one value, in which they agree. Spark is asked for nothing yet."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from sluice.api.options import (
    BACKLOG,
    BACKLOG_TO_SCALE_BY,
    EPOCH_BUDGET,
    MAX_SITES,
    MIN_SITES,
    OPTIONS,
    QUERY,
    QueryOptions,
    SinkOptions,
)
from sluice.api.output_mode import OutputMode, in_mode, row_keys
from sluice.api.relation import NamedRelation, Registry
from sluice.api.whole_query import PolicyChoice, StartChoices
from sluice.control.controller import MINIMUM
from sluice.model.errors import FlowError
from sluice.model.partitions import can_name_partition
from sluice.model.plan.query_names import name_queries
from sluice.model.plan.relation import Relation
from sluice.policies import Policy, policy
from sluice.spark.checked_query import Trigger
from sluice.spark.delta_merge import refuse_unmergeable
from sluice.spark.sink_choice import SinkChoice
from sluice.spark.sinks import SinkKind

T = TypeVar("T")
_TAKE_CHANGES = frozenset(SinkKind) - {SinkKind.PARQUET}
"""The sinks that take results which later ones replace."""


@dataclass(frozen=True)
class WriterChoices:
    """All that a writer was told."""

    rows: NamedRelation
    format: SinkKind | None
    function: Callable[..., Any] | None
    name: str | None
    options: Mapping[str, Any]
    trigger: Trigger
    policy: PolicyChoice | None
    mode: OutputMode = OutputMode.APPEND
    partition_by: tuple[str, ...] = ()
    table: str | None = None

    @property
    def output(self) -> Relation:
        """What is written."""
        return in_mode(self.rows.relation, self.mode)


@dataclass(frozen=True)
class QueryRequest:
    """One query, as all its writers want it. There is a sink for each of its outputs."""

    registry: Registry
    name: str | None
    """What Spark calls it."""
    outputs: tuple[Relation, ...]
    names: tuple[str, ...]
    """Of the outputs, as queries of the flow."""
    sinks: tuple[SinkChoice, ...]
    options: QueryOptions
    chosen_options: Mapping[str, Any]
    """The options as they were chosen, for `explain`."""
    trigger: Trigger
    policy: PolicyChoice


def read_request(writers: Sequence[WriterChoices], start: StartChoices | None = None) -> QueryRequest:
    """What writers want together.

    What concerns the whole query (checkpoint, sites, memory, trigger, policy) may be said by `start`, or by any of the
    writers; by several only if they agree.
    """
    start = start or StartChoices()
    registry = writers[0].rows.registry
    for writer in writers:
        if writer.rows.registry is not registry:
            raise FlowError("all writers of one query must be of one Flow")
    names = name_queries([w.name for w in writers])
    sinks = tuple(choose_sink(w, name) for w, name in zip(writers, names, strict=True))
    refuse_shared_paths([sink.path for sink in sinks])
    choices_by_author: list[tuple[str, StartChoices | WriterChoices]] = [("flow.start", start)]
    choices_by_author += ((f"writer {name!r}", writer) for name, writer in zip(names, writers, strict=True))
    agreed_options = {
        row.name: _agree_on(row.name, [(author, chosen.options.get(row.name)) for author, chosen in choices_by_author])
        for row in OPTIONS
        if row.scope == QUERY
    }
    chosen_options = {name: value for name, value in agreed_options.items() if value is not None}
    trigger = _agree_on("trigger", [(author, chosen.trigger or None) for author, chosen in choices_by_author]) or {}
    policy_choice = _agree_on("policy", [(author, chosen.policy) for author, chosen in choices_by_author])
    if policy_choice and _scales_by_itself(policy_choice.policy, chosen_options):
        chosen_options = {BACKLOG.name: BACKLOG_TO_SCALE_BY, **chosen_options}
    return QueryRequest(
        registry=registry,
        name=writers[0].name if len(writers) == 1 else registry.flow,
        outputs=tuple(w.output for w in writers),
        names=names,
        sinks=sinks,
        options=QueryOptions.read(chosen_options),
        chosen_options=chosen_options,
        trigger=trigger,
        policy=policy_choice or PolicyChoice(policy("static"), False, MINIMUM),
    )


def _scales_by_itself(policy: Policy, chosen_options: Mapping[str, Any]) -> bool:
    """Whether a policy is to choose the number of sites, by how much input waits at them; if so, some has to be able to
    wait."""
    if not policy.scales:
        return False
    if MIN_SITES.name not in chosen_options and MAX_SITES.name not in chosen_options:
        raise FlowError(
            f"policy {policy.name!r} chooses how many sites there are, and without bounds nothing is scaled: give "
            "option('maxSites', N), with option('minSites', N) if it is more than one; where the number is fixed, "
            "policy('hybrid') moves, splits and shares units"
        )
    if EPOCH_BUDGET.name not in chosen_options:
        raise FlowError(
            f"policy {policy.name!r} goes by the input that waits at sites, and without an epochBudget none does: give "
            "option('epochBudget', DURATION), a little less than the trigger's interval"
        )
    return True


def choose_sink(writer: WriterChoices, name: str) -> SinkChoice:
    """Where the results of a writer go."""
    kind, options = writer.format, SinkOptions.read(writer.options)
    if kind is None:
        raise FlowError(
            "say where the results go: writeStream.format('parquet'), 'delta', 'memory', 'console' or 'noop', "
            "or writeStream.foreachBatch(f)"
        )
    if kind.has_path and not options.path and writer.table is None:
        raise FlowError(f"the {kind.value} sink needs option('path', DIRECTORY)")
    if kind.has_path or kind is SinkKind.MEMORY:
        _refuse_alike_names(writer)
    _check_partitions(writer, kind)
    if writer.mode is not OutputMode.APPEND and kind not in _TAKE_CHANGES:
        raise FlowError(
            f"the {kind.value} sink appends, so it takes no outputMode({writer.mode.value!r}): write groups that "
            "change to format('delta') with a path, to 'memory' or 'console', or with foreachBatch(f) to where rows "
            "can be replaced"
        )
    if kind is SinkKind.MEMORY and not writer.name:
        raise FlowError("the memory sink needs queryName(NAME), the name of the view with its results")
    return SinkChoice(
        kind=kind,
        path=options.path if kind.has_path else None,
        compression=options.compression,
        name=name,
        function=writer.function,
        rows=options.rows,
        truncate=options.truncate,
        complete=writer.mode is OutputMode.COMPLETE,
        row_keys=_row_keys(writer) if kind is SinkKind.DELTA and writer.mode is OutputMode.UPDATE else None,
        partition_by=writer.partition_by,
        table=writer.table,
    )


def _row_keys(writer: WriterChoices) -> tuple[str, ...]:
    """The columns by which results replace rows of a Delta table."""
    output = writer.output
    keys = row_keys(output)
    refuse_unmergeable(pa.schema(output.stream.shown), keys, writer.partition_by)
    return keys


def _refuse_alike_names(writer: WriterChoices) -> None:
    """Refuse columns that whoever reads the files could not tell apart."""
    spark, seen = writer.rows.registry.spark, dict[str, str]()
    if spark is not None and spark.conf.get("spark.sql.caseSensitive") == "true":
        return
    for column in writer.rows.columns:
        other = seen.setdefault(column.lower(), column)
        if other != column:
            raise FlowError(
                f"the results have columns {other!r} and {column!r}, and Spark reads no files in which names differ in "
                "case alone; name one otherwise with select"
            )


def _check_partitions(writer: WriterChoices, kind: SinkKind) -> None:
    """Refuse columns that directories cannot be named after."""
    columns, given = {field.name: field.type for field in writer.rows.stream.shown}, writer.partition_by
    if given and not kind.has_path:
        raise FlowError(f"partitionBy is for the parquet and delta sinks, and the {kind.value} sink has no directories")
    for column in given:
        if column not in columns:
            raise FlowError(f"partitionBy: the results have no column {column!r}; they have {', '.join(columns)}")
        if not can_name_partition(columns[column]):
            raise FlowError(
                f"partitionBy: column {column!r} is {columns[column]}, and directories can be named after texts, whole "
                "numbers, decimals, dates and booleans; make such a column with withColumn"
            )
        if given.count(column) > 1:
            raise FlowError(f"partitionBy names {column!r} twice")
    if given and len(given) == len(columns):
        raise FlowError("partitionBy leaves no column for the files; leave one out")


def refuse_shared_paths(sink_paths: Sequence[str | None]) -> None:
    """Two sinks of one query cannot share a directory."""
    paths = [os.path.abspath(path) if "://" not in path else path.rstrip("/") for path in sink_paths if path]
    twice = next((path for path, count in Counter(paths).items() if count > 1), None)
    if twice is not None:
        raise FlowError(f"two writers have the path {twice!r}; give each writer its own")


def _agree_on(what: str, values_by_author: Sequence[tuple[str, T | None]]) -> T | None:
    """The one value that authors have chosen; None if no one has."""
    chosen = [(author, value) for author, value in values_by_author if value is not None]
    for author, value in chosen[1:]:
        first_author, first_value = chosen[0]
        if value != first_value:
            raise FlowError(
                f"{first_author} and {author} disagree on {what}, which holds for all: {first_value!r} and {value!r}"
            )
    return chosen[0][1] if chosen else None
