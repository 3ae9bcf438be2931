"""PySpark's columns, such as `F.col("price") * 2`, as Spark SQL text that means the same; what has none is refused.

Spark keeps a column as a tree that no stream has been asked about yet. The text is written from that tree: Spark's own
text of it is for people, and does not always mean the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from math import isfinite
from typing import Any, NoReturn

from pyspark.sql import Column

from sluice.model.errors import FlowError
from sluice.spark.sources import quote_column

_BETWEEN = {"and": "AND", "or": "OR", "like": "LIKE", "ilike": "ILIKE", "rlike": "RLIKE"}
_SYMBOLS = ("+", "-", "*", "/", "%", "=", "<=>", "<", "<=", ">", ">=", "&", "|", "^")
_BETWEEN |= {symbol: symbol for symbol in _SYMBOLS}
"""What stands between its two arguments, by the function that Spark calls for it."""
_BEFORE = {"!": "NOT ", "not": "NOT ", "negative": "- ", "-": "- ", "~": "~ "}
_WINDOW, _SESSION = "window", "session_window"
_NO_START = ("0 second", "0 seconds")
_LONGEST_TEXT = 60
"""How many characters of Spark's text of a column messages show."""


@dataclass(frozen=True)
class SparkWindow:
    """What `F.window` and `F.session_window` say: the column with the time, and the length and slide, or the gap."""

    function: str
    time: str
    durations: tuple[str, ...]


def sql_of(column: Column) -> str:
    """A column as an expression of Spark SQL, with its name if it has one."""
    return _Reader(column).expression()


def name_in(column: Column, owner: str) -> str | None:
    """The name of the column, if it is nothing but that, or that behind the name of its stream, the `owner`."""
    reader = _Reader(column, owner)
    return reader.plain_name(reader.root)


def window_in(column: Column, owner: str) -> SparkWindow | None:
    """The window of time that it is, if it is one."""
    return _Reader(column, owner).window()


def aggregate_in(column: Column, owner: str) -> tuple[str, tuple[str, str]]:
    """The name of an aggregate, and its column and function; its name is Spark's unless it has an alias."""
    return _Reader(column, owner).aggregate()


def name_aggregate(column: str, function: str) -> str:
    """What Spark calls an aggregate that has no alias."""
    return f"{function}({'1' if column == '*' else column})"


