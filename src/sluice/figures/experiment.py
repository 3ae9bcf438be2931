"""An experiment: simulations to run, what is read off them, and the claims that is held against."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np

from sluice.figures.claim import Claim, Verdict
from sluice.policies import policy
from sluice.sim.outcome import Outcome
from sluice.sim.scenario import Scenario
from sluice.sim.simulation import simulate
from sluice.sim.worlds.flux.world import FluxOutcome

O = TypeVar("O", bound=Outcome)  # noqa: E741


@dataclass(frozen=True)
class Trial:
    """A scenario under a policy, with those of its settings that are other than usual."""

    scenario: Scenario
    policy: str = "static"
    settings: tuple[tuple[str, float | str], ...] = ()

    @property
    def label(self) -> str:
        """
        >>> from sluice.sim.worlds.lazy_disk.scenario import LazyDiskScenario
        >>> Trial(LazyDiskScenario("calm"), "lazy-disk", (("theta", 0.5),)).label
        'calm, lazy-disk, theta 0.5'
        """
        return ", ".join([self.scenario.name, self.policy, *(f"{name} {value}" for name, value in self.settings)])


@dataclass(frozen=True)
class Reading:
    """What an experiment shows: a value for every claim, charts by the end of their file names, and the data."""

    values: Mapping[str, float]
    charts: Mapping[str, str]
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment(Generic[O]):
    """A figure of a paper. `runs` names the simulations, `read` gets their outcomes by the same names."""

    name: str
    title: str
    claims: tuple[Claim, ...]
    runs: Mapping[str, Trial]
    read: Callable[[Mapping[str, O]], Reading]

    def judge(self, outcomes: Mapping[Trial, Any]) -> Reading:
        """Read what came out of this experiment's runs, among those of others."""
        return self.read({name: outcomes[run] for name, run in self.runs.items()})

    def verdicts(self, reading: Reading) -> list[Verdict]:
        return [claim.verdict(reading.values[claim.name]) for claim in self.claims]


AnyExperiment: TypeAlias = Experiment[Any]
Outcomes = dict[Trial, Outcome]


def run_all(runs: Iterable[Trial], workers: int, tell: Callable[[int, int, Trial], None]) -> Outcomes:
    """Simulates every different run once, several at a time; the longest first."""
    left = sorted(set(runs), key=effort, reverse=True)
    outcomes: Outcomes = {}
    if workers == 1 or len(left) == 1:
        for run in left:
            outcomes[run] = _simulate(run)
            tell(len(outcomes), len(left), run)
        return outcomes
    for scenario in {type(run.scenario) for run in left}:
        if scenario.smallest is not None:
            simulate(scenario(**scenario.smallest), policy("static"))  # compiles, once for all
    with ProcessPoolExecutor(workers, get_context("spawn"), _end_with_parent) as pool:
        waiting = {pool.submit(_simulate, run): run for run in left}
        try:
            for done in as_completed(waiting):
                outcomes[waiting[done]] = done.result()
                tell(len(outcomes), len(left), waiting[done])
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return outcomes


def _end_with_parent() -> None:
    """A worker must not outlive a parent that was killed: nobody would end it."""

    def watch() -> None:
        parent = parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    Thread(target=watch, daemon=True).start()


def _simulate(run: Trial) -> Outcome:
    return simulate(run.scenario, policy(run.policy, **dict(run.settings)))


def effort(run: Trial) -> float:
    """How long a run takes, compared with others."""
    return run.scenario.seconds * run.scenario.effort


def first_time(outcome: FluxOutcome, holds: np.ndarray, start: float = 0.0) -> float:
    """The end of the first interval after `start` where something holds; NaN if it never does."""
    found = outcome.times[holds & (outcome.times > start)]
    return float(found[0]) if len(found) else float("nan")


def steady_from(outcome: FluxOutcome, share: float = 0.97, last: float = 5.0) -> float:
    """When the throughput reached the mean of the last seconds, but for a small rest, to stay there."""
    end = outcome.scenario.seconds
    level = share * outcome.mean_throughput(end - last)
    below = outcome.times[outcome.throughput < level]
    return float(below[-1]) if len(below) else 0.0
