"""Files as Sluice finds and reads them, against Spark's own file source and readers.

CSV and JSON files read as Arrow have the rows of Spark's reader with the same options and schema, equal as whole rows.

What Spark's writer writes has to be read. What is made by hand may be refused; if it is not, it is read as Spark reads
it. Many random files go through each of Spark's reads.
"""

from __future__ import annotations

import bz2
import gzip
import json
import math
import os
import random
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from sluice.model.errors import StorageError
from sluice.sources.file_options import FileOptions, options_for_spark
from sluice.sources.file_search import FileSearch
from sluice.sources.file_tracker import FileTracker
from sluice.sources.files import read_file
from sluice.sources.listing_options import ListingOptions
from sluice.spark.types import spark_schema

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("compiled_queries")]

UTC = timezone.utc
Row = tuple[Any, ...]
TEXTS = pa.schema([("a", pa.string()), ("b", pa.string()), ("c", pa.string())])
TYPED = pa.schema(
    [("i", pa.int64()), ("s", pa.int16()), ("d", pa.float64()), ("f", pa.float32()), ("o", pa.bool_()),
     ("n", pa.decimal128(12, 3)), ("y", pa.date32()), ("t", pa.timestamp("us", "UTC")), ("l", pa.timestamp("us")),
     ("x", pa.string())]
)  # fmt: skip
NESTED = TYPED.append(pa.field("q", pa.list_(pa.struct([("v", pa.float64()), ("w", pa.string())]))))
CSV_OPTIONS: list[dict[str, str]] = [
    {},
    {"escape": '"'},
    {"sep": "\t", "nullValue": "NA"},
    {"sep": ";", "quote": "'", "header": "false"},
    {"quote": "", "nullValue": "null"},
    {"escape": "/", "sep": "|", "enforceSchema": "true"},
]
PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".deflate": zlib.compress,
    ".zst": lambda raw: pa.Codec("zstd").compress(raw, asbytes=True),
}
VALUES = ["", "NA", "null", '"', "'", "\\", '\\"', "\\\\", "/", '/"', ",", ";", "\t", "|", " ", "a", "é", "1", "-0",
          "+1", "0x1F", "1e5", "NaN", "Inf", "inf", "true", "TRUE", "2024-01-01", "2024-1-1", "2024-03-31 02:30:00",
          "2024-01-01T10:00:00.123456789Z", "2024-01-01 10:00:00-18:00", "2024-01-01 10:00Z", "#x", "\ufeff", "\u2028",
          "\x00", "\x0b"]  # fmt: skip


