"""Queries are added to a running flow and dropped from it, on Spark: `query.add`, `query.drop`, and a restart with
other writers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from arrivals import arrive, fingerprint, ticks

from sluice import CheckpointError, Flow, FlowError, QueryError

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("nothing_stays")]


@pytest.fixture
def flow(spark: Any, tmp_path: Path) -> Flow:
    flow = Flow(spark, "changing")
    for name in "abc":
        arrive(tmp_path / name, ticks([1], [0], [0]))
        flow.readFiles(name, str(tmp_path / name), eventTime="ts", maxFilesPerTrigger=1)
    return flow


def stream(flow: Flow, name: str) -> Any:
    return flow.sql(f"SELECT * FROM {name}").alias(name)


def pairs(flow: Flow, within: str = "60 seconds") -> Any:
    return stream(flow, "a").join(stream(flow, "b"), on="k", within=within)


def writer(rows: Any, name: str, root: Path) -> Any:
    return rows.writeStream.format("parquet").queryName(name).option("path", root / f"out-{name}")


def shown(spark: Any, root: Path, name: str) -> Counter:
    frame = spark.read.parquet(str(root / f"out-{name}"))
    columns = [c for c in frame.columns if c.endswith("v")]
    return Counter(tuple(row) for row in frame.select(*columns).collect())


def start(flow: Flow, root: Path, *writers: Any, **options: Any) -> Any:
    return flow.start(*writers, checkpointLocation=root / "ck", sites=1, partitions=4, **options)


def test_queries_come_and_go_and_a_restart_goes_on_with_those_that_are_there(
    spark: Any, tmp_path: Path, flow: Flow
) -> None:
    query = start(flow, tmp_path, writer(pairs(flow), "long", tmp_path))
    try:
        query.processAllAvailable()
        short = writer(pairs(flow, "9 seconds"), "short", tmp_path)
        some = writer(stream(flow, "a").filter("v > 1"), "some", tmp_path)
        query.add(short, some)  # nothing comes: it has an epoch of its own
        assert [one.name for one in query.queries()] == ["long", "short", "some"]
        for name in "ab":
            arrive(tmp_path / name, ticks([1], [2], [2]))
        query.processAllAvailable()
        assert shown(spark, tmp_path, "long") == Counter([(0, 0), (0, 2), (2, 0), (2, 2)])
        assert shown(spark, tmp_path, "short") == Counter([(0, 2), (2, 0), (2, 2)]), "not the pair from before it came"
        assert shown(spark, tmp_path, "some") == Counter([(2,)])
        refuse(query, flow, tmp_path)
        query.drop("long", "some")
        assert [one.name for one in query.queries()] == ["short"]
        with pytest.raises(QueryError, match="cannot drop 'short': it is the last query of the flow; stop"):
            query.drop("short")
        assert query.recentProgress and query.lastProgress["epoch"] == query.recentEpochs[-1].epoch
    finally:
        query.stop()
    with pytest.raises(QueryError, match="cannot drop a query: the query has ended"):
        query.drop("short")
    before = fingerprint(tmp_path)
    renewed = [writer(pairs(flow), "renewed", tmp_path), short]
    with pytest.raises(CheckpointError, match=r"has other queries than these writers: 'renewed' would be added \("):
        start(flow, tmp_path, *renewed)
    assert fingerprint(tmp_path) == before
    for name in "ab":
        arrive(tmp_path / name, ticks([1], [4], [4]))
    query = start(flow, tmp_path, *renewed, availableNow=True, changeQueries=True)
    query.awaitTermination()
    assert shown(spark, tmp_path, "short") == Counter((a, b) for a in (0, 2, 4) for b in (0, 2, 4)) - Counter([(0, 0)])
    assert (4, 4) in shown(spark, tmp_path, "renewed")
    assert shown(spark, tmp_path, "some") == Counter([(2,)]), "what was dropped keeps its results"


def test_what_an_added_query_shows_is_in_the_session_of_the_flow(spark: Any, tmp_path: Path, flow: Flow) -> None:
    query, sessions = start(flow, tmp_path, stream(flow, "a").writeStream.format("noop")), []
    try:
        query.add(
            stream(flow, "a").writeStream.format("memory").queryName("added"),
            stream(flow, "a").writeStream.foreachBatch(lambda df, epoch: sessions.append(df.sparkSession)),
        )
        arrive(tmp_path / "a", ticks([1], [2], [2]))
        query.processAllAvailable()
        assert [row.v for row in spark.table("added").collect()] == [2]
        assert sessions and all(session is spark for session in sessions)
    finally:
        query.stop()


def refuse(query: Any, flow: Flow, root: Path) -> None:
    """What cannot be added is refused at once, and nothing is touched."""
    before = fingerprint(root / "ck" / "flow")
    other = Flow(flow.spark, "other")
    other.readFiles("a", str(root / "a"), eventTime="ts")
    rows = stream(flow, "a")
    noop = rows.writeStream.format("noop")
    for added, words in (
        (rows.writeStream.format("noop").queryName("Long"), "the running query has the queryName 'Long'"),
        (writer(rows, "more", root).option("path", root / "out-long"), "two writers have the path"),
        (stream(flow, "c").writeStream.format("noop"), "does not read stream 'c'.*its streams are a, b"),
        (stream(other, "a").writeStream.format("noop"), "must be of its Flow"),
        (rows.writeStream.format("noop").option("sites", 3), "sites holds for the whole query"),
        (rows.writeStream.format("noop").policy("load"), "policy holds for the whole query"),
        (rows.filter("soundex(string(v)) = 'x'").writeStream.format("noop"), "Spark would have to compute"),
        (rows.writeStream, "say where the results go"),
        (rows, "takes writers that are not started"),
    ):
        with pytest.raises(FlowError, match=words):
            query.add(added)
    with pytest.raises(QueryError, match="there is no query 'lang'; they are long, short, some"):
        query.drop("lang")
    query.add(noop)
    assert [one.name for one in query.queries()][-1] == "query-1"
    query.drop("query-1")
    assert len(fingerprint(root / "ck" / "flow")) > len(before), "each of the plans that epochs on record went by"


def test_a_function_that_raises_sets_its_query_aside(spark: Any, tmp_path: Path, flow: Flow) -> None:
    taken: list[int] = []

    def refuse_later(df: Any, epoch: int) -> None:
        taken.append(epoch)
        if len(taken) > 1:
            raise ValueError("no such account")

    told = stream(flow, "a").writeStream.foreachBatch(refuse_later).queryName("told")
    query = start(flow, tmp_path, writer(pairs(flow), "pairs", tmp_path), told)
    try:
        query.processAllAvailable()
        for name in "ab":
            arrive(tmp_path / name, ticks([1], [2], [2]))
        query.processAllAvailable()
        for name in "ab":
            arrive(tmp_path / name, ticks([1], [3], [3]))
        query.processAllAvailable()
        assert query.isActive and len(taken) == 2
        assert len(shown(spark, tmp_path, "pairs")) == 9
        kept, aside = query.queries()
        words = f"set aside: the results of epoch {taken[1]} could not be shown: ValueError: no such account"
        assert (kept.name, kept.error, aside.name, aside.error) == ("pairs", None, "told", words)
        assert list((tmp_path / "ck" / "results" / "told").rglob("*.parquet")), "the results stay"
    finally:
        query.stop()
