"""The simulated join: every result is found once, while it runs or by cleanup, whatever moves and freezes meanwhile."""

from __future__ import annotations

import logging
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.model.errors import ScenarioError
from sluice.policies import Policy, policy
from sluice.policies.planning.freezing import ORDERS, Freezing
from sluice.sim.hardware import Hardware
from sluice.sim.simulation import Simulation, simulate
from sluice.sim.worlds.lazy_disk.frozen_generations import FrozenGenerations
from sluice.sim.worlds.lazy_disk.scenario import LazyDiskScenario, Population, Streams, Surge
from sluice.sim.worlds.lazy_disk.site_mode import Mode
from sluice.verbs.freeze import CleanUp, Freeze
from sluice.verbs.move import Move

HARDWARE = Hardware(tuple_bytes=100, memory=40_000)
SMALL = LazyDiskScenario(
    "small",
    seconds=30,
    arrival=0.05,
    units=10,
    placement=(0.6, 0.4),
    populations=(Population(0.5, 4, 200), Population(0.5, 1, 200)),
    minimum_collection=2,
    interval=5,
    hardware=HARDWARE,
)


class Restless(Policy):
    """Moves and freezes at random."""

    name = "restless"

    def __init__(self, seed: int, freezing: Freezing | None) -> None:
        self._freezing, self._rng = freezing, np.random.default_rng(seed)

    @property
    def freezing(self) -> Freezing | None:
        return self._freezing

    def decide(self, view):
        units, rng = len(view.units), self._rng
        moves = [Move(rng.integers(units), rng.integers(len(view.sites)), "at random") for _ in range(rng.integers(4))]
        freezes = [Freeze(rng.integers(units), "at random") for _ in range(rng.integers(3))]
        return (*freezes, *moves)


def full_join(scenario: LazyDiskScenario) -> int:
    """How many results there are, counted without any of the simulator's ways."""
    columns = [Counter(column) for column in Streams.draw(scenario).values.T.tolist()]
    return sum(math.prod(column[value] for column in columns) for value in columns[0])


@st.composite
def scenarios(draw):
    sites = draw(st.integers(1, 3))
    return LazyDiskScenario(
        "random",
        seconds=draw(st.floats(5, 25)),
        inputs=draw(st.integers(2, 4)),
        arrival=0.05,
        units=draw(st.integers(1, 12)),
        placement=draw(st.sampled_from([s for s in PLACEMENTS if len(s) == sites])),
        populations=draw(st.sampled_from([SMALL.populations, (Population(1.0, 3, 120),)])),
        surges=draw(st.sampled_from([(), (Surge(3.0, 0), Surge(9.5, sites - 1, 4.0))])),
        minimum_collection=draw(st.sampled_from([0.5, 2.0])),
        interval=2.5,
        seed=draw(st.integers(0, 1000)),
        hardware=replace(
            HARDWARE,
            memory=draw(st.sampled_from([3_000, 20_000, 10_000_000])),
            disk_rate=draw(st.sampled_from([2_000.0, 2e7])),
            link_rate=draw(st.sampled_from([1_000.0, 1e8])),
        ),
    )


PLACEMENTS = ((1.0,), (0.5, 0.5), (0.9, 0.1), (0.6, 0.2, 0.2), (1.0, 0.0, 0.0))


@st.composite
def policies(draw):
    freezing = Freezing(draw(st.sampled_from([0.1, 0.3, 1.0])), draw(st.sampled_from(ORDERS)))
    return draw(
        st.sampled_from(
            [
                policy("static"),
                policy("no-relocation", push=freezing.push, order=freezing.order),
                policy("lazy-disk", push=freezing.push, order=freezing.order, theta=0.9),
                policy("active-disk", ratio=1.0),
                Restless(draw(st.integers(0, 1000)), draw(st.sampled_from([None, freezing]))),
            ]
        )
    )


@settings(deadline=None, max_examples=4 * settings().max_examples)
@given(scenarios(), policies())
def test_what_was_found_while_running_and_by_cleanup_is_the_full_join(scenario, chosen):
    simulation = Simulation(scenario, chosen)
    outcome = simulation.run()
    assert outcome.run_results + outcome.missing_results == full_join(scenario)
    assert_conserved(simulation)