def comparable(value: Any) -> Any:
    """A value that equals itself: NaN does not, and a struct of Spark is a Row."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else (value, math.copysign(1, value))
    if isinstance(value, dict):
        return tuple(comparable(v) for v in value.values())
    if isinstance(value, list | tuple):
        return tuple(comparable(v) for v in value)
    return value


def as_numbers(table: pa.Table) -> list[dict[str, Any]]:
    """The rows, with times and dates as numbers: those of the year 0 are none in Python."""
    for i, field in enumerate(table.schema):
        if pa.types.is_temporal(field.type):
            number = pa.int32() if pa.types.is_date(field.type) else pa.int64()
            table = table.set_column(i, field.name, table.column(i).cast(number))
    return list(table.to_pylist())


class Oracle:
    """Files waiting to be read by Spark, by format, options and schema: one read each for all of them."""

    def __init__(self, spark: Any, directory: Path) -> None:
        self.spark, self.directory, self.number = spark, directory, 0
        self.waiting: dict[tuple[str, str, pa.Schema], list[tuple[Path, Counter[Row]]]] = defaultdict(list)
        self.refused = 0

    def add(self, raw: bytes, format: str, schema: pa.Schema, options: dict[str, str], suffix: str = "") -> None:
        """Read a file as Arrow; if it is not refused, Spark has to read the same."""
        self.number += 1
        path = self.directory / f"{self.number:05d}.{format}{suffix}"
        path.write_bytes(PACK[suffix](raw))
        self.compare(path, format, schema, options, may_be_refused=True)

    def accepts(self, raw: bytes, format: str, schema: pa.Schema, options: dict[str, str]) -> bool:
        path = self.directory / f"0.{format}"
        path.write_bytes(raw)
        try:
            return sum(b.num_rows for b in read_file(str(path), format, schema, options)) > 0
        except StorageError:
            return False

    def compare(
        self, path: Path, format: str, schema: pa.Schema, options: dict[str, str], may_be_refused: bool = False
    ) -> None:
        assert not FileOptions.of(format, options).for_columns(format, schema).why_spark
        try:
            batches = list(read_file(str(path), format, schema, options))
        except StorageError:
            if not may_be_refused:
                raise
            self.refused += 1
            return
        rows = Counter(comparable(tuple(row.values())) for row in as_numbers(pa.Table.from_batches(batches, schema)))
        self.waiting[format, json.dumps(options, sort_keys=True), schema].append((path, rows))

    def check(self) -> int:
        """Have Spark read everything; returns how many files that were."""
        count = 0
        for (format, text, schema), files in self.waiting.items():
            options = options_for_spark(format, json.loads(text))
            # malformed lines are refused here, so none may reach this point: Spark would stop at them
            frame = self.spark.read.format(format).schema(spark_schema(schema)).options(**options)
            table = frame.load([str(path) for path, _ in files]).selectExpr("_metadata.file_name AS __file", "*")
            found: dict[str, Counter[Row]] = defaultdict(Counter)
            for row in as_numbers(table.toArrow()):
                found[row.pop("__file")][comparable(tuple(row.values()))] += 1
            for path, rows in files:
                assert found[path.name] == rows, (path.read_bytes()[:500], options)
            count += len(files)
        self.waiting.clear()
        return count


@pytest.fixture
def oracle(spark: Any, tmp_path: Path) -> Iterator[Oracle]:
    yield Oracle(spark, tmp_path)


def hand_made_csv(rows: list[list[str]], options: dict[str, str], style: random.Random) -> bytes:
    """Fields as they are, or quoted with their quotes escaped, doubled or left alone; lines ended in any way."""
    sep, quote, escape = options.get("sep", ","), options.get("quote", '"'), options.get("escape", "\\")
    out = []
    for row in rows:
        fields = []
        for value in row:
            how = style.randrange(5)
            if how < 2 or not quote:
                fields.append(value)
            elif how < 4:
                inner = value.replace(escape, escape * 2) if escape != quote else value
                fields.append(quote + inner.replace(quote, escape + quote) + quote)
            else:
                fields.append(quote + value + quote)
        out.append(sep.join(fields) + style.choice(["\n", "\n", "\n", "\r\n", "\r", "\n\n", "\n \t\n"]))
    header = sep.join(["a", "b", "c"]) + "\n" if options.get("header") != "false" else ""
    return (style.choice(["", "", "\ufeff"]) + header + "".join(out)).encode()


def test_hand_made_csv_is_read_as_spark_reads_it_or_refused(oracle: Oracle) -> None:
    texts = st.lists(st.one_of(st.sampled_from(VALUES), st.text("ab\\\"',; \t|/", max_size=6)), min_size=3, max_size=3)

    @seed(1)
    @settings(max_examples=250, database=None)
    @given(st.lists(texts, max_size=3), st.sampled_from(CSV_OPTIONS), st.sampled_from(list(PACK)), st.randoms())
    def write(rows: list[list[str]], options: dict[str, str], suffix: str, style: random.Random) -> None:
        oracle.add(hand_made_csv(rows, options, style), "csv", TEXTS, options, suffix)

    write()
    read = oracle.check()
    assert read > 100, f"{oracle.refused} of {oracle.number} files were refused"


@pytest.mark.parametrize("options", [{}, {"escape": '"'}, {"escape": "/"}, {"quote": ""}], ids=str)
def test_a_nul_is_read_as_spark_reads_it_or_refused(oracle: Oracle, options: dict[str, str]) -> None:
    """To Spark it is a quote where there is no other, and nothing in a quoted last field whose quotes are doubled."""
    for line in ("x,y,\0", "x,\0,z", 'x,y,"\0"', 'x,"\0",z', 'x,y,"a\0"', 'x,y,"\0a"', 'x,y,"\0"""', 'x,"y",\0'):
        for end in ("\n", "\r\n", ""):
            oracle.add(f"a,b,c\n{line}{end}".encode(), "csv", TEXTS, options)
    assert (oracle.check() > 0) == (options != {"quote": ""})


