"""Files of a stream that are gone, empty or damaged when their turn comes, read as Arrow and read by Spark."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from arrivals import arrive, ticks
from pyspark.errors import StreamingQueryException

from sluice import Flow
from sluice.model.errors import FlowError
from sluice.spark.file_loop import FileLoop

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("nothing_stays")]

TICKS = "k string, ts timestamp, v bigint"
FILES = [ticks(["a", "b"], [i, i + 0.5], [2 * i, 2 * i + 1]) for i in range(4)]
WAYS: list[tuple[str, dict[str, Any]]] = [("parquet", {}), ("arrow", {}), ("csv", {}), ("csv", {"multiLine": True})]
"""The last one is read by Spark."""


def run(spark: Any, root: Path, format: str, **options: Any) -> Any:
    """Everything that is there, each row once, into root/out."""
    stream = Flow(spark).readFiles("ticks", str(root / "in"), format, eventTime="ts", schema=TICKS, **options)
    rows = stream.groupBy("v").last(1).agg(n=("*", "count"))
    writer = rows.writeStream.format("parquet").options(sites=1, partitions=4).trigger(availableNow=True)
    query = writer.option("checkpointLocation", root / "ck").start(str(root / "out"))
    query.awaitTermination()
    return query


def run_to_view(rows: Any, root: Path, view: str) -> Any:
    writer = rows.writeStream.format("memory").queryName(view).options(sites=1, partitions=4).trigger(availableNow=True)
    query = writer.option("checkpointLocation", root / "ck").start()
    query.awaitTermination()
    return query


def shown(root: Path) -> Counter[int]:
    return Counter(v for p in (root / "out").glob("*.parquet") for v in pq.read_table(p)["v"].to_pylist())


@pytest.fixture
def lost_when_found(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Files that go once an epoch has been planned with them."""
    lost: list[Path] = []
    plan = FileLoop._input_of

    def plan_and_lose(loop: FileLoop, files: Any) -> Any:
        for path in lost:
            path.unlink(missing_ok=True)
        return plan(loop, files)

    monkeypatch.setattr(FileLoop, "_input_of", plan_and_lose)
    return lost


@pytest.mark.parametrize(("format", "options"), WAYS, ids=str)
def test_a_file_that_is_gone_or_empty_stops_the_query_and_nothing_is_lost(
    spark: Any, tmp_path: Path, format: str, options: dict[str, Any], lost_when_found: list[Path]
) -> None:
    files = sorted(arrive(tmp_path / "in", *FILES, format=format).iterdir())
    content = [file.read_bytes() for file in files]
    files[1].write_bytes(b"")
    with pytest.raises(StreamingQueryException, match=rf"CorruptFile: .*{files[1].name}"):
        run(spark, tmp_path, format, **options)
    files[1].write_bytes(content[1])
    if options:  # Spark has planned the batch with it
        files[2].unlink()
    lost_when_found.append(files[2])
    with pytest.raises(StreamingQueryException, match=rf"MissingFile: .*file .*{files[2].name}' is gone"):
        run(spark, tmp_path, format, **options)
    assert shown(tmp_path) == Counter()
    lost_when_found.clear()
    files[2].write_bytes(content[2])
    query = run(spark, tmp_path, format, **options)
    assert shown(tmp_path) == Counter(range(8))
    assert (query.lastProgress["missingFiles"], query.lastProgress["corruptFiles"]) == (0, 0)


@pytest.mark.parametrize(("format", "options"), WAYS[::3], ids=str)
def test_what_is_to_be_ignored_is_skipped_and_counted(
    spark: Any, tmp_path: Path, format: str, options: dict[str, Any], lost_when_found: list[Path]
) -> None:
    files = sorted(arrive(tmp_path / "in", *FILES, format=format).iterdir())
    files[0].write_bytes(b"")
    with pytest.raises(StreamingQueryException, match="CorruptFile"):
        run(spark, tmp_path, format, ignoreMissingFiles=True, **options)
    if options:  # Spark has planned the batch with it
        files[1].unlink()
    lost_when_found.append(files[1])
    query = run(spark, tmp_path, format, ignoreMissingFiles=True, ignoreCorruptFiles=True, **options)
    assert shown(tmp_path) == Counter(range(4, 8))
    assert (query.lastProgress["missingFiles"], query.lastProgress["corruptFiles"]) == (1, 1)
    assert query.lastProgress["numInputRows"] == 4


def test_a_file_that_goes_between_two_runs_is_not_there(
    spark: Any, tmp_path: Path, lost_when_found: list[Path]
) -> None:
    """What an epoch was planned with that did not commit is nobody's business."""
    files = sorted(arrive(tmp_path / "in", *FILES).iterdir())
    lost_when_found.append(files[0])
    with pytest.raises(StreamingQueryException, match="MissingFile"):
        run(spark, tmp_path, "parquet")
    run(spark, tmp_path, "parquet")
    assert shown(tmp_path) == Counter(range(2, 8))


def test_files_with_any_name_are_read(spark: Any, tmp_path: Path) -> None:
    for number, rows in enumerate(FILES):
        (file,) = arrive(tmp_path / "one", rows).iterdir()
        (tmp_path / "in").mkdir(exist_ok=True)
        file.rename(tmp_path / "in" / ["a*.parquet", "[b].parquet", "{c} d%20?.parquet", "é.parquet"][number])
    run(spark, tmp_path, "parquet")
    assert shown(tmp_path) == Counter(range(8))


