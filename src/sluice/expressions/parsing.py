"""Reads the text of an expression with sqlglot and makes sure that the tree is the one Spark's parser would build.

sqlglot turns many dialects' functions into its own and is lenient in places. So functions keep the name the user
wrote, and an operator is accepted only where Spark's precedence puts it; parentheses settle any doubt.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeAlias

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError

from sluice.expressions import ELSEWHERE
from sluice.model.errors import FlowError

if TYPE_CHECKING:
    from sqlglot.expressions import Expr

    Syntax: TypeAlias = Expr
else:
    Syntax = exp.Expression  # what older releases call a node


class SparkAsWritten(Spark):
    """Spark's dialect without sqlglot's translation of functions, and with '' for a quote within a text."""

    class Tokenizer(Spark.Tokenizer):
        STRING_ESCAPES = ["\\", "'", '"']  # noqa: RUF012

    class Parser(Spark.Parser):  # type: ignore[valid-type, misc]
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: parse
            for name, parse in Spark.Parser.FUNCTION_PARSERS.items()
            if name in ("CAST", "TRY_CAST", "EXTRACT", "TRIM")
        }


def alias_at_end(text: str) -> tuple[str, str | None]:
    """The text before a last `AS name`, and that name."""
    try:
        tokens = SparkAsWritten().tokenize(text)
    except TokenError:
        return text, None  # the parser says what is wrong
    if len(tokens) < 3 or tokens[-2].text.upper() != "AS":
        return text, None
    return text[: tokens[-2].start].rstrip(), tokens[-1].text


def _levels() -> dict[type[Syntax], int]:
    """How tightly Spark's operators bind, from OR to unary minus."""
    groups: list[tuple[type[Syntax], ...]] = [
        (exp.Or,),
        (exp.And,),
        (exp.Not,),
        (exp.Is, exp.In, exp.Between, exp.Like, exp.ILike, exp.RegexpLike, exp.Escape, exp.NullSafeNEQ),
        (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.LT, exp.LTE, exp.GT, exp.GTE),
        (exp.BitwiseOr,),
        (exp.BitwiseXor,),
        (exp.BitwiseAnd,),
        (exp.BitwiseLeftShift, exp.BitwiseRightShift),
        (exp.Add, exp.Sub, exp.DPipe),
        (exp.Mul, exp.Div, exp.Mod, exp.IntDiv),
        (exp.Neg, exp.BitwiseNot),
    ]
    return {kind: level for level, kinds in enumerate(groups) for kind in kinds}


_LEVELS = _levels()
# What a node may be made of. Anything else would change its meaning without our notice.
_UNDERSTOOD = {
    "this", "expression", "expressions", "low", "high", "ifs", "true", "false", "default", "negate", "to", "unit",
    "position", "table", "db", "catalog", "quoted", "is_string", "safe", "_type", "nested", "fraction_in_string",
}  # fmt: skip
_UNPLACED = (exp.Boolean, exp.Null, exp.Interval, exp.Cast)  # for which sqlglot keeps no position in the text
_PRIMARY, _PREDICATE = 99, _LEVELS[exp.Is]


class SourceText:
    """The user's text, to quote from in messages."""

    def __init__(self, text: str) -> None:
        self.text = text

    def quote(self, node: Syntax) -> str:
        """The part of the text a node was read from, and where it stands when it is not all of it."""
        parts = list(node.walk())
        places = [part.meta for part in parts if "start" in part.meta]
        if not places:
            return f'"{self.text}"'
        start, end = self._extend_to_parentheses(min(p["start"] for p in places), max(p["end"] for p in places) + 1)
        shown = self.text[start:end]
        if self.text.strip() == shown.strip():
            return f'"{self.text}"'
        if any(isinstance(part, _UNPLACED) for part in parts):
            shown = node.sql(dialect=SparkAsWritten, normalize_functions=False)
        line, column = self.text.count("\n", 0, start) + 1, start - self.text.rfind("\n", 0, start)
        return f'"{shown}" (line {line}, column {column} of "{self.text}")'

    def _extend_to_parentheses(self, start: int, end: int) -> tuple[int, int]:
        """Takes in the parentheses that belong to the part; only names and literals have positions."""
        while self.text.count("(", start, end) > self.text.count(")", start, end) and ")" in self.text[end:]:
            end = self.text.index(")", end) + 1
        while self.text.count(")", start, end) > self.text.count("(", start, end) and "(" in self.text[:start]:
            start = self.text.rindex("(", 0, start)
        return start, end

    def refuse(self, node: Syntax, why: str) -> NoReturn:
        raise FlowError(f"{why}, in {self.quote(node)}")

    def parse(self) -> Syntax:
        if not self.text.strip():
            raise FlowError("the expression is empty")
        try:
            tree = sqlglot.parse_one(self.text, read=SparkAsWritten)
        except (ParseError, TokenError) as error:
            detail = error.errors[0] if isinstance(error, ParseError) and error.errors else {}
            place = f" near '{detail['highlight']}' (line {detail['line']})" if detail else ""
            raise FlowError(f'cannot read "{self.text}" as a Spark SQL expression: syntax error{place}') from None
        for node in tree.walk():
            self._vet(node)
        return tree

    def _vet(self, node: Syntax) -> None:
        if any(value and name not in _UNDERSTOOD for name, value in node.args.items()):
            self.refuse(node, f"this is not available in an expression; {ELSEWHERE}")
        for name, least in _least_levels(node).items():
            operand = node.args.get(name)
            if operand is not None and _level(operand) < least and not _is_compound(name, operand):
                self.refuse(node, "Spark groups this differently than it may look; put parentheses around its parts")


