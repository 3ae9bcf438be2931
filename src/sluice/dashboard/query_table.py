"""A flow's queries as rows of a table: the same in the terminal, in `sluice inspect` and in the report."""

from __future__ import annotations

from collections.abc import Sequence

from sluice.dashboard.quantity import BYTES, RATIO, ROWS, SECONDS
from sluice.model.plan.recorded_plan import RecordedPlan
from sluice.record.epoch import EpochRecord
from sluice.record.query_progress import LATELY, QueryProgress, query_progress

HEAD = ("query", "rows in", "results", "time", "delay", "ratio", "state", "shared", "sites", "sink", "error")
WORDS = ("query", "sink", "error")
OVER = f"over the last {LATELY} epochs; what queries share is divided among them"
_SITES = 4
"""Sites that are named."""


def rank_queries(plan: RecordedPlan, records: Sequence[EpochRecord]) -> list[QueryProgress]:
    """The queries of the plan that the newest of some epochs went by, those first that failed, then by time and by
    state; none where there is only one."""
    if len(plan.queries) < 2 or not records:
        return []
    queries = query_progress(plan, records[-1], records)
    return sorted(queries, key=lambda q: (q.error is None, -q.seconds, -q.own_bytes - q.shared_bytes, -q.rows_in))


def query_row(query: QueryProgress) -> tuple[str, ...]:
    """A query's cells, as `HEAD` names them."""
    return (
        query.name,
        ROWS.text(query.rows_in) if query.rows_in else "-",
        ROWS.text(query.results) if query.results else "-",
        SECONDS.text(query.seconds) if query.seconds else "-",
        "-" if query.delay is None else SECONDS.text(query.delay),
        "-" if query.performance_ratio is None else RATIO.text(query.performance_ratio),
        BYTES.text(query.own_bytes) if query.own_bytes else "-",
        BYTES.text(query.shared_bytes) if query.shared_bytes else "-",
        _list_sites(query.sites),
        query.sink,
        query.error or "",
    )


def columns_of(queries: Sequence[QueryProgress]) -> list[tuple[str, list[str]]]:
    """The columns of some queries, each with its name; errors if there is one."""
    cells = [query_row(query) for query in queries]
    columns = [(name, [row[at] for row in cells]) for at, name in enumerate(HEAD)]
    return columns if any(query.error for query in queries) else columns[:-1]


def rest_text(rest: Sequence[QueryProgress], every: Sequence[QueryProgress]) -> str:
    """What queries that are not shown amount to.

    >>> busy, idle = QueryProgress("a", "noop", seconds=0.3), QueryProgress("b", "noop", seconds=0.1)
    >>> rest_text([idle], [busy, idle]), rest_text([idle] * 1200, [idle] * 2000)
    ('and 1 more query, with 25 % of the time', 'and 1,200 more queries, with 60 % of the time')
    """
    whole = sum(query.seconds for query in every)
    share = f", with {100 * sum(query.seconds for query in rest) / whole:.0f} % of the time" if whole else ""
    return f"and {len(rest):,} more quer{'y' if len(rest) == 1 else 'ies'}{share}"


def _list_sites(sites: Sequence[int]) -> str:
    """
    >>> _list_sites((0, 2)), _list_sites(range(9)), _list_sites(())
    ('0, 2', '0, 1, 2, 3 … 9 sites', '-')
    """
    listed = ", ".join(map(str, sites[:_SITES]))
    return (f"{listed} … {len(sites)} sites" if len(sites) > _SITES else listed) or "-"
