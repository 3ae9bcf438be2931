"""The watermarks that a streaming DataFrame brings along, those of `df.withWatermark(column, delay)`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

DELAY_METADATA = "spark.watermarkDelayMs"
"""Under which Spark keeps the delay in a column's metadata, for as long as the column is passed on as it is."""


def delay_by_column(frame: DataFrame) -> dict[str, int]:
    """The columns that carry a watermark, each with its delay in microseconds."""
    metadata = {field.name: field.metadata or {} for field in frame.schema}
    return {column: int(entry[DELAY_METADATA]) * 1_000 for column, entry in metadata.items() if DELAY_METADATA in entry}


def watermarked_columns(frame: DataFrame) -> list[str]:
    """The columns of all watermarks in the DataFrame's plan; it need not have these columns any more."""
    plan = frame._jdf.queryExecution().analyzed()
    return sorted({str(node.eventTime().name()) for node in _nodes(plan) if node.nodeName() == "EventTimeWatermark"})


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    children = plan.children()
    for at in range(children.size()):
        yield from _nodes(children.apply(at))
