"""What the hidden parts of pages use: files that arrive, and the results that a page promises."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from time import monotonic
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from sluice import Flow, Query

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
OPENING = datetime(2026, 1, 2, 9, 30, tzinfo=timezone.utc)
_view_numbers = itertools.count()


def at(second: float) -> datetime:
    """A time, in seconds after the opening."""
    return OPENING + timedelta(seconds=second)


def arrive(directory: str, columns: str, *rows: tuple[Any, ...]) -> None:
    """Write rows as the newest Parquet file of a directory; the names of the columns stand in one text. The file has
    a hidden name until it is whole, as a query may be looking."""
    os.makedirs(directory, exist_ok=True)
    number = len(os.listdir(directory))
    draft, file = f"{directory}/.{number}.parquet", f"{directory}/{number}.parquet"
    pq.write_table(pa.table(dict(zip(columns.split(), map(list, zip(*rows, strict=True)), strict=True))), draft)
    os.utime(draft, (1_700_000_000 + number,) * 2)
    os.rename(draft, file)


def arrive_ticks(stream: str, value: str) -> None:
    """Write one more file of `in/STREAM`: the symbols A, B and A, a row a second, with 1.0, 2.0 and 3.0 as value."""
    directory = f"in/{stream}"
    first = 3 * len(os.listdir(directory)) if os.path.isdir(directory) else 0
    arrive(directory, f"symbol ts {value}", *(("ABA"[i], at(first + i), i + 1.0) for i in range(3)))


def describe_market(spark: SparkSession) -> Flow:
    """A flow over trades, quotes and news, for which no file has arrived yet."""
    flow = Flow(spark, name="desk")
    for name, columns, time in (
        ("trades", "symbol string, price double, size bigint, ts timestamp", "ts"),
        ("quotes", "symbol string, bid double, ask double, ts timestamp", "ts"),
        ("news", "sym string, headline string, at timestamp", "at"),
    ):
        os.makedirs(f"in/{name}")
        flow.readFiles(name, f"in/{name}", schema=columns, eventTime=time, delay="5 seconds")
    return flow


class Minutes:
    """Two streams or more that arrive a minute at a time, a row a second, with so many keys in turn: of each stream
    its name and the column beside the key and `ts`."""

    def __init__(self, key: str, keys: int, **streams: str) -> None:
        self._key, self._keys, self._streams = key, keys, streams
        self._arrived = 0

    def arrive(self, minutes: int = 1, query: Any = None) -> None:
        """Write the next minutes as a file each; a query takes each in before the next."""
        for _ in range(minutes):
            first, self._arrived = 60 * self._arrived, self._arrived + 1
            for stream, column in self._streams.items():
                rows = ((f"{self._key[0]}{i % self._keys}", at(first + i), float(i)) for i in range(60))
                arrive(f"in/{stream}", f"{self._key} ts {column}", *rows)
            if query is not None:
                query.processAllAvailable()

    def arrive_until(self, query: Query, holds: Callable[[dict[str, Any]], bool], seconds: float = 60.0) -> None:
        """Write minutes until something holds of the query's progress."""
        deadline = monotonic() + seconds
        while not holds(query.lastProgress):
            assert monotonic() < deadline, query.lastProgress
            self.arrive(1, query)


def start_pairs(spark: SparkSession) -> Query:
    """A query whose checkpoint is the directory `checkpoint`: the join `pairs` of three trades and three quotes, all
    of them in."""
    flow = Flow(spark, name="desk")
    arrive_ticks("trades", "price")
    arrive_ticks("quotes", "ask")
    trades, quotes = (
        flow.readFiles(stream, f"in/{stream}", eventTime="ts", delay="1 minute") for stream in ("trades", "quotes")
    )
    pairs = trades.join(quotes, on="symbol", within="10 seconds").writeStream.format("noop").queryName("pairs")
    query = pairs.option("checkpointLocation", "checkpoint").start()
    query.processAllAvailable()
    return query


def read_view(name: str, *columns: str) -> list[tuple[Any, ...]]:
    """These columns of a view, in the order of their values, nulls first."""
    rows = [tuple(row) for row in SparkSession.active().table(name).select(*columns).collect()]
    return sorted(rows, key=lambda row: [(value is not None, value) for value in row])


def collect_results(stream: Any, *columns: str) -> list[tuple[Any, ...]]:
    """What a query over all input so far has in these columns."""
    name = f"results_{next(_view_numbers)}"
    stream.writeStream.format("memory").queryName(name).trigger(availableNow=True).start().awaitTermination()
    return read_view(name, *columns)


def read_page(name: str) -> str:
    """The text of a reference page."""
    return (REFERENCE / name).read_text(encoding="utf-8")