def assert_conserved(simulation: Simulation) -> None:
    """Every tuple is in memory or frozen, every unit at one site, and nothing waits."""
    world, frozen = simulation.world.cluster, simulation.world.frozen
    assert world.unit["received"].sum() == world.values.size
    assert (world.unit["stored"] + frozen.tuples == world.unit["received"]).all()
    assert (world.counts >= 0).all() and (world.unit["first_waiting"] == -1).all() and not world.stalled.any()
    held = [(unit, site.number) for site in simulation.world.sites for unit in site.units]
    assert sorted(held) == list(enumerate(simulation.loop.routing.holders))
    assert (world.holder == np.array(simulation.loop.routing.holders)).all()
    for site in simulation.world.sites:
        assert world.site["stored"][site.number] == sum(world.unit["stored"][unit] for unit in site.units)


@settings(deadline=None, max_examples=2 * settings().max_examples)
@given(scenarios(), policies())
def test_a_site_at_normal_work_is_within_its_memory_after_every_step(scenario, chosen):
    simulation = Simulation(scenario, chosen)
    simulation.start()
    while simulation.step():
        for site in simulation.world.sites:
            own = simulation.world.cluster.site[site.number]
            if site.freezing is not None and site.mode is Mode.NORMAL:
                assert own["stored"] <= own["limit"]
            assert bool(own["may_spill"]) is (site.freezing is not None and site.mode is Mode.NORMAL)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("push", [0.1, 0.5, 1.0])
def test_memory_exceeds_its_limit_by_one_moments_tuples_at_most(push, order):
    at_once = replace(HARDWARE, process=0.0, handle_state=0.0, seek=0.0, disk_rate=math.inf)
    scenario = replace(SMALL, hardware=at_once, result_cost=0.0)
    outcome = simulate(scenario, policy("no-relocation", push=push, order=order))
    assert outcome.spills
    assert outcome.peak.max() <= HARDWARE.memory + (1 + scenario.inputs) * HARDWARE.tuple_bytes


def test_without_freezing_everything_stays_in_memory_and_nothing_is_missing():
    outcome = simulate(SMALL, policy("static"))
    assert outcome.memory[-1].sum() == SMALL.tuples * SMALL.inputs * HARDWARE.tuple_bytes
    assert outcome.missing_results == 0 and outcome.cleanup_seconds == 0
    assert not outcome.spills and not outcome.moves
    assert outcome.run_results == full_join(SMALL)


def test_a_seed_gives_the_same_outcome():
    first, again = (simulate(SMALL, policy("lazy-disk")) for _ in range(2))
    other = simulate(replace(SMALL, seed=2), policy("lazy-disk"))
    np.testing.assert_array_equal(first.output, again.output)
    assert first.moves == again.moves and first.spills == again.spills and first.cleanup == again.cleanup
    assert not np.array_equal(first.output, other.output)


def test_streams_have_the_join_rate_that_was_asked_for():
    scenario = LazyDiskScenario(seconds=3600)
    values = Streams.draw(scenario).values
    assert len(np.unique(values)) == 10_000
    factor = np.bincount(values[:30_000, 0], minlength=10_000).mean()  # after one tuple range
    assert factor == pytest.approx(3.0)
    assert simulate(scenario, policy("static")).run_results == pytest.approx(12**3 * 10_000, rel=0.02)


def test_a_surge_gives_the_units_of_a_site_more_tuples():
    scenario = replace(SMALL, units=20, placement=(0.5, 0.5), surges=(Surge(0, 0), Surge(15, 1)))
    streams = Streams.draw(scenario)
    first_half, second_half = np.array_split(streams.unit_of[streams.values], 2)
    assert (first_half < 10).mean() == pytest.approx(10 / 11, abs=0.03)
    assert (second_half < 10).mean() == pytest.approx(1 / 11, abs=0.03)


def test_relocation_takes_time_and_its_tuples_wait_for_it():
    slow = replace(SMALL, placement=(0.9, 0.1), hardware=replace(HARDWARE, memory=10_000_000, link_rate=2_000.0))
    outcome = simulate(slow, policy("lazy-disk"))
    done = [move.done - move.time for move in outcome.moves]
    assert len(done) > 1 and min(done) > 0.1
    assert done[1] > done[0]  # one unit after the other
    assert outcome.run_results == full_join(slow) and not outcome.spills


