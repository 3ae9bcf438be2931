"""The queries of a flow with their pieces: the operators that lead to each, and where these are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sluice.model.ids import Fragment
from sluice.model.plan.recorded_plan import RecordedPlan
from sluice.model.routing.unit_ids import list_units
from sluice.record.epoch import EpochRecord
from sluice.record.query_progress import query_progress, sites_of

_LISTED = 6  # runs of sites that are named


@dataclass(frozen=True)
class Piece:
    """An operator: what it does, how many queries have it in common, its units and the sites that hold them."""

    says: str
    queries: int
    units: int
    sites: str


@dataclass(frozen=True)
class QueryRow:
    """How a query did over the last epochs, as `QueryProgress` has it; `pieces` are the places of its operators."""

    name: str
    sink: str
    says: str
    rows_in: float
    results: int
    seconds: float
    delay: float | None
    ratio: float | None
    own_bytes: int
    shared_bytes: int
    sites: int
    pieces: tuple[int, ...]
    error: str | None = None


@dataclass(frozen=True)
class QueryTable:
    """All queries after an epoch, and the operators that they are made of, each once."""

    epoch: int
    pieces: tuple[Piece, ...]
    queries: tuple[QueryRow, ...]


def query_table(plan: RecordedPlan, records: Sequence[EpochRecord]) -> QueryTable:
    """The queries of the plan that the newest of some epochs went by."""
    newest = records[-1]
    progress = query_progress(plan, newest, records)
    rows = [
        QueryRow(
            name=one.name,
            sink=one.sink,
            says=query.says,
            rows_in=one.rows_in,
            results=one.results,
            seconds=one.seconds,
            delay=one.delay,
            ratio=one.performance_ratio,
            own_bytes=one.own_bytes,
            shared_bytes=one.shared_bytes,
            sites=len(one.sites),
            pieces=plan.operators_of(number),
            error=one.error,
        )
        for number, (one, query) in enumerate(zip(progress, plan.queries, strict=True))
    ]
    return QueryTable(newest.number, tuple(_pieces(plan, newest)), tuple(rows))


def _pieces(plan: RecordedPlan, newest: EpochRecord) -> list[Piece]:
    directories = newest.routing.directories
    sites = [list_units(sites_of(newest.routing, Fragment(n)), _LISTED) for n in range(len(directories))]
    pieces = []
    for number, operator in enumerate(plan.operators):
        first, end = directories[operator.fragment].range
        pieces.append(Piece(operator.says, len(plan.users[number]), end - first, sites[operator.fragment]))
    return pieces
