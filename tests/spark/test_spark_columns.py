"""PySpark's columns in place of text: the text that is made of one means the same, and flows take them."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import Window
from pyspark.sql import functions as F

from sluice import Flow, FlowError, testing
from sluice.api.spark_columns import sql_of

pytestmark = pytest.mark.spark

SCHEMA = "symbol string, ts timestamp, price double, size int, `odd name` string"


def columns() -> list[Any]:
    price, size, symbol, odd = F.col("price"), F.col("size"), F.col("symbol"), F.col("`odd name`")
    return [
        price * 2,
        -price + F.lit(1.5) / 3 - size % 2,
        (price > 1) & (symbol == "it's \\ 'quoted'") | ~(size <= 3),
        symbol.isin("A", "B"),
        size.between(1, 2),
        size != 3,
        size.eqNullSafe(None),
        price.cast("int"),
        symbol.try_cast("int"),
        F.when(size > 1, "many").when(size == 1, "one").otherwise(symbol),
        F.when(size > 1, "many"),
        F.coalesce(size, F.lit(0)),
        symbol.substr(1, 1),
        symbol.like("A%"),
        symbol.startswith("A"),
        symbol.isNull(),
        odd.isNotNull(),
        F.lit(Decimal("1.50")) + F.lit(1.5),
        F.lit(1e300) * price,
        F.lit(float("nan")),
        F.lit(2**40) + size,
        F.lit(datetime.date(2026, 1, 2)),
        F.lit(datetime.datetime(2026, 1, 2, 3, 4, 5, 6)),
        F.lit("two '' quotes"),
        F.upper(symbol),
        F.date_trunc("hour", "ts"),
        F.expr("size + 1"),
        F.round(price, 1),
    ]


def test_the_text_of_a_column_means_the_same(spark: Any) -> None:
    rows = [("A", datetime.datetime(2026, 1, 2, 9), 2.5, 3, "x"), ("it's \\ 'quoted'", None, 7.0, 1, None)]
    frame = spark.createDataFrame([*rows, (None, None, None, None, None)], SCHEMA)
    originals = [column.alias(f"c{number}") for number, column in enumerate(columns())]
    texts = [f"{sql_of(column)} AS c{number}" for number, column in enumerate(columns())]
    by_column, by_text = frame.select(*originals), frame.selectExpr(*texts)
    assert [f.dataType for f in by_text.schema] == [f.dataType for f in by_column.schema]
    assert str(by_text.collect()) == str(by_column.collect())


def trade(second: int, **values: Any) -> dict[str, Any]:
    return {"symbol": "A", "ts": f"2026-01-01 09:30:{second:02d}", "price": 2.0, "size": 3, **values}


ROWS = {"trades": [trade(1), trade(2, price=5.0), trade(59, price=1.0), trade(3, symbol="B", price=9.0)]}


def test_a_flow_takes_columns_wherever_it_takes_text(spark: Any) -> None:
    flow = Flow(spark, "columns")
    frame = (
        spark.readStream.format("rate")
        .load()
        .selectExpr("'A' AS symbol", "timestamp AS ts", "1.0D AS price", "1 AS size", "'x' AS `odd name`")
    )
    trades = flow.readStream("trades", frame, eventTime="ts", delay="0 seconds")
    assert trades.schema.simpleString() == "struct<symbol:string,ts:timestamp,price:double,size:int,odd name:string>"

    dear = trades.filter(trades.price > 2).select("symbol", (F.col("price") * F.col("size")).alias("value"))
    assert sorted(row["value"] for row in testing.run(dear, ROWS).rows()) == [15.0, 27.0]
    twice = trades.where(trades["size"] == 3).withColumn("price", F.col("price") * 2)
    assert sorted(row["price"] for row in testing.run(twice, ROWS).rows()) == [2.0, 4.0, 10.0, 18.0]

    closing = {"closeAtEnd": True}
    by_minute = trades.groupBy(F.col("symbol"), F.window("ts", "1 minute")).agg(
        F.avg("price").alias("mean"), F.count("*"), F.first("price").alias("first"), high=("price", "max")
    )
    found = testing.run(by_minute.writeStream.options(**closing), ROWS).rows()
    shown = {(r["symbol"], r["mean"], r["count(1)"], r["first"], r["high"]) for r in found}
    assert shown == {("A", 8 / 3, 3, 2.0, 5.0), ("B", 9.0, 1, 9.0, 9.0)}
    sessions = trades.groupBy("symbol", F.session_window("ts", "10 seconds")).agg({"price": "sum"})
    found = testing.run(sessions.writeStream.options(**closing), ROWS).rows()
    assert sorted(r["sum(price)"] for r in found) == [1.0, 7.0, 9.0]

    later = trades.alias("later")
    on = (trades.symbol == later.symbol) & (trades.price < later.price)
    pairs = trades.join(later, on, within="10 seconds")
    assert [(r["trades_price"], r["later_price"]) for r in testing.run(pairs, ROWS).rows()] == [(2.0, 5.0)]
    listed = trades.join(later, [trades.symbol == later.symbol, trades.price < later.price], within="10 seconds")
    assert testing.run(listed, ROWS).rows() == testing.run(pairs, ROWS).rows()


def test_columns_that_cannot_be_taken_are_refused_by_name(spark: Any) -> None:
    flow = Flow(spark, "columns")
    frame = spark.readStream.format("rate").load().selectExpr("timestamp AS ts", "value AS price", "timestamp AS seen")
    trades = flow.readStream("trades", frame, eventTime="ts", delay="0 seconds")
    with pytest.raises(FlowError, match=r"windows are of the event time, which is 'ts' of stream 'trades'"):
        trades.groupBy(F.window("seen", "1 minute"))
    with pytest.raises(FlowError, match="there is no startTime"):
        trades.groupBy(F.window("ts", "1 minute", "1 minute", "5 seconds"))
    with pytest.raises(FlowError, match=r"Spark's column .* cannot be used here: an aggregate is of a column"):
        trades.groupBy("price").window("1 minute").agg(F.max(F.col("price") * 2))
    with pytest.raises(FlowError, match=r"one column, such as F\.avg"):
        trades.groupBy("price").window("1 minute").agg(F.countDistinct("price"))
    with pytest.raises(FlowError, match=r"Spark's column .{,61} cannot be used here: it calls a function of your own"):
        trades.filter(F.udf(lambda price: price > 1, "boolean")("price"))
    with pytest.raises(FlowError, match="cannot be used here: it is a column of a DataFrame; name it"):
        trades.filter(frame["price"] > 1)
    with pytest.raises(FlowError, match=r"cannot be used here: it looks at other rows: groupBy"):
        trades.select(F.row_number().over(Window.orderBy("price")).alias("place"))
    with pytest.raises(FlowError, match="on= takes names of columns"):
        trades.join(trades.alias("later"), on=[F.col("price")], within="1 second")
    with pytest.raises(FlowError, match=r"select: the expression .* needs a name"):
        trades.select(F.col("price") * 2)


def test_a_name_behind_another_is_no_column_of_the_stream(spark: Any) -> None:
    """Neither a field of a struct nor a column of another stream stands for the column that has its last name."""
    flow = Flow(spark, "columns")
    frame = spark.readStream.format("rate").load()
    frame = frame.selectExpr("timestamp AS ts", "value AS name", "named_struct('name', 'x') AS venue")
    trades = flow.readStream("trades", frame, eventTime="ts", delay="0 seconds")
    venues = flow.readStream("venues", frame, eventTime="ts", delay="0 seconds")
    for column in (F.col("venue.name"), venues["name"]):
        with pytest.raises(FlowError, match=r"groupBy takes names of columns, not Spark's Column<'venues?\.name'>"):
            trades.groupBy(column)
        with pytest.raises(FlowError, match="dropDuplicates takes names of columns, not Spark's"):
            trades.dropDuplicates([column])
        with pytest.raises(FlowError, match="cannot be used here: an aggregate is of a column"):
            trades.groupBy().window("1 minute").agg(F.max(column))
        with pytest.raises(FlowError, match="partitionBy takes names of columns, not Spark's"):
            trades.writeStream.partitionBy(column)
    with pytest.raises(FlowError, match="cannot be used here: a window is of the event time's column"):
        trades.groupBy(F.window(venues.ts, "1 minute"))
    with pytest.raises(FlowError, match=r"a condition is true or false, but .* yields string"):
        trades.join(venues, on=F.col("trades.venue.name"), within="1 second")
    own = trades.groupBy(trades["name"], F.window(trades.ts, "1 minute")).agg(F.max(trades["name"]).alias("most"))
    assert own.columns == ["name", "window_start", "window_end", "most"]


def test_partitions_are_named_as_other_columns_are(spark: Any) -> None:
    frame = spark.readStream.format("rate").load().selectExpr("timestamp AS ts", "value AS id", "'x' AS day")
    trades = Flow(spark, "columns").readStream("trades", frame, eventTime="ts", delay="0 seconds")
    for columns in (("day", "id"), (["Day", "ID"],), (trades.day, F.col("id"))):
        assert trades.writeStream.partitionBy(*columns).choices().partition_by == ("day", "id")


def test_parts_of_columns_are_asked_for_by_name(spark: Any) -> None:
    frame = spark.readStream.format("rate").load()
    frame = frame.selectExpr("timestamp AS ts", "named_struct('code', 1) AS venue", "map('k', 2L) AS counts")
    trades = Flow(spark, "columns").readStream("trades", frame, eventTime="ts", delay="0 seconds")
    venue = F.col("venue")
    parts = trades.select(venue["code"].alias("a"), venue.getField("code").alias("b"), F.col("counts")["k"].alias("c"))
    assert parts.dtypes == [("a", "int"), ("b", "int"), ("c", "bigint")]
