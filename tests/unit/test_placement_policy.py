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
