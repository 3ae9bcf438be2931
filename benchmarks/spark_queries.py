"""The workloads as Spark's own streaming operators run them."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.session import schema
from benchmarks.spark_last import SCHEMA, NewestRows
from benchmarks.workloads import BAND, BUCKETS, Workload


def query(spark: SparkSession, w: Workload, home: Path) -> DataFrame:
    match w.operation:
        case "sliding":
            return windowed(w, stream(spark, w, home, "A").withWatermark("ts", "0 seconds"), "key", "ts")
        case "last":
            rows = stream(spark, w, home, "A").withColumn("micros", F.unix_micros("ts")).drop("ts")
            made = rows.groupBy("key").transformWithStateInPandas(NewestRows(w.last), SCHEMA, "append", "none")
            return made.withColumn("ts", F.timestamp_micros("micros")).drop("micros")
        case "joined-groups":
            # An aggregation takes one event-time column: B's becomes a plain timestamp on the way.
            plain = joined(spark, w, home).withColumn("B_ts", F.expr("timestamp_micros(unix_micros(B_ts))"))
            return windowed(w, plain.withColumn("bucket", F.expr(f"A_key % {BUCKETS}")), "bucket", "A_ts")
        case "band":
            return banded(spark, w, home)
    return joined(spark, w, home)


def banded(spark: SparkSession, w: Workload, home: Path) -> DataFrame:
    """Keys at most so far apart, the way Spark can: it refuses stream-stream joins without an equality, so the rows of
    one side go into the buckets of keys that they can match, and pairs of one bucket are filtered."""
    a = side(spark, w, home, "A").withColumn("A_bucket", F.expr(f"(A_key + {2 * BAND}) div {2 * BAND}"))
    reached = f"explode(array((B_key + {BAND}) div {2 * BAND}, (B_key + {3 * BAND}) div {2 * BAND}))"
    b = side(spark, w, home, "B").withColumn("B_bucket", F.expr(reached))
    near_keys = f"A_key BETWEEN B_key - {BAND} AND B_key + {BAND}"
    condition = f"A_bucket = B_bucket AND {near_keys} AND {near(w, 'A_ts', 'B_ts')}"
    return a.join(b, F.expr(condition)).drop("A_bucket", "B_bucket")


def stream(spark: SparkSession, w: Workload, home: Path, name: str) -> DataFrame:
    read = spark.readStream.schema(schema(w.columns)).option("maxFilesPerTrigger", w.files_per_trigger)
    return read.parquet(str(home / name))


def side(spark: SparkSession, w: Workload, home: Path, name: str) -> DataFrame:
    """A stream for a join, its columns under its name."""
    renamed = [F.col(column).alias(f"{name}_{column}") for column, _ in w.columns]
    return stream(spark, w, home, name).select(*renamed).withWatermark(f"{name}_ts", "0 seconds")


def near(w: Workload, left: str, right: str) -> str:
    width = f"INTERVAL {w.window_seconds} SECONDS"
    earlier = right if w.operation == "joined-groups" else f"{right} - {width}"
    return f"{left} BETWEEN {earlier} AND {right} + {width}"


def joined(spark: SparkSession, w: Workload, home: Path) -> DataFrame:
    a, b = side(spark, w, home, "A"), side(spark, w, home, "B")
    pairs = a.join(b, F.expr(f"A_key = B_key AND {near(w, 'A_ts', 'B_ts')}"))
    if len(w.streams) == 2:
        return pairs
    # A second stateful join takes one event-time column a side: B's becomes a plain timestamp on the way.
    plain = pairs.withColumn("B_ts", F.expr("timestamp_micros(unix_micros(B_ts))"))
    c = side(spark, w, home, "C")
    return plain.join(c, F.expr(f"A_key = C_key AND {near(w, 'A_ts', 'C_ts')} AND {near(w, 'B_ts', 'C_ts')}"))


def windowed(w: Workload, rows: DataFrame, group: str, time: str) -> DataFrame:
    window = F.window(time, f"{w.window_seconds} seconds", f"{w.slide_seconds} seconds")
    return rows.groupBy(group, window).agg(*(aggregate(name, *given) for name, given in w.aggregates.items()))


def aggregate(name: str, column: str, function: str) -> Column:
    return F.expr(f"{function}({column})").alias(name)
