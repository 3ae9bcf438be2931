"""The examples in the docstrings of the API run as they stand.

Each has a flow of its own: streams `trades`, `quotes`, `corrections`, `news` and `clicks`, a table `symbols`, `pairs`
and `bars` as results. `query` is one that runs and writes `pairs`, with its checkpoint in `ck`; all examples share it.
"""

from __future__ import annotations

import doctest
from collections.abc import Iterator
from datetime import datetime, timezone
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sluice.api
from sluice import Flow, Query

pytestmark = pytest.mark.spark
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
EXAMPLES = [
    example
    for module in iter_modules(sluice.api.__path__, "sluice.api.")
    for example in doctest.DocTestFinder().find(import_module(module.name))
    if example.examples
]
COLUMNS: dict[str, dict[str, Any]] = {
    "trades": {"id": 1, "symbol": "A", "ts": None, "price": 3.0, "size": 10},
    "corrections": {"id": 1, "symbol": "A", "ts": None, "price": 3.0, "size": 10},
    "quotes": {"symbol": "A", "ts": None, "ask": 2.0},
    "news": {"symbol": "A", "ts": None, "text": "up"},
    "clicks": {"user": "ann", "ts": None},
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the files of all streams, and of the table."""
    directory = tmp_path_factory.mktemp("examples")
    seconds = (1, 35)  # too far apart to be partners, and near enough to be kept
    times = [datetime(2026, 1, 2, 9, 30, second, tzinfo=timezone.utc) for second in seconds]
    for stream, row in COLUMNS.items():
        (directory / "in" / stream).mkdir(parents=True)
        rows = [{**row, "ts": pa.scalar(time, pa.timestamp("us", "UTC")).as_py()} for time in times]
        pq.write_table(pa.Table.from_pylist(rows), directory / "in" / stream / "1.parquet")
    (directory / "ref" / "symbols").mkdir(parents=True)
    pq.write_table(pa.table({"symbol": ["A"], "sector": ["energy"]}), directory / "ref" / "symbols" / "1.parquet")
    return directory


def namespace(spark: Any, home: Path) -> dict[str, Any]:
    flow = Flow(spark, name="desk")
    streams = {
        name: flow.readFiles(name, str(home / "in" / name), eventTime="ts", delay="5 seconds") for name in COLUMNS
    }
    trades, quotes = streams["trades"], streams["quotes"]
    windows = trades.groupBy("symbol").window("1 minute")
    return {
        "spark": spark,
        "flow": flow,
        **streams,
        "symbols": flow.table("symbols", str(home / "ref" / "symbols")),
        "pairs": trades.join(quotes, on="symbol", within="30 seconds"),
        "bars": windows.agg(high=("price", "max"), volume=("size", "sum")),
    }


@pytest.fixture(scope="module")
def running(spark: Any, home: Path) -> Iterator[tuple[Query, dict[str, Any]]]:
    """The query that runs, and the names that it was described with."""
    names = namespace(spark, home)
    writer = names["pairs"].writeStream.format("noop").queryName("pairs")
    options = {"checkpointLocation": str(home / "ck"), "partitions": 8, "sites": 2, "minSites": 1, "maxSites": 2}
    query = writer.options(**options).start()
    query.processAllAvailable()
    yield query, names
    query.stop()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_runs(
    example: doctest.DocTest, spark: Any, home: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    if any("query" in step.source for step in example.examples):
        query, names = request.getfixturevalue("running")
        example.globs.update(names, query=query)
    else:
        example.globs.update(namespace(spark, home))
    said: list[str] = []
    failed, _ = doctest.DocTestRunner(optionflags=FLAGS).run(example, out=said.append)
    assert not failed, "".join(said)
