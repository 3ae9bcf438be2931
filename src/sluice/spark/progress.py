"""Spark's progress of a micro-batch and Sluice's figures of the epoch as one dictionary."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from sluice.model.epoch import EpochRecord, watermarks
from sluice.model.phases import phases
from sluice.model.plan import Plan

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def progress(spark: dict[str, Any], record: EpochRecord, plan: Plan) -> dict[str, Any]:
    """`numInputRows` and the rates count rows, on every read path; `phaseSeconds` says where the time went."""
    figures = record.figures
    duration = spark.get("durationMs", {}).get("triggerExecution", 0) / 1000
    marks = watermarks(record.newest, tuple(s.delay for s in plan.sources))
    return {
        **{k: v for k, v in spark.items() if k not in ("sources", "sink", "stateOperators", "eventTime")},
        "batchId": record.batch,
        "epoch": record.number,
        "committedAt": figures["committedAt"],
        "numInputRows": figures["rowsIn"],
        "processedRowsPerSecond": figures["rowsIn"] / duration if duration else 0.0,
        "numOutputRows": figures["rowsOut"],
        "lateRows": figures["lateRows"],
        "nullRows": figures["nullRows"],
        "outOfRangeRows": figures["outOfRangeRows"],
        "missingFiles": figures.get("missingFiles", 0),
        "corruptFiles": figures.get("corruptFiles", 0),
        **{figure: figures[figure] for figure in ("moves", "spills", "fetches", "backlogRows", "imbalance")},
        "streams": figures["streams"],
        "watermarks": {s.name: _iso(m) for s, m in zip(plan.sources, marks, strict=True)},
        "operators": _operators(figures["sites"], plan),
        "phaseSeconds": {**phases(figures), "spark": max(0.0, duration - figures["seconds"].get("total", duration))},
        "sites": [{k: v for k, v in site.items() if k not in ("seconds", "operators")} for site in figures["sites"]],
    }


def caught_up(spark: dict[str, Any], record: EpochRecord) -> dict[str, Any]:
    """What stands for Spark's progress in an epoch that Spark had no part in."""
    took = round(record.figures["seconds"]["total"] * 1000)
    at = _iso(round(record.figures["committedAt"] * 1e6))
    known: dict[str, Any] = {k: spark[k] for k in ("id", "runId", "name") if k in spark}
    return {**known, "timestamp": at, "durationMs": {"triggerExecution": took}}


def _operators(sites: list[dict[str, Any]], plan: Plan) -> list[dict[str, Any]]:
    """What went into each operator (rows, or partial aggregates where it combines them early) and came out of it."""
    out = []
    for number, node in enumerate(plan.nodes):
        counts = [site["operators"].get(str(number), [0, 0]) for site in sites]
        rows_in, rows_out = (sum(c[i] for c in counts) for i in (0, 1))
        out.append({"operator": node.spec.describe().split("\n")[0], "rowsIn": rows_in, "rowsOut": rows_out})
    return out


def _iso(micros: int | None) -> str | None:
    if micros is None:
        return None
    try:
        return (_EPOCH + timedelta(microseconds=micros)).isoformat()
    except OverflowError:  # a watermark may lie before the year 1
        return f"{micros} microseconds after 1970"
