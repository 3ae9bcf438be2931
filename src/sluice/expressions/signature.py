"""How a function is described to the compiler, and what its arguments may be asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sluice.expressions.builder import Builder
from sluice.expressions.nodes import Constant, Kernel, Node
from sluice.expressions.parsing import Syntax
from sluice.expressions.types import BOOLEAN, DATE, DOUBLE, STRING, is_numeric, is_temporal

Arguments = Sequence[Node]
Maker = Callable[[Builder, Syntax, Arguments], Node]
UNLIMITED = 1_000


@dataclass(frozen=True)
class Function:
    """Makes the node of a call that has the right number of arguments."""

    make: Maker
    least: int
    most: int

    def arity(self) -> str:
        if self.least == self.most:
            return str(self.least)
        return f"{self.least} or more" if self.most == UNLIMITED else f"{self.least} to {self.most}"


def taking(make: Maker, least: int, most: int | None = None) -> Function:
    return Function(make, least, least if most is None else most)


def of_doubles(kernel: Kernel, count: int = 1) -> Function:
    def make(build: Builder, at: Syntax, arguments: Arguments) -> Node:
        return build.call(at, kernel, [as_double(build, at, node) for node in arguments], DOUBLE)

    return taking(make, count)


def of_texts(kernel: Kernel, count: int = 1, *, boolean: bool = False) -> Function:
    def make(build: Builder, at: Syntax, arguments: Arguments) -> Node:
        texts = [as_text(build, at, node) for node in arguments]
        return build.call(at, kernel, texts, BOOLEAN if boolean else STRING)

    return taking(make, count)


def as_double(build: Builder, at: Syntax, node: Node) -> Node:
    return build.convert_argument(at, node, DOUBLE, is_numeric)


def as_text(build: Builder, at: Syntax, node: Node) -> Node:
    return build.cast(at, node, STRING)


def as_date(build: Builder, at: Syntax, node: Node) -> Node:
    return build.convert_argument(at, node, DATE, is_temporal)


def as_instant(build: Builder, at: Syntax, node: Node) -> Node:
    return build.convert_argument(at, node, build.instant, is_temporal)


def literal(build: Builder, at: Syntax, node: Node, what: str) -> Any:
    """The value of an argument that must not differ from row to row."""
    if not isinstance(node, Constant) or node.value.as_py() is None:
        build.source.refuse(at, f"{what} must be a literal here")
    return node.value.as_py()
