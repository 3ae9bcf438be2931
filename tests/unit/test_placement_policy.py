"""The policy `placement` in turns: what it decides of a view."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sluice.model.view import ClusterView, Neighbours
from sluice.policies import policy


def busy(rows: list[int], site: list[int], idle: list[float]) -> ClusterView:
    view = ClusterView.at_rest(site, [1 << 30] * len(idle))
    return view.with_units(rows=np.array(rows)).with_sites(idle=np.array(idle))


def test_idle_sites_ask_busy_ones_for_half_the_difference():
    actions = policy("placement").decide(busy([10] * 8, [0] * 8, idle=[2.0, 10.0]))
    assert [action.site for action in actions] == [1] * 4
    assert actions[0].reason == "site 1 asked for 0.40 of site 0's load"


def test_balanced_sites_are_left_alone():
    assert policy("placement").decide(busy([10] * 8, [0, 1] * 4, idle=[5.0, 5.2])) == ()


def test_rounds_converge_without_going_back_and_forth():
    placement, sites = policy("placement"), np.zeros(64, dtype=np.int64)
    moves = []
    for _ in range(12):
        share = np.bincount(sites, minlength=4) / 64
        actions = placement.decide(busy([10] * 64, sites.tolist(), idle=list(10 - 10 * share)))
        moves.append(len(actions))
        for action in actions:
            sites[action.unit] = action.site
    assert moves[-3:] == [0, 0, 0]
    assert np.bincount(sites, minlength=4).max() <= 24


def test_another_number_of_sites_begins_anew():
    placement = policy("placement")
    placement.decide(busy([10] * 4, [0, 0, 1, 1], idle=[5.0, 5.0]))
    assert placement.decide(busy([10] * 4, [0, 0, 0, 0], idle=[1.0, 10.0, 10.0]))


def test_a_site_gives_foreign_pieces_away_before_native_ones():
    view = busy([10] * 8, [0] * 8, idle=[2.0, 10.0])
    view = view.with_units(home=np.array([0, 0, 0, 0, 1, 1, 1, 1]))
    assert sorted(action.unit for action in policy("placement").decide(view)) == [4, 5, 6, 7]


def test_pieces_go_where_their_neighbours_are():
    view = busy([10] * 8, [0] * 8, idle=[2.0, 10.0])
    view = replace(view, neighbours=Neighbours(unit=np.array([1, 3, 6, 7]), site=np.array([1, 1, 1, 1])))
    assert sorted(action.unit for action in policy("placement").decide(view)) == [1, 3, 6, 7]


def test_neighbouring_sites_are_asked_to_be_partners_first():
    view = busy([10] * 12, [0] * 6 + [1] * 6, idle=[5.0] * 9)
    view = view.with_units(home=np.array([0] * 6 + [1] * 6))
    beside = Neighbours(unit=np.arange(6), site=np.array([7, 7, 7, 4, 4, 1]))
    placement = policy("placement", partners=2)
    placement.decide(replace(view, neighbours=beside))
    assert {4, 7} <= placement._at_sites[0].partners


def test_pieces_go_home_when_nobody_asks_for_load():
    """Two of site 0's pieces are at site 1; with one of them at home both sites stay near the average."""
    view = busy([10] * 20, [0] * 9 + [1] * 11, idle=[1.0, 0.5]).with_units(home=np.array([0] * 11 + [1] * 9))
    moves = policy("placement").decide(view)
    assert [(move.unit, move.site) for move in moves] == [(9, 0), (10, 0)]
    assert policy("placement", homing=False).decide(view) == ()
    assert policy("placement", selection="elementary").decide(view) == ()


def test_a_home_takes_no_more_pieces_back_than_it_has_room_for():
    view = busy([10] * 20, [0] * 11 + [1] * 9, idle=[0.0, 1.0]).with_units(home=np.zeros(20, dtype=np.int64))
    assert len(policy("placement").decide(view)) == 1
