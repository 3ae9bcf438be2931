"""The rows of tables that Spark has."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from sluice.model.errors import SPARKS_ACCOUNT, FlowError, QueryError
from sluice.sources.file_types import normal_schema
from sluice.sources.tables import fit_rows
from sluice.spark.types import arrow_schema

TableRows: TypeAlias = pa.Table | pa.RecordBatch | DataFrame
"""What a table can be made of, once or each time it is read."""


@dataclass(frozen=True, eq=False)
class ComputedRows:
    """Rows that Spark or a function of the user's computes anew each time."""

    name: str
    compute: Callable[[], TableRows]

    def read(self) -> pa.Table:
        try:
            return to_arrow(self.name, self.compute())
        except PySparkException as problem:
            raise QueryError(f"table {self.name!r} cannot be read. {SPARKS_ACCOUNT}\n{problem}") from problem

    def fingerprint(self) -> Hashable | None:
        """Only reading tells."""


def to_arrow(name: str, rows: object) -> pa.Table:
    """Rows as an Arrow table of normal types; what is no table is refused."""
    if isinstance(rows, DataFrame):
        if rows.isStreaming:
            raise FlowError(
                f"table {name!r} was given a streaming DataFrame; register that with flow.readStream, as a stream"
            )
        return fit_rows(name, rows.toArrow(), arrow_schema(f"table {name!r}", rows.schema))
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if not isinstance(rows, pa.Table):
        raise FlowError(
            f"table {name!r} takes a path, an Arrow table, a DataFrame, or a function that returns one of the last "
            f"two, not {type(rows).__name__}"
        )
    return fit_rows(name, rows, normal_schema(rows.schema))
