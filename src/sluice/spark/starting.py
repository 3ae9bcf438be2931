"""From a checked query to one that runs. Each step hands its value to the next; one that fails undoes what it did
itself, and `start` undoes the steps before it, the last first."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from weakref import WeakValueDictionary

from pyspark.sql import SparkSession

from sluice.model.clock import SystemClock
from sluice.model.errors import QueryError
from sluice.spark.checked_query import CheckedQuery
from sluice.spark.exchange import Sites
from sluice.spark.query_checkpoint import take_checkpoint
from sluice.spark.running import RunningQuery

_running: WeakValueDictionary[str, RunningQuery] = WeakValueDictionary()
"""The query that this process runs on each checkpoint, also while it is being closed."""


def start(query: CheckedQuery) -> RunningQuery:
    """Take the query's checkpoint, place its sites, and have it run."""
    _use_this_python(query.spark)
    _stop_earlier_run(query.location)
    _refuse_name_in_use(query)
    clock = SystemClock()
    with ExitStack() as undo:
        checkpoint = take_checkpoint(query, clock)
        undo.callback(checkpoint.discard)
        sites = place_sites(query)
        undo.callback(sites.close, checkpoint.workspace)
        running = RunningQuery(query, checkpoint, sites, clock)
        running.start()
        undo.pop_all()
    _running[checkpoint.location] = running
    return running


def active_queries() -> list[RunningQuery]:
    """The queries that this process runs, those that only finish what waits among them."""
    return [running for running in _running.values() if not running.is_closed]


def place_sites(query: CheckedQuery) -> Sites:
    """Pin the query's sites to executors."""
    settings = query.settings
    scales = settings.controller.scale_target is not None
    return Sites(query.spark, settings.sites, settings.site_count, scales, settings.places)


def _stop_earlier_run(location: str | None) -> None:
    """End the run that this process has on a checkpoint: Spark, too, does so when a query is started again."""
    earlier = None if location is None else _running.get(location)
    if earlier is not None and not earlier.is_closed:
        earlier.stop()


def _refuse_name_in_use(query: CheckedQuery) -> None:
    """Names of queries that run are all different, as in Spark, which knows only those that it drives."""
    if query.name is not None and query.name in names_in_use(query.spark):
        raise QueryError(f"cannot start a query named {query.name!r}: one of that name is active; stop it first")


def names_in_use(spark: SparkSession) -> list[str]:
    """The names of a session's queries that run."""
    ours = [running.feed.name for running in active_queries() if running.session is spark and running.feed.is_active]
    return [name for name in (*ours, *(query.name for query in spark.streams.active)) if name is not None]


def _use_this_python(spark: SparkSession) -> None:
    """Have local executors run this interpreter, where Sluice is installed, unless the user chose another."""
    context = spark.sparkContext
    if str(context.master).startswith("local") and not os.environ.get("PYSPARK_PYTHON"):
        context.pythonExec = sys.executable
