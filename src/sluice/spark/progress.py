"""Spark's progress of a micro-batch and Sluice's statistics of the epoch as one dictionary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime, timedelta, timezone
from typing import Any

from sluice.model.epoch import EpochRecord, watermarks
from sluice.model.plan import Plan
from sluice.model.sharing import SharedUnit
from sluice.model.stats import CleanUpProgress, SiteStats, StreamStats, phases

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def progress(spark: dict[str, Any], record: EpochRecord, plan: Plan) -> dict[str, Any]:
    """`numInputRows` and the rates count rows, on every read path; `phaseSeconds` says where the time went."""
    stats = record.stats
    duration = spark.get("durationMs", {}).get("triggerExecution", 0) / 1000
    marks = watermarks(record.newest, tuple(s.delay for s in plan.sources))
    return {
        **{k: v for k, v in spark.items() if k not in ("sources", "sink", "stateOperators", "eventTime")},
        "batchId": record.batch,
        "epoch": record.number,
        "committedAt": stats.committed_at,
        "numInputRows": stats.rows_in,
        "processedRowsPerSecond": stats.rows_in / duration if duration else 0.0,
        "numOutputRows": stats.rows_out,
        "lateRows": stats.late_rows,
        "nullRows": stats.null_rows,
        "outOfRangeRows": stats.out_of_range_rows,
        "missingFiles": stats.missing_files,
        "corruptFiles": stats.corrupt_files,
        "units": record.routing.units,
        "moves": stats.moves,
        "spills": stats.spills,
        "fetches": stats.fetches,
        "backlogRows": stats.backlog_rows,
        "sharedUnits": [_in_camel_case(sharing) for sharing in record.routing.shared],
        "copiedRows": stats.copied_rows,
        "copiedBytes": stats.copied_bytes,
        "remiss": stats.remiss,
        "missingUnits": len(record.missing_units),
        "cleanUp": _clean_up(stats.clean_up),
        "imbalance": stats.imbalance,
        "scaling": _scaling(record),
        "streams": [_in_camel_case(stream) for stream in stats.streams],
        "watermarks": {s.name: _iso(m) for s, m in zip(plan.sources, marks, strict=True)},
        "operators": _operators(stats.sites, plan),
        "phaseSeconds": {**phases(stats), "spark": max(0.0, duration - (stats.seconds.total or duration))},
        "sites": [
            {**_in_camel_case(site, without=("seconds", "operators")), "saturation": site.saturation}
            for site in stats.sites
        ],
    }


def caught_up(whose: dict[str, Any], record: EpochRecord) -> dict[str, Any]:
    """What stands for Spark's progress in an epoch that Spark had no part in; `whose` names the query and its run."""
    took = round(record.stats.seconds.elapsed * 1000)
    at = _iso(round(record.stats.committed_at * 1e6))
    return {**whose, "timestamp": at, "durationMs": {"triggerExecution": took}}


def _in_camel_case(
    value: StreamStats | SiteStats | CleanUpProgress | SharedUnit, without: Sequence[str] = ()
) -> dict[str, Any]:
    """A value's fields under the names that Spark's progress would give them."""
    named = (
        (field.name.split("_"), getattr(value, field.name)) for field in fields(value) if field.name not in without
    )
    return {"".join([first, *(word.title() for word in more)]): content for (first, *more), content in named}


def _clean_up(done: CleanUpProgress | None) -> dict[str, Any] | None:
    """How far cleaning up has come; None while there is none."""
    if done is None:
        return None
    return {**_in_camel_case(done, without=("seconds",)), "rowsPerSecond": done.rows_per_second}


def _scaling(record: EpochRecord) -> dict[str, Any] | None:
    """How many sites there are, may be and are to be, who is leaving and how many are awaited; None where their number
    is no matter of choice."""
    turnout, sites = record.stats.turnout, record.routing.sites
    if turnout is None:
        return None
    wanted = sites if turnout.wanted is None else turnout.wanted
    return {
        "sites": sites,
        "minSites": turnout.least,
        "maxSites": turnout.most,
        "wanted": wanted,
        "leaving": list(range(wanted, sites)),
        "awaited": max(0, wanted - sites),
    }


def _operators(sites: Sequence[SiteStats], plan: Plan) -> list[dict[str, Any]]:
    """What went into each operator (rows, or partial aggregates where it combines them early) and came out of it."""
    out = []
    for number, node in enumerate(plan.nodes):
        counts = [count for site in sites for count in site.operators if count.operator == number]
        rows_in, rows_out = sum(count.rows_in for count in counts), sum(count.rows_out for count in counts)
        out.append({"operator": node.spec.describe().split("\n")[0], "rowsIn": rows_in, "rowsOut": rows_out})
    return out


def _iso(micros: int | None) -> str | None:
    if micros is None:
        return None
    try:
        return (_EPOCH + timedelta(microseconds=micros)).isoformat()
    except OverflowError:  # a watermark may lie before the year 1
        return f"{micros} microseconds after 1970"
