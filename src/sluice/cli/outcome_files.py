"""What came out of simulated runs, as files: charts, every decision, and the numbers behind both."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sluice import __version__
from sluice.cli.outcome_text import QUANTITIES
from sluice.dashboard.chart import Axis, Line, Mark, chart
from sluice.dashboard.quantity import SECONDS
from sluice.model.epoch.decision import Verb
from sluice.model.errors import StorageError
from sluice.sim.outcome import Outcome, TimedMove
from sluice.sim.scenario import Scenario
from sluice.sim.scenario_file import Trial

Outcomes = Sequence[tuple[Trial, Outcome]]

NAMES = OUTCOME, DECISIONS = "outcome.json", "decisions.csv"
MADE_BY = "sluice simulate"
MOST_MARKS = 6
"""More things that go wrong than this are not marked in the charts: they would hide what they explain."""


class Results:
    """A directory for the files of one comparison. Only files of an earlier simulation are ever overwritten."""

    def __init__(self, directory: str | None, name: str) -> None:
        slug = re.sub(r"[^\w.-]+", "-", name).strip("-.").lower()
        self.directory = Path(directory or f"simulated-{slug or 'scenario'}")
        self._vet()

    def _vet(self) -> None:
        """Refuses before anything has run what could not be written afterwards."""
        if self.directory.exists() and not self.directory.is_dir():
            raise StorageError(f"{self.directory} is a file; give another directory with --out")
        there_is = next(path for path in (self.directory, *self.directory.absolute().parents) if path.exists())
        if not os.access(there_is, os.W_OK):
            raise StorageError(f"{there_is} cannot be written to; give another directory with --out")
        there = sorted(path.name for path in self.directory.glob("*") if path.name in NAMES or path.suffix == ".svg")
        if there and not self._is_ours():
            raise StorageError(
                f"{self.directory} has a {there[0]} that no simulation wrote, and it would be overwritten; "
                "give another directory with --out"
            )

    def _is_ours(self) -> bool:
        try:
            found = json.loads((self.directory / OUTCOME).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        return isinstance(found, dict) and found.get("madeBy") == MADE_BY

    def write(self, outcomes: Outcomes) -> list[str]:
        """Write all files; their names. The first is the one by which the directory is known as a simulation's."""
        made = {
            OUTCOME: outcome_json(outcomes),
            **curve_charts(outcomes),
            DECISIONS: decisions_csv(outcomes),
        }
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            for name, text in made.items():
                (self.directory / name).write_text(text, encoding="utf-8", newline="")
        except OSError as problem:
            raise StorageError(f"cannot write to {self.directory}: {problem.strerror or problem}") from problem
        return [*list(made)[1:], OUTCOME]


def curve_charts(outcomes: Outcomes) -> dict[str, str]:
    """A chart a curve, with a line a run; by file name."""
    scenario = outcomes[0][0].scenario
    time = Axis("simulated time", SECONDS, low=0.0, high=scenario.seconds)
    note = f"{scenario.summary}, seed {scenario.seed}"
    charts = {}
    for number, curve in enumerate(outcomes[0][1].curves):
        lines = [
            Line(trial.label, outcome.times.tolist(), outcome.curves[number].values.tolist())
            for trial, outcome in outcomes
        ]
        y = Axis(curve.label, QUANTITIES[curve.unit], log=curve.log)
        charts[f"{curve.name}.svg"] = chart(f"{scenario.name}: {curve.name}", time, y, lines, _marks(scenario), note)
    return charts


def _marks(scenario: Scenario) -> list[Mark]:
    """When something happens to the cluster."""
    incidents: dict[float, list[str]] = {}
    for text, times in scenario.incidents.items():
        for time in set(times):
            if 0 < time < scenario.seconds:
                incidents.setdefault(time, []).append(text)
    if len(incidents) > MOST_MARKS:
        return []
    return [Mark(", ".join(texts), x=time) for time, texts in sorted(incidents.items())]


def decisions_csv(outcomes: Outcomes) -> str:
    """A line a decision; `done` is empty where it is no move, or the end came first."""
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    out.writerow(["run", "policy", "variant", "time", "action", "unit", "source", "target", "done", "reason"])
    for trial, outcome in outcomes:
        for one in outcome.timeline:
            run = (trial.label, trial.policy, trial.variant, f"{one.time:.6f}")
            if isinstance(one, TimedMove):
                done = "" if one.done is None else f"{one.done:.6f}"
                out.writerow([*run, Verb.MOVE, one.unit, one.source, one.target, done, one.reason])
            else:
                out.writerow([*run, one.action, one.unit, "", one.site, "", one.reason])
    return text.getvalue()


def outcome_json(outcomes: Outcomes) -> str:
    """Scenario and numbers; what is endless or unknown is null."""
    runs = [
        {
            "run": trial.label,
            "policy": trial.policy,
            "variant": trial.variant,
            **{measure.name: measure.value for measure in outcome.measures},
            **{curve.name: curve.values.tolist() for curve in outcome.curves},
            "times": outcome.times.tolist(),
            "unitSite": outcome.unit_sites,
        }
        for trial, outcome in outcomes
    ]
    told = {
        "madeBy": MADE_BY,
        "version": __version__,
        "scenario": asdict(outcomes[0][0].scenario),
        "runs": runs,
    }
    return json.dumps(_finite(told), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_finite(one) for one in value]
    return value
