"""Group-bys, chains, SQL and the command line on Spark, from source to sink, against batch queries."""

from __future__ import annotations

import runpy
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from arrivals import arrive, ticks
from html_pages import read_answers
from oracle import connect_duckdb, multiset

from sluice import Flow, FlowError
from sluice.cli.main import main

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("nothing_stays")]

TRADES = [ticks([f"k{i % 5}" for i in range(60)], [e * 10 + i / 6 for i in range(60)], range(60)) for e in range(4)]
QUOTES = [ticks([f"k{i % 7}" for i in range(40)], [e * 10 + i / 4 for i in range(40)], range(40)) for e in range(4)]
SCHEMA = "k string, ts timestamp, v bigint"


@pytest.fixture
def flow(spark: Any, tmp_path: Path) -> Flow:
    """Trades as rows of Spark, quotes as files."""
    arrive(tmp_path / "trades", *TRADES)
    arrive(tmp_path / "quotes", *QUOTES)
    flow = Flow(spark, "desk")
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "trades"))
    flow.readStream("trades", rows, eventTime="ts", delay="1 second")
    flow.readFiles("quotes", str(tmp_path / "quotes"), eventTime="ts", delay="1 second", maxFilesPerTrigger=1)
    return flow


def written(root: Path, flow: Flow, *results: Any) -> tuple[list[Counter], Any]:
    """What each result amounts to when all that is there has been processed, by one query."""
    writers = [r.writeStream.format("parquet").option("path", root / f"out{i}") for i, r in enumerate(results)]
    writers[0].option("checkpointLocation", root / "ck").options(sites=2, partitions=16).trigger(availableNow=True)
    query = flow.start(*writers)
    query.awaitTermination()
    found = []
    for i, result in enumerate(results):
        parts = [pq.read_table(p) for p in sorted((root / f"out{i}").glob("*.parquet"))]
        found.append(multiset(pa.concat_tables([pa.schema(result.stream.shown).empty_table(), *parts])))
    return found, query


def batch(query: str) -> Counter:
    with connect_duckdb() as db:
        db.register("trades", pa.concat_tables(TRADES))
        db.register("quotes", pa.concat_tables(QUOTES))
        return multiset(db.sql(query).to_arrow_table())


MARK = "make_timestamptz({})".format(
    min(max(t["ts"].cast(pa.int64()).to_pylist()) for t in (TRADES[-1], QUOTES[-1])) - 10**6
)
LAST = f"""SELECT * FROM (
    SELECT k, ts, CAST(sum(v) OVER w AS BIGINT) AS total, count(*) OVER w AS n, last_value(v) OVER w AS v
    FROM trades WHERE v % 2 = 0
    WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 3 PRECEDING AND CURRENT ROW)
) WHERE ts <= make_timestamptz({max(TRADES[-1]["ts"].cast(pa.int64()).to_pylist()) - 10**6})"""
PAIRS = """SELECT t.k AS t_k, t.ts AS t_ts, t.v AS t_v, q.k AS q_k, q.ts AS q_ts, q.v AS q_v
    FROM trades t JOIN quotes q ON t.k = q.k AND q.ts BETWEEN t.ts - INTERVAL 2 SECOND AND t.ts AND t.v > q.v"""
BARS = f"""SELECT * FROM (SELECT t_k AS k, time_bucket(INTERVAL 5 SECOND, t_ts) AS window_start,
       time_bucket(INTERVAL 5 SECOND, t_ts) + INTERVAL 5 SECOND AS window_end, count(*) AS n, avg(q_v) AS mean
    FROM ({PAIRS}) GROUP BY 1, 2, 3) WHERE window_end <= {MARK}"""


def test_one_query_with_a_join_its_groups_and_the_newest_rows(spark: Any, tmp_path: Path, flow: Flow) -> None:
    """Three sinks, two levels, each source read once; by the Python face, then the same by SQL."""
    trades, quotes = (flow.sql(f"SELECT * FROM {name}") for name in ("trades", "quotes"))
    pairs = trades.alias("t").join(quotes.alias("q"), on="k", within=("2 seconds", "0 seconds"), where="t.v > q.v")
    bars = pairs.withColumn("k", "t_k").groupBy("k").window("5 seconds").agg(n=("*", "count"), mean=("q_v", "avg"))
    last = trades.filter("v % 2 = 0").groupBy("k").last(4).agg(total=("v", "sum"), n=("*", "count"), v=("v", "last"))
    found, query = written(tmp_path / "python", flow, pairs, bars, last)
    for got, wanted in zip(found, (PAIRS, BARS, LAST), strict=True):
        assert (got - batch(wanted), batch(wanted) - got) == (Counter(), Counter())
    progress = query.recentProgress
    assert [len(p["operators"]) for p in progress] == [3] * len(progress)
    assert sum(p["numInputRows"] for p in progress) == 4 * 60 + 4 * 40
    query.explain()

    sql = [
        flow.sql(
            "SELECT t.k AS t_k, t.ts AS t_ts, t.v AS t_v, q.k AS q_k, q.ts AS q_ts, q.v AS q_v FROM trades t JOIN "
            "quotes q ON t.k = q.k AND q.ts BETWEEN t.ts - INTERVAL 2 SECONDS AND t.ts AND t.v > q.v"
        ),
        flow.sql(
            "SELECT t.k AS k, window.start AS window_start, window.end AS window_end, count(*) AS n, avg(q.v) AS mean "
            "FROM trades t JOIN quotes q ON t.k = q.k AND q.ts BETWEEN t.ts - INTERVAL 2 SECONDS AND t.ts AND "
            "t.v > q.v GROUP BY t.k, window(t.ts, '5 seconds')"
        ),
        flow.sql(
            "SELECT k, ts, sum(v) OVER w AS total, count(*) OVER w AS n, v FROM trades WHERE v % 2 = 0 "
            "WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 3 PRECEDING AND CURRENT ROW)"
        ),
    ]
    found, _ = written(tmp_path / "sql", flow, *sql)
    for got, wanted in zip(found, (PAIRS, BARS, LAST), strict=True):
        assert (got - batch(wanted), batch(wanted) - got) == (Counter(), Counter())


