"""What a scenario found: its numbers, the bars it is held to, and the runs behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from benchmarks.adapt.epochs import Epoch
from benchmarks.adapt.running import Run
from sluice.figures.claim import Verdict


@dataclass(frozen=True)
class Bar:
    """A measured number and how large, or small, it has to be."""

    what: str
    measured: float
    limit: float
    at_most: bool = False
    style: str = ".2f"

    @property
    def met(self) -> bool:
        return self.measured <= self.limit if self.at_most else self.measured >= self.limit

    @property
    def row(self) -> list[str]:
        limit = f"at {'most' if self.at_most else 'least'} {self.limit:{self.style}}"
        return [self.what, f"{self.measured:{self.style}}", limit, "met" if self.met else "MISSED"]


@dataclass(frozen=True)
class Chart:
    """Lines over time, as (seconds, value) pairs by name, or over what `x` says; `marks` are values worth a line of
    their own."""

    title: str
    y: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    marks: Mapping[str, float] = field(default_factory=dict)
    at: Mapping[str, float] = field(default_factory=dict)  # moments
    log: bool = False
    x: str = "seconds"


@dataclass(frozen=True)
class Outcome:
    """One scenario's findings; `about` says what was done and how it was emulated. Bars are the benchmark's own,
    verdicts are on what a paper says."""

    scenario: str
    about: str
    facts: Mapping[str, str]
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    bars: Sequence[Bar] = ()
    charts: Mapping[str, Chart] = field(default_factory=dict)
    runs: Sequence[Run] = ()
    verdicts: Sequence[Verdict] = ()

    @property
    def met(self) -> bool:
        return all(bar.met for bar in self.bars) and all(verdict.held for verdict in self.verdicts)

    def document(self) -> dict[str, Any]:
        """All of it, for a file: the tables as they are shown and the epochs as they were."""
        return {
            "scenario": self.scenario,
            "about": self.about,
            "facts": dict(self.facts),
            "head": list(self.head),
            "rows": [list(row) for row in self.rows],
            "bars": [bar.row for bar in self.bars],
            "verdicts": [verdict.as_json() for verdict in self.verdicts],
            "met": self.met,
            "runs": [shown(run) for run in self.runs],
        }


def shown(run: Run) -> dict[str, Any]:
    """A run as columns over its epochs."""
    epochs = [asdict(epoch) for epoch in run.epochs]
    return {
        "contender": run.contender,
        "results": run.results,
        "moves": run.moves,
        "others": run.others,
        "epochs": {name: [epoch[name] for epoch in epochs] for name in epochs[0]} if epochs else {},
        "decisions": list(run.decisions),
    }


def restored(document: Mapping[str, Any]) -> Run:
    """A run of which a file has its epochs."""
    columns = document["epochs"]
    epochs = [
        Epoch(**dict(zip(columns, map(_as_epoch_value, values), strict=True)))
        for values in zip(*columns.values(), strict=True)
    ]
    return Run(
        document["contender"],
        tuple(epochs),
        document["results"],
        document["moves"],
        document["others"],
        tuple(document["decisions"]),
    )


def _as_epoch_value(value: Any) -> Any:
    """JSON has lists for what is by site."""
    return tuple(value) if isinstance(value, list) else value


def rate(epochs: Sequence[Epoch]) -> float:
    """Median rows a second."""
    return median(epoch.rate for epoch in epochs)


def seconds(epochs: Sequence[Epoch]) -> float:
    """Median seconds an epoch."""
    return median(epoch.seconds for epoch in epochs)


def over_time(run: Run, begin: int = 0) -> list[tuple[float, float]]:
    """Rows a second of every epoch, at the seconds of its end since epoch `begin` started; the first epoch, which
    loads code, is left out."""
    start = run.epochs[begin].committed - run.epochs[begin].seconds
    return [(epoch.committed - start, epoch.rate) for epoch in run.epochs[1:]]
