"""Arrays: their size and their elements."""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from sluice.expressions import ELSEWHERE
from sluice.expressions.builder import Builder
from sluice.expressions.kernels import arrow_numpy
from sluice.expressions.nodes import Node
from sluice.expressions.parsing import Syntax
from sluice.expressions.signature import Arguments, taking
from sluice.expressions.types import INT, LONG, is_array, spark_name


def size(build: Builder, at: Syntax, arguments: Arguments) -> Node:
    _demand_array(build, at, arguments[0])
    counted = build.arrow(at, "list_value_length", arguments, LONG if _is_large(arguments[0]) else INT)
    return build.cast(at, counted, INT)


def element_at(build: Builder, at: Syntax, arguments: Arguments) -> Node:
    return element(build, at, arguments[0], arguments[1], from_one=True)


def element(build: Builder, at: Syntax, array: Node, index: Node, *, from_one: bool) -> Node:
    """`array[index]`, which counts from 0, or element_at, which counts from 1 and backwards when negative."""
    _demand_array(build, at, array)
    kernel = partial(arrow_numpy.element, from_one=from_one)
    arguments = [array, build.integral(at, index, LONG)]
    return build.normalise(at, build.call(at, kernel, arguments, array.type.value_type, raises=True))


def _demand_array(build: Builder, at: Syntax, node: Node) -> None:
    if not is_array(node.type):
        elsewhere = f"; {ELSEWHERE}" if pa.types.is_map(node.type) else ""
        build.source.refuse(at, f"{spark_name(node.type)} is given where an array is expected{elsewhere}")


def _is_large(node: Node) -> bool:
    return bool(pa.types.is_large_list(node.type))


LISTS = {
    "size": taking(size, 1),
    "cardinality": taking(size, 1),
    "array_size": taking(size, 1),
    "element_at": taking(element_at, 2),
}
