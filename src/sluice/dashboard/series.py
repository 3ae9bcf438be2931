"""The journal's records as columns over epochs: what the plots and the summary of a report are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from sluice.model.epoch.stats import PHASES, SiteStats, phases
from sluice.record.epoch import EpochRecord

Values = list[float | None]
"""One value an epoch; None where there is none, such as a site that did not exist yet."""

TIERS = {"memory": "memory_bytes", "disk": "disk_bytes", "durable": "durable_bytes"}


@dataclass(frozen=True)
class Series:
    """What some values are of, and the values."""

    name: str
    values: Values


@dataclass(frozen=True)
class Summary:
    """A run in a few numbers; state is that after the last epoch."""

    rows_in: int
    rows_out: int
    late: int
    rows_per_second: float
    state_rows: int
    state_bytes: int


def summary(records: Sequence[EpochRecord]) -> Summary:
    """The totals over these epochs; the rate is the median over the epochs that had rows."""
    rates = [r.stats.rows_in / r.stats.seconds.elapsed for r in records if r.stats.rows_in]
    last = records[-1].stats.sites if records else ()
    return Summary(
        rows_in=sum(r.stats.rows_in for r in records),
        rows_out=sum(r.stats.rows_out for r in records),
        late=sum(r.stats.late_rows for r in records),
        rows_per_second=median(rates) if rates else 0.0,
        state_rows=sum(site.rows for site in last),
        state_bytes=sum(site.durable_bytes for site in last),
    )


def by_stream(records: Sequence[EpochRecord], column: str, per_second: bool = False) -> list[Series]:
    """A column of every stream's statistics, such as `rows` or `late`, as a count or a rate."""
    names = list(dict.fromkeys(stream.name for r in records for stream in r.stats.streams))
    columns: dict[str, Values] = {name: [] for name in names}
    for record in records:
        totals: dict[str, float] = dict.fromkeys(names, 0)
        for stream in record.stats.streams:
            totals[stream.name] += getattr(stream, column)
        for name, value in totals.items():
            columns[name].append(value / record.stats.seconds.elapsed if per_second else value)
    return [Series(name, values) for name, values in columns.items()]


def results_per_second(records: Sequence[EpochRecord]) -> Series:
    return Series("results", [r.stats.rows_out / r.stats.seconds.elapsed for r in records])


def by_epoch(records: Sequence[EpochRecord], column: str) -> Series:
    """A column of the epochs as a whole, such as `moves` or `backlog_rows`."""
    return Series(column, [getattr(r.stats, column) for r in records])


def by_tier(records: Sequence[EpochRecord]) -> list[Series]:
    """Bytes of state in each tier, all sites together."""
    return [
        Series(tier, [sum(getattr(site, column) for site in r.stats.sites) for r in records])
        for tier, column in TIERS.items()
    ]


def by_site(records: Sequence[EpochRecord], column: str) -> list[Series]:
    """A column of every site's statistics, such as `rows` or `busy_seconds`; sites may come and go between runs."""
    count = max((len(r.stats.sites) for r in records), default=0)
    return [Series(f"site {site}", [_at(r.stats.sites, site, column) for r in records]) for site in range(count)]


def by_phase(records: Sequence[EpochRecord]) -> list[Series]:
    """Seconds of every epoch by phase, in the order of the work; phases that never took time are left out."""
    epochs = [phases(r.stats) for r in records]
    series = [Series(name, [epoch[name] for epoch in epochs]) for name in PHASES]
    return [one for one in series if any(one.values)]


def busiest(busy_seconds: Sequence[float], room: int) -> list[int]:
    """The sites for so many lines, by number; where not all fit, those that worked longest, with a line to spare."""
    sites = list(range(len(busy_seconds)))
    if len(sites) <= room:
        return sites
    return sorted(sorted(sites, key=lambda site: -busy_seconds[site])[: room - 1])


def _at(sites: Sequence[SiteStats], site: int, column: str) -> float | None:
    return float(getattr(sites[site], column)) if site < len(sites) else None
