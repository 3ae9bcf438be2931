"""Literals: numbers with the types Spark gives them, texts, intervals, and the types that casts name."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
from sqlglot import exp

from sluice.expressions import ELSEWHERE
from sluice.expressions.builder import Builder
from sluice.expressions.nodes import Constant, Days, Node
from sluice.expressions.operators import MONTHS
from sluice.expressions.parsing import Syntax, read_interval
from sluice.expressions.type_names import scalar_type
from sluice.expressions.types import (
    BOOLEAN,
    DOUBLE,
    INT,
    INTERVAL,
    LONG,
    MAX_DIGITS,
    NULL,
    STRING,
)


class Literals(Builder):
    """Reads the parts of an expression that name no column."""

    def boolean_literal(self, at: Syntax) -> Node:
        return self.constant(at.this, BOOLEAN)

    def null_literal(self, at: Syntax) -> Node:
        return self.constant(None, NULL)

    def raw_text(self, at: Syntax) -> Node:
        return self.constant(at.this, STRING, literal=True)

    def literal(self, at: Syntax) -> Node:
        if not at.args.get("is_string"):
            return self.number(at)
        # Our tokenizer takes '' and "" in any text for one quote, Spark only the one that delimits the text.
        written = self._source_text(at)
        if {"'": '""', '"': "''"}.get(written[:1], "\0") in written:
            self.source.refuse(at, "delimit this text with the other kind of quotes")
        return self.constant(at.this, STRING, literal=True)

    def number(self, at: Syntax, sign: int = 1) -> Constant:
        digits = at.this
        if "e" in digits.lower():
            return self.constant(sign * float(digits), DOUBLE, literal=True)
        number = sign * Decimal(digits)
        if "." not in digits and -(2**63) <= number < 2**63:
            return self.constant(int(number), INT if -(2**31) <= number < 2**31 else LONG, literal=True)
        scale = max(0, -int(number.as_tuple().exponent))
        precision = max(len(number.as_tuple().digits), scale)
        if precision > MAX_DIGITS:
            self.source.refuse(at, f"a number has at most {MAX_DIGITS} digits")
        return self.constant(number, pa.decimal128(precision, scale), literal=True)

    def is_suffixed(self, at: Syntax) -> bool:
        """Whether this is a number like 5L, which sqlglot reads as a cast."""
        number = at.this
        if not isinstance(at, exp.TryCast) or not isinstance(number, exp.Literal) or number.is_string:
            return False
        return self._source_text(number) not in ("", number.this)

    def read_suffixed(self, at: Syntax, sign: int = 1) -> Node:
        type_ = self.named_type(at)
        value = self.cast(at, self.number(at.this, sign), type_)
        return Constant(type_, value.value, literal=True) if isinstance(value, Constant) else value

    def _source_text(self, at: Syntax) -> str:
        return self.source.text[at.meta["start"] : at.meta["end"] + 1] if "start" in at.meta else ""

    def named_type(self, at: Syntax) -> pa.DataType:
        """The type that a cast names."""
        target = at.args["to"]
        named = scalar_type(target, self.instant)
        if named is None:
            self.source.refuse(at, f"a cast to {target.sql()} is not available; {ELSEWHERE}")
        return named

    def interval(self, at: Syntax) -> Node:
        months, micros, whole_days = read_interval(self.source, at)
        if months and micros:
            self.source.refuse(at, "an interval cannot mix months with days")
        if months:
            return self.constant((months, 0, 0), MONTHS)
        kind = Days if whole_days else Constant
        return kind(INTERVAL, pa.scalar(micros, INTERVAL))
