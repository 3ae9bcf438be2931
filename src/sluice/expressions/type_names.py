"""The types that Spark SQL names, in casts and schemas, as Arrow has them."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from sluice.expressions.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    LOCAL_TIME,
    LONG,
    MAX_DIGITS,
    SHORT,
    STRING,
)

_TYPES = {
    "TEXT": STRING, "BOOLEAN": BOOLEAN, "TINYINT": BYTE, "SMALLINT": SHORT, "INT": INT, "BIGINT": LONG,
    "FLOAT": FLOAT, "DOUBLE": DOUBLE, "DATE": DATE, "TIMESTAMPNTZ": LOCAL_TIME, "BINARY": BINARY,
}  # fmt: skip
_INSTANTS = ("TIMESTAMPTZ", "TIMESTAMPLTZ", "TIMESTAMP")


def scalar_type(named: exp.DataType, instant: pa.DataType) -> pa.DataType | None:
    """The type of this name; None where it is none of single values. `instant` is what TIMESTAMP means."""
    name = getattr(named.this, "name", "")
    if name == "DECIMAL":
        digits = [int(parameter.name) for parameter in named.expressions] or [10]
        precision, scale = [*digits, 0][:2]
        is_a_type = 0 <= scale <= precision <= MAX_DIGITS and precision > 0
        return pa.decimal128(precision, scale) if is_a_type else None
    return instant if name in _INSTANTS else _TYPES.get(name)
