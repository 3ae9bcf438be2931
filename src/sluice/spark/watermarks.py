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


def united_delays(frame: DataFrame) -> tuple[int | None, ...]:
    """The delays in microseconds of the parts of a union in which these differ, None of a part without a watermark;
    nothing if there is no such union. The column of the union carries that of the first part alone."""
    plan = frame._jdf.queryExecution().analyzed()
    for node in (node for node in _nodes(plan) if node.nodeName() == "Union"):
        parts = [[_delay_of(column) for column in _each(part.output())] for part in _each(node.children())]
        for delays in zip(*parts, strict=True):
            if len(set(delays)) > 1:
                return tuple(dict.fromkeys(delays))
    return ()


def _delay_of(column: Any) -> int | None:
    metadata = column.metadata()
    return int(metadata.getLong(DELAY_METADATA)) * 1_000 if metadata.contains(DELAY_METADATA) else None


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in _each(plan.children()):
        yield from _nodes(child)


def _each(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(place) for place in range(sequence.size()))
