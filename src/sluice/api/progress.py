"""The progress of an epoch as the dictionary that users know: Spark's own figures, and Sluice's beside them under names
as Spark would give them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timedelta, timezone
from typing import Any

from sluice.model.epoch.stats import CleanUpProgress, SiteStats, StreamStats
from sluice.model.plan.plan import Plan
from sluice.model.routing.sharing import SharedUnit
from sluice.record.epoch import EpochRecord
from sluice.record.progress import EpochProgress, OperatorProgress, ScalingProgress, SilentStream

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_SPARKS_ALONE = ("sources", "sink", "stateOperators", "eventTime")
"""What Spark says of operators and sinks that are not its own here."""


def progress_dictionary(spark: Mapping[str, Any], record: EpochRecord, plan: Plan) -> dict[str, Any]:
    """The progress of an epoch beside what Spark says of its batch."""
    own = {key: value for key, value in spark.items() if key not in _SPARKS_ALONE}
    return {**own, **_as_dictionary(epoch_progress(spark, record, plan))}


def epoch_progress(spark: Mapping[str, Any], record: EpochRecord, plan: Plan) -> EpochProgress:
    """The progress of an epoch as a value; Spark says how long its batch took."""
    return EpochProgress.of(record, plan, spark.get("durationMs", {}).get("triggerExecution", 0) / 1000)


def without_spark(whose: Mapping[str, Any], record: EpochRecord) -> dict[str, Any]:
    """What stands for Spark's progress in an epoch that Spark had no part in; `whose` names the query and its run."""
    took = round(record.stats.seconds.elapsed * 1000)
    at = _iso(round(record.stats.committed_at * 1e6))
    return {**whose, "timestamp": at, "durationMs": {"triggerExecution": took}}


def _as_dictionary(progress: EpochProgress) -> dict[str, Any]:
    """`numInputRows` and the rates count rows, on every read path; `phaseSeconds` says where the time went."""
    stats = progress.stats
    return {
        "batchId": progress.batch,
        "epoch": progress.epoch,
        "committedAt": stats.committed_at,
        "numInputRows": stats.rows_in,
        "processedRowsPerSecond": progress.rows_per_second,
        "numOutputRows": stats.rows_out,
        "lateRows": stats.late_rows,
        "nullRows": stats.null_rows,
        "outOfRangeRows": stats.out_of_range_rows,
        "missingFiles": stats.missing_files,
        "corruptFiles": stats.corrupt_files,
        "units": progress.units,
        "moves": stats.moves,
        "spills": stats.spills,
        "fetches": stats.fetches,
        "backlogRows": stats.backlog_rows,
        "sharedUnits": [_in_camel_case(sharing) for sharing in progress.shared],
        "copiedRows": stats.copied_rows,
        "copiedBytes": stats.copied_bytes,
        "exchangedBytes": stats.traffic.total,
        "bytesBetweenSites": stats.traffic.between_sites,
        "remiss": stats.remiss,
        "missingUnits": progress.missing_units,
        "cleanUp": None if stats.clean_up is None else _clean_up(stats.clean_up),
        "imbalance": stats.imbalance,
        "scaling": None if progress.scaling is None else _scaling(progress.scaling),
        "streams": [_in_camel_case(stream) for stream in stats.streams],
        "watermarks": {mark.stream: "ended" if mark.has_ended else _iso(mark.micros) for mark in progress.watermarks},
        "silentStreams": [_in_camel_case(stream) for stream in progress.silent_streams],
        "operators": [_in_camel_case(operator) for operator in progress.operators],
        "phaseSeconds": progress.phase_seconds,
        "sites": [
            {**_in_camel_case(site, without=("seconds", "operators")), "saturation": site.saturation}
            for site in stats.sites
        ],
    }


def _in_camel_case(
    value: StreamStats | SiteStats | CleanUpProgress | SharedUnit | OperatorProgress | SilentStream,
    without: Sequence[str] = (),
) -> dict[str, Any]:
    """A value's fields under the names that Spark's progress would give them."""
    named = ((field.name.split("_"), vars(value)[field.name]) for field in fields(value) if field.name not in without)
    return {"".join([first, *(word.title() for word in more)]): content for (first, *more), content in named}


def _clean_up(done: CleanUpProgress) -> dict[str, Any]:
    return {**_in_camel_case(done, without=("seconds",)), "rowsPerSecond": done.rows_per_second}


def _scaling(scaling: ScalingProgress) -> dict[str, Any]:
    return {
        "sites": scaling.sites,
        "minSites": scaling.least,
        "maxSites": scaling.most,
        "wanted": scaling.wanted,
        "leaving": list(scaling.leaving),
        "awaited": scaling.awaited,
    }


def _iso(micros: int | None) -> str | None:
    if micros is None:
        return None
    try:
        return (_EPOCH + timedelta(microseconds=micros)).isoformat()
    except OverflowError:  # a watermark may lie before the year 1
        return f"{micros} microseconds after 1970"
