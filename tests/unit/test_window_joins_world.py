"""The simulated window join: no tuple is lost or joined twice, whatever its master decides, and delays are as they can
be calculated where that is possible."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import one_in
from sluice.model.errors import ScenarioError
from sluice.model.routing.directory import HASH_SPACE
from sluice.model.view import ClusterView
from sluice.policies import Policy, policy
from sluice.policies.elastic import Elastic
from sluice.sim.simulation import Simulation, simulate
from sluice.sim.worlds.window_joins.scenario import RateChange, WindowJoinScenario
from sluice.verbs import Action
from sluice.verbs.move import Move
from sluice.verbs.scale import Scale
from sluice.verbs.split import Merge, Split

SMALL = WindowJoinScenario(
    seconds=120,
    measured_from=60,
    window=40,
    partitions=8,
    sites=2,
    rate=400,
    reorganization=4,
    comparison=5e-8,
    unit_size=1 << 50,
)
"""No unit is large enough to split."""
TUNED = replace(SMALL, unit_size=50_000)
NEVER = Elastic(even=False, hot=1e9)
"""Splits nothing for its load."""


@dataclass(frozen=True)
class Anything(Policy):
    """Asks for what comes to mind, sensible or not."""

    seed: int
    name: str = "anything"

    def decide(self, view: ClusterView) -> tuple[Action, ...]:
        rng = np.random.default_rng([self.seed, view.period.epoch])
        places = rng.integers(0, len(view.units), 6)
        units = view.units.id[places].tolist()
        sites = rng.integers(0, len(view.sites) + 1, 2).tolist()
        wishes: list[Action] = [
            *(
                Split(unit, "to see", bits=1 + unit % 3)
                for unit, single in zip(units[:2], view.units.single_key[places], strict=False)
                if not single
            ),
            *(Merge(unit, "to see") for unit in units[2:4]),
            *(Move(unit, site, "to see") for unit, site in zip(units[4:], sites, strict=True)),
            Scale(int(rng.integers(1, 7)), "to see"),
        ]
        return tuple(wishes[i] for i in rng.permutation(len(wishes))[: rng.integers(0, 5)].tolist())


def check(simulation: Simulation) -> None:
    """Every tuple is at the master, in one buffer or joined; units are ranges that make up all hashes."""
    world, routing, slots_done = simulation.world.progress, simulation.loop.routing, simulation.world.slots_done
    assert (world.joined <= world.sent).all() and (world.sent <= slots_done).all()
    each = np.arange(world.cells.count)
    joined = world.came[world.joined, :, each].sum(axis=1)
    assert np.array_equal(world.rows, joined)
    at_master = world.waiting_at_master(slots_done).sum()
    at_sites = world.buffered(simulation.scenario.most).sum()
    assert at_master + at_sites + joined.sum() == world.came[slots_done].sum()
    directory = routing.directories[0]
    ranges = [directory.hashes_of(unit) for unit in range(directory.units)]
    assert ranges[0][0] == 0 and ranges[-1][1] == HASH_SPACE
    assert all(low[1] == high[0] for low, high in pairwise(ranges))
    if not simulation.loop.moves:
        assert not world.paused.any()
        assert np.array_equal(world.site, np.array(routing.holders)[world.unit_of])
        assert max(routing.holders) < routing.sites or simulation.world.leaving is not None


def expected_results(simulation: Simulation) -> np.ndarray:
    """What each cell has found, from the slots that it has joined alone."""
    world = simulation.world.progress
    found = np.zeros(world.cells.count)
    for slot in range(int(world.joined.max())):
        first, second = world.came[slot] - world.came[max(0, slot - simulation.scenario.window_slots)]
        new = world.arrivals[slot]
        found += (new[0] * second + new[1] * (first + new[0])) * world.cells.match * (world.joined > slot)
    return found


@settings(max_examples=one_in(2), deadline=None)
@given(seed=st.integers(0, 10_000), groups=st.integers(1, 3), rate=st.sampled_from([200.0, 900.0]), local=st.booleans())
def test_no_tuple_is_lost_whatever_is_decided(seed: int, groups: int, rate: float, local: bool) -> None:
    tuning = {"local_tuning": True, "unit_size": TUNED.unit_size} if local else {}
    scenario = replace(SMALL, rate=rate, groups=groups, sites=3, least_sites=1, most_sites=6, seed=seed, **tuning)
    simulation = Simulation(scenario, Anything(seed))
    simulation.start()
    while simulation.step():
        check(simulation)
    assert np.allclose(simulation.world.progress.results, expected_results(simulation))


def test_anything_is_carried_out_now_and_then() -> None:
    scenario = replace(SMALL, sites=3, least_sites=1, most_sites=6)
    outcome = simulate(scenario, Anything(3))
    done = {decision.action for decision in outcome.decisions if decision.refused is None}
    assert done == {"move", "split", "merge", "scale"}
    assert outcome.moves and outcome.moved_bytes and outcome.redivisions and len(set(outcome.sites)) > 2


def test_a_move_takes_its_state_and_no_more() -> None:
    scenario = replace(SMALL, sites=2)

    @dataclass(frozen=True)
    class Once(Policy):
        name: str = "once"

        def decide(self, view: ClusterView) -> tuple[Action, ...]:
            return (Move(0, 1, "to see"),) if view.units.site[0] == 0 and view.period.epoch > 8 else ()

    simulation = Simulation(scenario, Once())
    simulation.start()
    before = 0
    while not simulation.executor.moved_bytes:
        before = simulation.world.state_bytes(0)
        simulation.step()
    assert simulation.executor.moved_bytes == pytest.approx(before, rel=0.1)
    while simulation.loop.moves:
        simulation.step()
    assert simulation.loop.routing.holders[0] == 1
    check(simulation)


@pytest.mark.parametrize("distribution", [0.5, 1.0, 2.0])
def test_a_calm_system_is_late_by_the_wait_at_the_master_and_its_own_work(distribution: float) -> None:
    """Half an epoch until the message, its way, and on average half of the epoch's work."""
    scenario = replace(SMALL, distribution=distribution, sites=1, rate=200)
    outcome = simulate(scenario, NEVER)
    epochs = (scenario.seconds - scenario.measured_from) / distribution
    sending, working = outcome.site_communicating[0] / epochs, outcome.site_working[0] / epochs
    assert outcome.delay == pytest.approx(distribution / 2 + sending + working / 2, rel=0.02)
    tuples = 2 * scenario.rate * distribution
    assert sending == pytest.approx(scenario.message + tuples * 64 / scenario.link_rate, rel=0.03)
    windows = scenario.rate * scenario.window / scenario.partitions
    assert working == pytest.approx(tuples * windows * scenario.comparison, rel=0.1)  # and whole blocks


