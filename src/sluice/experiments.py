"""For experiments with policies: machines made slow on purpose. Nothing here is meant for queries in earnest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.model.durations import seconds, size_in_bytes
from sluice.model.errors import FlowError, QueryError

if TYPE_CHECKING:
    from sluice.api.query import Query

__all__ = ["slowDisk", "slowDown"]


def slowDown(query: Query, site: int, perRow: str, perResult: str = "0 seconds") -> None:
    """Have every row that reaches a site of a running query take this much longer there, and every result that it
    finds, from the next epoch on.

    The site sleeps, as if its machine were slow. "0 seconds" ends it.

        slowDown(query, 2, "45 microseconds")
    """
    emulation, number = query._running.settings.emulation, query._site(site)
    emulation.row_delay[number] = seconds(perRow, "perRow")
    emulation.result_delay[number] = seconds(perResult, "perResult")


def slowDisk(query: Query, perSecond: str | int | None) -> None:
    """Have every site of a running query read and write so many bytes a second, from the next epoch on.

    It is about state on the local disk, state that is frozen, and all state that is read from the checkpoint. Sites
    sleep, each as if it had a disk of its own, without a cache in front of it. None ends it.

        slowDisk(query, "50m")
    """
    rate = None if perSecond is None else size_in_bytes(perSecond, "perSecond")
    if rate == 0:
        raise FlowError("a disk of 0 bytes a second would take for ever; None ends the emulation")
    if (over := query._over()) is not None:
        raise QueryError(over)
    query._running.settings.emulation.disk_delay = 0.0 if rate is None else 1 / rate
