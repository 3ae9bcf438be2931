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
from typing import TYPE_CHECKING, Any

from sluice import __version__
from sluice.cli.outcome_text import figures
from sluice.dashboard.chart import Axis, Line, Mark, chart
from sluice.dashboard.quantity import LATENCY, ROWS_PER_SECOND, SECONDS
from sluice.model.errors import StorageError
from sluice.sim.scenario import Scenario
from sluice.sim.scenario_file import Trial

if TYPE_CHECKING:
    from sluice.sim.simulation import Outcome

    Outcomes = Sequence[tuple[Trial, Outcome]]

OUTCOME, THROUGHPUT, DELAY, DECISIONS = "outcome.json", "throughput.svg", "latency.svg", "decisions.csv"
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
        there = [name for name in (OUTCOME, THROUGHPUT, DELAY, DECISIONS) if (self.directory / name).exists()]
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
            THROUGHPUT: throughput_chart(outcomes),
            DELAY: latency_chart(outcomes),
            DECISIONS: decisions_csv(outcomes),
        }
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            for name, text in made.items():
                (self.directory / name).write_text(text, encoding="utf-8", newline="")
        except OSError as problem:
            raise StorageError(f"cannot write to {self.directory}: {problem.strerror or problem}") from problem
        return [THROUGHPUT, DELAY, DECISIONS, OUTCOME]


def throughput_chart(outcomes: Outcomes) -> str:
    scenario = outcomes[0][0].scenario
    lines = [Line(trial.label, outcome.times.tolist(), outcome.throughput.tolist()) for trial, outcome in outcomes]
    y = Axis("tuples processed", ROWS_PER_SECOND)
    return chart(f"{scenario.name}: throughput", _time(scenario), y, lines, _marks(scenario), _note(scenario))


def latency_chart(outcomes: Outcomes) -> str:
    scenario = outcomes[0][0].scenario
    lines = [Line(trial.label, outcome.times.tolist(), outcome.latency.tolist()) for trial, outcome in outcomes]
    y = Axis("mean latency", LATENCY, log=True)
    return chart(f"{scenario.name}: latency", _time(scenario), y, lines, _marks(scenario), _note(scenario))


def _time(scenario: Scenario) -> Axis:
    return Axis("simulated time", SECONDS, low=0.0, high=scenario.seconds)


def _note(scenario: Scenario) -> str:
    every = SECONDS.text(scenario.interval)
    return f"{scenario.sites} sites, seed {scenario.seed}; a point is the mean of the {every} before it"


def _marks(scenario: Scenario) -> list[Mark]:
    """When something goes wrong, and when it ends."""
    found: dict[float, list[str]] = {}
    for text, times in (
        ("load", (load.start for load in scenario.loads)),
        ("load ends", (load.end for load in scenario.loads)),
        ("memory taken", (pressure.start for pressure in scenario.pressures)),
        ("memory given back", (pressure.end for pressure in scenario.pressures)),
        ("other groups popular", (drift.start for drift in scenario.drifts)),
    ):
        for time in set(times):
            if 0 < time < scenario.seconds:
                found.setdefault(time, []).append(text)
    if len(found) > MOST_MARKS:
        return []
    return [Mark(", ".join(texts), x=time) for time, texts in sorted(found.items())]


def decisions_csv(outcomes: Outcomes) -> str:
    """A line a decision; `done` is empty where the end came first."""
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    out.writerow(["run", "policy", "exchange", "time", "unit", "source", "target", "done", "reason"])
    for trial, outcome in outcomes:
        for one in outcome.decisions:
            done = "" if one.done is None else f"{one.done:.6f}"
            where = (one.unit, one.source, one.target)
            out.writerow(
                [trial.label, trial.policy, trial.scenario.exchange, f"{one.time:.6f}", *where, done, one.reason]
            )
    return text.getvalue()


def outcome_json(outcomes: Outcomes) -> str:
    """Scenario and numbers; what is endless or unknown is null."""
    runs = [
        {
            "run": trial.label,
            "policy": trial.policy,
            "exchange": trial.scenario.exchange,
            **figures(outcome),
            "throughput": outcome.throughput.tolist(),
            "latency": outcome.latency.tolist(),
            "unitSite": outcome.holders.tolist(),
        }
        for trial, outcome in outcomes
    ]
    told = {
        "madeBy": MADE_BY,
        "version": __version__,
        "scenario": asdict(outcomes[0][0].scenario),
        "times": outcomes[0][1].times.tolist(),
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
