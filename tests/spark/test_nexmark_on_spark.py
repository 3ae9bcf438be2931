"""Nexmark on Spark executors: all queries that can be run as one flow over files, each with DuckDB's answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from oracle import connect_duckdb, rounded

from benchmarks.nexmark.generator import SCHEMAS, SIDE_TABLE, Events, make_side_table
from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.rows import prepare
from sluice import Flow

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_all_queries_in_one_flow(spark: Any, tmp_path: Path) -> None:
    home = prepare(Events(count=2_000, files=4, per_second=50), tmp_path)
    flow = Flow(spark, name="nexmark")
    for stream, columns in SCHEMAS.items():
        flow.readFiles(stream, str(home / stream), eventTime="dateTime", schema=columns, maxFilesPerTrigger=1)
    flow.table(SIDE_TABLE, make_side_table())
    run = [query for query in QUERIES if not query.missing and not query.changes]
    writers = [
        flow.sql(query.sql, within=query.within)
        .writeStream.queryName(query.name)
        .format("parquet")
        .option("path", str(tmp_path / query.name))
        for query in run
    ]
    options = {"checkpointLocation": str(tmp_path / "checkpoint"), "closeAtEnd": True}
    flow.start(*writers, availableNow=True, **options).awaitTermination()
    with connect_duckdb() as db:
        for stream in SCHEMAS:
            db.register(stream, pq.read_table(home / stream))
        db.register(SIDE_TABLE, make_side_table())
        for query in run:
            expected = db.sql(query.batch_sql).to_arrow_table()
            parts = [pq.read_table(path) for path in (tmp_path / query.name).glob("*.parquet")]
            assert rounded(pa.concat_tables(parts)) == rounded(expected.cast(parts[0].schema)), query.name
