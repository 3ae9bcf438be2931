"""Builds nodes with Spark's typing: brings operands to a common type, inserts casts, and refuses what does not fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from sluice.expressions import ELSEWHERE
from sluice.expressions.kernels.arithmetic import compare_floats, extreme, member, null_safe
from sluice.expressions.kernels.arrow_numpy import arrow
from sluice.expressions.kernels.casting import cast_kernel
from sluice.expressions.nodes import Call, Choice, Constant, Kernel, Node, Rows
from sluice.expressions.parsing import SourceText, Syntax
from sluice.expressions.types import (
    BOOLEAN,
    NULL,
    STRING,
    common_type,
    is_decimal,
    is_floating,
    is_integral,
    is_ordered,
    spark_name,
    spark_type,
)
from sluice.model.errors import EvaluationError


class Builder:
    """Turns typed operations into nodes; every message quotes the user's text."""

    def __init__(self, source: SourceText, time_zone: str) -> None:
        self.source = source
        self.time_zone = time_zone
        self.instant = pa.timestamp("us", time_zone)

    def constant(self, value: Any, type_: pa.DataType, *, literal: bool = False) -> Constant:
        return Constant(type_, pa.scalar(value, type_), literal)

    def call(
        self,
        at: Syntax,
        kernel: Kernel,
        arguments: Sequence[Node],
        type_: pa.DataType,
        *,
        raises: bool = False,
        strict: bool = True,
        operation: str = "",
    ) -> Node:
        node = Call(type_, kernel, tuple(arguments), self.source.quote(at), raises, strict, operation)
        return self._fold(node) if all(isinstance(part, Constant) for part in arguments) else node

    def arrow(self, at: Syntax, function: str, arguments: Sequence[Node], type_: pa.DataType) -> Node:
        """A call of Arrow's own function; the checked ones can raise."""
        kernel, operation = partial(arrow, function=function), function.removesuffix("_checked")
        return self.call(at, kernel, arguments, type_, raises=function != operation, operation=operation)

    def _fold(self, node: Node) -> Node:
        try:
            return Constant(node.type, node.evaluate(Rows(1, lambda name: None, careful=True)))
        except EvaluationError:
            return node  # whether it raises depends on whether a row gets there

    def cast(self, at: Syntax, node: Node, target: pa.DataType) -> Node:
        if node.type == target:
            return node
        if node.type == NULL:
            return self.constant(None, target)
        kernel_found = cast_kernel(node.type, target)
        if kernel_found is None:
            names = f"{spark_name(node.type)} to {spark_name(target)}"
            self.source.refuse(at, f"a cast from {names} is not available here; {ELSEWHERE}")
        kernel, raises = kernel_found
        result = self.call(at, kernel, [node], target, raises=raises, operation="cast")
        if isinstance(node, Constant) and not isinstance(result, Constant):
            self.source.refuse(at, f"{self._describe_constant(node)} cannot be read as {spark_name(target)}")
        return result

    @staticmethod
    def _describe_constant(node: Constant) -> str:
        return repr(node.value.as_py()) if node.type == STRING else str(node.value.as_py())

    def convert_argument(self, at: Syntax, node: Node, target: pa.DataType, accepts: Callable[[Any], bool]) -> Node:
        """The argument of a function as the type it takes, if Spark casts it there unasked and it is no text."""
        if node.type != NULL and not accepts(node.type):
            self.source.refuse(
                at, f"{spark_name(node.type)} is given where {spark_name(target)} is expected; use CAST(... AS ...)"
            )
        return self.cast(at, node, target)

    def boolean(self, at: Syntax, node: Node) -> Node:
        return self.convert_argument(at, node, BOOLEAN, lambda type_: type_ == BOOLEAN)

    def common(self, at: Syntax, nodes: Sequence[Node], *, promote_text: bool = True) -> list[Node]:
        """The nodes in the type Spark finds for all of them."""
        type_: pa.DataType = NULL
        for node in nodes:
            wider = common_type(type_, node.type, promote_text=promote_text)
            if wider is None:
                names = f"{spark_name(type_)} and {spark_name(node.type)}"
                self.source.refuse(at, f"{names} have no common type; use CAST(... AS ...) on one of them")
            type_ = wider
        return [self.cast(at, node, type_) for node in nodes]

    def short_literal(self, at: Syntax, node: Node, other: Node) -> Node:
        """An integer literal beside a decimal, as a decimal of only the digits it has."""
        if is_decimal(other.type) and isinstance(node, Constant) and node.literal and is_integral(node.type):
            return self.cast(at, node, pa.decimal128(len(str(abs(node.value.as_py()))), 0))
        return node

    def compare(self, at: Syntax, operation: str, left: Node, right: Node) -> Node:
        left, right = self.short_literal(at, left, right), self.short_literal(at, right, left)
        if not (is_ordered(left.type) and is_ordered(right.type)) or self._uncommon(left, right):
            names = f"{spark_name(left.type)} with {spark_name(right.type)}"
            self.source.refuse(at, f"cannot compare {names}; compare parts of them, or use CAST(... AS ...)")
        left, right = self.common(at, [left, right])
        if left.type == NULL:
            left, right = self.cast(at, left, BOOLEAN), self.cast(at, right, BOOLEAN)
        if operation == "null_safe":
            kernel = partial(null_safe, equal=self._comparison("equal", left.type))
            return self.call(at, kernel, [left, right], BOOLEAN, strict=False)
        return self.call(at, self._comparison(operation, left.type), [left, right], BOOLEAN, operation=operation)

    @staticmethod
    def _uncommon(left: Node, right: Node) -> bool:
        return common_type(left.type, right.type) is None

    @staticmethod
    def _comparison(operation: str, type_: pa.DataType) -> Kernel:
        if is_floating(type_):
            return partial(compare_floats, operation=operation)
        return partial(arrow, function=operation)

    def member(self, at: Syntax, value: Node, options: Sequence[Constant]) -> Node:
        """Whether the value is among constants of its type."""
        values = [option.value for option in options if option.value.is_valid]
        kernel = partial(member, options=pa.array(values, value.type), unknown=len(values) < len(options))
        return self.call(at, kernel, [value], BOOLEAN)

    def extreme(self, at: Syntax, nodes: Sequence[Node], *, greatest: bool) -> Node:
        nodes = self.common(at, nodes, promote_text=False)
        if not is_ordered(nodes[0].type) or nodes[0].type == NULL:
            self.source.refuse(at, f"cannot order {spark_name(nodes[0].type)}")
        kernel = partial(extreme, less=self._comparison("less", nodes[0].type), greatest=greatest)
        return self.call(at, kernel, nodes, nodes[0].type, strict=False)

    def choice(self, at: Syntax, branches: Sequence[tuple[Node, Node]], otherwise: Node | None) -> Node:
        values = [value for _, value in branches]
        values = self.common(at, [*values, otherwise or self.constant(None, NULL)])
        conditions = [self.boolean(at, condition) for condition, _ in branches]
        return Choice(values[0].type, tuple(zip(conditions, values[:-1], strict=True)), values[-1])

    def field(self, at: Syntax, node: Node, name: str) -> Node:
        """A field of a struct, its name in any case as in Spark."""
        if not pa.types.is_struct(node.type):
            self.source.refuse(at, f"'{name}' is asked of {spark_name(node.type)}, which has no fields")
        indexes = [index for index, field in enumerate(node.type) if field.name.lower() == name.lower()]
        if len(indexes) != 1:
            names = ", ".join(field.name for field in node.type)
            self.source.refuse(at, f"there are {len(indexes) or 'no'} fields '{name}'; the fields are {names}")
        kernel = partial(arrow, function="struct_field", indices=indexes)
        return self.normalise(at, self.call(at, kernel, [node], node.type[indexes[0]].type))

    def normalise(self, at: Syntax, node: Node) -> Node:
        """A stored value in the one Arrow type that stands for its Spark type."""
        type_ = spark_type(node.type, self.time_zone)
        if type_ is None:
            self.source.refuse(at, f"values stored as {node.type} have no Spark type here; {ELSEWHERE}")
        if type_ == node.type:
            return node
        return self.call(at, partial(arrow, function="cast", target_type=type_), [node], type_)

    def integral(self, at: Syntax, node: Node, target: pa.DataType) -> Node:
        return self.convert_argument(at, node, target, is_integral)
