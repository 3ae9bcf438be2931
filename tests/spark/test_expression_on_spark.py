"""Expressions mean what they mean in Spark: the same texts over the same rows, evaluated by both."""

from __future__ import annotations

import math
import pickle
import re
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import one_in
from sluice.expressions import EvaluationError, compile_expression
from sluice.model.errors import FlowError

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("compiled_queries")]

NAN, INF = float("nan"), float("inf")
UTC = timezone.utc
INSTANTS = [  # clock changes in New York, leap days, the years Arrow and Java treat in special ways
    datetime(2020, 3, 8, 6, 59, 59, 999999, UTC),
    datetime(2020, 3, 8, 7, 30, tzinfo=UTC),
    datetime(2020, 11, 1, 5, 30, tzinfo=UTC),
    datetime(2020, 11, 1, 6, 30, tzinfo=UTC),
    datetime(2024, 2, 29, 12, tzinfo=UTC),
    datetime(2050, 7, 1, 0, 30, 0, 5, UTC),
    datetime(1969, 12, 31, 23, 59, 59, 500000, UTC),
    datetime(1883, 11, 18, 17, tzinfo=UTC),
    datetime(1, 1, 2, 5, tzinfo=UTC),
    datetime(9999, 12, 1, tzinfo=UTC),
]
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "tiny": (pa.int8(), [0, 1, -1, 7, 127, -128]),
    "i": (pa.int32(), [0, 1, -1, 2, 3, 7, -9]),
    "n": (pa.int64(), [0, 1, -5, 2**53 + 1, 40]),
    "f": (pa.float32(), [0.0, -0.0, 1.5, NAN, INF, 0.1, -2.25]),
    "x": (pa.float64(), [0.0, -0.0, 1.5, -2.5, NAN, INF, -INF, 2.675, 1e-5, 0.1, 1234567.125, 1e300, 5e-324]),
    "y": (pa.float64(), [0.0, -0.0, 1.0, 2.5, NAN, -INF, 0.145, -0.005]),
    "d": (pa.decimal128(10, 2), [Decimal(t) for t in ("0.00", "1.50", "-2.25", "99999999.99", "0.01", "-0.05")]),
    "e": (
        pa.decimal128(20, 6),
        [Decimal(t) for t in ("0", "1.5", "-2.25", "99999999999999.999999", "0.000001")],
    ),
    "s": (pa.string(), ["", "a", "A", "abc", "it's", "Straße", "ΑΣ", "a\nb", "a%b", "a_b", "x\r\n", "😀é", "  b "]),
    "p": (pa.string(), ["a", "b", "", "bc", "A", "ß", "😀"]),
    "digits": (pa.string(), ["1", " 2 ", "-3", "+4", "005", "\t0\n"]),
    "number": (pa.string(), ["1", " 2.5 ", "-3e2", "+.5", "5.", "inf", "NaN", "1d", "-Infinity"]),
    "day_text": (pa.string(), ["2020-01-01", "2020-1-2 x", "1999", "2020-02-29T", " 2021-05 "]),
    "time_text": (
        pa.string(),
        ["2020-01-01", "2020-1-2 3:4", "2020-03-08 02:30:00", "2020-11-01 01:30:00.5", " 1999-12 "],
    ),
    "zoned": (pa.string(), ["2020-01-01T05:00:00Z", "2020-01-01 05:00:00.123456789+02:00", "2050-07-01 12:00:00"]),
    "b": (pa.bool_(), [True, False]),
    "c": (pa.bool_(), [True, False]),
    "day": (pa.date32(), [date(2020, 2, 29), date(1969, 12, 31), date(2020, 3, 8), date(2021, 1, 31), date(1, 1, 2)]),
    "ts": (pa.timestamp("us", "UTC"), INSTANTS),
    "us": (pa.timestamp("us", "UTC"), INSTANTS[::-1]),
    "local": (pa.timestamp("us"), [moment.replace(tzinfo=None) for moment in INSTANTS]),
    "o": (pa.struct({"x": pa.int32(), "City": pa.string()}), [{"x": 1, "City": "a"}, {"x": None, "City": None}]),
    "a": (pa.list_(pa.int32()), [[1, 2], [3, None, 5]]),
}


