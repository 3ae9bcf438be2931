"""`sluice simulate`: the policies of a scenario file side by side on a simulated cluster."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from sluice.cli.outcome_files import Results
from sluice.cli.outcome_text import decisions_text, heading, table
from sluice.dashboard.terminal_style import printable
from sluice.model.errors import ScenarioError
from sluice.model.extras import Extra, require
from sluice.policies import policy
from sluice.sim.outcome import Outcome
from sluice.sim.scenario_file import Comparison, Trial, read_scenarios
from sluice.sim.simulation import Simulation

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

PATIENCE = 4.0
"""Seconds until it is said that the simulator is being compiled; to load what is compiled takes about one."""
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
    require(Extra.SIM, "sluice simulate")
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
    finally:
        patience.cancel()

    def run(trial: Trial, about: str) -> Outcome:
        simulation = Simulation(trial.scenario, policy(trial.policy))
        with show_progress(about, trial.scenario.seconds, progress) as reached:
            for step in range(1, STEPS):
                simulation.events.at(trial.scenario.seconds * step / STEPS, partial(reached, step / STEPS))
            return simulation.run()

    return run


@contextmanager
def show_progress(about: str, seconds: float, progress: TextIO) -> Iterator[Callable[[float], None]]:
    """Says what is being simulated; where that can be seen, also how far it has come, over and over in one line."""
    console, started = Console(file=progress, highlight=False), time.monotonic()
    with Live(console=console, auto_refresh=False, transient=True) as live:

        def reached(share: float) -> None:
            told = f"  {about}: {share * seconds:.3g} of {seconds:g} simulated seconds"
            live.update(Text(told, no_wrap=True), refresh=True)

        reached(0.0)
        yield reached
    took = f"{seconds:g} simulated seconds in {time.monotonic() - started:.1f} s"
    console.print(f"  {about}: {took}", markup=False, soft_wrap=True)
