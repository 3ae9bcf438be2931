"""The names that Spark gives to columns without AS: `sum(price)`, `(size + 1)`, `count(1)`."""

from __future__ import annotations

import re

import pyarrow as pa
from sqlglot import exp

from sluice.expressions.parsing import Syntax
from sluice.expressions.type_names import scalar_type
from sluice.expressions.types import STRING, is_numeric, spark_name
from sluice.sql.functions import AGGREGATES, function_name
from sluice.sql.scope import Scope
from sluice.sql.text import name_parts
from sluice.sql.windows import is_window_name

_AS_WRITTEN = {
    "abs", "add_months", "array_size", "btrim", "cardinality", "ceiling", "char_length", "character_length", "coalesce",
    "concat", "contains", "date_add", "date_diff", "date_sub", "date_trunc", "datediff", "day", "dayofmonth",
    "dayofweek", "dayofyear", "element_at", "endswith", "greatest", "hour", "ifnull", "isnan", "lcase", "least",
    "length", "ln", "lower", "ltrim", "minute", "mod", "month", "nullif", "nvl", "nvl2", "pow", "quarter",
    "regexp_extract", "replace", "round", "rtrim", "second", "sign", "size", "split_part", "startswith", "substr",
    "substring", "timestamp_micros", "timestamp_millis", "timestamp_seconds", "to_date", "to_timestamp", "ucase",
    "unix_micros", "unix_millis", "unix_seconds", "upper", "weekday", "weekofyear", "year",
}  # fmt: skip
_IN_CAPITALS = {"ceil", "exp", "floor", "log", "log10", "power", "regexp", "regexp_like", "rlike", "signum", "sqrt"}
_SHOWN_DEFAULTS = {
    ("regexp_extract", 2): "1", ("replace", 2): "", ("round", 1): "0", ("substr", 2): "2147483647",
    ("substring", 2): "2147483647",
}  # fmt: skip
"""The last argument that Spark shows though it is not given, by function and number of arguments."""
_ARITHMETIC = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.IntDiv: "div"}
_INFIX = {
    exp.EQ: "=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.NullSafeEQ: "<=>", exp.And: "AND",
    exp.Or: "OR",
}  # fmt: skip
_NEGATED = {exp.NEQ: "=", exp.NullSafeNEQ: "<=>"}
_OF_NUMBERS = {
    "array_size", "cardinality", "ceil", "ceiling", "char_length", "character_length", "count", "date_diff", "datediff",
    "day", "dayofmonth", "dayofweek", "dayofyear", "exp", "floor", "hour", "length", "ln", "log", "log10", "minute",
    "mod", "month", "pow", "power", "quarter", "round", "second", "sign", "signum", "size", "sqrt", "stddev",
    "stddev_pop", "unix_micros", "unix_millis", "unix_seconds", "var_pop", "variance", "weekday", "weekofyear", "year",
}  # fmt: skip
"""Functions that yield numbers, whatever they are given."""
_OF_ARGUMENTS = {
    "abs", "avg", "coalesce", "first", "greatest", "ifnull", "last", "least", "max", "min", "nullif", "nvl", "sum",
}  # fmt: skip
"""Functions that yield what they are given."""
_INSTANT = pa.timestamp("us", "UTC")


def name_in_spark(scope: Scope, node: Syntax) -> str | None:
    """The name that Spark gives to an expression; None where it is not known for sure."""
    if scope.text.has_signs:
        return None
    node = node.unnest()
    operand = node.this.unnest() if isinstance(node, exp.TryCast) and not node.args.get("safe") else None
    if isinstance(operand, exp.Column) and not scope.resolve(operand).fields:
        return str(operand.name)  # Spark gives a cast of a column the column's name
    try:
        return _Namer(scope).write(node)
    except _Unnamed:
        return None


class _Unnamed(Exception):
    """An expression whose name in Spark is not known."""


