"""The arithmetic operators: which Spark operation two operand types mean, and the kernel that does it."""

from __future__ import annotations

from functools import partial
from typing import NoReturn

import pyarrow as pa

from sluice.expressions import ELSEWHERE
from sluice.expressions.builder import Builder
from sluice.expressions.kernels import arithmetic, times
from sluice.expressions.nodes import Constant, Days, Node
from sluice.expressions.parsing import Syntax
from sluice.expressions.types import (
    DATE,
    DOUBLE,
    INT,
    INTEGRALS,
    INTERVAL,
    LOCAL_TIME,
    LONG,
    NULL,
    STRING,
    bounded_decimal,
    common_type,
    decimal_for,
    decimal_result,
    is_decimal,
    is_floating,
    is_integral,
    is_numeric,
    is_temporal,
    spark_name,
)

MONTHS = pa.month_day_nano_interval()  # Spark's year-month interval, which occurs only as a literal
_SIGNS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "remainder": "%", "div": "div"}


def binary(build: Builder, at: Syntax, operation: str, left: Node, right: Node) -> Node:
    """The node for `left operation right`."""
    if any(is_temporal(side.type) or side.type in (INTERVAL, MONTHS) for side in (left, right)):
        return _temporal(build, at, operation, left, right)
    for side in (left, right):
        if side.type != NULL and not is_numeric(side.type):
            _refuse(build, at, operation, left, right)
    if left.type == right.type == NULL:
        return build.constant(None, LONG if operation == "div" else DOUBLE)
    if left.type == NULL and operation == "divide":
        return build.constant(None, DOUBLE)
    left, right = _without_null(build, at, left, right), _without_null(build, at, right, left)
    if is_floating(left.type) or is_floating(right.type) or (operation == "divide" and not _any_decimal(left, right)):
        return _floating(build, at, operation, left, right)
    if _any_decimal(left, right):
        left, right = build.short_literal(at, left, right), build.short_literal(at, right, left)
        left, right = (build.cast(at, side, decimal_for(side.type)) for side in (left, right))
        return _decimal(build, at, operation, left, right)
    type_ = LONG if operation == "div" else max(left.type, right.type, key=INTEGRALS.index)
    left, right = build.cast(at, left, type_), build.cast(at, right, type_)
    if operation == "remainder":
        return build.call(at, arithmetic.remainder, [right, left], type_, raises=True, operation=operation)
    if operation == "div":
        return build.call(at, arithmetic.divide, [right, left], type_, raises=True, operation="divide")
    return build.arrow(at, f"{operation}_checked", [left, right], type_)


def _refuse(build: Builder, at: Syntax, operation: str, left: Node, right: Node) -> NoReturn:
    names = f"{spark_name(left.type)} {_SIGNS[operation]} {spark_name(right.type)}"
    hint = "use CAST(... AS ...)" if STRING in (left.type, right.type) else ELSEWHERE
    build.source.refuse(at, f"{names} is not available; {hint}")


def _without_null(build: Builder, at: Syntax, node: Node, other: Node) -> Node:
    return build.cast(at, node, other.type) if node.type == NULL else node


def _any_decimal(left: Node, right: Node) -> bool:
    return is_decimal(left.type) or is_decimal(right.type)


def _floating(build: Builder, at: Syntax, operation: str, left: Node, right: Node) -> Node:
    if operation == "div":
        _refuse(build, at, operation, left, right)
    type_ = DOUBLE if operation == "divide" else common_type(left.type, right.type)
    left, right = build.cast(at, left, type_), build.cast(at, right, type_)
    if operation in ("divide", "remainder"):
        kernel = arithmetic.divide if operation == "divide" else arithmetic.remainder
        return build.call(at, kernel, [right, left], type_, raises=True, operation=operation)
    return build.arrow(at, operation, [left, right], type_)


def _decimal(build: Builder, at: Syntax, operation: str, left: Node, right: Node) -> Node:
    if operation == "div":
        _demand_digits(build, at, arithmetic.shared_digits(left.type, right.type), 37)
        return build.call(at, arithmetic.decimal_div, [right, left], LONG, raises=True)
    digits, scale = decimal_result(operation, left.type, right.type)
    type_ = bounded_decimal(digits, scale)
    if operation == "remainder":
        _demand_digits(build, at, arithmetic.shared_digits(left.type, right.type), 37)
        kernel = partial(arithmetic.decimal_remainder, type_=type_)
        return build.call(at, kernel, [right, left], type_, raises=True)
    if operation == "divide":
        more = arithmetic.division_digits(left.type, right.type, type_)
        _demand_digits(build, at, left.type.precision + right.type.precision + more + 1, arithmetic.WIDE_DIGITS)
        kernel = partial(arithmetic.decimal_divide, type_=type_)
        return build.call(at, kernel, [right, left], type_, raises=True)
    _demand_digits(build, at, digits, arithmetic.WIDE_DIGITS)
    kernel = partial(arithmetic.decimal_arithmetic, operation=operation, type_=type_)
    return build.call(at, kernel, [left, right], type_, raises=type_.precision != digits, operation=operation)