def test_values_are_read_as_spark_reads_them_or_refused(oracle: Oracle) -> None:
    samples = [
        *VALUES, "007", "9223372036854775808", "32768", "1.", ".5", "-.5e-3", "1e400", "1d", "0x1p3", "Infinity",
        "-Inf", "-Infinity", "INF", "+-1", "1.5", "1.555", "1,5", "123456789012", "1E2", "tRuE", "t", "0", "0000-01-01",
        "0001-01-01", "9999-12-31 23:59:59.999999", "2024-02-30", "20240101", "2024", "2024-01-01 10",
        "2024-01-01 10:00", "2024-01-01 24:00:00", "2024-01-01 10:00:60", "2024-01-01 10:00:00+0100",
        "2024-01-01 10:00:00+01",
        "2024-01-01T10:00:00+18:01", "1883-01-01 00:00:00", "1900-01-01 00:00:00", "2024-10-27 02:30:00", "10:00:00",
        "1.00000017881393432617187499", "3.4028236e38", "1e-46", "16777217", "9007199254740993", "4.9e-324", "-0.0",
        "2011-12-30 10:00:00", "1704103200",
    ]  # fmt: skip
    lines: dict[str, dict[str, list[str]]] = {"csv": defaultdict(list), "json": defaultdict(list)}
    for i, field in enumerate(TYPED):
        for text in samples:
            if text == "\ufeff":  # where it begins a file it is not part of its text
                continue
            if not set(text) & set(',"\n'):
                lines["csv"][field.name].append("," * i + text + "," * (len(TYPED) - i - 1) + "\n")
            if text == "-0":  # in any column, it has numbers looked at that would pass
                continue
            lines["json"][field.name] += [f'{{"{field.name}": {value}}}\n' for value in (text, json.dumps(text))]
    for format, by_column in lines.items():
        accepted: dict[str, list[str]] = {}
        for zone in ("UTC", "Europe/Berlin", "Pacific/Apia"):
            options = {"timeZone": zone} | ({"header": "false"} if format == "csv" else {})
            for name, some in by_column.items():
                if name not in accepted or pa.types.is_temporal(TYPED.field(name).type):  # others are in every zone's
                    accepted[name] = [line for line in some if oracle.accepts(line.encode(), format, TYPED, options)]
            assert 100 < sum(map(len, accepted.values())) < sum(map(len, by_column.values()))
            path = oracle.directory / f"{zone.replace('/', '-')}.{format}"
            path.write_text("".join(line for some in accepted.values() for line in some))
            oracle.compare(path, format, TYPED, options)
    assert oracle.check() == 6


def test_hand_made_json_is_read_as_spark_reads_it_or_refused(oracle: Oracle) -> None:
    numbers = st.one_of(st.integers(-(2**65), 2**65), st.floats(), st.sampled_from([0, -0.0, 1e-320, 5e22]))
    scalars = st.one_of(st.none(), st.booleans(), numbers, st.text(max_size=5), st.sampled_from(VALUES))
    items = st.lists(st.one_of(st.none(), st.fixed_dictionaries({}, optional={"v": numbers, "w": st.text(max_size=3)})),
                     max_size=3)  # fmt: skip
    well = {"i": st.integers(-5, 5), "d": numbers, "x": st.text(max_size=5), "q": items, "z": scalars,
            "o": st.booleans(), "y": st.dates().map(str)}  # fmt: skip
    ill = dict.fromkeys(NESTED.names, scalars)
    rows = st.lists(st.one_of(*(st.fixed_dictionaries({}, optional=o) for o in (well, well, ill))), max_size=3)
    breaks = st.sampled_from(["\n", "\n", "\r\n", "\n\n", " ", "\n \t\n", ""])

    @seed(2)
    @settings(max_examples=250, database=None)
    @given(rows, st.booleans(), breaks, st.sampled_from(["", "", ".gz"]))
    def write(rows: list[dict[str, Any]], ascii_only: bool, line_break: str, suffix: str) -> None:
        text = "".join(json.dumps(row, ensure_ascii=ascii_only) + line_break for row in rows) + "\n"
        oracle.add(text.encode(errors="replace"), "json", NESTED, {}, suffix)

    write()
    assert oracle.check() > 100, f"{oracle.refused} of {oracle.number} files were refused"


