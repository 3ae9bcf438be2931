"""The windows of a group-by as SQL spells them: window(ts, '1 minute'), session_window(ts, '5 minutes'),
OVER (... ROWS ...), or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from sqlglot import exp

from sluice.expressions.parsing import Syntax
from sluice.model.durations import microseconds
from sluice.sql.functions import function_name
from sluice.sql.scope import Scope
from sluice.sql.text import Text, name_parts

_FRAME = "ROWS BETWEEN 99 PRECEDING AND CURRENT ROW"


_SESSIONS = "session_window"
_TAKES = {
    "window": (2, "the event time, a length and, if it slides, a step: window(ts, '1 minute')"),
    _SESSIONS: (1, "the event time and a gap: session_window(ts, '5 minutes')"),
}
"""The functions that cut time into windows: how many durations they take at most, and what they take, in words."""


@dataclass(frozen=True)
class TimeWindow:
    """window(event time, length, slide) or session_window(event time, gap) in GROUP BY."""

    text: Text
    durations: tuple[str, ...]
    call: Syntax
    by: str | None = None
    """Which time of the windows below counts, where it is not the event time."""

    @staticmethod
    def read(scope: Scope, at: Syntax) -> TimeWindow:
        text, (time, *durations), name = scope.text, at.expressions or [None], function_name(at)
        most, takes = _TAKES[name]
        if time is None or not 1 <= len(durations) <= most:
            text.refuse(at, f"{name} takes {takes}")
        scope.vet(time)
        by = scope.window_time_of(time) if name != _SESSIONS else None
        if by is None and not scope.is_event_time(time):
            text.refuse(time, f"windows are cut by the event time, which this is not always; {event_time_of(scope)}")
        for duration in durations:
            if not isinstance(duration, exp.Literal) or not duration.is_string:
                what = "gap of sessions is a text" if name == _SESSIONS else "length and step of a window are texts"
                text.refuse(duration, f"the {what} such as '1 minute'")
            with text.blame_on(duration):
                if microseconds(duration.this, "a window's length or step") == 0:
                    what = "session's gap" if name == _SESSIONS else "window's length and step"
                    text.refuse(duration, f"a {what} must be longer than nothing")
        length, *slides = (microseconds(duration.this, "window") for duration in durations)
        if slides and slides[0] > length:
            text.refuse(durations[1], "a window's step must not be longer than the window")
        return TimeWindow(text, tuple(duration.this for duration in durations), at, by)

    @property
    def is_fixed(self) -> bool:
        """Whether all windows have the same length."""
        return function_name(self.call) != _SESSIONS

    def bound_of(self, at: Syntax) -> str | None:
        """Whether a part asks for the window's start or end, or for the last time in it."""
        names, function = name_parts(at), function_name(self.call)
        if function_name(at) == "window_time":
            argument = at.expressions[0] if len(at.expressions) == 1 else None
            if argument != self.call and [part.name.lower() for part in name_parts(argument) or ()] != [function]:
                self.text.refuse(at, f"window_time takes the window: window_time({function})")
            return "time"
        if names and names[0].name.lower() == function:
            if len(names) != 2 or names[1].name.lower() not in ("start", "end"):
                self._refuse_whole(at)
            return str(names[1].name).lower()
        if is_time_window(at):
            self._refuse_whole(at)
        if not isinstance(at, exp.Dot) or not is_time_window(at.this):
            return None
        if at.this != self.call or at.expression.name.lower() not in ("start", "end"):
            self._refuse_whole(at)
        return str(at.expression.name).lower()

    def _refuse_whole(self, at: Syntax) -> NoReturn:
        name = function_name(self.call)
        self.text.refuse(at, f"a window is no single column; select {name}.start and {name}.end")

    def apply(self, grouped: Any) -> Any:
        if not self.is_fixed:
            return grouped.session_window(*self.durations)
        return grouped.window(*self.durations, **({} if self.by is None else {"by": self.by}))


@dataclass(frozen=True)
class TimeColumn:
    """The event time itself in GROUP BY, as the end of windows is of their results: rows of one time are a group."""

    def apply(self, grouped: Any) -> Any:
        return grouped


