"""From the syntax tree of an expression to the nodes that evaluate it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from sqlglot import exp

from sluice.expressions import ELSEWHERE, operators
from sluice.expressions.functions.arrays import LISTS, element
from sluice.expressions.functions.conditionals import CONDITIONALS, is_null
from sluice.expressions.functions.numbers import NUMERIC
from sluice.expressions.functions.text import TEXTUAL, concat, like, rlike, trim
from sluice.expressions.functions.times import TEMPORAL, extract
from sluice.expressions.literals import Literals
from sluice.expressions.nodes import Choice, Column, Constant, Junction, Node
from sluice.expressions.parsing import SourceText, Syntax, is_interval
from sluice.expressions.types import BOOLEAN, NULL, STRING, is_ordered
from sluice.model.errors import FlowError

Resolve = Callable[[str | None, str], str]
FUNCTIONS = CONDITIONALS | NUMERIC | TEXTUAL | TEMPORAL | LISTS
_COMPARISONS: dict[type[Syntax], str] = {
    exp.EQ: "equal",
    exp.NEQ: "not_equal",
    exp.LT: "less",
    exp.LTE: "less_equal",
    exp.GT: "greater",
    exp.GTE: "greater_equal",
    exp.NullSafeEQ: "null_safe",
}
_ARITHMETIC: dict[type[Syntax], str] = {
    exp.Add: "add",
    exp.Sub: "subtract",
    exp.Mul: "multiply",
    exp.Div: "divide",
    exp.Mod: "remainder",
    exp.IntDiv: "div",
}


class Compiler(Literals):
    """Walks the syntax tree once, and remembers which columns it read."""

    def __init__(self, source: SourceText, resolve: Resolve, schema: pa.Schema, time_zone: str) -> None:
        super().__init__(source, time_zone)
        self.resolve = resolve
        self.schema = schema
        self.columns: list[str] = []
        self.column_places: list[tuple[int, int, str]] = []
        """Where in the text columns are named: from the first up to the second place, and by which name they go."""

    def node(self, at: Syntax) -> Node:
        node = self._node(at)
        return self._invert(at, node) if at.args.get("negate") else node

    def _node(self, at: Syntax) -> Node:
        kind = type(at)
        if kind in _COMPARISONS:
            return self.compare(at, _COMPARISONS[kind], self.node(at.this), self.node(at.expression))
        if is_interval(at):
            return self.interval(at)
        if kind in _ARITHMETIC:
            return operators.binary(self, at, _ARITHMETIC[kind], self.node(at.this), self.node(at.expression))
        handler = _HANDLERS.get(kind)
        if handler is None:
            self.source.refuse(at, f"this is not available in an expression; {ELSEWHERE}")
        return handler(self, at)

    def _paren(self, at: Syntax) -> Node:
        return self.node(at.this)

    def _column(self, at: Syntax) -> Node:
        """A column by name, with or without its stream, and fields of it."""
        names = _names(at)
        if names is None:
            if not isinstance(at, exp.Dot) or not isinstance(at.expression, exp.Identifier):
                self.source.refuse(at, "this is not the name of a column")
            return self.field(at, self.node(at.this), at.expression.name)
        column, used = self._resolve(at, names)
        if column not in self.schema.names:
            self.source.refuse(at, f"there is no column '{column}'")
        if column not in self.columns:
            self.columns.append(column)
        self._note_place(at, column, used)
        node: Node = Column(self._column_type(at, column), column)
        for name in names[used:]:
            node = self.field(at, node, name)
        return node

    def _resolve(self, at: Syntax, names: list[str]) -> tuple[str, int]:
        """The physical column, and how many of the names it took."""
        tries = [(names[0], names[1], 2)] if len(names) > 1 else []
        failures = []
        for stream, column, used in [*tries, (None, names[0], 1)]:
            try:
                return self.resolve(stream, column), used
            except FlowError as error:
                failures.append(error)
        raise FlowError(f"{failures[0]}, in {self.source.quote(at)}") from failures[0]

    def _note_place(self, at: Syntax, column: str, names: int) -> None:
        """Remembers where the first of an expression's names stand."""
        places = sorted((i.meta["start"], i.meta["end"]) for i in at.find_all(exp.Identifier) if "start" in i.meta)
        if len(places) >= names:
            self.column_places.append((places[0][0], places[names - 1][1] + 1, column))

    def _column_type(self, at: Syntax, column: str) -> pa.DataType:
        stored = self.schema.field(column).type
        return self.normalise(at, Column(stored, column)).type

    def _negative(self, at: Syntax) -> Node:
        operand = at.this
        if isinstance(operand, exp.Literal) and not operand.is_string:
            return self.number(operand, -1)
        if self.is_suffixed(operand):
            return self.read_suffixed(operand, -1)
        return operators.negate(self, at, self.node(operand))

    def _cast(self, at: Syntax) -> Node:
        if at.args.get("safe"):
            self.source.refuse(at, f"TRY_CAST is not available; {ELSEWHERE}")
        if self.is_suffixed(at):
            return self.read_suffixed(at)
        return self.cast(at, self.node(at.this), self.named_type(at))

    def _and(self, at: Syntax) -> Node:
        return self._junction(at, False)

    def _or(self, at: Syntax) -> Node:
        return self._junction(at, True)

    def _junction(self, at: Syntax, decided: bool) -> Node:
        operands, rest = [], at
        while type(rest) is type(at):
            operands.append(rest.expression)
            rest = rest.this
        return _join_conditions([self.boolean(side, self.node(side)) for side in (rest, *reversed(operands))], decided)

    def _not(self, at: Syntax) -> Node:
        return self._invert(at, self.boolean(at, self.node(at.this)))

    def _invert(self, at: Syntax, node: Node) -> Node:
        return self.arrow(at, "invert", [node], BOOLEAN)

    def _is(self, at: Syntax) -> Node:
        if isinstance(at.expression, exp.Null):
            return is_null(self, at, [self.node(at.this)])
        if not isinstance(at.expression, exp.Boolean):
            self.source.refuse(at, "IS takes NULL, TRUE or FALSE")
        return self.compare(at, "null_safe", self.boolean(at, self.node(at.this)), self.node(at.expression))

    def _distinct(self, at: Syntax) -> Node:
        return self._invert(at, self.compare(at, "null_safe", self.node(at.this), self.node(at.expression)))

    def _between(self, at: Syntax) -> Node:
        value = self.node(at.this)
        low = self.compare(at, "greater_equal", value, self.node(at.args["low"]))
        high = self.compare(at, "less_equal", value, self.node(at.args["high"]))
        return Junction(BOOLEAN, low, high, False)

    def _in(self, at: Syntax) -> Node:
        if not at.expressions:
            self.source.refuse(at, "IN takes a list of values in parentheses")
        value, *options = self.common(at, [self.node(at.this), *map(self.node, at.expressions)])
        constants = [option for option in options if isinstance(option, Constant)]
        if len(constants) == len(options) > 1 and value.type not in (BOOLEAN, NULL) and is_ordered(value.type):
            return self.member(at, value, constants)
        comparisons = [self.compare(at, "equal", value, option) for option in options]
        match = _join_conditions(comparisons, True)
        if not any(option.fallible for option in options):
            return match
        # Spark does not look at the list for a null value.
        return Choice(BOOLEAN, ((is_null(self, at, [value]), self.constant(None, BOOLEAN)),), match)

    def _like(self, at: Syntax, escape: str = "\\") -> Node:
        value, pattern = self.node(at.this), self.node(at.expression)
        return like(self, at, value, pattern, escape, any_case=isinstance(at, exp.ILike))

    def _escape(self, at: Syntax) -> Node:
        escape = at.expression.this if isinstance(at.expression, exp.Literal) else ""
        if not isinstance(at.this, exp.Like | exp.ILike) or len(escape) != 1:
            self.source.refuse(at, "ESCAPE takes one character, after LIKE")
        result = self._like(at.this, escape)
        return self._invert(at, result) if at.this.args.get("negate") else result

    def _rlike(self, at: Syntax) -> Node:
        return rlike(self, at, [self.node(at.this), self.node(at.expression)])

    def _case(self, at: Syntax) -> Node:
        subject = self.node(at.this) if at.this is not None else None
        branches = []
        for branch in at.args["ifs"]:
            condition = self.node(branch.this)
            if subject is not None:
                condition = self.compare(branch, "equal", subject, condition)
            branches.append((condition, self.node(branch.args["true"])))
        default = at.args.get("default")
        return self.choice(at, branches, self.node(default) if default is not None else None)

    def _if(self, at: Syntax) -> Node:
        parts = [at.args.get(name) for name in ("this", "true", "false")]
        return self._call(at, "if", [part for part in parts if part is not None])

    def _pipes(self, at: Syntax) -> Node:
        return concat(self, at, [self.node(at.this), self.node(at.expression)])

    def _bracket(self, at: Syntax) -> Node:
        if len(at.expressions) != 1:
            self.source.refuse(at, "an element is asked for by one index")
        value, index = self.node(at.this), self.node(at.expressions[0])
        if pa.types.is_struct(value.type) and isinstance(index, Constant) and index.type == STRING:
            return self.field(at, value, str(index.value.as_py()))
        return element(self, at, value, index, from_one=False)

    def _trim(self, at: Syntax) -> Node:
        characters = at.args.get("expression")
        side = str(at.args.get("position") or "BOTH").upper()
        return trim(self, at, side, self.node(at.this), self.node(characters) if characters else None)

    def _extract(self, at: Syntax) -> Node:
        return extract(self, at, at.this.name, self.node(at.expression))

    def _function(self, at: Syntax) -> Node:
        name = at.this if isinstance(at.this, str) else at.this.name
        return self._call(at, name, at.expressions)

    def _call(self, at: Syntax, name: str, arguments: list[Syntax]) -> Node:
        function = FUNCTIONS.get(name.lower())
        if function is None:
            self.source.refuse(at, f"the function '{name}' is not available; {ELSEWHERE}")
        if not function.least <= len(arguments) <= function.most:
            self.source.refuse(at, f"'{name}' takes {function.arity()} arguments, not {len(arguments)}")
        return function.make(self, at, [self.node(argument) for argument in arguments])


