"""Values at the ends of their types, and conditions of all forms on them, for theta joins in tests."""

from __future__ import annotations

import math
import re
from decimal import Decimal

import pyarrow as pa
from hypothesis import strategies as st
from specs import TIME

from sluice.model.plan.stream import Stream

_FLOAT_MOST = float.fromhex("0x1.fffffep127")
_DOUBLE_MOST = float.fromhex("0x1.fffffffffffffp1023")
_NEAR_ZERO = [0.0, -0.0, 1.0, -1.5, 0.1, math.inf, -math.inf, math.nan]
_NINES, _FINE_NINES = Decimal("9" * 38), Decimal(f"{'9' * 20}.{'9' * 18}")


def _integers(bits: int) -> list[int]:
    most = 2 ** (bits - 1) - 1
    return [0, 1, -1, 2, 5, most // 2, most // 2 + 1, -(most // 2) - 2, most - 1, most, -most, -most - 1]


EDGES: dict[str, tuple[pa.DataType, list]] = {
    "tiny": (pa.int8(), _integers(8)),
    "small": (pa.int16(), _integers(16)),
    "i": (pa.int32(), _integers(32)),
    "big": (pa.int64(), [*_integers(64), 2**53, 2**53 + 1]),
    "f": (pa.float32(), [*_NEAR_ZERO, _FLOAT_MOST, -_FLOAT_MOST, 3e38, -3e38, 1e-45, 1e-38, 2.0**24, 2.0**24 + 2]),
    "x": (pa.float64(), [*_NEAR_ZERO, _DOUBLE_MOST, -_DOUBLE_MOST, 1e308, -1e308, 5e-324, 1e-300, 2.0**53, 3e38]),
    "cents": (pa.decimal128(5, 2), [Decimal(n).scaleb(-2) for n in (0, 1, -1, 150, 99_999, -99_999)]),
    "whole": (
        pa.decimal128(38, 0),
        [*map(Decimal, (0, 1, -5, 2**63)), _NINES, _NINES.copy_negate()],
    ),
    "fine": (
        pa.decimal128(38, 18),
        [Decimal(0), Decimal("1e-18"), Decimal("-1e-18"), _FINE_NINES, _FINE_NINES.copy_negate(), Decimal(1)],
    ),
    "day": (pa.date32(), [0, 1, -1, 2**31 - 2, 2**31 - 1, -(2**31) + 1, -719_162, 2_932_896]),
    "t": (TIME, [0, 1, -1, 2**62, 2**63 - 2, -(2**63) + 2, -62_135_596_800_000_000, 253_402_300_799_999_999]),
    "clock": (pa.timestamp("us"), [0, 1, -1, 2**62, 2**63 - 1, -(2**63) + 1]),
    "span": (pa.duration("us"), [0, 1, -1, 1_000_000, 2**62, 2**63 - 1, -(2**63) + 1]),
    "s": (pa.string(), ["", "a", "b", "1", "-7", "aaaaaaaa", "aaaaaaaab", "é"]),
    "flag": (pa.bool_(), [True, False]),
}
SCHEMA = pa.schema([("ts", TIME), *((name, kind) for name, (kind, _) in EDGES.items())])
_WHOLE = ("tiny", "small", "i", "big")
_NUMBERS = (*_WHOLE, "f", "x", "cents", "whole", "fine")
_CONSTANTS = (
    *("0", "1", "3", "-2", "127", "128", "0.5", "2147483647", "9223372036854775807L", "-9223372036854775808L"),
    *(
        "1e0",
        "7e38",
        "-7e38",
        "3.4028234663852886e38",
        "1.7976931348623157e308",
        "1e300",
        "5e-324",
        "9.99",
        "CAST(1 AS FLOAT)",
    ),
    "CAST(3e38 AS FLOAT)",
)
_COMPARISONS = ("<", "<=", ">", ">=", "=")


def stream(name: str) -> Stream:
    return Stream(name, SCHEMA, "ts", 0)


@st.composite
def _number(draw: st.DrawFn, side: str) -> str:
    column = f"{side}.{draw(st.sampled_from(_NUMBERS))}"
    form = draw(
        st.sampled_from(["{0}"] * 4 + ["{0} + {1}", "{0} - {1}", "{1} + {0}", "CAST({0} AS {2})", "-{0}", "{0} * 2"])
    )
    kinds = st.sampled_from(["BIGINT", "FLOAT", "DOUBLE", "DECIMAL(20,0)", "DECIMAL(38,6)", "INT"])
    text = form.format(column, draw(st.sampled_from(_CONSTANTS)), draw(kinds))
    return text if text == column or text.startswith("CAST") else f"({text})"


@st.composite
def conjuncts(draw: st.DrawFn) -> str:
    """One comparison: those that are searched by, and some that only can fail."""
    one, other = draw(_number("a")), draw(_number("b"))
    if draw(st.booleans()):
        one, other = other, one
    compared, bound, further = (draw(st.sampled_from(them)) for them in (_COMPARISONS, _CONSTANTS, _CONSTANTS))
    alike = draw(st.sampled_from([name for name in EDGES if name not in _NUMBERS]))
    numbers = [
        f"{one} {compared} {other}",
        f"{one} - {other} {compared} {bound}",
        f"{bound} {compared} {one} - {other}",
        f"abs({one} - {other}) {compared} {bound}",
        f"{one} - {other} + {further} {compared} {bound}",
        f"{one} BETWEEN {other} - {bound} AND {other} + {further}",
        f"CAST({one} - {other} AS DOUBLE) {compared} {bound}",
    ]
    others = [
        f"a.{alike} {compared} b.{alike}",
        f"a.t {compared} b.t + INTERVAL 1 SECOND",
        f"a.clock - INTERVAL 3 HOURS {compared} b.clock",
        f"a.t - b.t {compared} INTERVAL 5 SECONDS",
        f"a.day + 1 {compared} b.day",
        f"a.day - b.day {compared} INTERVAL 1 DAY",
        f"a.span - b.span {compared} INTERVAL 1 SECOND",
        f"CAST(a.s AS INT) {compared} b.i",
        "a.x / b.x > 1",
        "6 / a.i < b.x",
        "a.i % b.i = 0",
        "a.i % 2 = 0",
        "a.big * b.big > 0",
        f"a.tiny * 2 {compared} b.tiny",
        "a.flag",
        "a.ts - b.ts < INTERVAL 1 SECOND",
    ]
    return draw(st.sampled_from(numbers if draw(st.integers(0, 2)) else others))


def conditions() -> st.SearchStrategy[str]:
    return st.lists(conjuncts(), min_size=1, max_size=3).map(" AND ".join)


@st.composite
def keyed_conditions(draw: st.DrawFn) -> str:
    """An equality of two columns, or of what casts make of them, and perhaps more."""
    one, other = (draw(st.sampled_from(list(EDGES))) for _ in range(2))
    if draw(st.booleans()):
        other = one
    ends = [f"a.{one}", f"b.{other}"]
    kind = draw(st.sampled_from([None, None, "DOUBLE", "FLOAT", "DECIMAL(38,6)", "DECIMAL(20,0)", "BIGINT"]))
    if kind is not None:
        ends = [f"CAST({end} AS {kind})" for end in ends]
    more = draw(st.sampled_from(["", "a.i - b.i < 3 AND ", "a.x > b.x AND "]))
    return f"{more}{ends[0]} = {ends[1]}"


@st.composite
def tables(draw: st.DrawFn, where: str) -> pa.RecordBatch:
    """A few rows near in time, no two of one time, with edges and nulls in the columns that a condition reads."""
    count = draw(st.integers(1, 4))
    columns = [pa.array(range(count), TIME)]
    for name, (kind, values) in EDGES.items():
        drawn = st.just([None] * count)
        if re.search(rf"\b[ab]\.{name}\b", where):
            drawn = st.lists(st.sampled_from([*values, *values, None]), min_size=count, max_size=count)
        columns.append(pa.array(draw(drawn), kind))
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def row(**values: object) -> pa.RecordBatch:
    """One row with these values; what is not given is null, and the event time zero."""
    columns = [
        pa.array([values.get(name, 0 if name == "ts" else None)], SCHEMA.field(name).type) for name in SCHEMA.names
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