@dataclass(frozen=True)
class RowWindow:
    """OVER (PARTITION BY ... ORDER BY event time ROWS BETWEEN k - 1 PRECEDING AND CURRENT ROW)."""

    rows: int

    @staticmethod
    def read(scope: Scope, at: exp.Window) -> RowWindow:
        _check_order(scope, at)
        text, spec, order = scope.text, at.args.get("spec"), at.args["order"]
        if spec is None:
            text.refuse(order, f"OVER needs to say how many rows it takes, after ORDER BY: {_FRAME}")
        if str(spec.args.get("kind")).upper() != "ROWS":
            text.refuse(text.after("RANGE", order), f"only frames of rows can be run: {_FRAME}")
        frame = text.after("ROWS", order)
        start, end = spec.args.get("start"), spec.args.get("end")
        if (end is not None and str(end).upper() != "CURRENT ROW") or spec.args.get("exclude"):
            text.refuse(frame, f"a frame must end with the current row: {_FRAME}")
        if str(start).upper() == "CURRENT ROW":
            return RowWindow(1)
        if str(start).upper() == "UNBOUNDED":
            text.refuse(frame, f"the state of a frame without a first row would grow for ever; give one: {_FRAME}")
        side = str(spec.args.get("start_side") or "").upper()
        if side != "PRECEDING" or not isinstance(start, exp.Literal) or not str(start.this).isdigit():
            text.refuse(frame, f"a frame begins with a number of rows before the current one: {_FRAME}")
        return RowWindow(int(start.this) + 1)

    def apply(self, grouped: Any) -> Any:
        return grouped.last(self.rows)


@dataclass(frozen=True)
class NoWindow:
    """GROUP BY columns alone: groups that never end."""

    def apply(self, grouped: Any) -> Any:
        return grouped


Window = TimeWindow | TimeColumn | RowWindow | NoWindow


def _check_order(scope: Scope, at: exp.Window) -> None:
    order = at.args.get("order")
    if order is None:
        scope.text.refuse(scope.text.after("OVER", at), f"OVER needs ORDER BY the event time; {event_time_of(scope)}")
    by = order.expressions
    scope.vet(by[0].this)
    if len(by) > 1 or not scope.is_event_time(by[0].this):
        wrong = by[1] if scope.is_event_time(by[0].this) else by[0]
        scope.text.refuse(wrong, f"rows are ordered by the event time alone; {event_time_of(scope)}")
    if by[0].args.get("desc"):
        scope.text.refuse(by[0], "rows are taken in the order of time; leave DESC out")


def event_time_of(scope: Scope) -> str:
    """Advice on what to write for the event time."""
    times = []
    for number, side in enumerate(scope.sides):
        time_column = next((c for c in side.table.columns if c in side.table.times), None)
        if time_column is None:
            return f"{side.name!r} does not have its event time among its columns; select it there"
        times.append(f"{side.name}.{time_column}" if len(scope.sides) > 1 else time_column)
        if len(scope.newest[number]) == len(scope.sides):
            return f"write {times[-1]}"
    return f"write greatest({', '.join(times)})"


def is_time_window(at: Syntax) -> bool:
    return function_name(at) in _TAKES


def is_window_name(name: str) -> bool:
    """Whether a query can have a window by this name, of which a start and an end can be selected."""
    return name.lower() in _TAKES


def row_windows(text: Text, items: Sequence[Syntax], definitions: Sequence[exp.Window]) -> list[exp.Window]:
    """The OVER clauses of a SELECT list, each with its definition filled in if it refers to one by name."""
    by_name = {definition.name.lower(): definition for definition in definitions}
    windows = []
    for window in (part for item in items for part in item.find_all(exp.Window)):
        name = window.args.get("alias")
        if name is None:
            windows.append(window)
            continue
        if name.name.lower() not in by_name or any(window.args.get(a) for a in ("partition_by", "order", "spec")):
            text.refuse(name, f"OVER {name.name} needs WINDOW {name.name} AS (...) with all of it")
        windows.append(by_name[name.name.lower()])
    return windows
