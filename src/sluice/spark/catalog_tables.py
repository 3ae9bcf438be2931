"""Tables of Spark's catalog as sinks: their files are those of the parquet sink."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from sluice.model.epoch.results import Results
from sluice.model.errors import FlowError
from sluice.spark.sink_log import MARK
from sluice.spark.sinks import ParquetSink
from sluice.spark.sources import quote_column
from sluice.state.files.storage import Storage

_DETAILS = "# Detailed Table Information"


class CatalogSink(ParquetSink):
    """Results go to the directory of a table. A session that reads the table sees them at once."""

    def __init__(
        self, spark: SparkSession, table: str, path: str, compression: str, partition_by: tuple[str, ...]
    ) -> None:
        super().__init__(path, compression, partition_by)
        self._spark, self._table = spark, table

    def deliver(self, results: Results) -> None:
        super().deliver(results)
        if results.parts:
            self._spark.catalog.refreshTable(self._table)  # Spark keeps the list of a table's files


def locate_table(spark: SparkSession, name: str, schema: StructType, partition_by: Sequence[str]) -> str:
    """The directory of a table with these columns, which is made if it is not there. One that has others, or rows that
    another program has written, is refused."""
    if not spark.catalog.tableExists(name):
        by = ", ".join(map(quote_column, partition_by))
        spark.sql(f"CREATE TABLE {name} ({schema.toDDL()}) USING parquet{f' PARTITIONED BY ({by})' if by else ''}")
    details, partition_columns = _describe(spark, name)
    if details.get("Provider", "").lower() != "parquet" or "Location" not in details:
        what = details.get("Provider") or details.get("Type", "view").lower()
        raise FlowError(f"toTable writes tables of parquet files, and {name!r} is one of {what}; give another name")
    own, theirs = ({f.name: f.dataType.simpleString() for f in s} for s in (schema, spark.table(name).schema))
    if own != theirs:
        columns = ", ".join(f"{column} {kind}" for column, kind in theirs.items())
        raise FlowError(f"table {name!r} has other columns than these results: it has {columns}; select those")
    if list(partition_by) != partition_columns:
        written = ", ".join(map(repr, partition_columns))
        raise FlowError(f"table {name!r} is partitioned otherwise than these results: write partitionBy({written})")
    location = details["Location"]
    names = [entry for entry in Storage(location).names() if not entry.startswith(".")]
    if names and not any(entry.startswith(MARK) for entry in names):
        raise FlowError(
            f"table {name!r} has rows that were written otherwise, and whoever reads it would not see them any more. "
            "Give a table that is empty, or that a query of Sluice writes"
        )
    return location


def _describe(spark: SparkSession, name: str) -> tuple[dict[str, str], list[str]]:
    """What the catalog says of a table, and the columns that it is partitioned by."""
    rows = [(row.col_name, row.data_type) for row in spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()]
    names = [column for column, _ in rows]
    at = names.index(_DETAILS) if _DETAILS in names else len(rows)
    partition_columns = []
    if "# Partition Information" in names[:at]:
        begin = names.index("# Partition Information") + 2  # behind the heading of its columns
        partition_columns = [column for column in names[begin:at] if column]
    return dict(rows[at:]), partition_columns