@pytest.mark.parametrize(
    "options", [*CSV_OPTIONS, {"compression": "gzip"}, {"quoteAll": "true"}, {"json": "yes"}], ids=str
)
def test_what_spark_writes_is_read(oracle: Oracle, options: dict[str, str]) -> None:
    style = random.Random(str(options))
    format = "json" if options.pop("json", None) else "csv"
    options = {"header": "true", **options} if format == "csv" else {}
    reading = {k: v for k, v in options.items() if k not in ("compression", "quoteAll")}

    def value(field: pa.Field) -> Any:
        if style.random() < 0.15:
            return None
        samples: dict[str, Callable[[], Any]] = {
            "i": lambda: style.getrandbits(63) - 2**62,
            "s": lambda: style.randrange(-(2**15), 2**15),
            "d": lambda: style.choice(
                [style.gauss(0, 1e9), style.random(), -0.0, math.nan, math.inf, -math.inf, 1e300]
            ),
            "f": lambda: style.choice([0.5, 1e10, -3.25]),
            "o": lambda: style.random() < 0.5,
            "n": lambda: Decimal(style.randrange(10**9)) / 1000,
            "y": lambda: date(1, 1, 1) + timedelta(days=style.randrange(3_600_000)),
            "t": lambda: datetime(1970, 1, 2, tzinfo=UTC) + timedelta(microseconds=style.getrandbits(51)),
            "l": lambda: datetime(1, 1, 1) + timedelta(microseconds=style.getrandbits(57)),
            "x": lambda: "".join(style.choice([v for v in VALUES if v not in ("\x00", "\x0b")]) for _ in range(3)),
            "q": lambda: [{"v": style.random(), "w": "x"}] * style.randrange(3),
        }
        return samples[field.name]()

    schema = NESTED if format == "json" else TYPED
    if options.get("quote") == "":  # with text in it that cannot be told from separators
        schema = pa.schema([f for f in schema if f.name != "x"])
    table = pa.Table.from_pylist([{f.name: value(f) for f in schema} for _ in range(500)], schema)
    out = oracle.directory / "written"
    casts = [f"CAST({f.name} AS {f.dataType.simpleString()}) {f.name}" for f in spark_schema(schema)]
    frame = oracle.spark.createDataFrame(table).selectExpr(*casts).coalesce(2)
    frame.write.options(**options).format(format).save(str(out))
    for path in out.iterdir():
        if path.name.startswith("part"):
            oracle.compare(path, format, schema, reading)
    assert oracle.check() > 0


TREES: dict[str, list[str]] = {
    "flat": ["a", "b", "c d", "e%20f", "é", "_hidden", ".hidden", "g._COPYING_", "_k=v", "sub/x", "x.gz"],
    "partitions": ["a", "day=1/b", "day=1/c", "day=2/sub/d", "day=2/_e", "_day=3/f", ".day=4/g"],
    "partitions below": ["x/day=1/a", "x/day=2/b"],
    "two levels": ["p=1/q=1/a", "p=1/q=2/b", "p=2/q=1/c"],
    "conflict": ["day=1/a", "hour=1/b"],
    "conflicting bases": ["a", "x/day=1/b"],
    "plain directories": ["x/a", "y/b", "y/z/c"],
}
"""Files by their paths; their times go by their places in the list, from the last to the first."""


