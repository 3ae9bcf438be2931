"""A simulated plan of joins: tuples are stored once, and results are the same whoever stores them and however late."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import one_in
from sluice.model.errors import ScenarioError
from sluice.policies import Policy, policy
from sluice.sim.simulation import Simulation, simulate
from sluice.sim.worlds.replication.scenario import BinaryJoin, ReplicationScenario
from sluice.verbs.freeze import Freeze
from sluice.verbs.move import Move
from sluice.verbs.scale import Scale
from sluice.verbs.share import LayOut, PassToken, Release, Share
from sluice.verbs.split import Split

ONE = (BinaryJoin(40.0, 5.0), BinaryJoin(15.0, 5.0), BinaryJoin(25.0, 5.0))
MANY = tuple(replace(join, partner_after=None, fan_out=1.1) for join in ONE)
PLENTY = 1_000_000_000
SMALL = ReplicationScenario("small", joins=ONE, seconds=150, sites=3, memory=PLENTY, rate=20, swing_every=20)
TIGHT = replace(SMALL, memory=1_800_000)


class Restless(Policy):
    """Shares, passes and moves at random; what cannot be is refused by vetting."""

    name = "restless"

    def __init__(self, seed: int, moves: bool) -> None:
        self._rng, self._moves = np.random.default_rng(seed), moves

    def decide(self, view):
        return tuple(self._action(view) for _ in range(self._rng.integers(4)))

    def _action(self, view):
        rng = self._rng
        unit, site = rng.integers(len(view.units)), rng.integers(len(view.sites))
        if self._moves:
            return Move(unit, site, "at random")
        chosen = rng.integers(5)
        if chosen == 0:
            return LayOut(unit, (), "at random")
        return Share(unit, site, "at random") if chosen < 3 else PassToken(unit, rng.integers(2), site, "at random")


def settled(simulation: Simulation) -> int:
    """So many places of the stream every holder has taken."""
    return simulation.world.steps_done - simulation.scenario.latency_steps


def assert_stored_once(simulation: Simulation) -> None:
    """Each tuple that came is at one holder, or portions of its step are at several: all together what came; and what
    a holder has is what it stored and has not expired."""
    world, scenario, places = simulation.world.holders, simulation.scenario, settled(simulation)
    np.testing.assert_allclose(world.stored_at[:places].sum(axis=-1), world.rows[:places], atol=1e-9)
    for unit, site in np.argwhere(world.holds):
        window = scenario.in_steps(scenario.joins[world.join_of[unit]].window)
        end = world.next_place[unit, site]
        live = world.stored_at[max(0, end - window) : end, unit, :, site].sum(axis=0)
        np.testing.assert_allclose(world.stored[unit, :, site], live, atol=1e-6)


@settings(deadline=None)
@given(
    joins=st.sampled_from([ONE, MANY, MANY[:1]]),
    latency=st.sampled_from([0.0, 0.5, 1.7]),
    units=st.sampled_from([1, 3]),
    seed=st.integers(0, 1000),
)
def test_whoever_stores_tuples_they_are_stored_once_and_results_are_those_of_one_machine(joins, latency, units, seed):
    scenario = replace(SMALL, joins=joins, latency=latency, units=units)
    simulation = Simulation(scenario, Restless(seed, moves=False))
    shared = simulation.run()
    assert shared.passes > 0 and shared.holders > len(joins) * units
    assert_stored_once(simulation)
    alone = simulate(scenario, policy("static"))
    np.testing.assert_allclose(shared.output, alone.output, rtol=1e-9, atol=1e-9)
    assert alone.total > 0 and alone.sent_bytes < shared.sent_bytes


@settings(deadline=None, max_examples=one_in(2))
@given(joins=st.sampled_from([ONE, MANY]), seed=st.integers(0, 1000), link=st.sampled_from([2e4, 1e8]))
def test_units_that_move_lose_nothing(joins, seed, link):
    scenario = replace(SMALL, joins=joins[:1], units=4, link_rate=link)
    simulation = Simulation(scenario, Restless(seed, moves=True))
    moved, alone = simulation.run(), simulate(scenario, policy("static"))
    assert len(moved.moves) > 0 and moved.moved_bytes > 0
    simulation.loop.policy = policy("static")
    while simulation.loop.moves:  # what waits for a unit on its way comes after it
        simulation.events.now += scenario.step
        simulation.events.run_due()
    simulation.world.holders.delay[:] = 0
    simulation.world.holders.take_in(scenario.steps - 1)
    found, all_of_it = simulation.world.holders.results.sum(), alone_results(scenario)
    assert found == pytest.approx(all_of_it, rel=1e-9)
    assert moved.sent_bytes <= alone.sent_bytes * (1 + 1e-12)


def alone_results(scenario: ReplicationScenario) -> float:
    simulation = Simulation(scenario, policy("static"))
    simulation.run()
    holders = simulation.world.holders
    assert (holders.next_place.max(axis=1) == scenario.steps).all()  # the splits' machines hold all units
    return float(holders.results.sum())


@pytest.mark.parametrize("units", [1, 4])
def test_a_1_to_1_join_gives_a_result_for_every_partner(units):
    join = BinaryJoin(40.0, partner_after=5.0, fan_out=0.9, select=1.0)
    scenario = replace(SMALL, joins=(join,), units=units)
    outcome, streams = simulate(scenario, policy("static")), scenario.streams()
    partners = streams[: -scenario.latency_steps - 1, 1].sum()  # results come in order, a latency and a step later
    assert outcome.total == pytest.approx(0.9 * partners, rel=1e-9)


@pytest.mark.parametrize("units", [1, 4])
def test_an_n_to_m_join_finds_each_pair_within_the_window_by_its_chance(units):
    join = BinaryJoin(10.0, partner_after=None, fan_out=1.5, select=0.9)
    scenario = replace(SMALL, joins=(join,), units=units, seconds=30)
    first, second = 0.9 * scenario.streams()[: -scenario.latency_steps - 1].T
    steps, window = np.arange(len(first)), scenario.in_steps(10.0)
    near = np.abs(steps[:, None] - steps) < window
    pairs = (first[:, None] * second * near).sum()
    chance = 1.5 / (2 * scenario.rate * 10.0)
    assert simulate(scenario, policy("static")).total == pytest.approx(chance * pairs, rel=1e-9)


def test_a_run_ends_with_the_first_tuple_too_many():
    outcome = simulate(TIGHT, policy("static"))
    assert outcome.remiss is not None and outcome.remiss.site == 0  # the longest window
    assert outcome.filled[-1, 0] == 1 and (outcome.filled[:-1] < 1).all()
    assert outcome.times[-1] == outcome.remiss.time
    unlimited = simulate(SMALL, policy("static"))
    assert unlimited.remiss is None and outcome.total == unlimited.total_until(outcome.remiss.time)


def test_tokens_fill_other_machines_and_leave_state_where_it_is():
    static, tokens = (simulate(TIGHT, policy(name)) for name in ("static", "tokens"))
    assert tokens.remiss is None or tokens.remiss.time > static.remiss.time
    assert tokens.total > static.total and tokens.passes > 0
    assert tokens.moved_bytes == 0 and not tokens.moves
    assert {decision.action for decision in tokens.decisions} >= {"share", "pass token"}
    assert all(decision.refused is None for decision in tokens.decisions)


def test_hash_partitions_move_until_memory_is_even():
    moved = simulate(replace(TIGHT, units=8), policy("memory"))
    assert len(moved.moves) > 0 and moved.moved_bytes > 0 and moved.passes == 0
    half = len(moved.filled) // 2
    assert np.ptp(moved.filled[half:-1], axis=1).mean() < 0.2


def test_units_can_begin_spread_over_all_machines():
    spread = replace(SMALL, units=6, spread=True)
    assert spread.routing().holders[:6] == (0, 0, 1, 1, 2, 2)
    assert replace(spread, spread=False).routing().holders == (0,) * 6 + (1,) * 6 + (2,) * 6


class Once(Policy):
    name = "once"

    def __init__(self, *actions):
        self.actions = list(actions)

    def decide(self, view):
        return (self.actions.pop(0),) if self.actions else ()


def test_a_holder_with_nothing_left_leaves_and_may_come_back():
    actions = [Share(0, 1, "to see"), Release(0, 1, "to see"), Share(0, 1, "to see"), PassToken(0, 0, 1, "to see")]
    simulation = Simulation(SMALL, Once(*actions))
    outcome = simulation.run()
    assert [decision.refused for decision in outcome.decisions] == [None] * 4
    assert_stored_once(simulation)
    np.testing.assert_allclose(outcome.output, simulate(SMALL, policy("static")).output, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("actions", "told"),
    [
        ([Share(0, 1, ""), LayOut(0, (2, 1), "")], "a simulated plan cannot lay out"),
        ([Share(0, 1, "", evenly=True)], "a simulated plan cannot share"),
        ([Share(0, 1, ""), Release(0, 0, "")], "site 0 of a simulated plan cannot leave unit 0: it stores state"),
        ([Split(0, "")], "a simulated plan cannot split"),
        ([Scale(2, "")], "a simulated plan cannot scale"),
    ],
)
def test_what_a_simulated_plan_cannot_do_is_refused_before_anything_changes(actions, told):
    possible = Simulation(SMALL, Once(*actions[:-1]))
    simulation = Simulation(SMALL, Once(*actions))
    possible.run()
    outcome = simulation.run()
    assert [decision.refused for decision in outcome.decisions] == [None] * (len(actions) - 1) + [told]
    assert simulation.loop.routing == possible.loop.routing


def test_a_simulated_plan_has_nothing_to_freeze():
    (decision,) = simulate(SMALL, Once(Freeze(0, "to see"))).decisions
    assert decision.refused == "a simulated plan cannot freeze"


def test_a_seed_gives_the_same_outcome():
    first, again = (simulate(TIGHT, policy("tokens")) for _ in range(2))
    np.testing.assert_array_equal(first.output, again.output)
    assert first.decisions == again.decisions
    assert not np.array_equal(replace(TIGHT, seed=2).streams(), TIGHT.streams())


WRONG = [
    ({"seconds": 0.0}, "seconds: this must be above 0 and below 1e\\+06, not 0"),
    ({"growth": math.inf}, "growth: this must be above 0, not inf"),
    ({"units": 0}, "units: this must be above 0, not 0"),
    ({"swing": 1.0}, "swing: a part of the rate, from 0 to below 1"),
    ({"latency": -1.0}, "latency: this must be at least 0, not -1"),
    ({"joins": ()}, "joins: there must be at least one"),
    ({"joins": (ONE[0], MANY[0])}, "all are 1:1, or all are n:m"),
    ({"joins": (BinaryJoin(window=0.0),)}, r"joins\[0\].window: this must be above 0"),
    ({"joins": (BinaryJoin(select=1.1),)}, r"joins\[0\].select: a part of the tuples"),
    ({"joins": (BinaryJoin(fan_out=0.0),)}, r"joins\[0\].fan_out: this must be above 0"),
    (
        {"joins": (BinaryJoin(fan_out=1.2),)},
        r"joins\[0\].fan_out: a tuple of a 1:1 join has one result at most",
    ),
    (
        {"joins": (BinaryJoin(window=5.0),)},
        r"joins\[0\].partner_after: partners come within the window of 5.0 s",
    ),
]


@pytest.mark.parametrize(("change", "told"), WRONG)
def test_a_scenario_that_cannot_be_is_refused_in_words(change, told):
    with pytest.raises(ScenarioError, match=told):
        replace(SMALL, **change)