class _Reader:
    """One column: Spark's tree of it, and what it is called in messages. Columns by name are of the stream `owner`."""

    def __init__(self, column: Column, owner: str = "") -> None:
        sparks: Any = vars(column).get("_jc")
        if sparks is None:
            raise FlowError(f"{column} is a column of Spark Connect, which is not supported; write Spark SQL text")
        self.text = str(sparks.toString())
        self.root, self.owner = sparks.node(), owner
        self._writers: dict[str, Callable[[Any], str]] = {
            "Literal": self._literal,
            "UnresolvedAttribute": self._attribute,
            "UnresolvedStar": lambda node: str(node.sql()),
            "UnresolvedFunction": self._function,
            "SqlExpression": lambda node: f"({node.expression()})",
            "Cast": self._cast,
            "CaseWhenOtherwise": self._case,
            "ExpressionColumnNode": self._refuse_bound,
            "Window": lambda node: self._refuse("it looks at other rows: groupBy(...).last(k) and .top(k) do"),
            "UnresolvedExtractValue": lambda node: f"{self._write(node.child())}[{self._write(node.extraction())}]",
        }

    def expression(self) -> str:
        node = self.root
        if _kind(node) == "SqlExpression":  # as it was written, with a name if it has one
            return str(node.expression())
        if _kind(node) != "Alias":
            return self._write(node)
        return f"{self._write(node.child())} AS {quote_column(self._alias(node))}"

    def plain_name(self, node: Any) -> str | None:
        if _kind(node) != "UnresolvedAttribute":
            return None
        *qualifiers, name = (str(part) for part in _each(node.nameParts()))
        is_own = not qualifiers or [part.lower() for part in qualifiers] == [self.owner.lower()]
        return name if is_own else None

    def window(self) -> SparkWindow | None:
        node, alias = self._without_alias()
        if _kind(node) != "UnresolvedFunction" or str(node.functionName()) not in (_WINDOW, _SESSION):
            return None
        time, *durations = _each(node.arguments())
        name = self.plain_name(time)
        if alias is not None or name is None or not all(_kind(d) == "Literal" for d in durations):
            self._refuse(
                "a window is of the event time's column, its durations are texts, and it has no alias: the result has "
                "the columns window_start and window_end"
            )
        texts = [str(duration.value()) for duration in durations]
        if str(node.functionName()) == _WINDOW:
            *texts, start = texts
            if start not in _NO_START:
                self._refuse("windows begin at multiples of their slide since 1970; there is no startTime")
        return SparkWindow(str(node.functionName()), name, tuple(texts))

    def aggregate(self) -> tuple[str, tuple[str, str]]:
        node, alias = self._without_alias()
        arguments = list(_each(node.arguments())) if _kind(node) == "UnresolvedFunction" else []
        if len(arguments) == 2 and _kind(arguments[1]) == "Literal" and arguments[1].value() is False:
            arguments.pop()  # first and last: that nulls count, which they do here
        if len(arguments) != 1 or bool(node.isDistinct()):
            self._refuse("an aggregate is a function of one column, such as F.avg('price').alias('mean')")
        argument, function = arguments[0], str(node.functionName())
        is_literal = _kind(argument) == "Literal" and argument.value() is not None
        counts_all = function == "count" and (is_literal or _kind(argument) == "UnresolvedStar")
        column = "*" if counts_all else self.plain_name(argument)
        if column is None:
            self._refuse(
                f"an aggregate is of a column; compute the value first, with withColumn, and use {function} of that"
            )
        return alias or name_aggregate(column, function), (column, function)

    def _without_alias(self) -> tuple[Any, str | None]:
        node = self.root
        return (node.child(), self._alias(node)) if _kind(node) == "Alias" else (node, None)

    def _alias(self, node: Any) -> str:
        names = [str(name) for name in _each(node.name())]
        if len(names) != 1:
            self._refuse("it has several names")
        return names[0]

    def _write(self, node: Any) -> str:
        writer = self._writers.get(_kind(node))
        if writer is None:
            self._refuse(f"it has a part for which Spark SQL has no text here ({_kind(node)})")
        return writer(node)

    def _literal(self, node: Any) -> str:
        value = node.value()
        text = self._constant(node, value)
        if node.dataType().isDefined():
            return f"CAST({text} AS {node.dataType().get().sql()})"
        return text

    def _constant(self, node: Any, value: Any) -> str:
        if isinstance(value, str):
            return _quote(value)
        if isinstance(value, Decimal):
            return f"{value:f}BD"
        if isinstance(value, float):
            return f"{value!r}D" if isfinite(value) else f"CAST('{value}' AS DOUBLE)"
        if value is None or isinstance(value, bool | int):
            return str(node.sql())
        kind = str(value.getClass().getName())
        if kind == "java.sql.Date":
            return f"DATE '{value.toString()}'"
        if kind == "java.sql.Timestamp":
            micros = value.getTime() // 1000 * 1_000_000 + value.getNanos() // 1000
            return f"timestamp_micros({micros})"
        self._refuse(f"a constant of {kind} has no text")

    def _attribute(self, node: Any) -> str:
        return ".".join(quote_column(str(part)) for part in _each(node.nameParts()))

    def _function(self, node: Any) -> str:
        name, arguments = str(node.functionName()), [self._write(one) for one in _each(node.arguments())]
        if bool(node.isUserDefinedFunction()):
            self._refuse(f"{name} is a function of your own; call it on the DataFrame, before flow.readStream")
        if len(arguments) == 2 and name in _BETWEEN:
            return f"({arguments[0]} {_BETWEEN[name]} {arguments[1]})"
        if len(arguments) == 1 and name in _BEFORE:
            return f"({_BEFORE[name]}{arguments[0]})"
        if name == "in":
            return f"({arguments[0]} IN ({', '.join(arguments[1:])}))"
        distinct = "DISTINCT " if bool(node.isDistinct()) else ""
        return f"{name}({distinct}{', '.join(arguments)})"

    def _cast(self, node: Any) -> str:
        mode = str(node.evalMode().get().sql()) if node.evalMode().isDefined() else ""
        return f"{mode}CAST({self._write(node.child())} AS {node.dataType().sql()})"

    def _case(self, node: Any) -> str:
        branches = [f"WHEN {self._write(one._1())} THEN {self._write(one._2())}" for one in _each(node.branches())]
        otherwise = [f"ELSE {self._write(node.otherwise().get())}"] if node.otherwise().isDefined() else []
        return f"CASE {' '.join([*branches, *otherwise])} END"

    def _refuse_bound(self, node: Any) -> NoReturn:
        """Refuses what Spark has resolved already, and keeps no names of."""
        if _kind(node.expression()) == "AttributeReference":
            self._refuse("it is a column of a DataFrame; name it, F.col('price'), or take the stream's, trades.price")
        self._refuse("it calls a function of your own; call it on the DataFrame, before flow.readStream")

    def _refuse(self, why: str) -> NoReturn:
        text = self.text if len(self.text) <= _LONGEST_TEXT else f"{self.text[:_LONGEST_TEXT]}…"
        raise FlowError(f"Spark's column {text} cannot be used here: {why}")


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _each(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(place) for place in range(sequence.size()))


def _quote(text: str) -> str:
    """A text as a literal of Spark SQL, in the quotes of which it has no pair."""
    quote = '"' if '""' not in text and "''" in text else "'"
    return quote + text.replace("\\", "\\\\").replace(quote, f"\\{quote}") + quote