def rows(count: int) -> pa.Table:
    """Every value of every column, with others in every combination and nulls in between."""
    arrays = {}
    for place, (name, (type_, pool)) in enumerate(COLUMNS.items()):
        pool = [*pool, None]
        arrays[name] = pa.array([pool[(row * (place + 1) + row // 7) % len(pool)] for row in range(count)], type_)
    return pa.table(arrays)


@pytest.fixture(params=["UTC", "America/New_York"])
def zone(request: Any, spark: Any) -> Iterator[str]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark.conf.set("spark.sql.session.timeZone", before)


def frame(spark: Any, table: pa.Table) -> Any:
    """The table in Spark; a local time travels as text, as Spark would take it for an instant."""
    place = table.schema.get_field_index("local")
    sent = table.set_column(place, "local", table["local"].cast(pa.string()))
    casts = {"local": "CAST(local AS timestamp_ntz) AS local"}
    return spark.createDataFrame(sent).selectExpr(*(casts.get(name, name) for name in table.schema.names))


def on_spark(spark: Any, table: pa.Table, texts: Sequence[str]) -> list[Any]:
    """What Spark yields for each text: an array, or the error it raises."""
    try:
        result = frame(spark, table).selectExpr(*(f"{text} AS c{i}" for i, text in enumerate(texts))).toArrow()
        return [column.combine_chunks() for column in result.columns]
    except Exception as error:
        if len(texts) == 1:
            return [error]
        half = len(texts) // 2
        return on_spark(spark, table, texts[:half]) + on_spark(spark, table, texts[half:])


def here(table: pa.Table, text: str, zone: str) -> Any:
    def resolve(stream: str | None, column: str) -> str:
        if stream is not None or column not in table.schema.names:
            raise FlowError(f"no column {column}")
        return column

    expression = compile_expression(text, resolve, table.schema, time_zone=zone)
    try:
        return pickle.loads(pickle.dumps(expression)).evaluate(table)
    except EvaluationError as error:
        return error


def plain(array: pa.Array) -> list[Any]:
    """Values that compare as they should: NaN with itself, zeros with their sign, moments as numbers."""
    if pa.types.is_temporal(array.type):
        array = array.cast(pa.int32() if pa.types.is_date(array.type) else pa.int64())
    return [
        ("NaN" if math.isnan(v) else (v, math.copysign(1, v))) if isinstance(v, float) else v for v in array.to_pylist()
    ]


def same_type(left: pa.DataType, right: pa.DataType) -> bool:
    if pa.types.is_timestamp(left) and pa.types.is_timestamp(right):
        return (left.tz is None) == (right.tz is None)
    return bool(left == right)


def assert_same(spark: Any, table: pa.Table, texts: Sequence[str], zone: str = "UTC") -> None:
    wrong = []
    for text, theirs in zip(texts, on_spark(spark, table, texts), strict=True):
        ours = here(table, text, zone)
        if isinstance(ours, Exception) or isinstance(theirs, Exception):
            agree = isinstance(ours, Exception) and isinstance(theirs, Exception)
        else:
            agree = same_type(ours.type, theirs.type) and plain(ours) == plain(theirs)
        if not agree:
            wrong.append(f"{text}\n  here:  {str(ours)[:2000]}\n  Spark: {str(theirs)[:2000]}")
    assert not wrong, "\n".join(wrong)


NUMBERS = ["tiny", "i", "n", "f", "x", "y", "d", "e", "2.5", "NULL"]
COMPARISONS = [f"{a} {op} {b}" for op in ("<", "=", "<=>") for a, b in product(["i", "f", "y", "d"], NUMBERS)]
COMPARISONS += [f"x {op} y" for op in ("<=", "<>", ">", ">=")]
ARITHMETIC = [f"{a} {op} {b}" for op in "+-*" for a, b in product(["i", "d", "y", "f", "2.5", "3L"], repeat=2)]
DIVISION = [
    f"if({b} <> 0, {a} {op} {b}, NULL)" for op in "/%" for a, b in product(["i", "d", "x", "n"], ["i", "d", "y"])
]
DIVISION += ["if(i <> 0, n div i, NULL)", "if(d <> 0, e div d, NULL)", "if(i <> 0, 2.5 div i, NULL)"]
LOGIC = r"""b AND c; b OR c; NOT b AND c OR i > 0; b IS TRUE; b IS NOT FALSE; b IS NULL; b < c; b <=> c
i IN (1, 3, NULL); i NOT IN (1, 3); i IN (1, 2.5, n); s IN ('a', 'abc'); x IN (0D, 1.5D); f IN (0.1, 1.5)
day IN ('2020-02-29', '1969-12-31'); i = 0 OR i IN (1, 6 / i); i BETWEEN -2 AND 3; i NOT BETWEEN -2 AND 3.5
x BETWEEN y AND 100; day BETWEEN '2000-01-01' AND '2030-01-01'
CASE WHEN i > 0 THEN 'pos' WHEN i < 0 THEN 'neg' ELSE 'zero' END; CASE WHEN b THEN i WHEN c THEN d END
CASE i WHEN 1 THEN 'one' WHEN 2.0 THEN 'two' END; CASE WHEN i <> 0 THEN 10 / i WHEN b THEN 1 END
coalesce(i, tiny, 0); coalesce(d, i); coalesce(f, 1); coalesce(s, p, 'z'); if(b, i, x); if(b, s, NULL)
if(i = 0, NULL, 10 / i); nullif(i, 1); nullif(s, 'a'); nvl(s, 'none'); nvl2(s, 1, 2.5); isnull(s); isnotnull(x)
isnan(x); isnan(i); greatest(i, tiny, 3); least(x, y, 0D); greatest(x, y); greatest(d, i, e); least(s, p)
greatest(day, ts); least(ts, us, local); i IS DISTINCT FROM tiny; x IS NOT DISTINCT FROM y; digits = i
digits < 2; number > 1.0; day_text = day; time_text > ts; time_text = local; day > ts; day <= local; ts = local
'5' = i; b = 'true'; ts < '2020-03-08 02:30:00'; ts >= '2020-11-01 01:30:00' AND ts <= '2050-06-01T00:00:00Z'
o.x = 1; o.city = 'a'; o['x']; o["City"]; a[0]; i < 0 OR a[i % 2] IS NULL; element_at(a, -1); size(a)
i <> 0 AND b AND 6 % i = 0
i = 0 OR NOT b OR 6 % i = 0; -i + 3; -d; - x; -(-i); +i; abs(i); abs(x); abs(d); NULL = 1; 'lit'; 1.50
-2147483648; 5L + 1.5; - (5) + 1.5; 1 + i * 2 - 3 % 2 > i AND NOT i = 5; i + 1 IN (2, 3) AND b
s = "it's" OR s = 'it''s'; b = c IS NULL"""
TEXT = r"""s LIKE 'a%'; s LIKE '%b'; s LIKE 'a_b'; s LIKE ''; s LIKE 'a\%b'; s NOT LIKE '%ß%'; s ILIKE 'A%B'
s LIKE '😀_'; s LIKE 'a!_b' ESCAPE '!'; s RLIKE '^a'; s RLIKE 'a$'; s RLIKE 'x$'; s RLIKE '^a.b$'
s RLIKE '[^a-c]'; s RLIKE 'a|b$'; s RLIKE '\\s'; s RLIKE '\\S+$'; s RLIKE '(a|A)b?c*'; s RLIKE '\\w{2,3}'
s RLIKE '[\\s_]'; s RLIKE '^..$'; s RLIKE '\\W'; upper(s); lower(s); length(s); trim(s); ltrim(s); rtrim(s)
btrim(s, 'a'); trim(BOTH 'ac' FROM s); char_length(i); substring(s, 0); substring(s, 2); substring(s, -2)
replace(s, 'a', 'bb'); replace(s, ''); split_part(s, 'a', 1); split_part(s, 'a', -1); split_part(s, 'b', 3)
regexp_extract(s, '(a|b)+(c?)'); regexp_extract(s, '(^|a)([^b]*)b', 2); regexp_extract(s, '[bc]', 0)
substring(s, 2, 1); substring(s, -5, 4); substr(s, 0, 2); substr(s, 2, -1); startswith(s, p); endswith(s, p)
contains(s, p); contains(s, 'a'); s || p; s || i || d || day || b; concat(s, '-', ts); CAST(ts AS string)
CAST(local AS string); CAST(d AS string); CAST(digits AS int); CAST(digits AS decimal(5,1))
CAST(number AS double); CAST(number AS float); CAST(time_text AS timestamp); CAST(time_text AS timestamp_ntz)
CAST(day_text AS date); CAST('1.255' AS decimal(5,2)); s < p; s <=> p"""
MATHS = r"""floor(d); ceil(e); floor(i); if(abs(x) < 1e15 OR isnan(x), floor(x), 1); if(abs(y) < 9, ceil(y), 1)
round(d); round(e, 2); round(n, 2); round(x); round(x, 2); round(y, 2); round(y * 1.0015D, 3); round(x, -2)
sqrt(x); sign(y); if(abs(x) < 1e9, CAST(x AS decimal(20,2)), NULL)
if(abs(x) < 1e9, CAST(x AS decimal(30,10)), NULL); d * e; e * e; CAST(y > 0 AS int)
if(abs(x) < 100, CAST(x AS tinyint), NULL); CAST(d AS int); CAST(e AS double); CAST(e AS float)
CAST(n AS double); CAST(n AS float); CAST(i AS boolean); CAST(d AS decimal(9,0)); CAST(e AS decimal(30,3))
mod(i, 3); if(e <> 0, d / e, NULL); if(i <> 0, e / i, NULL); n * e; x * y + f; f * f; tiny * 1.5
CAST(f AS double); exp(i); ln(x); log(2, n); log10(d); power(y, 2); pow(i, y)"""
TIME = r"""ts + INTERVAL 1 DAY; ts - INTERVAL 36 HOURS; ts + INTERVAL 1 MONTH; ts - INTERVAL '1 day 2 hours'
INTERVAL 1 WEEK + ts; ts - INTERVAL 1 MINUTE 30 SECONDS; ts + INTERVAL '1.5' SECOND; local + INTERVAL 2 YEARS
day + INTERVAL 1 DAY; day - INTERVAL 36 HOURS; day + INTERVAL 1 MONTH; day + i; 1 + day; ts - us; ts - day
day - local; ts - us > INTERVAL 5 SECONDS; ts - us BETWEEN INTERVAL -30 DAYS AND INTERVAL 30 DAYS
ts + (us - ts); day - day; CAST(ts AS date); CAST(day AS timestamp); CAST(ts AS timestamp_ntz)
CAST(local AS timestamp); CAST(ts AS bigint); unix_timestamp(ts); unix_seconds(ts); unix_millis(local)
timestamp_seconds(i); to_date(day_text); to_timestamp(time_text); to_timestamp(zoned); zoned > ts
datediff(ts, day); date_add(ts, i); date_sub(day, 3); add_months(day, i); greatest(ts - us, INTERVAL 1 DAY)
extract(hour FROM ts); if(b, ts, day); hour(ts) BETWEEN 9 AND 17"""
FIELDS = ["year", "quarter", "month", "day", "dayofyear", "dayofweek", "weekday", "weekofyear", "hour", "second"]
UNITS = ["year", "QUARTER", "MON", "week", "day", "hour", "minute", "second", "millisecond"]
CALENDAR = [f"{field}({c})" for field in FIELDS for c in ("ts", "local", "day")]
CALENDAR += [f"date_trunc('{unit}', {c})" for unit in UNITS for c in ("ts", "day")]


def split(texts: str) -> list[str]:
    return [text.strip() for line in texts.splitlines() for text in line.split("; ")]


@pytest.mark.parametrize(
    "texts",
    [COMPARISONS, ARITHMETIC + DIVISION, split(LOGIC), split(TEXT) + split(MATHS)],
    ids=["comparisons", "arithmetic", "logic", "text and maths"],
)
def test_listed_expressions(spark: Any, texts: list[str]) -> None:
    assert_same(spark, rows(60), texts)


def test_dates_and_timestamps_in_a_time_zone(spark: Any, zone: str) -> None:
    assert_same(spark, rows(40), split(TIME) + CALENDAR, zone)


def doubles(count: int) -> pa.Table:
    """Pairs of doubles: any bits, prices and small powers, next to one with large powers, and all pairs of edges."""
    rng = np.random.default_rng(11)
    bits = rng.integers(0, 2**64, (2, count), dtype=np.uint64).view(np.float64)
    prices = [np.round(rng.lognormal(3, 2, count), 2), rng.integers(-12, 13, count) / 2]
    near_one = [1 + rng.normal(0, 1e-3, count), rng.normal(0, 1e4, count)]
    powers = [rng.uniform(-745, 710, count), rng.normal(0, 3, count)]
    edges = [0.0, -0.0, 1.0, -1.0, 2.0, 3.0, -3.0, 10.0, 0.5, -0.5, INF, -INF, NAN, 5e-324, -5e-324, 2.0**-1022, 1e308]
    edges += [709.78, 709.79, -745.13, -745.14, 2.0**31, 2.0**53, 2.0**63, 1 - 2.0**-53, 1 + 2.0**-52, -1e-300, 1e16]
    pairs = np.array(list(product(edges, repeat=2))).T
    x, y = np.hstack([bits, prices, near_one, powers, pairs])
    return pa.table({"x": x, "y": y})


def test_exponentials_and_logarithms_to_the_last_binary_digit(spark: Any) -> None:
    table = doubles(20_000)
    texts = split(
        "exp(x); ln(x); log10(x); log(x, y); log(2, x); power(x, y); pow(x, 2); pow(x, 0.5); pow(2, x); sqrt(x)"
    )
    found = spark.createDataFrame(table).selectExpr(*(f"{text} AS c{i}" for i, text in enumerate(texts))).toArrow()
    for text, theirs in zip(texts, found.columns, strict=True):
        ours = here(table, text, "UTC")
        a, b = (array.to_numpy(zero_copy_only=False) for array in (ours, theirs.combine_chunks()))
        agree = (a.view(np.int64) == b.view(np.int64)) | (np.isnan(a) & np.isnan(b))
        agree &= np.array(ours.is_null()) == np.array(theirs.is_null())
        wrong = np.flatnonzero(~agree)
        assert not len(wrong), (text, len(wrong), table.slice(wrong[0], 1).to_pylist(), a[wrong[0]], b[wrong[0]])


@pytest.mark.parametrize(
    "text",
    split("1 / i; n % i; d / d; tiny + tiny; -tiny; n * n; CAST(n AS int); CAST(x AS int); CAST(s AS int); s > i")
    + split("CAST(s AS date); a[2]; CAST(e AS decimal(6,2)); floor(x); i = 0 AND 1 / i > 0"),
)
def test_what_raises_in_spark_raises_here(spark: Any, text: str) -> None:
    [theirs] = on_spark(spark, rows(60), [text])
    assert isinstance(theirs, Exception)
    assert isinstance(here(rows(60), text, "UTC"), EvaluationError)


# Random expressions, with parentheses only where a shape happens to have them. A letter in angle brackets stands for
# another expression: n for a number, t for a truth value; one with a digit is the same wherever it stands.
LEAVES = {
    "n": ["i", "x", "y", "d", "f", "length(s)", "2", "-1", "0.5", "1.25D", "NULL"],
    "t": ["b", "c", "i > 1", "s = 'a'", "x < y", "day = ts", "s LIKE 'a%'", "NOT NULL", "o.x IS NULL"],
}
SHAPES = {
    "n": split("""<n> + <n>; <n> - <n>; <n> * <n>; (<n> - <n>); (<n> + <n>) * 2; <n> / nullif(<n>, 0); abs(<n>); -(<n>)
    greatest(<n>, <n>); least(<n>, <n>); coalesce(<n>, <n>); nullif(<n>, <n>); CASE WHEN <t> THEN <n> ELSE <n> END
    if((<n1>) <> 0, (<n>) / (<n1>), <n>)"""),
    "t": split("""<t> AND <t>; <t> OR <t>; NOT <t> AND <t>; (<t> OR <t>); (<t>) = (<t>); (<t>) <=> (<t>); NOT (<t>)
    (<t>) IS NULL; <n> < <n>; <n> <= <n>; <n> = <n>; <n> <> <n>; <n> > <n>; <n> <=> <n>; <n> BETWEEN <n> AND <n>
    <n> IN (<n>, <n>); (<n1>) <> 0 AND (<n>) / (<n1>) > <n>; (<n1>) = 0 OR (<n>) % (<n1>) > <n>"""),
}


@st.composite
def expressions(draw: Any, kind: str, depth: int) -> str:
    shape = draw(st.sampled_from(LEAVES[kind] + SHAPES[kind] if depth else LEAVES[kind]))
    shared: dict[str, str] = {}

    def grown(place: re.Match[str]) -> str:
        if place[2] and place[0] in shared:
            return shared[place[0]]
        shared[place[0]] = str(draw(expressions(place[1], depth - 1)))
        return shared[place[0]]

    return re.sub(r"<([nt])(\d?)>", grown, shape)


def is_taken(text: str) -> bool:
    """Whether the text is one we take; some that Spark takes we refuse, in words."""
    try:
        here(rows(0), text, "UTC")
    except FlowError as error:
        assert any(
            reason in str(error) for reason in ("parentheses", "too long", "common type", "is not available", "void")
        )
        return False
    return True


@settings(max_examples=one_in(4))
@given(st.lists(expressions("t", 3) | expressions("n", 3), min_size=25, max_size=35, unique=True), st.data())
def test_random_expressions_on_random_rows(spark: Any, texts: list[str], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(60)))
    table = rows(60).take(order[:25])
    assert_same(spark, table, [text for text in texts if is_taken(text)])


def test_an_interval_of_time_is_a_duration(spark: Any) -> None:
    assert here(rows(3), "ts - us", "UTC").type == pa.duration("us")
    assert here(rows(1), "INTERVAL '1 day 2.5 seconds'", "UTC").to_pylist() == [timedelta(days=1, seconds=2.5)]
