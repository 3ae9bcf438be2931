"""Starts Spark, runs one query and one Arrow function, and fails if either does not work on this Java."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession


def unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def main() -> int:
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    rows = spark.range(1000)
    works = rows.selectExpr("sum(id)").first()[0] == 499_500 and rows.mapInArrow(unchanged, "id long").count() == 1000
    spark.stop()
    return 0 if works else 1


if __name__ == "__main__":
    sys.exit(main())