def _demand_digits(build: Builder, at: Syntax, digits: int, limit: int) -> None:
    if digits > limit:
        build.source.refuse(
            at, "these decimals are too long to compute with exactly; use CAST(... AS decimal(p, s)) or double first"
        )


def _temporal(build: Builder, at: Syntax, operation: str, left: Node, right: Node) -> Node:
    if operation == "add" and (right.type in (INTERVAL, MONTHS) or is_temporal(right.type)):
        if left.type == right.type == INTERVAL:
            return build.arrow(at, "add_checked", [left, right], INTERVAL)
        if is_temporal(left.type):
            return _shift_moment(build, at, left, right, 1)
        if is_temporal(right.type):
            return _shift_moment(build, at, right, left, 1)
    elif operation == "add":
        return _shift_moment(build, at, left, right, 1)
    elif operation == "subtract":
        if left.type == right.type == INTERVAL:
            return build.arrow(at, "subtract_checked", [left, right], INTERVAL)
        if is_temporal(left.type) and (is_integral(right.type) or right.type in (INTERVAL, MONTHS)):
            return _shift_moment(build, at, left, right, -1)
        if all(is_temporal(side.type) or side.type == STRING for side in (left, right)):
            return _difference(build, at, left, right)
    _refuse(build, at, operation, left, right)


def _shift_moment(build: Builder, at: Syntax, moment: Node, by: Node, sign: int) -> Node:
    """A date or timestamp later (or earlier) by days, an interval or months."""
    if by.type == MONTHS and isinstance(by, Constant):
        months = build.constant(sign * by.value.as_py().months, INT)
        return build.call(at, times.add_months, [moment, months], moment.type, raises=moment.type == DATE)
    if moment.type == DATE and is_integral(by.type) and by.type != LONG:
        return build.call(at, partial(times.add_days, sign=sign), [moment, by], DATE, raises=True)
    if by.type == INTERVAL and is_temporal(moment.type):
        if moment.type == DATE:
            if not isinstance(by, Constant):
                build.source.refuse(at, "a date moves by an interval literal only; use CAST(... AS timestamp) on it")
            if isinstance(by, Days):
                days = build.constant(sign * by.value.value // times.DAY, INT)
                return build.call(at, times.add_days, [moment, days], DATE, raises=True)
            moment = build.cast(at, moment, build.instant)
        if sign < 0:
            by = build.arrow(at, "negate_checked", [by], INTERVAL)
        return build.call(at, times.add_interval, [moment, by], moment.type, raises=True, operation="add")
    _refuse(build, at, "add" if sign > 0 else "subtract", moment, by)


def _difference(build: Builder, at: Syntax, left: Node, right: Node) -> Node:
    if left.type == STRING or right.type == STRING:
        left, right = build.common(at, [left, right])
    if left.type == right.type == DATE:
        return build.call(at, partial(times.days_between, type_=INTERVAL), [left, right], INTERVAL, raises=True)
    type_ = LOCAL_TIME if not _any_instant(build, left, right) else build.instant
    left, right = build.cast(at, left, type_), build.cast(at, right, type_)
    return build.call(at, times.difference, [left, right], INTERVAL, raises=True, operation="subtract")


def _any_instant(build: Builder, left: Node, right: Node) -> bool:
    return build.instant in (left.type, right.type)


def negate(build: Builder, at: Syntax, node: Node) -> Node:
    """Unary minus."""
    if node.type == NULL:
        return build.constant(None, DOUBLE)
    if node.type == MONTHS and isinstance(node, Constant):
        return build.constant((-node.value.as_py().months, 0, 0), MONTHS)
    if isinstance(node, Days):
        return Days(INTERVAL, pa.scalar(-node.value.value, INTERVAL))
    if is_integral(node.type) or node.type == INTERVAL:
        return build.arrow(at, "negate_checked", [node], node.type)
    if not is_numeric(node.type):
        build.source.refuse(at, f"cannot negate {spark_name(node.type)}")
    return build.arrow(at, "negate", [node], node.type)
