"""From `groupBy(...).last(k)` and `groupBy(...).window(l, s)` with `agg` to a checked specification."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sluice.kernels.hashing import is_hashable
from sluice.model.aggregate import FUNCTIONS, Aggregate, canonical, result_type
from sluice.model.durations import microseconds
from sluice.model.errors import FlowError
from sluice.model.group_by import WINDOW_END, WINDOW_START, LastRows, TimeWindows
from sluice.model.plan import OperatorSpec

if TYPE_CHECKING:
    from sluice.api.stream import StreamHandle


class GroupedStream:
    """A stream's rows by group; `last` or `window` says over which of them to aggregate."""

    def __init__(self, handle: StreamHandle, columns: tuple[str, ...]) -> None:
        self.handle = handle
        self.keys = tuple(_column(handle, c, "group by") for c in columns)
        for key in self.keys:
            kind = handle.stream.schema.field(key).type
            if not is_hashable(kind):
                raise FlowError(
                    f"column {key!r} of {handle.title} has type {kind}, which cannot be grouped by; use its fields"
                )
        if len(set(self.keys)) < len(self.keys):
            raise FlowError(f"groupBy names {next(k for k in self.keys if self.keys.count(k) > 1)!r} twice")
        if handle.stream.delay is None:
            raise FlowError(
                f"{handle.title} has delay=None, so its rows are never in order: a group-by would never give a "
                "result. Give it a delay"
            )

    def last(self, count: int) -> WindowedStream:
        """Aggregate, for every row, over its group's newest `count` rows up to and including it."""
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise FlowError(f"last takes a whole number of rows, at least 1, not {count!r}")
        taken = (*self.keys, self.handle.event_time)
        return WindowedStream(
            self, taken, lambda aggregates: LastRows(self.handle.stream, self.keys, aggregates, count)
        )

    def window(self, length: Any, slide: Any = None) -> WindowedStream:
        """Aggregate over windows of event time; a new one starts every `slide` (after `length` unless given)."""
        long = microseconds(length, "window's length")
        every = long if slide is None else microseconds(slide, "window's slide")
        if long < 1 or every < 1:
            raise FlowError("a window's length and slide must be longer than nothing")
        for key in self.keys:
            if key.lower() in (WINDOW_START, WINDOW_END):
                raise FlowError(f"the result of a window has a column {key!r} of its own; rename yours to group by it")
        taken = (*self.keys, WINDOW_START, WINDOW_END)
        return WindowedStream(
            self, taken, lambda aggregates: TimeWindows(self.handle.stream, self.keys, aggregates, long, every)
        )

    def agg(self, *unnamed: Any, **aggregates: Any) -> StreamHandle:
        raise FlowError("a group-by of a stream needs a window: groupBy(...).last(100) or .window('1 minute')")


class WindowedStream:
    """Groups over a window; `agg` says what to compute."""

    def __init__(
        self, grouped: GroupedStream, taken: tuple[str, ...], build: Callable[[tuple[Aggregate, ...]], OperatorSpec]
    ) -> None:
        self.grouped, self.taken, self.build = grouped, taken, build

    def agg(self, *unnamed: Any, **aggregates: tuple[str, str]) -> StreamHandle:
        """Result columns by name: `agg(mean=("price", "avg"), n=("*", "count"))`."""
        if unnamed:
            raise FlowError("agg takes its aggregates by name, such as n=('*', 'count'), not Spark's columns")
        from sluice.api.stream import applied

        handle = self.grouped.handle
        if not aggregates:
            raise FlowError("agg needs at least one aggregate, such as n=('*', 'count')")
        wanted = tuple(_aggregate(handle, name, given, self.taken) for name, given in aggregates.items())
        return applied(handle.flow, self.build(wanted), (handle.relation,))


def _aggregate(handle: StreamHandle, name: str, given: Any, taken: tuple[str, ...]) -> Aggregate:
    if name.lower() in (t.lower() for t in taken) or name.startswith("__"):
        raise FlowError(f"an aggregate cannot be named {name!r}: the result has that column already")
    if not isinstance(given, (tuple, list)) or len(given) != 2 or not all(isinstance(g, str) for g in given):
        raise FlowError(f"aggregate {name!r} must be (column, function), such as ('price', 'avg'), not {given!r}")
    column, function = given
    known = canonical(function)
    if known is None:
        raise FlowError(f"aggregate {name!r}: there is no function {function!r}; known: {', '.join(FUNCTIONS)}")
    if column == "*":
        if known != "count":
            raise FlowError(f"aggregate {name!r}: only count takes '*'; give {function} a column")
        return Aggregate(name, known, None)
    column = _column(handle, column, f"compute {name!r} from")
    kind = handle.stream.schema.field(column).type
    if result_type(known, kind) is None:
        raise FlowError(
            f"aggregate {name!r}: {function} does not take column {column!r} of {handle.title}, which is {kind}"
        )
    return Aggregate(name, known, column)


def _column(handle: StreamHandle, column: str, purpose: str) -> str:
    if column in handle.columns:
        return column
    for name in handle.columns:
        if isinstance(column, str) and name.lower() == column.lower():
            return name
    raise FlowError(f"{handle.title} has no column {column!r} to {purpose}; it has {', '.join(handle.columns)}")
