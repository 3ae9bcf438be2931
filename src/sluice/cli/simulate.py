"""`sluice simulate`: the policies of a scenario file side by side on a simulated cluster."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from sluice.cli.outcome_files import Results
from sluice.cli.outcome_text import decisions_text, heading, table
from sluice.dashboard.terminal_style import printable
from sluice.model.errors import ScenarioError
from sluice.policies import policy
from sluice.sim.outcome import Outcome
from sluice.sim.scenario_file import Comparison, Trial, read_scenarios
from sluice.sim.simulation import Simulation

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

PATIENCE = 4.0
"""Seconds until it is said that the simulator is being compiled; to load what is compiled takes about one."""
ERASE = "\r\x1b[2K"
"""Takes back the line that a terminal shows."""
STEPS = 20
"""How often the progress of a run is shown."""


@dataclass(frozen=True)
class Wanted:
    """What was asked for on the command line."""

    scenario: str | None
    policies: tuple[str, ...] = ()
    seed: int | None = None
    out: str | None = None
    decisions: bool = False


def simulate(wanted: Wanted, progress: TextIO | None = None) -> int:
    """Run the scenario under each policy, print what came out, and draw it; 0 unless it was interrupted."""
    if wanted.scenario is None:
        raise ScenarioError(f"say what to simulate: a TOML file, or one of {', '.join(_ready())} (--list tells more)")
    comparison = read(wanted.scenario, wanted.policies, wanted.seed)
    results = Results(wanted.out, comparison.scenario.name)
    try:
        outcomes = _run(comparison, progress or sys.stderr)
    except KeyboardInterrupt:
        print("\nsluice: interrupted", file=sys.stderr)
        return 1
    except MemoryError:
        raise ScenarioError("this machine's memory is too small for that many sites and that large queues") from None
    print(printable(heading(comparison)))
    print()
    print(printable(table(outcomes)))
    for trial, outcome in outcomes:
        if trial.policy != "static":
            print()
            print(printable(decisions_text(trial.label, outcome, every=wanted.decisions)))
    written = results.write(outcomes)
    print()
    print(f"{results.directory}: {', '.join(written)}")
    return 0


def read(scenario: str, policies: Sequence[str] = (), seed: int | None = None) -> Comparison:
    """The comparison of a file, or of a ready scenario by its name."""
    ready = _ready()
    if Path(scenario).is_file() or (scenario not in ready and Path(scenario).suffix):
        return read_scenarios(scenario, policies=policies, seed=seed)
    with as_file(_named(scenario)) as path:
        return read_scenarios(path, policies=policies, seed=seed)


def list_files() -> str:
    """The ready scenarios with what they are about."""
    found = {name: read(name).about for name in _ready()}
    wide = max(map(len, found))
    return "\n".join(f"{name:{wide}}  {about}" for name, about in found.items())


def shown(name: str) -> str:
    """The file of a ready scenario, to be copied and changed."""
    return _named(name).read_text(encoding="utf-8").rstrip("\n")


def _ready() -> dict[str, Traversable]:
    there = files("sluice.sim").joinpath("scenarios").iterdir()
    return {file.name.removesuffix(".toml"): file for file in sorted(there, key=str) if file.name.endswith(".toml")}


def _named(name: str) -> Traversable:
    ready = _ready()
    if name not in ready:
        raise ScenarioError(f"there is no file {name} and no ready scenario of that name; ready: {', '.join(ready)}")
    return ready[name]


def _run(comparison: Comparison, progress: TextIO) -> list[tuple[Trial, Outcome]]:
    run = _simulator(comparison, progress)
    trials = comparison.trials
    return [(trial, run(trial, f"{trial.label} ({n} of {len(trials)})")) for n, trial in enumerate(trials, 1)]


def _simulator(comparison: Comparison, progress: TextIO) -> Callable[[Trial, str], Outcome]:
    """What simulates a trial and says so; compiled first if that has not been done before."""
    preparing = "the simulator is made ready; after an installation it is compiled, which takes about half a minute"
    patience = threading.Timer(PATIENCE, print, [preparing], {"file": progress, "flush": True})
    patience.daemon = True
    patience.start()
    try:
        scenario = type(comparison.scenario)
        if scenario.smallest is not None:
            Simulation(scenario(**scenario.smallest), policy("static")).run()
    except ModuleNotFoundError as problem:
        if (problem.name or "").partition(".")[0] not in ("numba", "llvmlite"):
            raise
        raise ScenarioError("the simulator needs Numba: pip install 'sluice-streaming[sim]'") from None
    finally:
        patience.cancel()

    def run(trial: Trial, about: str) -> Outcome:
        simulation = Simulation(trial.scenario, policy(trial.policy))
        with Meter(about, trial.scenario.seconds, progress) as meter:
            for step in range(1, STEPS):
                simulation.events.at(trial.scenario.seconds * step / STEPS, partial(meter.reached, step / STEPS))
            return simulation.run()

    return run


class Meter:
    """Says what is being simulated and how far it has come, over and over in one line where that can be seen."""

    def __init__(self, about: str, seconds: float, progress: TextIO) -> None:
        self.about, self.seconds, self.progress = about, seconds, progress

    def __enter__(self) -> Meter:
        self.started = time.monotonic()
        self.reached(0.0)
        return self

    def reached(self, share: float) -> None:
        if self.progress.isatty():
            self._say(f"{share * self.seconds:.3g} of {self.seconds:g} simulated seconds")

    def __exit__(self, problem: object, *_: object) -> None:
        if problem is None:
            self._say(f"{self.seconds:g} simulated seconds in {time.monotonic() - self.started:.1f} s\n")

    def _say(self, text: str) -> None:
        over = ERASE if self.progress.isatty() else ""
        print(f"{over}  {self.about}: {text}", end="", file=self.progress, flush=True)