def test_results_are_those_of_the_b_model() -> None:
    outcome = simulate(SMALL, NEVER)
    chance = (0.7**2 + 0.3**2) ** 23  # that two tuples match
    seconds = SMALL.seconds - SMALL.measured_from
    assert outcome.results == pytest.approx(2 * SMALL.rate**2 * SMALL.window * seconds * chance, rel=0.1)


def test_an_overloaded_site_falls_behind_and_its_input_waits_at_the_master() -> None:
    busy = replace(SMALL, sites=1, rate=1000, buffer=400_000, comparison=2e-7)
    outcome = simulate(busy, NEVER)
    assert outcome.mean(outcome.site_idle) == pytest.approx(0.0, abs=0.5)
    assert outcome.delay > 5 and outcome.waiting[-1] > 4 * busy.rate * busy.distribution
    assert simulate(replace(busy, sites=4), NEVER).delay < outcome.delay / 2


@pytest.mark.parametrize("messages", [0.5, 1.0, 8.0])
def test_epochs_as_short_as_a_message_leave_no_time_but_for_communication(messages: float) -> None:
    """Nobody communicates for longer than there is time, however far the master is behind."""
    message = 0.02
    short = {"distribution": messages * message, "message": message, "seconds": 4, "measured_from": 2, "window": 2}
    outcome = simulate(replace(SMALL, sites=3, **short), NEVER)
    part = outcome.site_communicating / outcome.site_taking_part
    assert (part <= 1 + 1e-6).all()
    assert ((part > 0.95) & (outcome.site_working < 1e-6)).all() == (messages <= 1)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_the_master_keeps_what_the_paper_calculates(groups: int) -> None:
    scenario = replace(SMALL, sites=4, groups=groups)
    expected = scenario.rate * scenario.distribution / 2 * (1 + 1 / groups)
    assert simulate(scenario, NEVER).largest_waiting == pytest.approx(expected, rel=0.05)


