"""Functions that choose between values or ask whether there is one."""

from __future__ import annotations

from functools import partial

from sluice.expressions.builder import Builder
from sluice.expressions.kernels.arrow_numpy import arrow
from sluice.expressions.nodes import FirstValid, Node
from sluice.expressions.parsing import Syntax
from sluice.expressions.signature import UNLIMITED, Arguments, as_double, taking
from sluice.expressions.types import BOOLEAN, NULL


def coalesce(build: Builder, at: Syntax, arguments: Arguments) -> Node:
    options = build.common(at, arguments)
    return options[0] if len(options) == 1 else FirstValid(options[0].type, tuple(options))


def if_else(build: Builder, at: Syntax, arguments: Arguments) -> Node:
    return build.choice(at, [(arguments[0], arguments[1])], arguments[2])


def nvl2(build: Builder, at: Syntax, arguments: Arguments) -> Node:
    return build.choice(at, [(is_not_null(build, at, arguments[:1]), arguments[1])], arguments[2])


def nullif(build: Builder, at: Syntax, arguments: Arguments) -> Node:
    same = build.compare(at, "equal", arguments[0], arguments[1])
    return build.choice(at, [(same, build.constant(None, NULL))], arguments[0])


def is_null(build: Builder, at: Syntax, arguments: Arguments) -> Node:
    kernel = partial(arrow, function="is_null")
    return build.call(at, kernel, arguments, BOOLEAN, strict=False)


def is_not_null(build: Builder, at: Syntax, arguments: Arguments) -> Node:
    return build.call(at, partial(arrow, function="is_valid"), arguments, BOOLEAN, strict=False)


def is_nan(build: Builder, at: Syntax, arguments: Arguments) -> Node:
    nan = build.arrow(at, "is_nan", [as_double(build, at, arguments[0])], BOOLEAN)
    return FirstValid(BOOLEAN, (nan, build.constant(False, BOOLEAN)))


def greatest(build: Builder, at: Syntax, arguments: Arguments) -> Node:
    return build.extreme(at, arguments, greatest=True)


def least(build: Builder, at: Syntax, arguments: Arguments) -> Node:
    return build.extreme(at, arguments, greatest=False)


CONDITIONALS = {
    "coalesce": taking(coalesce, 1, UNLIMITED),
    "nvl": taking(coalesce, 2),
    "ifnull": taking(coalesce, 2),
    "nvl2": taking(nvl2, 3),
    "if": taking(if_else, 3),
    "nullif": taking(nullif, 2),
    "isnull": taking(is_null, 1),
    "isnotnull": taking(is_not_null, 1),
    "isnan": taking(is_nan, 1),
    "greatest": taking(greatest, 2, UNLIMITED),
    "least": taking(least, 2, UNLIMITED),
}
