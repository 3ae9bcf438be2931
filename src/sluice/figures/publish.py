"""Writes what experiments found: a chart and a JSON file each, and one page with all verdicts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sluice.figures.claim import Verdict
from sluice.figures.experiment import AnyExperiment, Reading
from sluice.model.version import VERSION

Found = tuple[AnyExperiment, Reading]
HEAD = ("the paper says", "published", "measured", "accepted", "")
"""Above the cells of verdicts."""


def publish(found: Sequence[Found], directory: Path) -> list[Path]:
    """The files that were written, the page of verdicts last."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for experiment, reading in found:
        for suffix, drawing in reading.charts.items():
            written.append(directory / f"{experiment.name}{suffix}.svg")
            written[-1].write_text(drawing, encoding="utf-8")
        written.append(directory / f"{experiment.name}.json")
        text = json.dumps(document(experiment, reading), indent=1, default=_plain, ensure_ascii=False)
        written[-1].write_text(text + "\n", encoding="utf-8")
    written.append(directory / "verdicts.md")
    written[-1].write_text("\n".join(page(found)) + "\n", encoding="utf-8")
    return written


def document(experiment: AnyExperiment, reading: Reading) -> dict[str, Any]:
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "sluice": VERSION,
        "verdicts": [verdict.as_json() for verdict in experiment.verdicts(reading)],
        "runs": {name: run.label for name, run in experiment.runs.items()},
        "data": dict(reading.data),
    }


def page(found: Sequence[Found]) -> list[str]:
    """A table of verdicts for every experiment, as Markdown."""
    lines = []
    for experiment, reading in found:
        lines += [f"### {experiment.name}: {experiment.title}", ""]
        lines += [f"| {' | '.join(HEAD)} |", f"| {' | '.join(['---'] * len(HEAD))} |"]
        lines += [row(verdict) for verdict in experiment.verdicts(reading)]
        lines += ["", *(f"![{experiment.title}]({experiment.name}{s}.svg)" for s in reading.charts), ""]
    return lines


def row(verdict: Verdict) -> str:
    return f"| {' | '.join(cells(verdict))} |"


def cells(verdict: Verdict) -> list[str]:
    """A claim, what was published and measured, what is accepted, and whether it held."""
    claim = verdict.claim
    published = "" if claim.published is None else number(claim.published)
    said = verdict.word if verdict.held else f"**{verdict.word}**"
    return [claim.says, published, number(verdict.measured), claim.accepted, said]


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
