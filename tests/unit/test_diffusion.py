"""Balancers: partners are symmetric and bounded, load goes from those with most to those with least."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.model.ids import Site
from sluice.policies.planning.diffusion import (
    Balancer,
    DiffusionSettings,
    LoadRequest,
    PartnerReply,
    PartnerRequest,
    Probe,
    ProbeReply,
    WorkloadChanged,
)
from sluice.policies.planning.piece_selection import HeldPieces, Selection
from sluice.policies.planning.workload import Fluctuation, SmoothedWorkload


def deliver(balancers: list[Balancer], messages, order: random.Random | None = None) -> None:
    """Messages between two balancers stay in order; others arrive in any."""
    waiting = list(messages)
    while waiting:
        drawn = waiting[order.randrange(len(waiting)) if order else 0]
        pair = drawn.sender, drawn.receiver
        message = waiting.pop(next(i for i, one in enumerate(waiting) if (one.sender, one.receiver) == pair))
        waiting += balancers[message.receiver].handle(message)


@given(st.integers(2, 12), st.integers(1, 6), st.integers(0, 2**20), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_partners_are_symmetric_and_bounded_whatever_the_order_of_messages(sites, partners, seed, renewals):
    order = random.Random(seed)
    options = DiffusionSettings(partners=partners, tries=sites)
    balancers = [
        Balancer(
            Site(site), sites, [Site(s) for s in order.sample(range(sites), sites // 2) if s != site], options, seed
        )
        for site in range(sites)
    ]
    deliver(balancers, [one for balancer in balancers for one in balancer.choose_partners()], order)
    for _ in range(renewals):
        deliver(balancers, balancers[order.randrange(sites)].choose_partners(), order)
    for balancer in balancers:
        assert len(balancer.accepted) <= options.accepted and not balancer.chosen & balancer.accepted
        assert all(balancer.site in balancers[other].partners for other in balancer.partners)
        assert set(balancer.loads) <= balancer.partners


def test_neighbours_with_the_highest_factor_are_asked_first():
    asked = Balancer(Site(0), 9, [Site(5), Site(3), Site(7)], DiffusionSettings(partners=2)).choose_partners()
    assert [(type(one), one.receiver) for one in asked] == [(PartnerRequest, 5), (PartnerRequest, 3)]


def test_a_workload_is_told_when_it_has_changed_enough():
    workload = SmoothedWorkload(alpha=0.5, kappa=1.2)
    workload.add_window(0.5)
    assert workload.value == 0.5 and workload.has_changed
    workload.told = workload.value
    workload.add_window(0.6)
    assert not workload.has_changed
    workload.add_window(0.9)
    assert workload.has_changed


@given(st.integers(1, 5), st.integers(1, 5), st.floats(1.1, 10), st.floats(1.05, 3))
def test_smoothing_hides_what_it_is_to_hide(rising, lasting, times, kappa):
    fluctuation = Fluctuation(rising, lasting, times)
    assert fluctuation.seen(fluctuation.smoothing(kappa)) <= kappa + 1e-6


def befriended(*loads: float, **options: float) -> list[Balancer]:
    balancers = [Balancer(Site(s), len(loads), (), DiffusionSettings(**options)) for s in range(len(loads))]
    for balancer in balancers:
        deliver(balancers, balancer.choose_partners())
    for balancer, load in zip(balancers, loads, strict=True):
        deliver(balancers, balancer.end_window(load))
    return balancers


def test_who_has_little_asks_the_partner_with_most_for_half_the_difference():
    balancers = befriended(0.2, 0.5, 0.8)
    (request,) = balancers[0].begin_round()
    assert isinstance(request, LoadRequest) and request.receiver == 2 and request.amount == pytest.approx(0.3)
    assert balancers[1].begin_round() == [] and balancers[2].begin_round() == []


def test_who_is_overloaded_with_all_partners_probes_others_up_to_a_limit():
    prober = Balancer(Site(0), 9, [Site(1)], DiffusionSettings(partners=1, tries=0, probes=3))
    prober.handle(PartnerReply(Site(1), Site(0), 0.95, accepted=True))
    prober.end_window(0.95)
    messages, probed = prober.begin_round(), []
    while messages:
        (probe,) = messages
        assert isinstance(probe, Probe)
        probed.append(probe.receiver)
        messages = prober.handle(ProbeReply(probe.receiver, Site(0), 0.95))
    assert len(probed) == 3 and not {0, 1} & set(probed)
    assert prober.partners == {1}
    (probe,) = prober.begin_round()
    assert prober.handle(ProbeReply(probe.receiver, Site(0), 0.5)) == []
    assert prober.partners == {1, probe.receiver}


def held(loads, homes=None, sizes=None, links=()) -> HeldPieces:
    count = len(loads)
    pairs = np.array(links, dtype=np.int64).reshape(-1, 2)
    return HeldPieces(
        np.arange(count), np.array(loads), np.array(sizes if sizes is not None else [1] * count),
        np.array(homes if homes is not None else [-1] * count), pairs[:, 0], pairs[:, 1],
    )  # fmt: skip


def test_larger_requests_are_served_first_and_half_of_the_load_stays():
    balancer = Balancer(Site(0), 3, (), DiffusionSettings())
    balancer.end_window(0.8)
    balancer.begin_round()
    balancer.handle(LoadRequest(Site(1), Site(0), 0.1, 0.1))
    balancer.handle(LoadRequest(Site(2), Site(0), 0.1, 0.35))
    migrations = balancer.serve(lambda: held([0.1] * 8))
    assert [one.receiver for one in migrations] == [2, 2, 2, 1]
    assert balancer.workload.value == pytest.approx(0.4)
    balancer.handle(LoadRequest(Site(1), Site(0), 0.1, 0.3))
    assert balancer.serve(lambda: held([0.1] * 4)) == [], "not before the next round"


@given(st.lists(st.floats(0.001, 0.2), min_size=1, max_size=30), st.floats(0.01, 0.5), st.sampled_from(Selection))
def test_never_more_is_given_than_was_asked_for(loads, asked, selection):
    rows, load = held(loads).choose(Site(0), Site(1), asked, 0.4, selection)
    assert len(set(rows)) == len(rows) and load <= min(asked, 0.4) + 1e-9
    assert load == pytest.approx(sum(loads[row] for row in rows))


def test_the_twelve_categories_come_in_the_papers_order():
    neighbours = {0: [1], 1: [0, 1], 2: [], 3: [0]}  # at the receiver, at both, at none, at the sender
    homes = [home for home in (1, 2, 0) for _ in neighbours]  # the receiver's, another's, the sender's
    links = [(row, site) for row in range(12) for site in neighbours[row % 4]]
    pieces = held([0.1] * 12, homes, links=links)
    assert pieces.in_order(Site(0), Site(1), Selection.FLOW_AWARE).tolist() == list(range(12))
    shuffled = np.random.default_rng(3).permutation(12)
    back = {int(row): place for place, row in enumerate(shuffled)}
    other = held([0.1] * 12, [homes[row] for row in shuffled], links=[(back[row], site) for row, site in links])
    assert [int(shuffled[row]) for row in other.in_order(Site(0), Site(1), Selection.FLOW_AWARE)] == list(range(12))


def test_workloads_are_told_to_partners_alone():
    balancers = befriended(0.5, 0.5, 0.5, 0.5, partners=1, tries=1)
    told = balancers[0].end_window(1.0) + balancers[0].end_window(1.0) + balancers[0].end_window(1.0)
    assert {one.receiver for one in told} == balancers[0].partners
    assert all(isinstance(one, WorkloadChanged) for one in told)
