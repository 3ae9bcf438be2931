"""Output modes: whether results are appended, or are groups that change, and which of these are shown."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

import pyarrow as pa

from sluice.model.errors import FlowError
from sluice.model.plan.relation import Applied, Relation
from sluice.model.plan.running_groups import RunningGroups
from sluice.model.plan.stream import is_hidden
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
