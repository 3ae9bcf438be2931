"""Nexmark without Spark: rows by the published proportions, and every query's answer that of DuckDB."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from oracle import connect_duckdb, rounded

from benchmarks.nexmark.generator import (
    LONGEST_AUCTION_SECONDS,
    SCHEMAS,
    SECOND,
    SIDE_TABLE,
    STREAMS,
    Events,
    make_side_table,
)
from benchmarks.nexmark.queries import BY_NAME, QUERIES, NexmarkQuery
from sluice import Flow, testing
from sluice.api.stream import DataStream
from sluice.engine.compiled_plan import compiled
from sluice.model.plan.planning import plan_of

EVENTS = Events(count=2_000, files=4, per_second=50)
RUN = [query for query in QUERIES if not query.missing]


def name(query: NexmarkQuery) -> str:
    return query.name


def define(query: NexmarkQuery) -> DataStream:
    flow = Flow(name="nexmark")
    for stream, columns in SCHEMAS.items():
        flow.readStream(stream, columns, eventTime="dateTime")
    flow.table(SIDE_TABLE, make_side_table())
    return flow.sql(query.sql, within=query.within)


def epochs(events: Events) -> dict[str, list[pa.Table]]:
    tables = [events.tables(file) for file in range(events.files)]
    return {stream: [own[stream] for own in tables] for stream in STREAMS}


def answer(query: NexmarkQuery, rows: dict[str, list[pa.Table]]) -> pa.Table:
    with connect_duckdb() as db:
        for stream, tables in rows.items():
            db.register(stream, pa.concat_tables(tables))
        db.register(SIDE_TABLE, make_side_table())
        return db.sql(query.batch_sql).to_arrow_table()


@pytest.mark.parametrize("disturb", [pytest.param(None, marks=pytest.mark.slow), 5])
@pytest.mark.parametrize("query", RUN, ids=name)
def test_the_answer_is_that_of_duckdb(query: NexmarkQuery, disturb: int | None) -> None:
    rows = epochs(EVENTS)
    given = {stream: rows[stream] for stream in query.streams}
    writer = define(query).writeStream.option("closeAtEnd", True).outputMode("complete" if query.changes else "append")
    outcome = testing.run(writer.queryName("results"), given, disturb=disturb)
    found = outcome.epochs[-1].results["results"] if query.changes else outcome.results()
    expected = answer(query, rows)
    assert found.schema.names == expected.schema.names
    assert rounded(found) == rounded(expected.cast(found.schema)), outcome.disturbances
    assert expected.num_rows


@pytest.mark.parametrize("query", [BY_NAME[name] for name in ("q5", "q11", "q13", "q14", "q17")], ids=name)
def test_columns_that_nobody_reads_can_be_null(query: NexmarkQuery) -> None:
    rows = epochs(Events(count=600, files=2, per_second=50))
    plan = plan_of([define(query).relation])
    read = {source.name: compiled(plan).columns_read(number) for number, source in enumerate(plan.sources)}
    given = {stream: [without_values(table, read[stream]) for table in rows[stream]] for stream in query.streams}
    found = testing.run(define(query).writeStream.option("closeAtEnd", True), given).results()
    assert rounded(found) == rounded(answer(query, rows).cast(found.schema))


def without_values(table: pa.Table, kept: frozenset[str]) -> pa.Table:
    """The rows with nulls in all columns but some."""
    columns = [
        table[field.name] if field.name in kept else pa.nulls(table.num_rows, field.type) for field in table.schema
    ]
    return pa.Table.from_arrays(columns, schema=table.schema)


@pytest.mark.parametrize(
    ("query", "stream", "read"),
    [
        ("q2", "bid", "auction price dateTime"),
        ("q3", "auction", "id seller category dateTime"),
        ("q3", "person", "id name city state dateTime"),
        ("q5", "bid", "auction dateTime"),
        ("q7", "bid", "auction bidder price dateTime"),
        ("q13", "bid", "auction bidder price dateTime"),
        ("q16", "bid", "channel auction bidder price dateTime"),
        ("q18", "bid", "auction bidder price dateTime"),
        ("q20", "bid", "auction bidder price channel url dateTime"),
    ],
)
def test_of_a_stream_the_columns_are_read_that_a_query_needs(query: str, stream: str, read: str) -> None:
    plan = plan_of([define(BY_NAME[query]).relation])
    (number,) = (number for number, source in enumerate(plan.sources) if source.name == stream)
    assert compiled(plan).columns_read(number) == frozenset(read.split())


def test_all_queries_of_the_suite_are_there() -> None:
    assert [query.name for query in QUERIES] == [f"q{number}" for number in range(23)]


class TestEvents:
    def test_proportions(self) -> None:
        tables = Events(count=50_000).tables(0)
        assert [tables[stream].num_rows for stream in STREAMS] == [1_000, 3_000, 46_000]
        shares = {column: pc.value_counts(tables["bid"][column]) for column in ("auction", "bidder")}
        most = {column: max(c.as_py() for c in counts.field("counts")) for column, counts in shares.items()}
        assert most["auction"] > 5 * 46_000 / 3_000 and most["bidder"] > 50 * 46_000 / 1_000

    def test_rows_refer_to_what_was_there_before_them(self) -> None:
        tables = Events(count=20_000).tables(0)
        for stream, column, other in (
            ("auction", "seller", "person"),
            ("bid", "bidder", "person"),
            ("bid", "auction", "auction"),
        ):
            began = dict(zip(tables[other]["id"].to_pylist(), tables[other]["dateTime"].to_pylist(), strict=True))
            rows = zip(tables[stream][column].to_pylist(), tables[stream]["dateTime"].to_pylist(), strict=True)
            assert all(began[id_] <= at for id_, at in rows)

    def test_auctions_end(self) -> None:
        auctions = Events(count=5_000, per_second=10).tables(0)["auction"]
        times, ends = (auctions[c].cast(pa.int64()).to_numpy() for c in ("dateTime", "expires"))
        assert (ends > times).all() and (ends - times).max() == LONGEST_AUCTION_SECONDS * SECOND

    def test_a_seed_means_the_same_rows_and_files_are_parts_of_one_stream(self) -> None:
        events = Events(count=1_000, files=4, seed=7)
        assert events.tables(2)["bid"].equals(events.tables(2)["bid"])
        times = np.concatenate([events.tables(f)["bid"]["dateTime"].cast(pa.int64()).to_numpy() for f in range(4)])
        assert (np.diff(times) > 0).all() and len(times) == 920
