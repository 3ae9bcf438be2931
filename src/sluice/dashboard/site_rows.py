"""Sites in tables: the tiers of their state, and which of them are shown where there is no room for all."""

from __future__ import annotations

from collections.abc import Sequence

TIERS = {"memory": "memory_bytes", "disk": "disk_bytes", "durable": "durable_bytes"}


def busiest(busy_seconds: Sequence[float], room: int) -> list[int]:
    """The sites for so many lines, by number; where not all fit, those that worked longest, with a line to spare."""
    sites = list(range(len(busy_seconds)))
    if len(sites) <= room:
        return sites
    return sorted(sorted(sites, key=lambda site: -busy_seconds[site])[: room - 1])