def make_tree(root: Path, files: list[str]) -> None:
    for age, name in enumerate(files):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * (age + 1))
        os.utime(path, (1_700_000_000 - 10 * age,) * 2)


def epochs_by_spark(spark: Any, path: str, options: dict[str, Any]) -> list[set[str]] | None:
    """The paths of each micro-batch of Spark's file source; None if it fails."""
    schema = "path string, modificationTime timestamp, length long, content binary"
    reader = spark.readStream.format("binaryFile").schema(schema).options(**options)
    batches: list[set[str]] = []

    def note(batch: Any, number: int) -> None:
        batches.append({row.path.removeprefix("file:") for row in batch.select("path").collect()})

    try:
        frame = reader.load(path)
        query = frame.select("path").writeStream.foreachBatch(note).trigger(availableNow=True).start()
        query.awaitTermination()
    except Exception as problem:
        print(str(problem)[:1000])
        return None
    return batches


def epochs_by_tracker(path: str, options: dict[str, Any]) -> list[set[str]] | None:
    chosen = ListingOptions.of(options)
    tracker = FileTracker(FileSearch(path, chosen.name_filter, chosen.recursive), chosen)
    epochs = []
    try:
        while files := tracker.next_files():
            epochs.append({file.path for file in files})
            tracker.take(files)
    except StorageError:
        return None
    return epochs


CASES = [
    *((tree, "", {}) for tree in TREES),
    *(("flat", path, {"maxFilesPerTrigger": 2}) for path in ("*", "[ab]", "{a,b,_hidden}", "nothing*")),
    ("flat", "", {"maxFilesPerTrigger": 3, "latestFirst": "true"}),
    ("flat", "", {"maxBytesPerTrigger": 4}),
    ("flat", "", {"pathGlobFilter": "{a,*.gz}"}),
    ("flat", "", {"maxFilesPerTrigger": 1, "maxFileAge": "25s", "latestFirst": "false"}),
    ("flat", "", {"recursiveFileLookup": "true"}),
    ("partitions", "day=*", {"maxFilesPerTrigger": 1}),
    ("partitions", "{day=1,day=2}", {}),
    ("partitions", "day=2", {}),
    ("two levels", "*", {}),
    ("two levels", "p=1/*", {}),
    ("plain directories", "*", {}),
    ("plain directories", "*/*", {"fileNameOnly": "true"}),
]


@pytest.mark.parametrize(("tree", "path", "options"), CASES, ids=str)
def test_files_are_found_as_spark_finds_them(
    spark: Any, tmp_path: Path, tree: str, path: str, options: dict[str, Any]
) -> None:
    root = tmp_path / "root"
    make_tree(root, TREES[tree])
    where = f"{root}/{path}" if path else str(root)
    assert epochs_by_tracker(where, options) == epochs_by_spark(spark, where, options)


def test_what_a_sink_of_spark_has_written_is_found_by_its_lists(spark: Any, tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out put"
    source.mkdir()

    def write(number: int) -> None:
        (source / f"{number}.csv").write_text(f"{number}\n")
        writer = spark.readStream.schema("x int").csv(str(source)).writeStream.format("parquet")
        writer = writer.option("checkpointLocation", f"{tmp_path}/ck").trigger(availableNow=True)
        writer.start(str(out)).awaitTermination()

    spark.conf.set("spark.sql.streaming.fileSink.log.compactInterval", "2")
    try:
        chosen = ListingOptions()
        tracker, taken = FileTracker(FileSearch(str(out)), chosen), set[str]()
        for number in range(3):
            write(number)
            (out / f"stray-{number}.parquet").write_bytes(b"not a result")
            files = tracker.next_files()
            tracker.take(files)
            taken |= {file.path for file in files}
            assert taken == {
                row.path.removeprefix("file:") for row in spark.read.format("binaryFile").load(str(out)).collect()
            }
    finally:
        spark.conf.unset("spark.sql.streaming.fileSink.log.compactInterval")