def _least_levels(node: Syntax) -> dict[str, int]:
    """How tightly each operand must bind to be one without parentheses."""
    level = _level(node)
    if isinstance(node, exp.Not | exp.Neg | exp.BitwiseNot):
        return {"this": level}
    if isinstance(node, exp.Escape):
        return {"this": level, "expression": _PRIMARY}
    if level == _PREDICATE:
        return dict.fromkeys(("this", "expression", "low", "high"), level + 1)
    return {"this": level, "expression": level + 1} if level != _PRIMARY else {}


def _level(node: Syntax) -> int:
    return _LEVELS.get(type(node), _PRIMARY)


def _is_compound(name: str, operand: Syntax) -> bool:
    """Whether the operand is one interval of several units: `INTERVAL 1 MINUTE 30 SECONDS` parses as a sum."""
    return name == "expression" and isinstance(operand, exp.Add) and is_interval(operand)


def is_interval(node: Syntax) -> bool:
    if isinstance(node, exp.Add):
        return is_interval(node.this) and isinstance(node.expression, exp.Interval)
    return isinstance(node, exp.Interval)


_UNITS = {
    "year": (12, 0), "month": (1, 0), "week": (0, 7 * 86_400_000_000), "day": (0, 86_400_000_000),
    "hour": (0, 3_600_000_000), "minute": (0, 60_000_000), "second": (0, 1_000_000), "millisecond": (0, 1_000),
    "microsecond": (0, 1),
}  # fmt: skip
_TERM = re.compile(r"\s*([+-]?)\s*(\d+(?:\.\d*)?|\.\d+)\s+([a-z]+?)s?(?=\s|$)", re.IGNORECASE)


def read_interval(source: SourceText, node: Syntax) -> tuple[int, int, bool]:
    """Months and microseconds of an interval literal, and whether it is given in days or weeks alone."""
    if isinstance(node, exp.Add):
        parts = [read_interval(source, side) for side in (node.this, node.expression)]
        return parts[0][0] + parts[1][0], parts[0][1] + parts[1][1], parts[0][2] and parts[1][2]
    amount, unit = node.this, node.args.get("unit")
    if not (isinstance(amount, exp.Literal) and (unit is None or isinstance(unit, exp.Var))):
        source.refuse(node, "an interval is written with plain numbers, like INTERVAL 5 MINUTES")
    text = f"{amount.this} {unit.name}" if unit is not None else amount.this
    months, micros, whole_days, at = 0, 0, True, 0
    while at < len(text.rstrip()):
        term = _TERM.match(text, at)
        name = term[3].lower() if term else ""
        if term is None or name not in _UNITS or ("." in term[2] and name != "second"):
            source.refuse(node, "an interval is written like INTERVAL 5 MINUTES or INTERVAL '1 day 2.5 seconds'")
        sign = -1 if term[1] == "-" else 1
        in_months, in_micros = _UNITS[name]
        months += sign * in_months * (int(term[2]) if in_months else 0)
        micros += sign * int(Decimal(term[2]) * in_micros)  # digits beyond microseconds are cut off
        whole_days = whole_days and name in ("day", "week")
        at = term.end()
    if not -(2**63) <= micros < 2**63:
        source.refuse(node, "the interval is too long")
    return months, micros, whole_days
