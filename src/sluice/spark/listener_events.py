"""Spark's listeners are told of queries that Spark does not drive: that they start, what epochs did, how they end.

The events are Spark's own, so that a `StreamingQueryListener` and Spark's page of streaming queries need to know
nothing of it. Rows are counted as rows, whoever read them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import datetime, timezone
from functools import cached_property
from typing import Any

from pyspark.sql import SparkSession

from sluice.record.epoch import EpochRecord

_log = logging.getLogger(__name__)
_STREAMING = "org.apache.spark.sql.streaming"


class ListenerEvents:
    """The events of one run of a query. What goes wrong with one is logged, and ends nothing."""

    def __init__(self, spark: SparkSession, id_: str, run_id: str, name: str | None) -> None:
        self._spark: Any = spark
        self._id, self._run_id, self._name = id_, run_id, name
        self._last_commit: float | None = None

    def tell_start(self, at: float) -> None:
        """The query has started, at this time (seconds since 1970)."""
        self._post(lambda: self._new("QueryStartedEvent", *self._ids(), self._name, _iso(at)), even_if_unheard=True)

    def tell_epoch(self, record: EpochRecord) -> None:
        """An epoch is over, and its results are shown."""
        since, self._last_commit = self._last_commit, record.stats.committed_at
        since_last = None if since is None else record.stats.committed_at - since
        self._post(lambda: self._progress_event(json.dumps(self._progress(record, since_last))))

    def tell_end(self, failure: BaseException | None) -> None:
        """The query has ended, by itself or by this."""
        why = None if failure is None else str(failure)
        self._post(
            lambda: self._new("QueryTerminatedEvent", *self._ids(), self._spark._jvm.scala.Option.apply(why)),
            even_if_unheard=True,
        )

    def _post(self, make_event: Callable[[], Any], even_if_unheard: bool = False) -> None:
        """Hand an event to Spark, which knows by the first and the last one which queries there are."""
        try:
            if even_if_unheard or len(self._streams.listListeners()):
                self._streams.postListenerEvent(make_event())
        except Exception as problem:  # a context that has been stopped has no listeners
            _log.debug("listeners of Spark were not told of query %s: %s", self._id, problem)

    @cached_property
    def _streams(self) -> Any:
        return self._spark._jsparkSession.streams()

    @cached_property
    def _progress_event(self) -> Callable[[str], Any]:
        """Makes an event of Spark's out of a progress as JSON. To find its classes takes longer than to use them."""
        progress = getattr(self._class("StreamingQueryProgress$"), "MODULE$")
        event = self._class("StreamingQueryListener$QueryProgressEvent")
        return lambda text: event(progress.fromJson(text))

    def _progress(self, record: EpochRecord, since_last: float | None) -> dict[str, Any]:
        """What Spark would tell of a batch; each stream is a source."""
        stats, took = record.stats, record.stats.seconds.elapsed
        return {
            "id": self._id,
            "runId": self._run_id,
            "name": self._name,
            "timestamp": _iso(stats.committed_at),
            "batchId": record.batch,
            "batchDuration": round(took * 1000),
            "durationMs": {"triggerExecution": round(took * 1000)},
            "eventTime": {},
            "stateOperators": [],
            "sources": [
                {
                    "description": f"files of stream {stream.name!r}",
                    "numInputRows": stream.rows,
                    "inputRowsPerSecond": stream.rows / since_last if since_last else 0.0,
                    "processedRowsPerSecond": stream.rows / took if took else 0.0,
                    "metrics": {},
                }
                for stream in stats.streams
            ],
            "sink": {"description": "Sluice", "numOutputRows": stats.rows_out, "metrics": {}},
            "observedMetrics": {},
        }

    def _ids(self) -> tuple[Any, Any]:
        read = self._spark._jvm.java.util.UUID.fromString
        return read(self._id), read(self._run_id)

    def _new(self, event: str, *arguments: Any) -> Any:
        return self._class(f"StreamingQueryListener${event}")(*arguments)

    def _class(self, name: str) -> Any:
        return getattr(getattr(self._spark._jvm, _STREAMING), name)


def _iso(seconds: float) -> str:
    time = datetime.fromtimestamp(seconds, timezone.utc)
    return f"{time:%Y-%m-%dT%H:%M:%S}.{time.microsecond // 1000:03d}Z"
