"""The shell that all simulated worlds share: what a world has no handler for it cannot do, nothing is told twice."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

import sluice.sim.worlds
from sluice.model.errors import ProtocolError
from sluice.policies import policy
from sluice.sim.simulation import Simulation
from sluice.sim.worlds import WORLDS
from sluice.verbs.freeze import CleanUp, Freeze, FreezeUnit
from sluice.verbs.move import Move
from sluice.verbs.scale import ChangeSites, Scale
from sluice.verbs.share import ApplySharing, LayOut, PassToken, Release, Share
from sluice.verbs.split import Divide, Merge, Split

SHORT = {
    "flux": {"seconds": 0.1, "sites": 2, "units_per_site": 2, "interval": 0.05},
    "lazy-disk": {"seconds": 10.0, "units": 4, "placement": (0.5, 0.5), "interval": 5.0},
    "replication": {"seconds": 10.0, "sites": 2},
    "placement": {"seconds": 2.0, "sites": 2, "queries": 6, "zipf": 0.95},
    "window-joins": {"seconds": 40.0, "sites": 2, "partitions": 4, "window": 10.0, "measured_from": 0.0},
}
CAN = {
    "flux": {Move},
    "lazy-disk": {Move, Freeze},
    "replication": {Move, Share, Release, PassToken},
    "placement": {Move},
    "window-joins": {Move, Split, Merge, Scale},
}
ASKED = [
    Move(0, 1, ""),
    Freeze(0, ""),
    CleanUp(0, ""),
    Share(0, 1, ""),
    PassToken(0, 0, 1, ""),
    LayOut(0, (2, 1), ""),
    LayOut(0, (), ""),
    Split(0, ""),
    Scale(1, ""),
]
UNASKED = {Release, Merge}
COMMON_LINES = 6


def simulation_of(world: str) -> Simulation:
    return Simulation(WORLDS[world](**SHORT[world]), policy("static"))


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("action", ASKED, ids=repr)
def test_what_a_world_has_no_handler_for_is_refused_before_it_reaches_the_executor(world, action):
    simulation = simulation_of(world)
    simulation.start()
    (decision,) = simulation.loop.decide("you", [action], 0.0)
    if type(action) not in CAN[world]:
        assert decision.refused
    handled = set(simulation.executor.handlers)
    for kind in set(action.needs) - handled:
        with pytest.raises(ProtocolError, match="what cannot be done was refused"):
            simulation.executor.execute(simulation.loop, kind(*[0] * len(kind.__struct_fields__)), 0.0)
    verbs = {Freeze: FreezeUnit, Share: ApplySharing, Split: Divide, Scale: ChangeSites}
    assert {verb for verb, kind in verbs.items() if kind in handled} == CAN[world] & set(verbs)
    assert WORLDS[world].freezes is (FreezeUnit in handled)


@pytest.mark.parametrize("world", WORLDS)
def test_every_decision_is_kept_with_its_time_whoever_made_it(world):
    simulation = simulation_of(world)
    simulation.start()
    simulation.world.decide("you", [Move(0, 0, "where it is")])
    while simulation.step():
        pass
    (kept,) = simulation.outcome().decisions
    assert (kept.time, kept.policy, kept.refused) == (0.0, "you", "unit 0 is at site 0 already")


@pytest.mark.parametrize("world", WORLDS)
def test_measures_and_curves_tell_an_outcome(world):
    outcome = simulation_of(world).run()
    assert len({measure.name for measure in outcome.measures}) == len(outcome.measures) > 3
    assert all(len(curve.values) == len(outcome.times) for curve in outcome.curves)
    assert outcome.rounds == 0, "a static policy is never asked"


def test_no_two_worlds_have_six_lines_in_common():
    runs = {}
    for home in Path(sluice.sim.worlds.__file__).parent.iterdir():
        runs[home.name] = {run for file in home.glob("*.py") for run in runs_of_lines(file)}
    for one, other in combinations((name for name in runs if runs[name]), 2):
        assert not runs[one] & runs[other], f"{one} and {other} share lines"


def runs_of_lines(file: Path) -> list[tuple[str, ...]]:
    """Every few lines that follow each other, without imports and what is blank."""
    lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    lines = [line for line in lines if line and not line.startswith(("from ", "import "))]
    return [tuple(lines[at : at + COMMON_LINES]) for at in range(len(lines) - COMMON_LINES + 1)]