def test_a_policys_spill_is_told_apart_from_a_sites_own():
    unequal = replace(SMALL, placement=(0.5, 0.5), hardware=replace(HARDWARE, memory=50_000))
    spills = simulate(unequal, policy("active-disk")).spills
    assert {spill.forced for spill in spills} == {True, False}
    assert all(spill.size > 0 and spill.units > 0 for spill in spills)


def test_cleanup_has_to_read_join_and_find():
    outcome = simulate(SMALL, policy("no-relocation"))
    for site in outcome.cleanup:
        reading = site.generations * HARDWARE.seek + site.tuples * HARDWARE.tuple_bytes / HARDWARE.disk_rate
        joining = site.tuples * HARDWARE.process + site.results * SMALL.cleanup_result_cost
        assert site.seconds == pytest.approx(reading + joining)
    assert outcome.cleanup_seconds == max(site.seconds for site in outcome.cleanup) > 0


def test_three_generations_are_merged_one_after_the_other():
    counts = np.zeros((2, 3), dtype=np.int64)
    frozen, everything, known = FrozenGenerations(counts, np.array([0, 2])), np.zeros((2, 3), dtype=np.int64), 0
    for generation in ([[1, 2, 0], [1, 1, 1]], [[0, 1, 3], [2, 0, 1]], [[1, 1, 1], [0, 4, 2]]):
        counts[:] = generation
        everything += generation
        known += int(np.prod(generation, axis=1).sum())
        if generation[0] != [1, 1, 1]:
            frozen.freeze(0)
    assert frozen.missing(0).results == int(everything.prod(axis=1).sum()) - known
    assert frozen.missing(0).generations == 2


class Cleaner(Policy):
    name, freezing = "cleaner", Freezing()

    def decide(self, view):
        return (CleanUp(1, "too early"),)


def test_a_simulated_join_refuses_to_clean_up_before_its_end(caplog):
    with caplog.at_level(logging.INFO, logger="sluice.control.loop"):
        outcome = simulate(SMALL, Cleaner())
    assert "clean up unit 1, site 0: too early: refused, a simulated m-way join cannot clean up" in caplog.text
    np.testing.assert_array_equal(outcome.output, simulate(SMALL, policy("no-relocation")).output)


def test_what_a_simulated_join_cannot_do_is_said():
    with pytest.raises(ScenarioError, match="lazy-disk: half_life counts epochs, and a simulated join has none"):
        simulate(SMALL, policy("lazy-disk", half_life=3.0))


WRONG = [
    ({"inputs": 1}, "inputs: a join has at least two, not 1"),
    ({"units": 0}, "units: this must be above 0, not 0"),
    ({"seconds": 0.0}, "seconds: this must be above 0 and below 1e\\+06, not 0"),
    ({"arrival": -1.0}, "arrival: this must be above 0, not -1"),
    ({"interval": math.inf}, "interval: this must be above 0, not inf"),
    ({"minimum_collection": math.nan}, "minimum_collection: this must be above 0, not nan"),
    ({"cleanup_result_cost": -1.0}, "cleanup_result_cost: this must be at least 0, not -1"),
    ({"placement": (0.5, 0.4)}, r"placement: shares of all units, which make 1 together, not \[0.5, 0.4\]"),
    ({"placement": ()}, "placement: shares of all units"),
    ({"populations": (Population(0.5),)}, "populations: shares of all units"),
    ({"populations": (Population(1.0, 0.0),)}, r"populations\[0\].join_rate: this must be above 0"),
    ({"surges": (Surge(0.0, 2),)}, r"surges\[0\].site: there is no site 2; there are 2, numbered from 0"),
    ({"surges": (Surge(0.0, 0, 0.0),)}, r"surges\[0\].factor: this must be above 0"),
    ({"surges": (Surge(5.0, 0), Surge(5.0, 1))}, "surges: each begins after the one before it"),
]


@pytest.mark.parametrize(("change", "told"), WRONG)
def test_a_scenario_that_cannot_be_is_refused_in_words(change, told):
    with pytest.raises(ScenarioError, match=told):
        replace(SMALL, **change)
