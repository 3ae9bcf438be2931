"""The simulated cluster: nothing is lost or made up, it is the same for a seed, and it behaves as its parts say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.model.errors import ScenarioError
from sluice.model.view import ClusterView
from sluice.policies import Policy, policy
from sluice.sim.event_queue import EventQueue
from sluice.sim.hardware import MB, Hardware
from sluice.sim.network import Network
from sluice.sim.simulation import Simulation, simulate
from sluice.sim.worlds.flux.scenario import EXCHANGES, FluxScenario, Load, Pressure
from sluice.sim.worlds.flux.workload import SKEWS, Skew, alias_table, group_shares, unit_shares
from sluice.verbs.move import Move

SMALL = FluxScenario("small", 0.5, sites=4, units_per_site=8, groups=256, buffer=128, interval=0.1)


class Restless(Policy):
    """Moves units at random, all the time: the hardest policy for the protocol."""

    name = "restless"

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def decide(self, view: ClusterView) -> tuple[Move, ...]:
        sites = self.rng.permutation(len(view.sites))
        moves = []
        for source, target in zip(sites[::2], sites[1::2], strict=False):
            units = np.flatnonzero(view.units.site == source)
            if len(units):
                moves.append(Move(int(self.rng.choice(units)), int(target), "restless"))
        return tuple(moves)


def assert_conserved(simulation: Simulation) -> None:
    """Every tuple that was sent is processed, pending, set aside, in hand or in a queue; every one sent was made."""
    world = simulation.world.cluster
    node, pair, unit = world.node, world.pair, world.unit
    in_hand = np.where(node["packet_input"] != -1, node["packet_size"] - node["packet_done"], 0)
    done = unit["processed"].sum() + unit["pending"].sum() + node["aside_size"].sum() + in_hand.sum()
    assert pair["sent"].sum() == done + pair["queue_size"].sum()
    assert world.rate.sum() == unit["processed"].sum()
    lists = [sum(1 for _ in slots(world, producer, to)) for producer in range(len(node)) for to in range(len(node))]
    if simulation.scenario.exchange == "flux":
        assert sum(lists) + world.route["stalled_count"].sum() == node["buffered"].sum()
        assert (node["buffered"] <= simulation.scenario.buffer).all()


def slots(world, producer, to):
    slot = world.pair["list_head"][producer, to]
    while slot != -1:
        yield slot
        slot = world.slot["next"][producer, slot]


def assert_held_once(simulation: Simulation) -> None:
    """Every unit is at one site, or on its way; producers send where it is."""
    held = [unit for site in simulation.world.sites for unit in site.sizes]
    assert len(held) == len(set(held))
    loop = simulation.loop
    still = set(range(simulation.scenario.units)) - {move.unit for move in loop.moves}
    assert still <= set(held)
    for unit in still:
        site = next(s.number for s in simulation.world.sites if unit in s.sizes)
        assert loop.routing.holders[unit] == site


@settings(deadline=None, max_examples=2 * settings().max_examples)
@given(data=st.data())
def test_tuples_and_units_are_conserved(data):
    sites = data.draw(st.sampled_from([2, 3, 4]))
    loads = data.draw(
        st.lists(st.builds(Load, st.integers(0, sites - 1), st.floats(0, 0.3), st.floats(0.1, 0.5)), max_size=4)
    )
    size = st.integers(0, 20 * MB)
    pressures = data.draw(
        st.lists(
            st.builds(Pressure, st.integers(0, sites - 1), size, st.floats(0, 0.3), st.floats(0.31, 0.6)), max_size=2
        )
    )
    scenario = replace(
        SMALL,
        sites=sites,
        exchange=data.draw(st.sampled_from(sorted(EXCHANGES))),
        skew=Skew(data.draw(st.sampled_from(SKEWS)), 0.8),
        loads=tuple(loads),
        pressures=tuple(pressures),
        drifts=(0.2,),
        unit_size=data.draw(st.sampled_from([800, 80_000, 2 * MB])),
        hardware=Hardware(memory=40 * MB + 1, disk_rate=400 * MB),
        seed=data.draw(st.integers(0, 1000)),
    )
    if scenario.exchange == "flux":
        chosen = data.draw(st.sampled_from([policy("static"), policy("hybrid"), Restless(scenario.seed)]))
    else:
        chosen = policy("static")
    simulation = Simulation(scenario, chosen)
    simulation.run()
    assert_conserved(simulation)
    assert_held_once(simulation)


def test_a_seed_gives_the_same_outcome():
    scenario = replace(SMALL, loads=(Load(1, 0.1),), skew=Skew("zipf", 1.0))
    first, again = (simulate(scenario, policy("load")) for _ in range(2))
    other = simulate(replace(scenario, seed=2), policy("load"))
    np.testing.assert_array_equal(first.rate, again.rate)
    assert first.moves == again.moves
    assert not np.array_equal(first.rate, other.rate)


def test_a_site_processes_as_fast_as_its_cpu_allows():
    outcome = simulate(replace(SMALL, seconds=1.0), policy("static"))
    hardware = outcome.scenario.hardware
    per_tuple = hardware.process + hardware.produce + 2 * hardware.switch / hardware.packet_tuples
    assert outcome.mean_throughput(0.2) == pytest.approx(4 / per_tuple, rel=0.02)
    assert outcome.mean_latency(0.2) == pytest.approx(hardware.process, rel=0.1)


def test_one_slow_site_holds_an_exchange_back_but_not_river():
    free, slow, river = (
        simulate(replace(SMALL, seconds=1.0, exchange=kind, loads=loads), policy("static")).mean_throughput(0.3)
        for kind, loads in (("exchange", ()), ("exchange", (Load(2),)), ("river", (Load(2),)))
    )
    assert 0.3 * free < slow < 0.5 * free
    assert river > 0.8 * free


def test_loads_that_overlap_are_one_load():
    overlapping = (Load(0, 0.25, 1.0), Load(0, 0.0, 0.3), Load(0, 0.1, 0.2))
    one, several = (
        simulate(replace(SMALL, seconds=1.0, loads=loads), policy("static")) for loads in ((Load(0),), overlapping)
    )
    np.testing.assert_array_equal(one.rate, several.rate)


def test_a_river_has_no_units_to_move():
    with pytest.raises(ScenarioError, match="river has no units to move"):
        Simulation(replace(SMALL, exchange="river"), policy("load"))


def test_the_buffer_hides_a_short_load():
    loads = (Load(0, 0.2, 0.25),)
    rates = {}
    for buffer in (16, 2048):
        rates[buffer] = simulate(replace(SMALL, buffer=buffer, loads=loads), policy("static")).throughput[2]
    assert rates[2048] > 1.1 * rates[16]


def test_load_balancing_recovers_from_a_slow_site():
    scenario = replace(SMALL, seconds=4.0, units_per_site=32, loads=(Load(2, 0.2),))
    static, adaptive = (simulate(scenario, policy(name)) for name in ("static", "load"))
    assert adaptive.mean_throughput(3) > 1.5 * static.mean_throughput(3)
    assert adaptive.unit_sites.count(2) < 24
    assert all(d.done is None or d.done > d.time for d in adaptive.moves)


def test_memory_pressure_spills_and_the_memory_policy_brings_all_back():
    hardware = Hardware(memory=40 * MB, disk_rate=400 * MB)
    scenario = replace(SMALL, seconds=6.0, unit_size=2 * MB, hardware=hardware, pressures=(Pressure(1, 30 * MB, 0.5),))
    static, adaptive = (simulate(scenario, policy(name)) for name in ("static", "memory"))
    assert static.spilled.any()
    assert not adaptive.spilled.any()
    assert adaptive.mean_latency(5) < 1e-3 < static.mean_latency(5)
    assert adaptive.mean_throughput(5) > 1.5 * static.mean_throughput(5)


def test_state_that_is_too_large_from_the_start_is_spilled():
    scenario = replace(SMALL, unit_size=2 * MB, hardware=Hardware(memory=10 * MB, disk_rate=400 * MB))
    assert simulate(scenario, policy("static")).spilled.sum() >= 4 * 3


def test_memory_that_comes_back_is_used():
    hardware = Hardware(memory=40 * MB, disk_rate=400 * MB)
    scenario = replace(
        SMALL, seconds=2.0, unit_size=2 * MB, hardware=hardware, pressures=(Pressure(1, 30 * MB, 0.3, 1.0),)
    )
    assert not simulate(scenario, policy("static")).spilled.any()


def test_transfers_share_the_cross_section_but_never_exceed_a_link():
    events = EventQueue()
    network = Network(events, sites=4, link_rate=100.0, cross_rate=100.0)
    ends = {}

    def send(name, source, target):
        network.transfer(source, target, 100, lambda: ends.setdefault(name, events.now))

    send("crossing", 0, 2)
    send("crossing too", 1, 3)
    send("within a half", 0, 1)
    while events.next_time() < float("inf"):
        events.now = events.next_time()
        events.run_due()
    assert ends == pytest.approx({"within a half": 1.0, "crossing": 2.0, "crossing too": 2.0})


def test_full_packets_are_sent_whole_and_lose_nothing():
    scenario = replace(SMALL, hardware=Hardware(full_packets=True))
    simulation = Simulation(scenario, policy("load"))
    outcome = simulation.run()
    pair = simulation.world.cluster.pair
    assert (pair["sent"] % scenario.hardware.packet_tuples == 0).all() and pair["sent"].min() > 0
    assert (pair["list_size"] >= 0).all() and pair["list_size"].sum() <= simulation.world.cluster.node["buffered"].sum()
    loose = simulate(SMALL, policy("load"))
    assert outcome.mean_throughput() == pytest.approx(loose.mean_throughput(), rel=0.1)


def test_full_packets_need_a_buffer_that_can_fill_one_for_every_site():
    hardware = Hardware(full_packets=True)
    for wrong in (replace(SMALL, hardware=hardware, buffer=4), replace(SMALL, hardware=hardware, exchange="exchange")):
        with pytest.raises(ScenarioError, match="full packets need the exchange flux and a buffer of"):
            simulate(wrong, policy("static"))


def test_units_that_come_back_from_disk_are_told_by_site():
    scenario = replace(SMALL, unit_size=2 * MB, hardware=Hardware(memory=10 * MB, disk_rate=400 * MB))
    outcome = simulate(scenario, policy("static"))
    assert len(outcome.fetches) == scenario.sites and all(len(times) > 1 for times in outcome.fetches)
    assert all(list(times) == sorted(times) and times[-1] <= scenario.seconds for times in outcome.fetches)


@pytest.mark.parametrize("kind", SKEWS)
def test_shares_add_up_and_the_alias_table_draws_them(kind):
    shares = unit_shares(1024, 64, Skew(kind, 0.8), seed=3)
    assert shares.sum() == pytest.approx(1.0)
    chance, other = alias_table(shares)
    drawn = np.bincount(other, weights=1 - chance, minlength=64) + chance
    np.testing.assert_allclose(drawn / 64, shares, atol=1e-12)


def test_80_20_gives_four_fifths_to_a_fifth():
    shares = np.sort(group_shares(10_000, Skew("80/20", 0.8), seed=1))[::-1]
    assert shares[:2000].sum() == pytest.approx(0.8, abs=0.01)
    assert shares[:400].sum() == pytest.approx(0.64, abs=0.01)