class _Namer:
    """Writes expressions over the columns of a FROM as Spark does in names."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def write(self, node: Syntax) -> str:
        kind = type(node)
        if kind is exp.Paren:
            return self.write(node.this)
        if kind in _ARITHMETIC and all(map(self._is_number, (node.this, node.expression))):
            return self._infix(node, _ARITHMETIC[kind])
        if kind in _INFIX:
            return self._infix(node, _INFIX[kind])
        if kind in _NEGATED:
            return f"(NOT {self._infix(node, _NEGATED[kind])})"
        match node:
            case exp.Column() | exp.Dot():
                return self._path(node)
            case exp.Literal():
                return _literal(node)
            case exp.Null() | exp.Boolean():
                return "NULL" if isinstance(node, exp.Null) else str(bool(node.this)).lower()
            case exp.Neg() if isinstance(node.this, exp.Literal):
                return f"-{_literal(node.this)}"
            case exp.Neg() if self._is_number(node.this):
                return f"(- {self.write(node.this)})"
            case exp.Not() if not isinstance(node.this, exp.Is):  # `NOT v IS NULL` and `v IS NOT NULL` differ in names
                return f"(NOT {self.write(node.this)})"
            case exp.Is() if isinstance(node.expression, exp.Null):
                return f"({self.write(node.this)} IS NULL)"
            case exp.Between() if not node.args.get("symmetric"):
                return f"between({self._list([node.this, node.args['low'], node.args['high']])})"
            case exp.In() if node.expressions:
                return f"({self.write(node.this)} IN ({self._list(node.expressions)}))"
            case exp.Like():
                like = f"{self.write(node.this)} LIKE {self.write(node.expression)}"
                return f"(NOT {like})" if node.args.get("negate") else like
            case exp.DPipe():
                return f"concat({self._list([node.this, node.expression])})"
            case exp.Case():
                return self._case(node)
            case exp.If() if node.args.get("false") is not None:
                return f"(IF({self._list([node.this, node.args['true'], node.args['false']])}))"
            case exp.TryCast() if not node.args.get("safe") and not isinstance(node.this, exp.Literal):
                return f"CAST({self.write(node.this)} AS {_type(node.args['to'])})"
            case exp.Trim() if set(_given(node)) == {"this"}:
                return f"trim({self.write(node.this)})"
            case exp.Anonymous():
                return self._call(node)
        raise _Unnamed

    def _infix(self, node: Syntax, operator: str) -> str:
        return f"({self.write(node.this)} {operator} {self.write(node.expression)})"

    def _list(self, nodes: list[Syntax]) -> str:
        return ", ".join(map(self.write, nodes))

    def _path(self, node: Syntax) -> str:
        """A column as it is written, without its table, and its fields."""
        names = name_parts(node)
        if names is None:
            raise _Unnamed
        parts = [name.name for name in names]
        if is_window_name(parts[0]) and not self._scope.columns_named(parts[0]):
            return ".".join(parts)
        reference = self._scope.resolve(node) if isinstance(node, exp.Column) else None
        if reference is None:
            raise _Unnamed
        return ".".join(parts[-1 - len(reference.fields) :])

    def _case(self, node: Syntax) -> str:
        subject = f"({self.write(node.this)} = " if node.this is not None else ""
        branches = [
            f"WHEN {subject}{self.write(branch.this)}{')' if subject else ''} THEN {self.write(branch.args['true'])}"
            for branch in node.args["ifs"]
        ]
        default = node.args.get("default")
        last = [] if default is None else [f"ELSE {self.write(default)}"]
        return " ".join(["CASE", *branches, *last, "END"])

    def _call(self, node: Syntax) -> str:
        name, arguments = function_name(node), node.expressions
        if name == "count" and len(arguments) == 1 and isinstance(arguments[0], exp.Star):
            return "count(1)"
        texts = [self.write(argument) for argument in arguments]
        if name in ("isnull", "isnotnull") and len(texts) == 1:
            return f"({texts[0]} IS {'NOT ' if name == 'isnotnull' else ''}NULL)"
        if name == "log" and len(texts) == 1:
            texts.insert(0, "E()")
        default = _SHOWN_DEFAULTS.get((name, len(texts)))
        if default is not None:
            texts.append(default)
        if name in _IN_CAPITALS:
            return f"{name.upper()}({', '.join(texts)})"
        if name in _AS_WRITTEN or name in AGGREGATES:
            return f"{name}({', '.join(texts)})"
        raise _Unnamed

    def _is_number(self, node: Syntax) -> bool:
        """Whether a value is surely a number, or a text that becomes one: with dates and intervals operators have other
        names."""
        node = node.unnest()
        if isinstance(node, exp.Literal | exp.Null):
            return True
        if isinstance(node, exp.Column):
            return name_parts(node) is not None and all(
                kind is not None and (is_numeric(kind) or kind == STRING) for kind in self._types_of(node)
            )
        if isinstance(node, exp.TryCast):
            kind = scalar_type(node.args["to"], _INSTANT)
            return kind is not None and is_numeric(kind)
        if isinstance(node, exp.Neg) or type(node) in _ARITHMETIC:
            return all(self._is_number(part) for part in (node.this, node.args.get("expression")) if part is not None)
        if isinstance(node, exp.Case):
            results = [branch.args["true"] for branch in node.args["ifs"]]
            return all(self._is_number(part) for part in (*results, node.args.get("default")) if part is not None)
        if isinstance(node, exp.If):
            return all(self._is_number(node.args[name]) for name in ("true", "false"))
        name = function_name(node)
        name = AGGREGATES.get(name, name)
        return name in _OF_NUMBERS or (name in _OF_ARGUMENTS and all(map(self._is_number, node.expressions)))

    def _types_of(self, node: exp.Column) -> list[pa.DataType | None]:
        names = [part.name for part in node.parts]
        if is_window_name(names[0]) and not self._scope.columns_named(names[0]):
            return [None]
        reference = self._scope.resolve(node)
        return [None] if reference.fields else self._scope.types_of(reference)


def _literal(node: Syntax) -> str:
    text = str(node.this)
    if node.is_string:
        if "\\" in text or not text.isprintable():
            raise _Unnamed
        return text
    if not re.fullmatch(r"\d+|(0|[1-9]\d*)\.\d+", text):
        raise _Unnamed
    return text if "." in text else str(int(text))


def _type(named: Syntax) -> str:
    kind = scalar_type(named, _INSTANT) if isinstance(named, exp.DataType) else None
    if kind is None:
        raise _Unnamed
    return spark_name(kind).upper()


def _given(node: Syntax) -> list[str]:
    return [name for name, value in node.args.items() if value not in (None, False, [])]