def test_units_that_are_kept_small_are_scanned_faster() -> None:
    untuned = simulate(SMALL, NEVER)
    tuned = simulate(TUNED, NEVER)
    assert tuned.units[-1] > untuned.units[-1] == SMALL.partitions
    assert tuned.mean(tuned.site_working) < 0.7 * untuned.mean(untuned.site_working)
    assert tuned.mean(tuned.site_communicating) == pytest.approx(untuned.mean(untuned.site_communicating), rel=0.05)
    assert tuned.results == pytest.approx(untuned.results, rel=0.01)


def test_sites_that_tune_their_own_units_split_all_that_are_too_large_at_once() -> None:
    """More of them than the policy would in a round, and none has to wait for the round's end."""
    scenario = replace(TUNED, rate=2000, partitions=24, reorganization=60, local_tuning=True)
    simulation = Simulation(scenario, policy("static"))
    simulation.start()
    grown = []
    while not simulation.world.over:
        units = simulation.loop.routing.units
        simulation.step()
        grown.append(simulation.loop.routing.units - units)
        view = simulation.world.at_rest(simulation.loop.routing)
        assert (view.units.bytes < 2.5 * scenario.unit_size).all()  # with what came in the last epoch
    assert max(grown) > 16
    assert simulate(replace(scenario, local_tuning=False), policy("static")).units[-1] == 24


def test_sites_follow_the_load_and_do_not_flap() -> None:
    """Four times the rate in between: more sites, then fewer, each way without a step back."""
    scenario = replace(
        TUNED,
        seconds=360,
        rate=250,
        changes=(RateChange(120.0, 1000.0), RateChange(240.0, 250.0)),
        sites=1,
        most_sites=8,
        comparison=2e-6,
    )
    sites = simulate(scenario, Elastic()).sites
    slot = scenario.slot
    calm, grown, again = (set(sites[round(a / slot) : round(b / slot)]) for a, b in ((60, 120), (200, 240), (330, 360)))
    assert max(calm) <= 2 and min(grown) > max(calm) and max(again) < min(grown)
    steps = np.diff(sites[round(60 / slot) :])
    up, down = np.flatnonzero(steps > 0), np.flatnonzero(steps < 0)
    assert up.max() < down.min(), "more sites, and then fewer"


def test_the_same_seed_gives_the_same_outcome() -> None:
    one, other = (simulate(TUNED, policy("elastic")) for _ in range(2))
    assert one.delay == other.delay and np.array_equal(one.site_working, other.site_working)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"rate": 0}, "rate: this must be above 0"),
        ({"sites": 9}, "sites: from at least 1 to at most one a partition"),
        ({"bias": 1.0}, "bias: a part from 0.5"),
        ({"reorganization": 1.0}, "reorganization: no shorter"),
        ({"block_bytes": 10}, "block_bytes: a block has room"),
    ],
)
def test_what_cannot_be_simulated_is_refused(wrong: dict[str, float], why: str) -> None:
    with pytest.raises(ScenarioError, match=why):
        replace(SMALL, **wrong)
