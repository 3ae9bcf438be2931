"""The paper's claims, as the simulator's experiments word them, with ranges for a benchmark that is smaller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sluice.figures.claim import Claim, Verdict
from sluice.figures.experiment import AnyExperiment


def scaled(experiment: AnyExperiment, name: str, low: float, high: float, unit: str, why: str) -> Claim:
    """A claim of an experiment: the same words and published value, with a range, a unit and a reason of its own."""
    claim = next(claim for claim in experiment.claims if claim.name == name)
    return replace(claim, low=low, high=high, unit=unit, why=why)


def judge(claims: Sequence[Claim], values: Mapping[str, float]) -> list[Verdict]:
    """A verdict on every claim, by its name."""
    return [claim.verdict(values[claim.name]) for claim in claims]
