"""Streams joined with tables on Spark: DataFrames, files and functions, by both feeds, over restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from specs import TIME

from sluice import Flow, FlowError, QueryError, StorageError

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("nothing_stays")]


def arrive(root: Path, *keys: str | None) -> None:
    """A file of rows with these keys, the number of the file in n."""
    directory = root / "in"
    directory.mkdir(exist_ok=True)
    number = len(list(directory.iterdir()))
    times = pa.array([number * 1_000_000] * len(keys), TIME)
    numbers = pa.array([number] * len(keys), pa.int32())
    pq.write_table(
        pa.table({"k": pa.array(keys, pa.string()), "ts": times, "n": numbers}), directory / f"{number}.parquet"
    )


def stream_of(spark: Any, flow: Flow, root: Path, by_spark: bool) -> Any:
    if not by_spark:
        return flow.readFiles("a", str(root / "in"), eventTime="ts", delay="5 seconds")
    frame = spark.readStream.schema("k string, ts timestamp, n int").parquet(str(root / "in"))
    return flow.readStream("a", frame, eventTime="ts", delay="5 seconds")


def shown(spark: Any, root: Path) -> list[tuple]:
    rows = spark.read.parquet(str(root / "out")).collect()
    return sorted(((r.a_n, r.a_k, r.t_p) for r in rows), key=str)


@pytest.mark.parametrize("by_spark", [False, True])
def test_a_dataframe_that_changes_between_two_runs(spark: Any, tmp_path: Path, by_spark: bool) -> None:
    def run(content: str) -> None:
        flow = Flow(spark, name="lookups")
        table = flow.table("t", spark.sql(f"SELECT * FROM VALUES {content} AS t(k, p)"))
        joined = stream_of(spark, flow, tmp_path, by_spark).join(table, on="k", how="left")
        writer = joined.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "ck"))
        writer.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()

    arrive(tmp_path, "x", "y", None)
    run("('x', 1), ('x', 2), (NULL, 3)")
    arrive(tmp_path, "x", "y")
    run("('y', 4)")
    assert shown(spark, tmp_path) == [
        (0, "x", 1), (0, "x", 2), (0, "y", None), (0, None, None), (1, "x", None), (1, "y", 4),
    ]  # fmt: skip


def test_a_table_meets_state_windows_and_sql(spark: Any, tmp_path: Path) -> None:
    arrive(tmp_path, "x", "x", "y", "z")
    flow = Flow(spark, name="windows")
    stream_of(spark, flow, tmp_path, by_spark=False)
    flow.table("t", lambda: spark.createDataFrame([("x", "one"), ("y", "two")], "k string, p string"))
    text = """SELECT window.start, t.p, count(*) AS n FROM a JOIN t ON a.k = t.k
              GROUP BY window(a.ts, '1 second'), t.p"""
    for _ in range(8):
        arrive(tmp_path, "z")
    writer = flow.sql(text).writeStream.format("memory").queryName("counted").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    query.awaitTermination()
    assert sorted((r.p, r.n) for r in spark.table("counted").collect()) == [("one", 2), ("two", 1)]


def test_what_is_wrong_with_a_table_is_told_at_the_start(spark: Any, tmp_path: Path) -> None:
    arrive(tmp_path, "x")
    flow = Flow(spark, name="refused")
    rows = stream_of(spark, flow, tmp_path, by_spark=False)
    with pytest.raises(
        FlowError, match=r"table 's' was given a streaming DataFrame; register that with flow\.readStream"
    ):
        flow.table("s", spark.readStream.format("rate").load())
    failing = flow.table("f", spark.sql("SELECT 'x' AS k, 1 / (id - 1) AS p FROM range(3)"))
    writer = rows.join(failing, on="k").writeStream.format("noop")
    with pytest.raises(QueryError, match=r"table 'f' cannot be read\. What Spark says of it"):
        writer.start()
    large = flow.table("l", spark.range(10_000).selectExpr("CAST(id AS string) AS k", "id AS p"), maxSize="1k")
    with pytest.raises(FlowError, match=r"table 'l' has 0\.\d MiB, .*more than maxSize"):
        rows.join(large, on="k").writeStream.format("noop").start()


@pytest.mark.parametrize("by_spark", [False, True])
def test_a_divided_table_is_state(spark: Any, tmp_path: Path, by_spark: bool) -> None:
    """A DataFrame and files, by both feeds: read once, and there for the next run."""
    pq.write_table(pa.table({"k": ["x", "y"], "q": [5, 6]}), tmp_path / "ref.parquet")

    def run() -> None:
        flow = Flow(spark, name="lookups")
        frame = spark.range(2_000).selectExpr("CASE WHEN id < 2 THEN 'x' ELSE CAST(id AS string) END AS k", "id AS p")
        table = flow.table("t", frame, divided=True)
        names = flow.table("u", str(tmp_path / "ref.parquet"), divided=True)
        rows = stream_of(spark, flow, tmp_path, by_spark)
        known = rows.join(names, on="k", how="semi").alias("known").join(names, on={"known": "a_k", "u": "k"})
        joined = rows.join(table, on="k", how="left")
        writers = [
            joined.writeStream.format("parquet").queryName("joined").option("path", str(tmp_path / "out")),
            known.writeStream.format("parquet").queryName("known").option("path", str(tmp_path / "known")),
        ]
        flow.start(*writers, availableNow=True, checkpointLocation=str(tmp_path / "ck"), sites=2).awaitTermination()

    arrive(tmp_path, "x", "7", "z", None)
    run()
    (tmp_path / "ref.parquet").rename(tmp_path / "gone.parquet")
    arrive(tmp_path, "1999", "y")
    pq.write_table(pa.table({"k": ["y"], "q": [0]}), tmp_path / "ref.parquet")
    run()
    assert shown(spark, tmp_path) == [
        (0, "7", 7), (0, "x", 0), (0, "x", 1), (0, "z", None), (0, None, None), (1, "1999", 1999), (1, "y", None),
    ]  # fmt: skip
    known = spark.read.parquet(str(tmp_path / "known")).collect()
    assert sorted((r.known_a_k, r.u_q) for r in known) == [("x", 5), ("y", 6)]
    assert not list((tmp_path / "ck" / "tables").glob("*"))


@pytest.mark.parametrize("by_spark", [False, True])
def test_a_query_is_refused_whose_table_tasks_cannot_read(spark: Any, tmp_path: Path, by_spark: bool) -> None:
    """By either feed the flow goes on as it was, and has the query once the file is whole."""
    path = tmp_path / "ref.parquet"
    pq.write_table(pa.table({"k": ["x", "y"], "p": [5, 6]}), path)
    whole = path.read_bytes()
    arrive(tmp_path, "x")
    flow = Flow(spark, name="refusing")
    rows = stream_of(spark, flow, tmp_path, by_spark)
    joined = rows.join(flow.table("t", str(path), divided=True), on="k", how="left")

    def writer(rows: Any, name: str) -> Any:
        return rows.writeStream.format("parquet").queryName(name).option("path", str(tmp_path / name))

    query = flow.start(writer(rows, "all"), checkpointLocation=str(tmp_path / "ck"), sites=2)
    try:
        query.processAllAvailable()
        path.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(
            StorageError, match=r"table 't' cannot be read: cannot read file '.*ref\.parquet' as parquet"
        ):
            query.add(writer(joined, "out"))
        arrive(tmp_path, "y")
        query.processAllAvailable()
        assert query.isActive and [one.name for one in query.queries()] == ["all"]
        path.write_bytes(whole)
        query.add(writer(joined, "out"))
        arrive(tmp_path, "x", "z")
        query.processAllAvailable()
        assert shown(spark, tmp_path) == [(2, "x", 5), (2, "z", None)]
        assert spark.read.parquet(str(tmp_path / "all")).count() == 4
    finally:
        query.stop()
