"""`readState`: what a query keeps, as a table."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, overload

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from sluice.engine.state_table import read_state
from sluice.model.errors import FlowError
from sluice.spark.types import spark_schema


@overload
def readState(
    checkpoint: str | os.PathLike[str],
    operator: int | str | None = None,
    input: str | None = None,
    unit: int | None = None,
    key: Any | Mapping[str, Any] | None = None,
) -> pa.Table: ...


@overload
def readState(
    checkpoint: str | os.PathLike[str],
    operator: int | str | None = None,
    input: str | None = None,
    unit: int | None = None,
    key: Any | Mapping[str, Any] | None = None,
    *,
    spark: SparkSession,
) -> DataFrame: ...


def readState(
    checkpoint: str | os.PathLike[str],
    operator: int | str | None = None,
    input: str | None = None,
    unit: int | None = None,
    key: Any | Mapping[str, Any] | None = None,
    *,
    spark: SparkSession | None = None,
) -> pa.Table | DataFrame:
    """The rows that an operator keeps after the newest epoch, out of the checkpoint alone: its query may run meanwhile.

    The columns `_input`, `_unit`, `_site`, `_generation` (0 but for frozen state) and `_waiting` (input whose turn has
    not come) say of each row where it is; its own follow.

    Args:
        checkpoint: its directory.
        operator: a number, as `sluice inspect --state` lists them, or the name of a query: then it is the operator that
            makes its results.
        input: one of the streams that it keeps rows of.
        unit: the id of a unit.
        key: a key whose rows are wanted, of which only its unit is read: a value where the key is one column, values
            by columns where it is several, or null. `sluice inspect --state` lists the columns.
        spark: a session, to have a DataFrame.

    Returns:
        an Arrow table; with `spark`, a DataFrame.

    >>> from sluice import readState
    >>> query.processAllAvailable()
    >>> readState("ck", operator="pairs", input="quotes").num_rows
    2
    >>> readState("ck", operator="pairs", input="trades", key="A")["price"].to_pylist()
    [3.0, 3.0]
    """
    for name, value in (("input", input), ("operator", operator)):
        if value is not None and not isinstance(value, str) and (name == "input" or not isinstance(value, int)):
            raise FlowError(f"{name}={value!r} is neither a name nor a number")
    table = read_state(os.fspath(checkpoint), operator, input, unit, key)
    if spark is None:
        return table
    return spark.createDataFrame(table, spark_schema(table.schema))
