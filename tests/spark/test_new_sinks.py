"""Sinks that need a session: partitions as Spark reads them, tables of the catalog, foreach, Delta, and a Postgres."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from specs import SECOND, TIME

from sluice import Flow, FlowError, QueryFailed

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("nothing_stays")]
POSTGRES = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"))), None)


def arrive(root: Path, *days: str | None) -> None:
    """A file of rows of these days, the number of the file in n."""
    (root / "in").mkdir(exist_ok=True)
    number = len(os.listdir(root / "in"))
    columns = {"day": pa.array(days, pa.string()), "ts": pa.array([number * SECOND] * len(days), TIME)}
    rows = pa.table({**columns, "n": pa.array([number] * len(days), pa.int32())})
    pq.write_table(rows, root / "in" / f"{number}.parquet")


def writer(spark: Any, root: Path) -> Any:
    flow = Flow(spark, name="sinks")
    rows = flow.readFiles("a", str(root / "in"), eventTime="ts", maxFilesPerTrigger=1)
    return rows.writeStream.trigger(availableNow=True).option("checkpointLocation", str(root / "ck"))


def shown(frame: Any) -> list[tuple]:
    return sorted(((r.n, r.day) for r in frame.collect()), key=str)


def test_spark_reads_partitions_and_a_query_goes_on_with_them(spark: Any, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    arrive(tmp_path, "mon", "a/b", None)
    writer(spark, tmp_path).format("parquet").partitionBy("day").start(out).awaitTermination()
    arrive(tmp_path, "mon")
    writer(spark, tmp_path).format("parquet").partitionBy(["day"]).start(out).awaitTermination()
    read = spark.read.parquet(out)
    assert shown(read) == [(0, "a/b"), (0, "mon"), (0, None), (1, "mon")]
    assert shown(read.where("day = 'mon'")) == [(0, "mon"), (1, "mon")]


def test_a_table_of_the_catalog(spark: Any, tmp_path: Path) -> None:
    spark.sql("DROP TABLE IF EXISTS shown_rows")
    location = Path(spark.conf.get("spark.sql.warehouse.dir").removeprefix("file:")) / "shown_rows"
    shutil.rmtree(location, ignore_errors=True)
    try:
        arrive(tmp_path, "mon", "tue")
        writer(spark, tmp_path).toTable("shown_rows", partitionBy="day").awaitTermination()
        assert shown(spark.table("shown_rows")) == [(0, "mon"), (0, "tue")]
        arrive(tmp_path, "mon")
        writer(spark, tmp_path).toTable("shown_rows", partitionBy="day").awaitTermination()
        assert shown(spark.table("shown_rows")) == [(0, "mon"), (0, "tue"), (1, "mon")]
        with pytest.raises(FlowError, match=r"is partitioned otherwise than these results: write partitionBy\('day'\)"):
            writer(spark, tmp_path).toTable("shown_rows")
    finally:
        spark.sql("DROP TABLE IF EXISTS shown_rows")
        shutil.rmtree(location, ignore_errors=True)


def test_a_table_that_does_not_fit_is_refused_and_none_is_made(spark: Any, tmp_path: Path) -> None:
    arrive(tmp_path, "mon")
    with pytest.raises(FlowError, match="toTable writes tables of parquet files, not of 'delta'"):
        writer(spark, tmp_path).format("delta").toTable("unmade")
    with pytest.raises(FlowError, match="partitionBy: the results have no column 'week'"):
        writer(spark, tmp_path).toTable("unmade", partitionBy="week")
    with pytest.raises(FlowError, match=r"the parquet sink appends, so it takes no outputMode\('complete'\)"):
        writer(spark, tmp_path).toTable("unmade", outputMode="complete")
    with pytest.raises(FlowError, match=r"the parquet sink needs option\('checkpointLocation', DIRECTORY\)"):
        writer(spark, tmp_path).option("checkpointLocation", "").toTable("unmade")
    with pytest.raises(FlowError, match="closeAtEnd says that no input comes after this run"):
        writer(spark, tmp_path).trigger(processingTime="1 second").option("closeAtEnd", True).toTable("unmade")
    with pytest.raises(FlowError, match="toTable takes the name of a table of the catalog, not ''"):
        writer(spark, tmp_path).toTable("")
    assert not spark.catalog.tableExists("unmade")
    spark.range(1).createOrReplaceTempView("a_view")
    with pytest.raises(FlowError, match="toTable writes tables of parquet files, and 'a_view' is one of view"):
        writer(spark, tmp_path).toTable("a_view")
    spark.catalog.dropTempView("a_view")
    spark.sql(f"CREATE TABLE elsewhere (day STRING, n BIGINT) USING parquet LOCATION '{tmp_path / 'elsewhere'}'")
    try:
        with pytest.raises(FlowError, match="'elsewhere' has other columns than these results: it has day string, n b"):
            writer(spark, tmp_path).toTable("elsewhere")
    finally:
        spark.sql("DROP TABLE elsewhere")


def test_names_that_spark_gives_are_read_where_they_are_written(spark: Any, tmp_path: Path) -> None:
    """Spark reads them in files and tables; a Delta table would take none of them."""
    arrive(tmp_path, "mon", "mon", "tue")
    arrive(tmp_path, "mon")
    flow = Flow(spark, name="sinks")
    flow.readFiles("a", str(tmp_path / "in"), eventTime="ts")
    counts = flow.sql("SELECT day, count(*), max(n + 1) FROM a GROUP BY day, window(ts, '1 second')")

    def written(name: str) -> Any:
        return counts.writeStream.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / name))

    out, spark_s_names = str(tmp_path / "out"), ["day", "count(1)", "max((n + 1))"]
    written("files").format("parquet").start(out).awaitTermination()
    written("memory").format("memory").queryName("counted").start().awaitTermination()
    spark.sql("DROP TABLE IF EXISTS counted_days")
    try:
        written("table").toTable("counted_days").awaitTermination()
        for frame in (spark.read.parquet(out), spark.table("counted"), spark.table("counted_days")):
            assert frame.columns == spark_s_names
            assert sorted(map(tuple, frame.where("`count(1)` > 0").collect())) == [("mon", 2, 1), ("tue", 1, 1)]
    finally:
        spark.sql("DROP TABLE IF EXISTS counted_days")
    for chosen, refused in ((counts, r"count\(1\)"), (counts.select("day AS `a b`"), "a b")):
        delta = chosen.writeStream.format("delta").option("checkpointLocation", str(tmp_path / "delta"))
        with pytest.raises(FlowError, match=f"a Delta table takes no column named '{refused}'.*another one with AS"):
            delta.start(str(tmp_path / "delta_table"))
    assert not (tmp_path / "delta_table").exists()


def test_columns_that_nobody_could_read_are_refused(spark: Any, tmp_path: Path) -> None:
    arrive(tmp_path, "mon")
    rows = Flow(spark, name="sinks").readFiles("a", str(tmp_path / "in"), eventTime="ts")
    alike = rows.select("n", "day", "n + 1 AS Day").writeStream.option("checkpointLocation", str(tmp_path / "ck"))
    for told in (alike.format("parquet"), alike.format("memory").queryName("alike")):
        with pytest.raises(FlowError, match="the results have columns 'day' and 'Day', and Spark reads no files in"):
            told.start(str(tmp_path / "out"))
    spans = rows.select("n", "INTERVAL 1 DAY AS span").writeStream.format("delta").partitionBy("n")
    with pytest.raises(
        FlowError, match=r"no type for the result column 'span', which is duration\[us\]; cast it, or lea"
    ):
        spans.option("checkpointLocation", str(tmp_path / "ck")).start(str(tmp_path / "out"))
    with pytest.raises(FlowError, match=r"select needs columns.*select\('\*'\) for all"):
        rows.select()


def test_foreach_has_each_row(spark: Any, tmp_path: Path) -> None:
    class Recorder:
        """Writes what it is handed to a file of its own for each partition."""

        def __init__(self, root: Path) -> None:
            self.root = str(root)

        def open(self, partition: int, epoch: int) -> bool:
            self.file, self.lines = Path(self.root) / f"{epoch}-{partition}", []
            return True

        def process(self, row: Any) -> None:
            self.lines.append(f"{row.n} {row.day}\n")

        def close(self, error: Exception | None) -> None:
            self.file.write_text("".join([*self.lines, f"{error}\n"]))

    (tmp_path / "seen").mkdir()
    arrive(tmp_path, "mon", "tue")
    arrive(tmp_path, "wed")
    writer(spark, tmp_path).foreach(Recorder(tmp_path / "seen")).start().awaitTermination()
    lines = [line for file in (tmp_path / "seen").iterdir() for line in file.read_text().splitlines()]
    assert sorted(line for line in lines if line != "None") == ["0 mon", "0 tue", "1 wed"]


def test_a_function_that_raises_is_quoted_with_the_epoch_that_it_was_given(spark: Any, tmp_path: Path) -> None:
    def refuse_tuesday(row: Any) -> None:
        if row.day == "tue":
            raise ValueError(f"{row.day} is\nclosed")

    def refuse_epoch_1(df: Any, epoch: int) -> None:
        if epoch == 1:
            raise ValueError("epoch 1 is\nclosed")

    arrive(tmp_path, "mon")
    arrive(tmp_path, "tue")
    query = writer(spark, tmp_path).foreach(refuse_tuesday).start()
    with pytest.raises(QueryFailed, match=r"^the query failed in epoch 1: ValueError: tue is\n"):
        query.awaitTermination()
    query = writer(spark, tmp_path).option("checkpointLocation", str(tmp_path / "other")).foreachBatch(refuse_epoch_1)
    with pytest.raises(QueryFailed, match=r"^the query failed in epoch 1: ValueError: epoch 1 is\n"):
        query.start().awaitTermination()


def test_a_delta_table(spark: Any, tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    for day in ("mon", "tue"):
        arrive(tmp_path, day)
        writer(spark, tmp_path).format("delta").partitionBy("day").start(str(tmp_path / "out")).awaitTermination()
    table = deltalake.DeltaTable(str(tmp_path / "out")).to_pyarrow_dataset().to_table()
    assert sorted(zip(table["n"].to_pylist(), table["day"].to_pylist(), strict=True)) == [(0, "mon"), (1, "tue")]


@pytest.mark.parametrize("mode", ["update", "complete"])
def test_a_delta_table_of_groups_that_change(spark: Any, tmp_path: Path, mode: str) -> None:
    """Spark's batch query gives the same rows; a restart goes on, a changed query has to go elsewhere."""
    deltalake = pytest.importorskip("deltalake")
    out = tmp_path / "out"

    def write(query: str = "SELECT day, count(*) AS rows, sum(n) AS total FROM a GROUP BY day") -> Any:
        flow = Flow(spark, name="sinks")
        flow.readFiles("a", str(tmp_path / "in"), eventTime="ts", maxFilesPerTrigger=1)
        to = flow.sql(query).writeStream.format("delta").outputMode(mode).option("path", str(out)).queryName("days")
        return to.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "ck"))

    for days in (["mon", "tue", None], ["mon"], ["tue", None, "wed"]):
        arrive(tmp_path, *days)
        if days != ["mon"]:
            write().start().awaitTermination()
    batch = spark.read.parquet(str(tmp_path / "in")).groupBy("day").agg({"*": "count", "n": "sum"}).collect()
    table = deltalake.DeltaTable(str(out))
    groups = table.to_pyarrow_dataset().to_table().to_pylist()
    assert sorted((tuple(g.values()) for g in groups), key=str) == sorted((tuple(g) for g in batch), key=str)
    assert table.version() == 3, "one for each file, after the empty table"
    changed = write("SELECT day, count(*) AS rows, max(n) + 0L AS total FROM a GROUP BY day")
    with pytest.raises(FlowError, match="has results of a former query of this checkpoint"):
        changed.option("changeQueries", "true").start()
    with pytest.raises(FlowError, match=r"the parquet sink appends.*write groups that change to format\('delta'\)"):
        Flow(spark).readFiles("a", str(tmp_path / "in"), eventTime="ts").groupBy("day").agg(
            n=("*", "count")
        ).writeStream.toTable("unmade", outputMode=mode)
    assert not spark.catalog.tableExists("unmade")