def test_what_arrow_cannot_evaluate_is_computed_by_spark(
    spark: Any, tmp_path: Path, flow: Flow, capsys: pytest.CaptureFixture[str]
) -> None:
    """On both read paths, and it is said. Rows that the filter drops still move the watermark."""
    results = []
    for name in ("trades", "quotes"):
        stream = flow.sql(f"SELECT * FROM {name}").filter("soundex(k) = 'K000'").withColumn("v2", "v * 2")
        results.append(stream.filter("levenshtein(k, 'k1') = 0").groupBy("k").last(2).agg(total=("v2", "sum")))
        results[-1].explain()
    said = capsys.readouterr().out
    assert "Source 'quotes' is read as rows of Spark, which computes soundex(k) = 'K000'" in said
    found, query = written(tmp_path, flow, *results)
    for got, name, tables in zip(found, ("trades", "quotes"), (TRADES, QUOTES), strict=True):
        mark = max(tables[-1]["ts"].cast(pa.int64()).to_pylist()) - 10**6
        assert got == batch(
            f"""SELECT * FROM (SELECT k, ts, CAST(sum(v * 2) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 1 PRECEDING
                AND CURRENT ROW) AS BIGINT) AS total FROM {name} WHERE k = 'k1') WHERE epoch_us(ts) <= {mark}"""
        )
    query.explain()
    assert "which computes" in capsys.readouterr().out
    guarded = flow.sql("SELECT * FROM trades").filter("v <> 0").filter("soundex(trades.k) <> '' AND 1 % v = 0")
    assert "CASE WHEN (v <> 0) THEN" in guarded.relation.steps[-1].condition.sql
    for wrong in ("sum(v) > 1", "explode(array(1, 2)) = 1", "soundex(nope) = ''"):
        with pytest.raises(FlowError):
            flow.sql("SELECT * FROM trades").filter(wrong)


def test_filters_and_projections_alone(spark: Any, tmp_path: Path, flow: Flow) -> None:
    """No operator, no unit: map tasks write the results, also of what Spark computes; and then beside a join."""
    texts = (
        "SELECT k, v + 1 AS more FROM trades WHERE v % 3 = 0",
        "SELECT ts, v FROM trades WHERE k = 'k1'",
        "SELECT * FROM quotes WHERE v > 20",
    )
    by_spark = flow.sql("SELECT k, v FROM trades WHERE soundex(k) = 'K000' AND v > 50")
    found, query = written(tmp_path / "alone", flow, *map(flow.sql, texts), by_spark)
    assert found == [*map(batch, texts), batch("SELECT k, v FROM trades WHERE v > 50")]
    assert sum(p["numOutputRows"] for p in query.recentProgress) == sum(sum(rows.values()) for rows in found)
    query.explain()
    trades, quotes = (flow.sql(f"SELECT * FROM {name}") for name in ("trades", "quotes"))
    pairs = trades.alias("t").join(quotes.alias("q"), on="k", within=("2 seconds", "0 seconds"), where="t.v > q.v")
    found, _ = written(tmp_path / "beside", flow, flow.sql(texts[0]), pairs)
    assert found == [batch(texts[0]), batch(PAIRS)]


def test_what_writers_of_one_query_may_not_do(spark: Any, tmp_path: Path, flow: Flow) -> None:
    trades = flow.sql("SELECT * FROM trades")
    counts = trades.groupBy("k").last(2).agg(n=("*", "count"))
    one, other = (counts.writeStream.format("noop").option("sites", n) for n in (1, 2))
    with pytest.raises(FlowError, match="writer 'query-1' and writer 'query-2' disagree on sites, which holds"):
        flow.start(one, other)
    for kind, options in (("parquet", {"path": tmp_path / "out"}), ("memory", {})):
        one, other = (counts.writeStream.format(kind).options(**options).queryName("twice") for _ in range(2))
        with pytest.raises(FlowError, match="two writers have the"):
            flow.start(one, other)
    with pytest.raises(FlowError, match=r"flow\.start takes writers"):
        flow.start(counts)  # type: ignore[arg-type]


def test_a_new_project_runs(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`sluice new`, its data, `sluice run` with a report. The session is the tests' own: Spark has one a process."""
    from sluice.cli import run as running

    monkeypatch.setattr(running, "_session", lambda wanted, scratch: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    monkeypatch.chdir(tmp_path)
    assert main(["new", "desk"]) == 0
    monkeypatch.chdir(tmp_path / "desk")
    monkeypatch.setattr("sys.argv", ["make_data.py", "--files", "10"])
    runpy.run_path("make_data.py", run_name="__main__")
    assert main(["run", "flow.py", "--available-now", "--report", "report.html"]) == 0
    plan = read_answers(tmp_path / "desk" / "report.html")["/api/plan"]
    assert "Window join" in [node["name"] for node in plan["nodes"]]
