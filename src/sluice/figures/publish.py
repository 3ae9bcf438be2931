"""Writes what experiments found: a chart and a JSON file each, and one page with all verdicts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sluice.figures.claim import ClaimKind, Verdict, verdict_word
from sluice.figures.experiment import AnyExperiment, Reading
from sluice.version import VERSION


@dataclass(frozen=True)
class Summary:
    """How many claims held, were missed, or were fitted and hold, which counts for nothing."""

    held: int
    missed: int
    fitted: int

    @property
    def sentence(self) -> str:
        """
        >>> Summary(3, 1, 2).sentence
        '3 of 4 claims held, 1 were missed, 2 more were fitted.'
        """
        return f"{self.held} of {self.of} claims held, {self.missed} were missed, {self.fitted} more were fitted."

    @property
    def brief(self) -> str:
        """What there is of each.

        >>> Summary(3, 1, 0).brief
        '3 held, 1 missed'
        """
        counts = {"held": self.held, "missed": self.missed, "fitted": self.fitted}
        return ", ".join(f"{count} {word}" for word, count in counts.items() if count)

    @property
    def row(self) -> str:
        """The end of a row in the list of papers."""
        return f"| {self.held} of {self.of} | {self.missed} | {self.fitted} |"

    @property
    def of(self) -> int:
        return self.held + self.missed


def summary(verdicts: Sequence[Verdict]) -> Summary:
    words = [verdict.word for verdict in verdicts]
    return Summary(*(words.count(word) for word in ("held", "missed", "fitted")))


ExperimentReading = tuple[AnyExperiment, Reading]
"""An experiment, and what was read off its runs."""
HEAD = ("the paper says", "published", "measured", "accepted", "")
"""Above the cells of verdicts."""


def publish(readings: Sequence[ExperimentReading], directory: Path) -> list[Path]:
    """The files that were written, the page of verdicts last."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for experiment, reading in readings:
        for suffix, drawing in reading.charts.items():
            written.append(directory / f"{experiment.name}{suffix}.svg")
            written[-1].write_text(drawing, encoding="utf-8")
        written.append(directory / f"{experiment.name}.json")
        written[-1].write_text(as_text(document(experiment, reading)), encoding="utf-8")
    written.append(directory / "verdicts.md")
    written[-1].write_text("\n".join(page(readings)) + "\n", encoding="utf-8")
    return written


def document(experiment: AnyExperiment, reading: Reading) -> dict[str, Any]:
    """What the JSON file of an experiment holds."""
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "sluice": VERSION,
        "verdicts": [verdict.as_json() for verdict in experiment.verdicts(reading)],
        "runs": {name: run.label for name, run in experiment.runs.items()},
        "data": dict(reading.data),
    }


def as_text(published: Mapping[str, Any]) -> str:
    """A document as its file has it."""
    return json.dumps(published, indent=1, default=_plain, ensure_ascii=False) + "\n"


def page(readings: Sequence[ExperimentReading]) -> list[str]:
    """A table of verdicts for every experiment, as Markdown."""
    lines = []
    for experiment, reading in readings:
        lines += [f"### {experiment.name}: {experiment.title}", ""]
        lines += table(experiment.verdicts(reading))
        lines += ["", *(f"![{experiment.title}]({experiment.name}{suffix}.svg)" for suffix in reading.charts), ""]
    return lines


def table(verdicts: Sequence[Verdict]) -> list[str]:
    """The verdicts on an experiment's claims."""
    head = [f"| {' | '.join(HEAD[:-1])} | |", f"| {' | '.join(['---'] * len(HEAD))} |"]
    return head + [row(verdict) for verdict in verdicts]


def row(verdict: Verdict) -> str:
    return f"| {' | '.join(cells(verdict))} |"


def cells(verdict: Verdict) -> list[str]:
    """A claim, its value and what was measured, what is accepted, and whether it held."""
    return recorded_cells(verdict.as_json())


def recorded_cells(verdict: Mapping[str, Any]) -> list[str]:
    """The same of a verdict that is on file."""
    kind, measured = ClaimKind(verdict["kind"]), verdict["measured"]
    word = verdict_word(verdict["held"], kind)
    return [
        verdict["paper"],
        published_value(verdict["value"], kind),
        number(float("nan") if measured is None else measured),
        verdict["accepted"],
        word if verdict["held"] else f"**{word}**",
    ]


def published_value(value: float | None, kind: ClaimKind) -> str:
    """The number that the paper prints, if any; one that was worked out is marked."""
    if value is None:
        return ""
    return number(value) + (" (derived)" if kind is ClaimKind.DERIVED else "")


def number(value: float) -> str:
    """Three digits.

    >>> number(697_123.4), number(0.4312), number(15.0)
    ('697,000', '0.431', '15')
    """
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 1000 else f"{rounded:g}"


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"cannot write {value!r} as JSON")
