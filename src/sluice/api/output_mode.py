"""Output modes: whether results are appended, or are groups that change, and which of these are shown."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

import pyarrow as pa

from sluice.model.errors import FlowError
from sluice.model.plan.relation import Applied, Relation
from sluice.model.plan.running_groups import RunningGroups
from sluice.model.plan.stream import Filter, Project, is_hidden, plain_column
from sluice.model.plan.top_rows import TopRows


class OutputMode(Enum):
    """What an epoch shows, by the names that Spark gives."""

    APPEND = "append"
    UPDATE = "update"
    COMPLETE = "complete"


def read_mode(mode: object) -> OutputMode:
    """The output mode of this name."""
    names = [known.value for known in OutputMode]
    if not isinstance(mode, str) or mode.lower() not in names:
        raise FlowError(f"there is no output mode {mode!r}; known: {', '.join(names)}")
    return OutputMode(mode.lower())


def changes(relation: Relation) -> bool:
    """Whether results are of groups that never end, so that later ones replace them."""
    spec = relation.origin.spec if isinstance(relation.origin, Applied) else None
    return isinstance(spec, RunningGroups) or (isinstance(spec, TopRows) and not spec.ends)


def in_mode(relation: Relation, mode: OutputMode) -> Relation:
    """What is shown of a relation in an output mode."""
    origin = relation.origin
    if not changes(relation) or not isinstance(origin, Applied) or not isinstance(origin.spec, RunningGroups | TopRows):
        if mode is not OutputMode.APPEND:
            raise FlowError(
                f"these results are final, and appended: leave outputMode({mode.value!r}) out. It is for a group-by "
                "without a window, groupBy(...).agg(...) or groupBy(...).top(...), whose results change"
            )
        return relation
    if mode is OutputMode.APPEND and isinstance(origin.spec, TopRows):
        raise FlowError(
            "the first rows of groups without an end cannot be appended: any row may take a place from another. "
            f"{_why_times_do_not_end(origin.spec)}Say "
            "outputMode('update') for the places that another row has after an epoch, outputMode('complete') for all "
            "places after each epoch; or group by a window's end, so that groups end: groupBy('window_end').top(...)"
        )
    if mode is OutputMode.APPEND:
        raise FlowError(
            "a group-by without a window cannot be appended: its groups have no end, and change with every row. "
            f"{_why_times_do_not_end(origin.spec)}Say "
            "outputMode('update') for the groups that an epoch has changed, outputMode('complete') for all groups "
            "after each epoch, or give it a window: groupBy(...).window('1 minute').agg(...)"
        )
    spec = replace(origin.spec, complete=mode is OutputMode.COMPLETE)
    return replace(relation, origin=replace(origin, spec=spec))


def row_keys(relation: Relation) -> tuple[str, ...]:
    """The columns of results that change that say which row a result replaces: those of the group, and the place.

    Refuses filters by which a row may have to go, as no epoch says that one has.
    """
    assert isinstance(relation.origin, Applied), "results that change are those of an operator"
    spec = relation.origin.spec
    assert isinstance(spec, RunningGroups | TopRows), "of no other operator do results change"
    keys: tuple[str, ...] = (*spec.keys, spec.number) if isinstance(spec, TopRows) else spec.keys
    constant = set(keys)  # the columns that are the same in all results that replace each other
    for step in relation.steps:
        if isinstance(step, Filter) and not set(step.condition.columns) <= constant:
            raise FlowError(
                f"filter {step.condition.text!r} may let a row through no longer, and outputMode('update') would leave "
                "it in the table: say outputMode('complete'), or filter when the table is read"
            )
        if isinstance(step, Project):
            keys = tuple(_name_after(step, key) for key in keys)
            constant = {name for name, expression in step.columns if set(expression.columns) <= constant}
    return keys


def _why_times_do_not_end(spec: RunningGroups | TopRows) -> str:
    """Why groups by a time do not end, where the event time of the rows is none of their columns."""
    (stream,) = spec.streams
    times = [key for key in spec.keys if pa.types.is_timestamp(stream.schema.field(key).type)]
    if not times or not is_hidden(stream.event_time):
        return ""
    return (
        f"Groups by {times[0]!r} have no end either: it is not the event time of these rows, which is no column of "
        "theirs; that of a join is the latest of its rows'. "
    )


def _name_after(step: Project, key: str) -> str:
    """What a key is called after a projection."""
    for name, expression in step.columns:
        if plain_column(expression) == key:
            return name
    raise FlowError(
        f"outputMode('update') has results replace rows of a Delta table by {key!r}, which select leaves out: select "
        "it, too, or say outputMode('complete')"
    )