def _join_conditions(conditions: Sequence[Node], decided: bool) -> Node:
    """AND or OR of many conditions, in a tree that stays flat however many they are."""
    if len(conditions) == 1:
        return conditions[0]
    half = len(conditions) // 2
    return Junction(
        BOOLEAN, _join_conditions(conditions[:half], decided), _join_conditions(conditions[half:], decided), decided
    )


def _names(at: Syntax) -> list[str] | None:
    """The parts of a dotted name, unless something else than names is in it."""
    if isinstance(at, exp.Dot):
        before = _names(at.this)
        return [*before, at.expression.name] if before and isinstance(at.expression, exp.Identifier) else None
    if isinstance(at, exp.Column) and all(isinstance(part, exp.Identifier) for part in at.parts):
        return [part.name for part in at.parts]
    return None


_HANDLERS: dict[type[Syntax], Callable[[Compiler, Syntax], Node]] = {
    exp.Paren: Compiler._paren,
    exp.Column: Compiler._column,
    exp.Dot: Compiler._column,
    exp.Literal: Compiler.literal,
    exp.RawString: Compiler.raw_text,
    exp.Boolean: Compiler.boolean_literal,
    exp.Null: Compiler.null_literal,
    exp.Neg: Compiler._negative,
    exp.Cast: Compiler._cast,
    exp.TryCast: Compiler._cast,
    exp.And: Compiler._and,
    exp.Or: Compiler._or,
    exp.Not: Compiler._not,
    exp.Is: Compiler._is,
    exp.NullSafeNEQ: Compiler._distinct,
    exp.Between: Compiler._between,
    exp.In: Compiler._in,
    exp.Like: Compiler._like,
    exp.ILike: Compiler._like,
    exp.Escape: Compiler._escape,
    exp.RegexpLike: Compiler._rlike,
    exp.Case: Compiler._case,
    exp.If: Compiler._if,
    exp.DPipe: Compiler._pipes,
    exp.Bracket: Compiler._bracket,
    exp.Trim: Compiler._trim,
    exp.Extract: Compiler._extract,
    exp.Anonymous: Compiler._function,
}
