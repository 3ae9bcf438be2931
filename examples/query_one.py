"""QUERY 1 of the lazy-disk paper: which broker sells a currency at the lowest price, over the offers of three banks.

    python examples/query_one.py               # from Python, or from SQL text: --sql; more with --help

    SELECT brokerName, min(price) FROM bank1, bank2, bank3
    WHERE bank1.offerCurrency = bank2.offerCurrency AND bank2.offerCurrency = bank3.offerCurrency
      AND bank1.offer = bank2.offer AND bank2.offer = bank3.offer
      AND bank1.timestamp >= bank2.timestamp + window AND bank1.timestamp >= bank3.timestamp + window
    GROUP BY brokerName

The offers of the second and third bank wait without end for one of the first, so the state outgrows the memory that the
sites are given here. Under the policy `lazy-disk` they freeze what yields least; results with frozen offers come when
the day is over. The answer is held against the same query in Spark SQL.

The paper's query is for a day that ends. A group-by of Sluice is over windows of time, so this one is over a window of
a day, and each bank closes its day with a row at midnight: that is when all of it is known, and the minimum shown.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from sluice import DataStream, Flow, Query

BANKS = ("bank1", "bank2", "bank3")
BROKERS = ("Ames", "Bhatt", "Castro", "Dubois", "Engel", "Ferri", "Gupta", "Haddad")
CURRENCIES = ("CHF", "EUR", "JPY", "USD")
SECOND = 1_000_000  # event times are microseconds
DAY = 1_767_312_000 * SECOND  # 2026-01-02, UTC
OPENING, HOURS = DAY + 9 * 3600 * SECOND, 7
MIDNIGHT = DAY + 24 * 3600 * SECOND
ALONE = 0.4  # part of the offers that only one bank ever makes: they find nothing, wherever they lie

CONDITIONS = (
    "bank1.timestamp >= bank2.timestamp + INTERVAL 1 MINUTE AND bank1.timestamp >= bank3.timestamp + INTERVAL 1 MINUTE"
)
QUERY = f"""
    SELECT brokerName, min(price) AS price
    FROM bank1, bank2, bank3
    WHERE bank1.offerCurrency = bank2.offerCurrency AND bank2.offerCurrency = bank3.offerCurrency
      AND bank1.offer = bank2.offer AND bank2.offer = bank3.offer
      AND {CONDITIONS}
    GROUP BY brokerName"""


@dataclass(frozen=True)
class Size:
    """How much arrives, and how much memory a site has for it."""

    files: int
    rows: int
    """Of a bank, in a file."""
    memory: str


def generate(home: Path, size: Size) -> None:
    """Write the offers of the day as files whose modification times say in which order they arrived."""
    rng = np.random.default_rng(5)
    for number, bank in enumerate(BANKS):
        (home / bank).mkdir(parents=True)
        for file in range(size.files):
            path = home / bank / f"{file:04d}.parquet"
            offers = offers_of(number, file, size, rng)
            if file == size.files - 1:
                offers = pa.concat_tables([offers, closing(offers.schema)])
            pq.write_table(offers, path)
            os.utime(path, (1_700_000_000 + file,) * 2)


def offers_of(bank: int, file: int, size: Size, rng: np.random.Generator) -> pa.Table:
    """Some offers come from every bank, about twice a day; others from one alone. The first bank names who sells."""
    rows, shared = size.rows, max(1, size.files * size.rows // 3)
    alone = rng.random(rows) < ALONE
    offer = np.where(alone, shared * (1 + bank), 0) + rng.integers(0, shared, rows)
    at = OPENING + (file * rows + np.arange(rows)) * HOURS * 3600 * SECOND // (size.files * rows)
    offers = pa.table(
        {
            "brokerName": pa.array(rng.choice(BROKERS, rows), pa.string()),
            "price": (100 + 10 * rng.standard_normal(rows)).round(2),
            "offerCurrency": pa.array(np.array(CURRENCIES)[offer % len(CURRENCIES)], pa.string()),
            "offer": pa.array(offer),
            "timestamp": pa.array(at, pa.timestamp("us", tz="UTC")),
        }
    )
    return offers if bank == 0 else offers.drop_columns(["brokerName", "price"])


def closing(schema: pa.Schema) -> pa.Table:
    """The row with which a bank closes its day; it matches no offer."""
    values: dict[str, Any] = {"brokerName": None, "price": None, "offerCurrency": "-", "offer": -1}
    return pa.table([pa.array([values.get(field.name, MIDNIGHT)], field.type) for field in schema], schema)


def cheapest(flow: Flow, home: Path, from_sql: bool) -> DataStream:
    """The query over files as they arrive, one of each bank at a time."""
    banks = [flow.readFiles(bank, str(home / bank), eventTime="timestamp", maxFilesPerTrigger=1) for bank in BANKS]
    if from_sql:
        return flow.sql(f"{QUERY}, window(bank1.timestamp, '1 day')", within="unbounded")
    offers = flow.join(banks, on=["offerCurrency", "offer"], within="unbounded", where=CONDITIONS)
    by_broker = offers.groupBy("bank1_brokerName").window("1 day").agg(price=("bank1_price", "min"))
    return by_broker.select("bank1_brokerName AS brokerName", "price")


def run(spark: SparkSession, home: Path, size: Size, from_sql: bool) -> Query:
    """All of the day, with too little memory for it."""
    query = (
        cheapest(Flow(spark, name="query-one"), home, from_sql)
        .writeStream.format("parquet")
        .option("path", str(home / "out"))
        .option("checkpointLocation", str(home / "checkpoint"))
        .option("sites", 2)
        .option("partitions", 32)
        .option("siteMemory", size.memory)
        .policy("lazy-disk", push=0.3)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


@dataclass(frozen=True)
class Freezing:
    """What became of state that did not fit."""

    frozen: int
    """How often units were frozen."""
    most_bytes: int
    cleaned: int
    late_results: int


def frozen_of(query: Query) -> Freezing:
    decided = [decision.action for decision in query.decisions()]
    by_epoch = [epoch["sites"] for epoch in query.recentProgress]
    return Freezing(
        frozen=decided.count("freeze"),
        most_bytes=max(sum(site["frozenBytes"] for site in sites) for sites in by_epoch),
        cleaned=decided.count("clean up"),
        late_results=sum(site["lateResults"] for sites in by_epoch for site in sites),
    )


def tell(query: Query) -> Freezing:
    """Print what was frozen while offers came, and how it was cleaned up when no more did."""
    print(f"{'epoch':>7} {'rows in':>9} {'in memory':>11} {'frozen':>11} {'units frozen':>13} {'missing results':>16}")
    for epoch in query.recentProgress:
        sites = epoch["sites"]
        memory, frozen = (sum(site[figure] for site in sites) // 1024 for figure in ("memoryBytes", "frozenBytes"))
        print(
            f"{epoch['epoch']:>7} {epoch['numInputRows']:>9,} {memory:>7,} KiB {frozen:>7,} KiB "
            f"{sum(site['frozenUnits'] for site in sites):>13,} {epoch['missingUnits']:>16,}"
        )
        if (done := epoch["cleanUp"]) is not None:
            print(
                f"{'':>7} cleaning up: {done['rowsDone']:,} rows done, {done['rowsLeft']:,} left; "
                f"{done['results']:,} results found; {done['rowsPerSecond']:,.0f} rows a second"
            )
    seen = frozen_of(query)
    print(
        f"Units were frozen {seen.frozen} times, {seen.most_bytes / 1024:,.0f} KiB lay outside of memory at most; "
        f"{seen.cleaned} were cleaned up,\nwhich found {seen.late_results:,} results"
    )
    return seen


def compare(spark: SparkSession, home: Path) -> tuple[dict[str, float], dict[str, float]]:
    """The lowest price of each broker: as the query has written it, and as Spark SQL finds it in all files."""
    for bank in BANKS:
        spark.read.parquet(str(home / bank)).createOrReplaceTempView(bank)
    try:
        batch = [tuple(row) for row in spark.sql(QUERY).collect()]
    finally:
        for bank in BANKS:
            spark.catalog.dropTempView(bank)
    written = [tuple(row) for row in spark.read.parquet(str(home / "out")).collect()]
    assert len(written) == len(dict(written)), "a broker has more than one minimum"
    return dict(written), dict(batch)


def is_exact(spark: SparkSession, home: Path) -> bool:
    """Whether the answer is that of the batch query; prints it."""
    written, batch = compare(spark, home)
    print(f"\n{'broker':<10} {'lowest price':>12}")
    for broker, price in sorted(written.items()):
        print(f"{broker:<10} {price:>12.2f}")
    if written == batch and batch:
        print("EXACT: Spark SQL finds the same over all files")
        return True
    print(f"WRONG: Spark SQL finds {dict(sorted(batch.items()))}")
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sql", action="store_true", help="the query as SQL text, else as calls of the Python face")
    parser.add_argument("--files", type=int, default=8, help="files of each bank (default %(default)s)")
    parser.add_argument("--rows", type=int, default=3_000, help="offers in each file (default %(default)s)")
    parser.add_argument("--memory", default="600k", help="state that a site has in memory (default %(default)s)")
    args = parser.parse_args()
    if args.files < 2 or args.rows < 1:
        parser.error("needs at least 2 files, and a row in each")
    home = Path(tempfile.mkdtemp(prefix="sluice-query-one-"))
    spark = None
    try:
        size = Size(args.files, args.rows, args.memory)
        generate(home, size)
        print(f"{args.files} files of {args.rows:,} offers of each bank; 2 sites with {args.memory} of memory")
        spark = session()
        tell(run(spark, home, size, args.sql))
        return 0 if is_exact(spark, home) else 1
    finally:
        if spark is not None:
            spark.stop()
        shutil.rmtree(home, ignore_errors=True)


def session() -> SparkSession:
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("sluice-query-one")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


if __name__ == "__main__":
    sys.exit(main())
