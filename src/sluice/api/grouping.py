"""The arguments of `groupBy`, of the windows behind it and of `agg`, checked, or an error in the user's own words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sluice.api.relation import NamedRelation
from sluice.api.texts import column_name
from sluice.kernels.hashing import is_hashable
from sluice.model.durations import microseconds
from sluice.model.errors import FlowError
from sluice.model.plan.aggregate import FUNCTIONS, Aggregate, canonical, result_type
from sluice.model.plan.closing_times import closing_times
from sluice.model.plan.group_by import (
    WINDOW_END,
    WINDOW_START,
    WINDOW_TIME,
    LastRows,
    SessionWindows,
    TimeGroups,
    TimeWindows,
)
from sluice.model.plan.plan import OperatorSpec
from sluice.model.plan.relation import Applied, Relation
from sluice.model.plan.running_groups import RunningGroups
from sluice.model.plan.sort_order import SortOrder
from sluice.model.plan.table_lookup import TableLookup
from sluice.model.plan.top_rows import TopRows

Windows = LastRows | TimeWindows | SessionWindows | RunningGroups
_ORDER = re.compile(r"\s*(?P<column>`[^`]+`|\S+)(\s+(?P<way>ASC|DESC))?(\s+NULLS\s+(?P<nulls>FIRST|LAST))?\s*", re.I)


def group_keys(rows: NamedRelation, columns: tuple[object, ...]) -> tuple[str, ...]:
    """The columns to group by, of a stream that can be grouped."""
    return read_keys(rows, columns, KeyWords("groupBy", "group"), _how_to_group(columns))


@dataclass(frozen=True)
class KeyWords:
    """What messages about keys say: the method that takes them, and what is done `by` them."""

    method: str
    verb: str


def read_keys(rows: NamedRelation, columns: tuple[object, ...], words: KeyWords, advice: str) -> tuple[str, ...]:
    """Columns whose values tell rows apart."""
    names = [column_name(c, words.method, advice, rows.name) for c in columns]
    keys = tuple(_find_column(rows, name, f"{words.verb} by") for name in names)
    for key in keys:
        kind = rows.stream.schema.field(key).type
        if not is_hashable(kind):
            raise FlowError(
                f"column {key!r} of {rows.title} has type {kind}, which rows cannot be told apart by; use its fields"
            )
    if len(set(keys)) < len(keys):
        raise FlowError(f"{words.method} names {next(k for k in keys if keys.count(k) > 1)!r} twice")
    return keys


def check_order(rows: NamedRelation, operator: str) -> None:
    """Refuses a stream whose rows are never in order to an operator that waits for that."""
    if rows.stream.delay is None:
        raise FlowError(
            f"{rows.title} has delay=None, so its rows are never in order: {operator} would never give a result. Give "
            "it a delay"
        )


def _how_to_group(columns: tuple[object, ...]) -> str:
    """What to write instead of columns of Spark, with the names that are there."""
    names = ", ".join(repr(c) for c in columns if isinstance(c, str)) or "'symbol'"
    return (
        f"a window of time comes after it, groupBy({names}).window('1 minute'), and an expression before it: "
        "withColumn('day', 'date(ts)').groupBy('day')"
    )


def last_rows(rows: NamedRelation, keys: tuple[str, ...], count: object) -> LastRows:
    """Windows of the newest rows of each group, without their aggregates."""
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise FlowError(f"last takes a whole number of rows, at least 1, not {count!r}")
    return LastRows(rows.stream, keys, (), count)


def time_windows(
    rows: NamedRelation, keys: tuple[str, ...], length: object, slide: object, by: object = None
) -> TimeWindows:
    """Windows of event time, without their aggregates."""
    long = microseconds(length, "window's length")
    every = long if slide is None else microseconds(slide, "window's slide")
    if long < 1 or every < 1:
        raise FlowError("a window's length and slide must be longer than nothing")
    _check_window_columns(keys)
    if by is None or by == WINDOW_END:
        return TimeWindows(rows.stream, keys, (), long, every)
    return TimeWindows(rows.stream, keys, (), long, every, _shift_of(rows, by), _comes_after_watermark(rows))


def _shift_of(rows: NamedRelation, by: object) -> int:
    """By how much a time of windows is earlier than the event time of their results."""
    windows = _windows_below(rows.relation)
    if windows is None:
        raise FlowError(f"window(by={by!r}) is for the results of windows; {rows.title} goes by its event time")
    if by == WINDOW_TIME:
        return 1
    if by == WINDOW_START and isinstance(windows, TimeWindows):
        return windows.length
    choices = [WINDOW_TIME, WINDOW_END, *([WINDOW_START] if isinstance(windows, TimeWindows) else [])]
    raise FlowError(f"window(by={by!r}): windows over these can go by {' or '.join(map(repr, choices))}")


def _windows_below(relation: Relation) -> TimeWindows | SessionWindows | None:
    """The windows whose end is the event time of a relation, None if it is not the end of any."""
    origin = relation.origin
    if not isinstance(origin, Applied):
        return None
    if isinstance(origin.spec, TimeGroups | TopRows | TableLookup):
        return _windows_below(origin.feeds[0])
    return origin.spec if isinstance(origin.spec, TimeWindows | SessionWindows) else None


def session_windows(rows: NamedRelation, keys: tuple[str, ...], gap: object) -> SessionWindows:
    """Sessions, without their aggregates."""
    between = microseconds(gap, "session's gap")
    if between < 1:
        raise FlowError("a session's gap must be longer than nothing")
    _check_window_columns(keys)
    return SessionWindows(rows.stream, keys, (), between)


def groups_alone(rows: NamedRelation, keys: tuple[str, ...]) -> TimeGroups | RunningGroups:
    """Groups without a window, without their aggregates: with the event time or a closing time among their keys they
    end, else never."""
    if rows.event_time in keys:
        return TimeGroups(rows.stream, keys, (), is_past=_comes_after_watermark(rows))
    closing = [key for key in keys if key in closing_times(rows.relation)]
    if closing:
        return TimeGroups(replace(rows.stream, event_time=closing[0]), keys, ())
    return RunningGroups(rows.stream, keys, ())


def top_rows(
    rows: NamedRelation, keys: tuple[str, ...], count: object, order: Sequence[object], number: str
) -> TopRows:
    """The first rows of each group in an order."""
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise FlowError(f"top takes a whole number of rows, at least 1, not {count!r}")
    if not order:
        raise FlowError("top needs an order: top(3, 'price DESC')")
    if rows.event_time in keys:
        check_order(rows, "top")
    if not isinstance(number, str) or not number or number.startswith("__") or rows.find_column(number) is not None:
        raise FlowError(f"the places of the first rows cannot be named {number!r}: give number= a name that is free")
    return TopRows(
        rows.stream, keys, tuple(_sort_order(rows, by) for by in order), count, number, _comes_after_watermark(rows)
    )


def _comes_after_watermark(rows: NamedRelation) -> bool:
    """Whether rows to come are later than the watermark, as the results of windows are; else one may have just that
    time."""
    origin = rows.relation.origin
    if not isinstance(origin, Applied) or not isinstance(origin.spec, TimeWindows):
        return False
    return origin.spec.comes_after_watermark


def _sort_order(rows: NamedRelation, by: object) -> SortOrder:
    """A column with its direction, as in ORDER BY."""
    parts = _ORDER.fullmatch(by) if isinstance(by, str) else None
    if parts is None:
        raise FlowError(f"top is by columns, such as 'price DESC' or 'price ASC NULLS LAST', not {by!r}")
    column = _find_column(rows, parts["column"].strip("`"), "order by")
    kind = rows.stream.schema.field(column).type
    if not is_hashable(kind):
        raise FlowError(f"column {column!r} of {rows.title} has type {kind}, which has no order; use its fields")
    nulls = parts["nulls"].lower() if parts["nulls"] else None
    return SortOrder(column, (parts["way"] or "").upper() == "DESC", nulls)


def _check_window_columns(keys: tuple[str, ...]) -> None:
    for key in keys:
        if key.lower() in (WINDOW_START, WINDOW_END):
            raise FlowError(f"the result of a window has a column {key!r} of its own; rename yours to group by it")


def aggregate(rows: NamedRelation, windows: Windows, choices: Mapping[str, object]) -> OperatorSpec:
    """The windows with what is computed over each: column and function by the name of the result's column. Of windows
    of time the groups alone are a result."""
    if not choices and isinstance(windows, LastRows | RunningGroups):
        advice = "; select(...).distinct() gives the groups alone" if isinstance(windows, RunningGroups) else ""
        raise FlowError(f"agg needs at least one aggregate, such as n=('*', 'count'){advice}")
    if not isinstance(windows, RunningGroups):
        check_order(rows, "a group-by")
    taken = tuple(name.lower() for name in (*windows.keys, *windows.time_columns))
    aggregates = tuple(_aggregate(rows, name, choice, taken) for name, choice in choices.items())
    return replace(windows, aggregates=aggregates)


def _aggregate(rows: NamedRelation, name: str, choice: object, taken: tuple[str, ...]) -> Aggregate:
    if name.lower() in taken or name.startswith("__"):
        raise FlowError(f"an aggregate cannot be named {name!r}: the result has that column already")
    if not isinstance(choice, tuple | list) or len(choice) != 2 or not all(isinstance(c, str) for c in choice):
        raise FlowError(f"aggregate {name!r} must be (column, function), such as ('price', 'avg'), not {choice!r}")
    column, function = choice
    canonical_name = canonical(function)
    if canonical_name is None:
        raise FlowError(f"aggregate {name!r}: there is no function {function!r}; known: {', '.join(FUNCTIONS)}")
    if column == "*":
        if canonical_name != "count":
            raise FlowError(f"aggregate {name!r}: only count takes '*'; give {function} a column")
        return Aggregate(name, canonical_name, None)
    column = _find_column(rows, column, f"compute {name!r} from")
    kind = rows.stream.schema.field(column).type
    if result_type(canonical_name, kind) is None:
        raise FlowError(
            f"aggregate {name!r}: {function} does not take column {column!r} of {rows.title}, which is {kind}"
        )
    return Aggregate(name, canonical_name, column)


def _find_column(rows: NamedRelation, column: str, purpose: str) -> str:
    name = rows.find_column(column)
    if name is None:
        raise FlowError(f"{rows.title} has no column {column!r} to {purpose}; it has {', '.join(rows.columns)}")
    return name
