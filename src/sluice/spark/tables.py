"""The rows of tables that Spark has."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from sluice.model.errors import SPARKS_ACCOUNT, FlowError, QueryError, SluiceError
from sluice.sources.file_types import normal_schema
from sluice.sources.table_files import StagingArea, TableFile, TableListing
from sluice.sources.tables import fit_rows, refuse_missing, stage_rows
from sluice.spark.sources import quote_column
from sluice.spark.types import arrow_schema

TableRows: TypeAlias = pa.Table | pa.RecordBatch | DataFrame
"""What a table can be made of, once or each time it is read."""


@dataclass(frozen=True, eq=False)
class ComputedRows:
    """Rows that Spark or a function of the user's computes anew each time."""

    name: str
    compute: Callable[[], TableRows]

    def read(self) -> pa.Table:
        with self._told_in_words():
            return to_arrow(self.name, self._compute())

    def fingerprint(self) -> Hashable | None:
        """Only reading tells."""

    def list_files(self, schema: pa.Schema, staging: StagingArea) -> TableListing:
        """Rows of a DataFrame are staged by the tasks that compute them: the driver has none of them."""
        with self._told_in_words():
            rows = self._compute()
            if isinstance(rows, DataFrame):
                refuse_missing(self.name, schema, rows.columns)
                chosen = rows.select(*map(quote_column, schema.names))
                return TableListing(stage_partitions(self.name, chosen, schema, staging))
            return stage_rows(self.name, to_arrow(self.name, rows), schema, staging)

    def _compute(self) -> TableRows:
        try:
            return self.compute()
        except (SluiceError, PySparkException):
            raise
        except Exception as problem:  # the user's code may raise anything
            account = f"{type(problem).__name__}: {problem}"
            raise QueryError(f"table {self.name!r} cannot be read: its function failed with {account}") from problem

    @contextmanager
    def _told_in_words(self) -> Iterator[None]:
        try:
            yield
        except PySparkException as problem:
            raise QueryError(f"table {self.name!r} cannot be read. {SPARKS_ACCOUNT}\n{problem}") from problem


def stage_partitions(name: str, rows: DataFrame, schema: pa.Schema, staging: StagingArea) -> tuple[TableFile, ...]:
    """The rows of a batch DataFrame as files, written by the tasks of its partitions."""

    def stage(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        fitted = (
            batch for rows_ in batches for batch in fit_rows(name, pa.Table.from_batches([rows_]), schema).to_batches()
        )
        for file in staging.write(fitted, schema):
            yield pa.RecordBatch.from_pylist([{"path": file.path, "size": file.size, "checksum": str(file.checksum)}])

    written = rows.mapInArrow(stage, "path string, size bigint, checksum string").collect()
    return tuple(TableFile(row["path"], row["size"], int(row["checksum"])) for row in written)


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
