"""Functions of numbers."""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from sluice.expressions import operators
from sluice.expressions.builder import Builder
from sluice.expressions.kernels import arithmetic
from sluice.expressions.kernels.arrow_numpy import arrow
from sluice.expressions.nodes import Node
from sluice.expressions.parsing import Syntax
from sluice.expressions.signature import Arguments, as_double, literal, of_doubles, taking
from sluice.expressions.types import DOUBLE, LONG, MAX_DIGITS, is_decimal, is_integral, is_numeric, spark_name


def mod(build: Builder, at: Syntax, arguments: Arguments) -> Node:
    return operators.binary(build, at, "remainder", arguments[0], arguments[1])


def absolute(build: Builder, at: Syntax, arguments: Arguments) -> Node:
    node = arguments[0] if is_numeric(arguments[0].type) else as_double(build, at, arguments[0])
    return build.arrow(at, "abs_checked" if is_integral(node.type) else "abs", [node], node.type)


def floor(build: Builder, at: Syntax, arguments: Arguments) -> Node:
    return _to_integer(build, at, arguments[0], upwards=False)


def ceil(build: Builder, at: Syntax, arguments: Arguments) -> Node:
    return _to_integer(build, at, arguments[0], upwards=True)


def _to_integer(build: Builder, at: Syntax, node: Node, *, upwards: bool) -> Node:
    if is_integral(node.type):
        return build.cast(at, node, LONG)
    if not is_decimal(node.type):
        kernel = partial(arithmetic.whole, upwards=upwards)
        return build.call(at, kernel, [as_double(build, at, node)], LONG, raises=True)
    if node.type.scale == 0:
        return node
    longer = build.cast(at, node, pa.decimal256(node.type.precision + 1, node.type.scale))
    near = build.arrow(at, "ceil" if upwards else "floor", [longer], longer.type)
    return build.cast(at, near, pa.decimal128(node.type.precision - node.type.scale + 1, 0))


def round_number(build: Builder, at: Syntax, arguments: Arguments) -> Node:
    node = arguments[0]
    digits = literal(build, at, arguments[1], "the number of digits") if len(arguments) == 2 else 0
    if not isinstance(digits, int) or abs(digits) > 15:
        build.source.refuse(at, "the number of digits must be a whole number from -15 to 15")
    if is_integral(node.type) and digits >= 0:
        return node
    if is_decimal(node.type) and digits >= 0:
        scale = min(node.type.scale, digits)
        precision = node.type.precision - node.type.scale + 1 + scale
        if precision <= MAX_DIGITS:
            return build.cast(at, node, pa.decimal128(precision, scale))
    if node.type != DOUBLE:
        advice = "use CAST(... AS double) on it"
        build.source.refuse(at, f"cannot round {spark_name(node.type)} to {digits} digits here; {advice}")
    return build.call(at, partial(arithmetic.round_double, digits=digits), [node], DOUBLE)


def log(build: Builder, at: Syntax, arguments: Arguments) -> Node:
    kernel = arithmetic.logarithm if len(arguments) == 1 else arithmetic.logarithm_to_base
    return build.call(at, kernel, [as_double(build, at, node) for node in arguments], DOUBLE)


NUMERIC = {
    "mod": taking(mod, 2),
    "abs": taking(absolute, 1),
    "floor": taking(floor, 1),
    "ceil": taking(ceil, 1),
    "ceiling": taking(ceil, 1),
    "round": taking(round_number, 1, 2),
    "sqrt": of_doubles(partial(arrow, function="sqrt")),
    "exp": of_doubles(arithmetic.exponential),
    "sign": of_doubles(arithmetic.sign),
    "signum": of_doubles(arithmetic.sign),
    "ln": of_doubles(arithmetic.logarithm),
    "log": taking(log, 1, 2),
    "log10": of_doubles(partial(arithmetic.logarithm, ten=True)),
    "power": of_doubles(arithmetic.power, 2),
    "pow": of_doubles(arithmetic.power, 2),
}
