"""Group-bys as PySpark's users write them: a window of time among the columns of `groupBy`, columns in `agg`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column

from sluice.api.relation import NamedRelation
from sluice.api.spark_columns import SparkWindow, aggregate_in, name_aggregate, window_in
from sluice.model.errors import FlowError


def split_windows(
    rows: NamedRelation, columns: Sequence[str | Column]
) -> tuple[tuple[str | Column, ...], SparkWindow | None]:
    """The columns without the window among them, and that, if there is one."""
    read = [(column, window_in(column, rows.name) if isinstance(column, Column) else None) for column in columns]
    windows = [window for _, window in read if window is not None]
    if len(windows) > 1:
        raise FlowError("groupBy takes one window of time; windows of windows are a group-by of the first one's result")
    return tuple(column for column, window in read if window is None), windows[0] if windows else None


def check_window(rows: NamedRelation, window: SparkWindow) -> None:
    """Refuses windows of another time than the event time."""
    if rows.find_column(window.time) != rows.event_time:
        raise FlowError(
            f"{window.function} of {window.time!r}: windows are of the event time, which is {rows.event_time!r} of "
            f"{rows.title}"
        )


def read_aggregates(rows: NamedRelation, unnamed: Sequence[object]) -> dict[str, tuple[str, str]]:
    """Aggregates as PySpark takes them, column and function by the name that the result has there."""
    aggregates: dict[str, tuple[str, str]] = {}
    for one in unnamed:
        if isinstance(one, Column):
            named = [aggregate_in(one, rows.name)]
        elif isinstance(one, Mapping):
            named = [(name_aggregate(column, function), (column, function)) for column, function in one.items()]
        else:
            raise FlowError(
                f"agg takes its aggregates by name, such as n=('*', 'count'), or as columns of Spark, not {one!r}"
            )
        for name, choice in named:
            if name in aggregates:
                raise FlowError(f"two aggregates are called {name!r}; give one an alias")
            aggregates[name] = choice
    return aggregates
