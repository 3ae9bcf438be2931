"""For experiments with policies: machines made slow on purpose. Nothing here is meant for queries in earnest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.model.durations import seconds

if TYPE_CHECKING:
    from sluice.api.query import Query

__all__ = ["slowDown"]


def slowDown(query: Query, site: int, perRow: str) -> None:
    """Have every row take this much longer at a site of a running query, from the next epoch on.

    The site sleeps, as if its machine were slow. "0 seconds" ends it.

        slowDown(query, 2, "45 microseconds")
    """
    query._running.settings.row_delay[query._site(site)] = seconds(perRow, "perRow")
