"""Functions of dates and timestamps."""

from __future__ import annotations

from functools import partial
from typing import Any

from sluice.expressions.builder import Builder
from sluice.expressions.kernels import times
from sluice.expressions.nodes import Node
from sluice.expressions.parsing import Syntax
from sluice.expressions.signature import Arguments, Function, as_date, as_instant, literal, taking
from sluice.expressions.types import (
    DATE,
    INT,
    LOCAL_TIME,
    LONG,
    NULL,
    STRING,
    is_temporal,
    is_timestamp,
    spark_name,
)

_SUNDAY_IS_1 = {"count_from_zero": False, "week_start": 7}
_MONDAY_IS_0 = {"count_from_zero": True, "week_start": 1}
_FIELDS: dict[str, tuple[str, dict[str, Any]]] = {
    "year": ("year", {}),
    "quarter": ("quarter", {}),
    "month": ("month", {}),
    "day": ("day", {}),
    "dayofmonth": ("day", {}),
    "dayofyear": ("day_of_year", {}),
    "dayofweek": ("day_of_week", _SUNDAY_IS_1),
    "weekday": ("day_of_week", _MONDAY_IS_0),
    "weekofyear": ("iso_week", {}),
    "hour": ("hour", {}),
    "minute": ("minute", {}),
    "second": ("second", {}),
}
_CLOCK = ("hour", "minute", "second")
_UNITS = {
    "YEAR": "year", "YYYY": "year", "YY": "year", "QUARTER": "quarter", "MONTH": "month", "MM": "month",
    "MON": "month", "WEEK": "week", "DAY": "day", "DD": "day", "HOUR": "hour", "MINUTE": "minute",
    "SECOND": "second", "MILLISECOND": "millisecond", "MICROSECOND": "microsecond",
}  # fmt: skip


def calendar_field(build: Builder, at: Syntax, name: str, node: Node) -> Node:
    """A part of a date or timestamp, as year(...) and EXTRACT(year FROM ...) give it."""
    if name not in _CLOCK:
        node = as_date(build, at, node)
    elif not is_timestamp(node.type):
        node = as_instant(build, at, node)
    function, options = _FIELDS[name]
    return build.call(at, partial(times.calendar_field, field=function, **options), [node], INT)


def extract(build: Builder, at: Syntax, name: str, node: Node) -> Node:
    if name.lower() not in ("year", "quarter", "month", "day", "hour", "minute"):
        build.source.refuse(at, f"EXTRACT({name} ...) is not available; functions like year() and second() are")
    return calendar_field(build, at, name.lower(), node)


def _field(name: str) -> Function:
    return taking(lambda build, at, arguments: calendar_field(build, at, name, arguments[0]), 1)


def date_trunc(build: Builder, at: Syntax, arguments: Arguments) -> Node:
    unit = _UNITS.get(str(literal(build, at, arguments[0], "the unit")).upper())
    if unit is None:
        build.source.refuse(at, f"the unit must be one of {', '.join(_UNITS)}")
    node = as_instant(build, at, arguments[1])
    return build.call(at, partial(times.truncate, unit=unit), [node], build.instant, raises=True)


def datediff(build: Builder, at: Syntax, arguments: Arguments) -> Node:
    dates = [as_date(build, at, node) for node in arguments]
    return build.call(at, partial(times.days_between, type_=INT), dates, INT)


def date_add(build: Builder, at: Syntax, arguments: Arguments) -> Node:
    return _days_later(build, at, arguments, 1)


def date_sub(build: Builder, at: Syntax, arguments: Arguments) -> Node:
    return _days_later(build, at, arguments, -1)


def _days_later(build: Builder, at: Syntax, arguments: Arguments, sign: int) -> Node:
    date, days = as_date(build, at, arguments[0]), _int(build, at, arguments[1])
    return build.call(at, partial(times.add_days, sign=sign), [date, days], DATE, raises=True)


def add_months(build: Builder, at: Syntax, arguments: Arguments) -> Node:
    date, months = as_date(build, at, arguments[0]), _int(build, at, arguments[1])
    return build.call(at, times.add_months, [date, months], DATE, raises=True)


def _int(build: Builder, at: Syntax, node: Node) -> Node:
    if node.type == LONG:
        build.source.refuse(at, "an int is expected, not a bigint; use CAST(... AS int)")
    return build.integral(at, node, INT)


def to_date(build: Builder, at: Syntax, arguments: Arguments) -> Node:
    return build.convert_argument(at, arguments[0], DATE, lambda type_: is_temporal(type_) or type_ == STRING)


def to_timestamp(build: Builder, at: Syntax, arguments: Arguments) -> Node:
    return build.convert_argument(at, arguments[0], build.instant, lambda type_: is_temporal(type_) or type_ == STRING)


def _epoch(micros: int, *, of_dates: bool = False) -> Function:
    def make(build: Builder, at: Syntax, arguments: Arguments) -> Node:
        node = arguments[0]
        if not of_dates and node.type != NULL and not is_timestamp(node.type):
            build.source.refuse(at, f"{spark_name(node.type)} is given where timestamp is expected")
        if node.type != LOCAL_TIME:  # whose clock Spark takes for UTC's here
            node = as_instant(build, at, node)
        return build.call(at, partial(times.epoch, micros=micros, towards_zero=of_dates), [node], LONG)

    return taking(make, 1)


def _from_epoch(micros: int) -> Function:
    def make(build: Builder, at: Syntax, arguments: Arguments) -> Node:
        kernel = partial(times.from_epoch, micros=micros, zone=build.time_zone)
        return build.call(at, kernel, [build.integral(at, arguments[0], LONG)], build.instant, raises=True)

    return taking(make, 1)


TEMPORAL = {name: _field(name) for name in _FIELDS} | {
    "date_trunc": taking(date_trunc, 2),
    "datediff": taking(datediff, 2),
    "date_diff": taking(datediff, 2),
    "date_add": taking(date_add, 2),
    "dateadd": taking(date_add, 2),
    "date_sub": taking(date_sub, 2),
    "add_months": taking(add_months, 2),
    "to_date": taking(to_date, 1),
    "to_timestamp": taking(to_timestamp, 1),
    "unix_timestamp": _epoch(1_000_000, of_dates=True),
    "to_unix_timestamp": _epoch(1_000_000, of_dates=True),
    "unix_seconds": _epoch(1_000_000),
    "unix_millis": _epoch(1_000),
    "unix_micros": _epoch(1),
    "timestamp_seconds": _from_epoch(1_000_000),
    "timestamp_millis": _from_epoch(1_000),
    "timestamp_micros": _from_epoch(1),
}
