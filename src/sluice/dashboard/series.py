"""The journal's records as columns over epochs: what the plots and the summary of a report are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from sluice.model.epoch import EpochRecord
from sluice.model.phases import PHASES, phases

Values = list[float | None]
"""One value an epoch; None where there is none, such as a site that did not exist yet."""

TIERS = {"memory": "memoryBytes", "disk": "diskBytes", "durable": "durableBytes"}


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
    rates = [r.figures.get("rowsIn", 0) / epoch_seconds(r) for r in records if r.figures.get("rowsIn")]
    last = sites_of(records[-1]) if records else []
    return Summary(
        rows_in=sum(r.figures.get("rowsIn", 0) for r in records),
        rows_out=sum(r.figures.get("rowsOut", 0) for r in records),
        late=sum(r.figures.get("lateRows", 0) for r in records),
        rows_per_second=median(rates) if rates else 0.0,
        state_rows=sum(s.get("rows", 0) for s in last),
        state_bytes=sum(s.get("durableBytes", 0) for s in last),
    )


def epoch_seconds(record: EpochRecord) -> float:
    """How long the epoch took; the journal's own record ends with the job, as it is written before the rest."""
    seconds = record.figures.get("seconds", {})
    return max(float(seconds.get("total", seconds.get("job", 0.0))), 1e-6)


def by_stream(records: Sequence[EpochRecord], figure: str, per_second: bool = False) -> list[Series]:
    """A figure of every stream, such as `rows` or `late`, as a count or a rate."""
    names = list(dict.fromkeys(s["name"] for r in records for s in r.figures.get("streams", [])))
    columns: dict[str, Values] = {name: [] for name in names}
    for record in records:
        found: dict[str, float] = dict.fromkeys(names, 0)
        for stream in record.figures.get("streams", []):
            found[stream["name"]] += stream.get(figure, 0)
        for name, value in found.items():
            columns[name].append(value / epoch_seconds(record) if per_second else value)
    return [Series(name, values) for name, values in columns.items()]


def results_per_second(records: Sequence[EpochRecord]) -> Series:
    return Series("results", [r.figures.get("rowsOut", 0) / epoch_seconds(r) for r in records])


def figure(records: Sequence[EpochRecord], name: str) -> Series:
    """A figure of the epochs as a whole, such as `moves` or `backlogRows`."""
    return Series(name, [r.figures.get(name, 0) for r in records])


def by_tier(records: Sequence[EpochRecord]) -> list[Series]:
    """Bytes of state in each tier, all sites together."""
    return [
        Series(tier, [sum(s.get(figure, 0) for s in sites_of(r)) for r in records]) for tier, figure in TIERS.items()
    ]


def by_site(records: Sequence[EpochRecord], figure: str) -> list[Series]:
    """A figure of every site, such as `rows` or `busySeconds`; sites may come and go between runs."""
    count = max((len(sites_of(r)) for r in records), default=0)
    return [Series(f"site {site}", [_at(sites_of(r), site, figure) for r in records]) for site in range(count)]


def by_phase(records: Sequence[EpochRecord]) -> list[Series]:
    """Seconds of every epoch by phase, in the order of the work; phases that never took time are left out."""
    epochs = [phases(r.figures) for r in records]
    names = [*PHASES, *dict.fromkeys(p for e in epochs for p in e if p not in PHASES)]
    found = [Series(name, [e.get(name, 0.0) for e in epochs]) for name in names]
    return [s for s in found if any(s.values)]


def sites_of(record: EpochRecord) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = record.figures.get("sites", [])
    return found


def busiest(sites: Sequence[Mapping[str, Any]], room: int) -> list[Mapping[str, Any]]:
    """The sites for so many lines, by number; where not all fit, those that worked longest, with a line to spare."""
    if len(sites) <= room:
        return list(sites)
    longest = sorted(sites, key=lambda s: -float(s.get("busySeconds", 0)))
    return sorted(longest[: room - 1], key=lambda s: int(s["site"]))


def _at(sites: list[dict[str, Any]], site: int, figure: str) -> float | None:
    return float(sites[site].get(figure, 0)) if site < len(sites) else None