def test_settings_of_the_session_lose_no_file(spark: Any, tmp_path: Path) -> None:
    files = sorted(arrive(tmp_path / "in", *FILES, format="csv").iterdir())
    settings = ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles")
    for setting in settings:
        spark.conf.set(setting, "true")
    try:
        files[3].write_bytes(b"")
        with pytest.raises(StreamingQueryException, match="CorruptFile"):
            run(spark, tmp_path, "csv", mode="FAILFAST", multiLine=True)
    finally:
        for setting in settings:
            spark.conf.unset(setting)


def test_what_only_spark_can_read_is_read_by_spark_and_said(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    text = '"a\nb",01.01.2024 10:00,1\n"c\\"d",01.01.2024 10:01,x\n'
    (tmp_path / "in" / "0.csv").write_text(text)
    odd = {"multiLine": True, "mode": "PERMISSIVE", "timestampFormat": "dd.MM.yyyy HH:mm", "header": False}
    schema = "k string, ts timestamp, v bigint"
    stream = Flow(spark).readFiles("ticks", str(tmp_path / "in"), "csv", eventTime="ts", schema=schema, **odd)
    rows = stream.groupBy("k").last(1).agg(n=("v", "count"))
    query = run_to_view(rows, tmp_path, "by_spark")
    assert {(r.k, r.n) for r in spark.table("by_spark").collect()} == {("a\nb", 1), ('c"d', 0)}
    query.explain()
    rows.explain()
    said = capsys.readouterr().out
    assert f"rows of Spark out of csv files from {tmp_path}/in, because of the option multiLine='true'" in said
    assert "Source 'ticks' is read as rows of Spark, because of the option multiLine='true'" in said


@pytest.mark.parametrize(
    ("options", "schema", "message"),
    [
        ({"multiLine": True}, None, "needs schema=: Spark reads it, because of the option multiLine='true'"),
        ({"multiLine": True, "timestampFormat": "%Y"}, TICKS, "must be one of Spark's patterns"),
        (
            {"timestampFormat": "%Y"},
            TICKS + ", _corrupt_record string",
            "Spark has to read its files, because of the col",
        ),
    ],
)
def test_what_neither_can_read_is_refused(
    spark: Any, tmp_path: Path, options: dict[str, Any], schema: str | None, message: str
) -> None:
    arrive(tmp_path / "in", *FILES, format="csv")
    with pytest.raises(FlowError, match=message):
        Flow(spark).readFiles("ticks", str(tmp_path / "in"), "csv", eventTime="ts", schema=schema, **options)


def test_the_files_that_spark_writes_give_the_rows_that_spark_reads(spark: Any, tmp_path: Path) -> None:
    texts = ['5" pipe', "c:\\x", "", None, "a,b", "\\", '"', "line"]
    at = [f"2024-01-01 10:00:0{i}" for i in range(len(texts))]
    frame = spark.createDataFrame(pa.table({"k": texts, "t": at})).selectExpr("k", "timestamp(t) ts", "1L v")
    frame.coalesce(1).write.option("header", True).csv(str(tmp_path / "in"))
    stream = Flow(spark).readFiles("ticks", str(tmp_path / "in"), "csv", eventTime="ts", schema=TICKS)
    rows = stream.groupBy("k").last(1).agg(n=("v", "sum"))
    run_to_view(rows, tmp_path, "as_written")
    wanted = spark.read.schema(TICKS).option("header", True).csv(str(tmp_path / "in"))
    assert Counter(r.k for r in spark.table("as_written").collect()) == Counter(r.k for r in wanted.collect())


def test_streams_that_are_made_of_one_dataframe_share_its_lists_of_files(spark: Any, tmp_path: Path) -> None:
    """Spark lists its files once, and names how far they go as often as there are streams."""

    def run_all() -> Counter[tuple[int, int, int]]:
        flow = Flow(spark)
        both = spark.readStream.schema(TICKS).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "both"))
        even = flow.readStream("even", both.where("v % 2 = 0"), eventTime="ts", delay=None)
        odd = flow.readStream("odd", both.where("v % 2 = 1"), eventTime="ts", delay=None)
        third = flow.readFiles("third", str(tmp_path / "third"), eventTime="ts", delay=None, schema=TICKS)
        rows = flow.join([even, odd, third], on="k", within="unbounded")
        return Counter((r.even_v, r.odd_v, r.third_v) for r in view_of(rows))

    def view_of(rows: Any) -> list[Any]:
        run_to_view(rows, tmp_path, "triples")
        return spark.table("triples").collect()  # type: ignore[no-any-return]

    both = [ticks(["a", "a"], [i, i + 0.5], [2 * i, 2 * i + 1]) for i in range(3)]
    arrive(tmp_path / "third", ticks(["a"], [0], [7]))
    arrive(tmp_path / "both", *both[:2])
    assert run_all() == Counter((even, odd, 7) for even in (0, 2) for odd in (1, 3))
    arrive(tmp_path / "both", both[2])
    assert run_all() == Counter((even, odd, 7) for even in (0, 2, 4) for odd in (1, 3, 5))
