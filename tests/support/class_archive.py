"""Makes an archive of the classes that Spark loads in tests: `class_archive.py ARCHIVE`.

A local cluster comes first, then a local session, in one JVM: so the archive has the classes of drivers, of masters and
workers, and of executors.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from quick_jvm import COMPILED_IN_HASTE

SCHEMA = "k long, ts timestamp, v string, d double"


def main(archive: str) -> None:
    options = f"{COMPILED_IN_HASTE} -XX:ArchiveClassesAtExit={archive}"
    builder = SparkSession.builder.appName("classes").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.extraJavaOptions", options).config("spark.sql.shuffle.partitions", "2")
    with tempfile.TemporaryDirectory() as root:
        spark = builder.master("local[2]").config("spark.sql.warehouse.dir", f"{root}/warehouse").getOrCreate()
        for format in ("parquet", "csv", "json"):
            use(spark, Path(root), format)
        gateway = spark.sparkContext._gateway
        spark.stop()
        gateway.proc.stdin.close()  # which ends the JVM
        gateway.proc.wait()


def use(spark: Any, root: Path, format: str) -> None:
    """A batch query and a stream of files."""
    files = str(root / format)
    rows = spark.range(100).selectExpr("id % 7 k", "timestamp_seconds(id) ts", "string(id) v", "id / 3 d")
    rows.write.format(format).save(files)
    read = spark.read.schema(SCHEMA).format(format).load(files)
    read.groupBy("k").count().join(read, "k").orderBy("v").toArrow()
    spark.createDataFrame(read.toArrow()).selectExpr("max(ts)", "min(d)").collect()
    stream = spark.readStream.schema(SCHEMA).format(format).option("maxFilesPerTrigger", 1).load(files)
    by_key = stream.mapInArrow(lambda batches: batches, stream.schema).repartition(2, "k").selectExpr("k", "v")
    writer = by_key.writeStream.foreachBatch(lambda frame, _: print(frame.groupBy("k").count().collect()))
    query = writer.option("checkpointLocation", f"{root}/{format}-ck").trigger(availableNow=True).start()
    query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1])