@pytest.fixture
def postgres(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A Postgres of its own, reached through a socket."""
    psycopg = pytest.importorskip("psycopg")
    if POSTGRES is None:
        pytest.skip("there is no Postgres here")
    root = Path("/tmp") / f"sluice-postgres-{os.getpid()}"
    root.mkdir(mode=0o755)
    by = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []  # it refuses to run as root
    if by:
        shutil.chown(root, "postgres")

    def run(*command: str) -> None:
        subprocess.run([*by, *command], check=True, capture_output=True, cwd="/")

    try:
        run(f"{POSTGRES}/initdb", "-D", f"{root}/data", "-U", "desk", "-A", "trust", "--no-sync")
        settings = f"-k {root} -c listen_addresses= -c fsync=off"
        run(f"{POSTGRES}/pg_ctl", "-D", f"{root}/data", "-w", "-l", f"{root}/log", "-o", settings, "start")
        try:
            for name, value in {"PGHOST": str(root), "PGUSER": "desk"}.items():
                monkeypatch.setenv(name, value)
            with psycopg.connect("dbname=postgres", autocommit=True) as database:
                database.execute("CREATE DATABASE desk")
            yield psycopg
        finally:
            run(f"{POSTGRES}/pg_ctl", "-D", f"{root}/data", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(root, ignore_errors=True)


@pytest.mark.slow
def test_the_example_with_postgres_writes_each_epoch_once(spark: Any, tmp_path: Path, postgres: Any) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "sinks.md").read_text()
    example: dict[str, Any] = {}
    exec(next(text for text in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "psycopg" in text), example)
    with postgres.connect("dbname=desk") as database:
        for statement in re.findall(r"`(CREATE TABLE [^`]*)`", page):
            database.execute(statement)
    failures = ["after it was written"]

    def write(df: Any, epoch: int) -> None:
        renamed = df.selectExpr("day AS symbol", "CAST(n AS double) AS price")
        example["write_to_postgres"](renamed, epoch)
        if failures:
            raise RuntimeError(failures.pop())

    arrive(tmp_path, "mon", "tue")
    with pytest.raises(Exception, match="after it was written"):
        writer(spark, tmp_path).foreachBatch(write).start().awaitTermination()
    arrive(tmp_path, "wed")
    writer(spark, tmp_path).foreachBatch(write).start().awaitTermination()
    with postgres.connect("dbname=desk") as database:
        rows = database.execute("SELECT symbol, price FROM trades ORDER BY price, symbol").fetchall()
        epochs = database.execute("SELECT epoch FROM epochs ORDER BY epoch").fetchall()
    assert rows == [("mon", 0.0), ("tue", 0.0), ("wed", 1.0)] and epochs == [(0,), (1,)]
