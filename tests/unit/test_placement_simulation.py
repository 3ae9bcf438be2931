"""The world of many queries: every tuple passes every piece once, wherever pieces move; loads and flows as computed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sluice.policies import policy
from sluice.sim.simulation import Simulation, simulate
from sluice.sim.worlds.placement.queries import NOWHERE, draw_pieces
from sluice.sim.worlds.placement.scenario import PlacementScenario, Surge

pytest.importorskip("numba")
SMALL = PlacementScenario(seconds=3.0, sites=4, queries=120)
SILENCE = Surge(3.0, 99.0, count=4, factor=1e-9)


@pytest.mark.parametrize("by_operator", [False, True])
def test_every_piece_takes_every_tuple_of_its_stream_once_while_pieces_move(by_operator: bool):
    scenario = replace(SMALL, seconds=12.0, zipf=0.95, by_operator=by_operator, surges=(SILENCE,))
    simulation = Simulation(scenario, policy("placement"))
    outcome, world = simulation.run(), simulation.world
    readers = np.flatnonzero(world.pieces.reads != NOWHERE)
    brought = world.state.stream["sequence"][world.pieces.reads[readers]]
    assert len(outcome.moves) > 20 and all(move.done is not None for move in outcome.moves)
    assert world.state.piece["taken"][readers].tolist() == brought.tolist()
    assert outcome.waiting[-1] == 0
    assert outcome.unit_sites == tuple(world.state.piece["site"].tolist())


def test_a_stream_s_tuples_on_their_way_to_a_site_are_listed_in_the_order_in_which_they_come():
    """A piece that pauses looks at these alone, however much else the network has to carry."""
    crowded = replace(SMALL, zipf=0.95, by_operator=True, bandwidth=SMALL.bandwidth / 100)
    simulation = Simulation(crowded, policy("placement"))
    simulation.run()
    state = simulation.world.state
    under_way = [record for site in state.site["first"] for record in chain(state.record["next"], site)]
    under_way += chain(state.record["next"], state.ends[0])
    listed = 0
    for stream, site in np.ndindex(state.first_of_stream.shape):
        expected = [r for r in under_way if state.record[["kind", "target", "site"]][r].item() == (0, stream, site)]
        in_turn = chain(state.record["next_of_stream"], state.first_of_stream[stream, site])
        assert in_turn == expected and state.last_of_stream[stream, site] == (in_turn or [NOWHERE])[-1]
        assert np.all(np.diff(state.record["sequence"][in_turn]) > 0)
        listed += len(in_turn)
    assert len(simulation.executor.moves) > 20 and 100 < listed < len(under_way)


def chain(following: np.ndarray, first: int) -> list[int]:
    """A linked list's records."""
    records = []
    while first != NOWHERE:
        records.append(int(first))
        first = following[first]
    return records


def test_loads_are_what_the_queries_cost():
    pieces = draw_pieces(SMALL)
    expected = np.bincount(pieces.home, pieces.expected_loads(1 / SMALL.arrival), minlength=SMALL.sites)
    outcome = simulate(SMALL, policy("static"))
    assert outcome.workload.mean(axis=0) == pytest.approx(expected, rel=0.1)


def test_the_same_seed_gives_the_same_run():
    first, second = (simulate(replace(SMALL, zipf=0.95), policy("placement")) for _ in range(2))
    assert first.moves == second.moves and (first.tuple_bytes == second.tuple_bytes).all()


def test_balancing_helps_where_a_few_streams_have_most_queries():
    scenario = replace(SMALL, seconds=10.0, zipf=0.95, queries=90)
    static, placed = (simulate(scenario, policy(name)) for name in ("static", "placement"))
    assert placed.deviation[-3:].mean() < static.deviation[-3:].mean() / 2


def test_a_policy_with_a_coordinator_runs_here_too():
    outcome = simulate(replace(SMALL, zipf=0.95, seconds=6.0), policy("load"))
    assert outcome.moves and outcome.rounds
