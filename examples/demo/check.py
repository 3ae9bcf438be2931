"""Both outputs of the demo held against batch queries over the same rows.

One text serves DuckDB and Spark SQL: both read the views trades, quotes, late and results.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from examples.demo.rows import COLUMNS, WITHIN, Planted

JOIN = f"""
    SELECT {", ".join(f"{s}.{c} AS {s}_{c}" for s, columns in COLUMNS.items() for c in columns)}
    FROM trades JOIN quotes ON trades.symbol = quotes.symbol
     AND trades.ts BETWEEN quotes.ts - INTERVAL {WITHIN} SECOND AND quotes.ts + INTERVAL {WITHIN} SECOND
    WHERE trades.trade_id NOT IN (SELECT trade_id FROM late)"""
RESULTS = f"SELECT {', '.join(f'{s}_{c}' for s, columns in COLUMNS.items() for c in columns)} FROM results"
DIFFERENCE = f"""
    SELECT (SELECT count(*) FROM results) AS results,
           (SELECT count(*) FROM ({JOIN})) AS expected,
           (SELECT count(*) FROM ({JOIN} EXCEPT ALL {RESULTS})) AS missing,
           (SELECT count(*) FROM ({RESULTS} EXCEPT ALL {JOIN})) AS surplus"""


def is_exact(spark: SparkSession, home: Path, late_rows: int, planted: Planted, bar_seconds: int) -> bool:
    """Whether pairs and bars below a directory are those of the batch queries; says so."""
    by, (results, expected, missing, surplus) = _compare_pairs(spark, home, planted)
    right = missing == surplus == 0 and late_rows == len(planted.late) and expected > 0
    print(f"  {results:,} results, {by}'s batch join of the same rows {expected:,}; {late_rows:,} late rows dropped")
    if right:
        print("  EXACT: the same rows, each as often")
    else:
        print(f"  WRONG: {missing:,} rows missing, {surplus:,} too many; {len(planted.late):,} late rows were planted")
    by, (bars, missing, surplus) = _compare_bars(spark, home, bar_seconds)
    if missing or surplus or not bars:
        print(f"  WRONG: of {bars:,} bars {missing:,} are missing, {surplus:,} too many")
        return False
    print(f"  EXACT: so are the {bars:,} bars of {bar_seconds} seconds, a group-by of those results")
    return right


def count_pairs(spark: SparkSession, home: Path) -> int:
    """How many pairs a batch join of the rows below a directory has, none of them late."""
    query = f"SELECT count(*) FROM ({JOIN.replace('(SELECT trade_id FROM late)', '(-1)')})"
    return _ask(spark, {stream: home / stream for stream in COLUMNS}, query)[1][0]


def _compare_pairs(spark: SparkSession, home: Path, planted: Planted) -> tuple[str, tuple[int, ...]]:
    """Who joined, and: results, rows expected, rows missing, rows too many; as multisets of whole rows."""
    (home / "late").mkdir()
    late = pa.table({"trade_id": pa.array(planted.late, pa.int64())})
    pq.write_table(late, home / "late" / "late.parquet")
    places = {"trades": "trades", "quotes": "quotes", "results": "out", "late": "late"}
    return _ask(spark, {view: home / place for view, place in places.items()}, DIFFERENCE)


def _compare_bars(spark: SparkSession, home: Path, seconds: int) -> tuple[str, tuple[int, ...]]:
    """The same for the bars; averages to nine digits, since a batch query adds the numbers in another order."""
    time = "CASE WHEN trades_ts > quotes_ts THEN trades_ts ELSE quotes_ts END"
    start = f"CAST(floor(date_part('epoch', {time}) / {seconds}) AS BIGINT) * {seconds}"
    ends = "SELECT CAST(date_part('epoch', max(window_end)) AS BIGINT) FROM bars"
    expected = f"""
        SELECT trades_symbol, {start} AS start, count(*) AS pairs, CAST(sum(trades_size) AS BIGINT) AS shares,
               round(avg(quotes_ask - quotes_bid), 9) AS spread
        FROM results GROUP BY 1, 2 HAVING {start} + {seconds} <= ({ends})"""
    results = """
        SELECT trades_symbol, CAST(date_part('epoch', window_start) AS BIGINT) AS start, pairs, shares,
               round(spread, 9) AS spread FROM bars"""
    return _ask(
        spark,
        {"results": home / "out", "bars": home / "bars"},
        f"""SELECT (SELECT count(*) FROM bars),
                   (SELECT count(*) FROM ({expected} EXCEPT ALL {results})),
                   (SELECT count(*) FROM ({results} EXCEPT ALL {expected}))""",
    )


def _ask(spark: SparkSession, views: dict[str, Path], query: str) -> tuple[str, tuple[int, ...]]:
    """A query with one row of numbers over Parquet directories, and who answered it."""
    try:
        import duckdb
    except ImportError:
        for view, place in views.items():
            spark.read.parquet(str(place)).createOrReplaceTempView(view)
        return "Spark SQL", tuple(spark.sql(query).first())
    with duckdb.connect() as db:
        for view, place in views.items():
            db.read_parquet(str(place / "*.parquet")).create_view(view)
        return "DuckDB", db.sql(query).fetchall()[0]
