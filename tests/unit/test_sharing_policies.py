"""What `hybrid` does about units too hot for one site, and `tokens` about memory that fills up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from site_loads import ROW_BYTES, SiteLoads

from sluice.model.epoch.stats import Slices
from sluice.model.errors import FlowError
from sluice.model.plan.plan import Capabilities
from sluice.model.routing.routing import Routing
from sluice.model.routing.sharing import SharedUnit, best_grid, copied_rows
from sluice.model.view import ClusterView, SharedUnits
from sluice.policies import policy
from sluice.policies.hybrid import Hybrid
from sluice.policies.planning.hot_units import HotUnits
from sluice.policies.tokens import Tokens
from sluice.verbs.base import Situation
from sluice.verbs.move import Move
from sluice.verbs.share import LayOut, PassToken, Release, Share

MIB = 1 << 20


def hot(sites: int = 4, memory: int = 1 << 30, inputs: int = 2) -> ClusterView:
    """A unit at each site; the first is most of the work."""
    rows, results = np.full(sites, 100), np.full(sites, 100)
    rows[0], results[0] = 1000, 50_000
    idle = np.full(sites, 9.9)
    idle[0] = 0.0
    return (
        ClusterView.at_rest(range(sites), [memory] * sites)
        .with_units(
            rows=rows,
            first_rows=rows // inputs if inputs == 2 else rows,
            results=results,
            bytes=rows * 1000,
            inputs=np.full(sites, inputs),
        )
        .with_sites(idle=idle)
    )


def shared_by(view: ClusterView, sharing: SharedUnit, busy: float, rows: int, results: int, size: int) -> ClusterView:
    """The first unit at several sites, each of which has a slice like this and is so busy."""
    count = len(sharing.holders)
    sites = np.array(sharing.holders)
    slices = Slices(np.zeros(count, dtype=int), sites, *(np.full(count, n) for n in (rows, results, size)))
    idle = view.sites.idle.copy()
    idle[sites] = 10 * (1 - busy)
    units = view.units.rows.copy()
    units[0] = rows * count
    return replace(
        view.with_units(rows=units, first_rows=units // 2).with_sites(idle=idle),
        shared=SharedUnits((sharing,), slices=slices),
    )


class TestHotUnits:
    def test_a_unit_that_is_most_of_the_work_goes_to_all_sites(self) -> None:
        *shares, laid_out = HotUnits().decide(hot())
        assert [(a.unit, a.site) for a in shares] == [(0, 1), (0, 2), (0, 3)]
        assert isinstance(laid_out, LayOut) and laid_out.lines == (2, 2)

    def test_the_small_input_goes_everywhere(self) -> None:
        view = hot()
        few = view.units.first_rows.copy()
        few[0] = 20
        assert HotUnits().decide(view.with_units(first_rows=few))[-1].lines == (1, 4)

    def test_a_stream_with_itself_is_stored_in_turn(self) -> None:
        assert HotUnits().decide(hot(inputs=1))[-1].lines == ()

    def test_nothing_is_shared_that_need_not_or_cannot_be(self) -> None:
        view = hot()
        even = view.with_units(results=np.full(4, 100), rows=np.full(4, 100)).with_sites(idle=np.zeros(4))
        assert HotUnits().decide(even) == ()
        assert HotUnits().decide(view.with_units(inputs=np.zeros(4, dtype=int))) == ()
        assert HotUnits().decide(view.with_units(unready=np.arange(4) == 0)) == ()
        assert HotUnits().decide(hot(sites=1)) == ()

    def test_only_sites_with_room_for_their_part_become_holders(self) -> None:
        view = hot(memory=2_000_000)
        full = view.units.bytes.copy()
        full[1:3] = 1_900_000
        shares = [a for a in HotUnits().decide(view.with_units(bytes=full)) if isinstance(a, Share)]
        assert [a.site for a in shares] in ([3], [])

    def test_a_unit_that_has_cooled_down_is_given_back_to_one_site(self) -> None:
        grid = SharedUnit(0, (0, 1, 2, 3), (0, 1), (0, 0), grid_shape=(2, 2))
        cool = shared_by(hot(), grid, busy=0.5, rows=1, results=1, size=10)
        assert HotUnits().decide(cool) == tuple(
            Release(0, site, HotUnits().decide(cool)[0].reason) for site in (1, 2, 3)
        )

    def test_a_unit_is_given_back_if_whoever_keeps_it_has_time_for_it(self) -> None:
        """That is the first of the holders, whatever its number."""
        grid = SharedUnit(0, (3, 0), (0, 1), (3, 3), grid_shape=(2, 1))
        cool = shared_by(hot().with_sites(idle=np.full(4, 5.0)), grid, busy=0.2, rows=150, results=150, size=10)
        assert [(type(a), a.site) for a in HotUnits().decide(cool)] == [(Release, 0)]
        rows, idle = cool.units.rows.copy(), cool.sites.idle.copy()
        rows[3], idle[3] = 10_000, 5.0  # site 3 has enough to do
        assert not [a for a in HotUnits().decide(cool.with_units(rows=rows).with_sites(idle=idle)) if a.site == 0]

    def test_a_unit_is_given_back_only_to_a_site_that_has_room_for_all_of_it(self) -> None:
        grid = SharedUnit(0, (0, 1, 2, 3), (0, 1), (0, 0), grid_shape=(2, 2))
        cool = shared_by(hot(memory=2_000_000), grid, busy=0.5, rows=1, results=1, size=1_100_000)
        assert HotUnits().decide(cool) == ()  # each has 1.1 of 2 MB, together without copies it is 2.2

    def test_a_shared_unit_that_is_well_placed_is_left_alone(self) -> None:
        grid = SharedUnit(0, (0, 1, 2, 3), (0, 1), (0, 0), grid_shape=(2, 2))
        assert HotUnits().decide(shared_by(hot(), grid, 0.9, rows=500, results=12_500, size=1000)) == ()

    def test_another_grid_of_the_same_size_is_no_remedy_for_a_slow_site(self) -> None:
        """Of two inputs with about as many rows now this one has more, now that one."""
        grid = SharedUnit(0, (0, 1, 2, 3, 4, 5), (0, 1), (0, 0), grid_shape=(2, 3))
        view = shared_by(hot(sites=6), grid, 0.6, rows=500, results=12_500, size=1000)
        idle, first = view.sites.idle.copy(), view.units.first_rows.copy()
        idle[2], first[0] = 0.0, 1900  # which came to three sites each, the others to two: now 3 x 2 sends less
        slow = view.with_sites(idle=idle)
        assert HotUnits().decide(slow) == HotUnits().decide(slow.with_units(first_rows=first)) == ()

    def test_a_shared_unit_gets_more_holders(self) -> None:
        grid = SharedUnit(0, (0, 1), (0, 1), (0, 0), grid_shape=(2, 1))
        actions = HotUnits().decide(shared_by(hot(), grid, 1.0, rows=750, results=25_000, size=1000))
        assert {a.site for a in actions if isinstance(a, Share)} == {2, 3}

    @given(st.data(), st.integers(2, 6), st.integers(1, 3))
    def test_whatever_it_asks_for_can_be_done(self, data: st.DataObject, sites: int, units: int) -> None:
        draw = data.draw
        numbers = st.lists(st.integers(0, 10**6), min_size=units, max_size=units).map(np.array)
        routing = Routing(sites, tuple(draw(st.lists(st.integers(0, sites - 1), min_size=units, max_size=units))))
        able = Capabilities(shareable={0: (0, 1)})
        rows = draw(numbers)
        view = (
            ClusterView.at_rest(routing.holders, [draw(st.sampled_from([0, 10**6, 1 << 40]))] * sites)
            .with_units(
                rows=rows,
                first_rows=rows * draw(st.integers(0, 4)) // 4,
                results=draw(numbers),
                bytes=draw(numbers),
                inputs=np.full(units, 2),
            )
            .with_sites(idle=10 * np.array(draw(st.lists(st.floats(0, 1), min_size=sites, max_size=sites))))
        )
        for _ in range(2):
            for action in HotUnits().decide(view):
                assert action.refuse(Situation(routing, able)) is None
                routing = action.apply(routing, able.shareable[0], since=0)
            for sharing in routing.shared:
                idle = 10 * np.array(draw(st.lists(st.floats(0, 1), min_size=sites, max_size=sites)))
                view = shared_by(view.with_sites(idle=idle), replace(sharing, unit=0), 0.7, 10, 10, 10)
                slices = replace(view.shared.slices, unit=view.shared.slices.unit + sharing.unit)
                view = replace(view, shared=SharedUnits((sharing,), slices=slices))

    def test_hybrid_shares_before_it_moves_unless_told_not_to(self) -> None:
        assert {a.verb for a in Hybrid().decide(hot())} == {"share", "lay out"}
        moves = policy("hybrid", share=False).decide(
            hot().with_units(site=np.array([0, 0, 0, 1]), rows=np.array([500, 300, 100, 100]))
        )
        assert moves and all(isinstance(a, Move) for a in moves)


@pytest.mark.parametrize("seed", [0, 4, 5, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3, 6, 7))])
@pytest.mark.parametrize(("sites", "units", "noise"), [(6, 6, 0.1), (4, 16, 0.1), (3, 1, 0.2), (5, 32, 0.0)])
def test_hybrid_comes_to_rest_and_follows_the_heat(sites: int, units: int, noise: float, seed: int) -> None:
    """One unit is hot, then another one: it is shared as long as it is, and nothing goes back and forth."""
    costs = {"result_cost": [0.3, 1.0, 3.0][seed % 3], "overhead": [10.0, 300.0][seed % 2]}
    loads = SiteLoads(Hybrid(), sites, units, seed, noise, **costs)
    heat = (100.0 * units, 60.0 * units, [100.0, 2000.0][seed // 4] * units)
    for hottest in dict.fromkeys((0, units // 2)):
        loads.hot, loads.heat = hottest, (heat if units > 1 else (900.0, 500.0, 4000.0))
        loads.run(20)
        later = loads.run(50)
        assert [sharing.unit for sharing in loads.routing.shared] == [hottest]
        assert len(later) <= 5, [str(action) for action in later]
        assert loads.imbalance < 1.5
    loads.heat = (0.0, 0.0, 0.0)
    loads.run(20)
    assert not loads.routing.shared


def test_hybrid_keeps_a_unit_shared_that_no_site_has_room_for() -> None:
    loads = SiteLoads(Hybrid(), 4, 8, memory=2500 * ROW_BYTES)
    loads.heat = (1000.0, 1000.0, 5000.0)
    loads.run(10)
    loads.heat = (1000.0, 1000.0, 0.0)
    loads.run(30)
    assert loads.routing.shared and (loads.view().bytes_by_site <= loads.memory).all()


@pytest.mark.parametrize(
    ("holders", "rows", "copies"), [(8, (1, 1), 6), (8, (1000, 1), 1008), (4, (1, 1), 4), (7, (1, 1), 8)]
)
def test_the_grid_with_the_fewest_copies(holders: int, rows: tuple[int, int], copies: int) -> None:
    lines = best_grid(holders, rows)
    assert copied_rows(lines, rows) == copies
    assert all(copied_rows((a, holders // a), rows) >= copies for a in range(1, holders + 1) if holders % a == 0)


class TestTokens:
    """The priorities of section 3.3.1, in their order."""

    def view(
        self, filled: list[int], sharing: SharedUnit | None = None, slices: list[int] | None = None
    ) -> ClusterView:
        """One unit to share, and one at each site that fills its memory, of 100 MiB, so far."""
        sites = len(filled)
        view = ClusterView.at_rest([0, *range(sites)], [100 * MIB] * sites)
        size = np.array([1, *filled]) * MIB
        inputs = np.array([2, *[0] * sites])
        view = view.with_units(rows=np.array([60, *[0] * sites]), first_rows=np.array([30, *[0] * sites]))
        if sharing is None:
            return view.with_units(bytes=size, inputs=inputs)
        sites_of = np.array(sharing.holders)
        mine = np.array(slices or [1] * len(sites_of)) * MIB
        none = np.zeros(len(mine), dtype=int)
        parts = Slices(none, sites_of, none, none, mine)
        return replace(view.with_units(bytes=size, inputs=inputs), shared=SharedUnits((sharing,), slices=parts))

    def shared(self, *holders: int, token: int = 0, turns: bool = False) -> SharedUnit:
        return SharedUnit(0, holders, (0, 1), (token, token), turns=turns)

    def test_first_a_holder_with_room_again(self) -> None:
        actions = Tokens().decide(self.view([90, 10, 5], self.shared(0, 1)))
        assert [(type(a), a.site) for a in actions] == [(PassToken, 1), (PassToken, 1)]
        assert actions[0].reason == "site 0 has filled 91 % of its memory; site 1, 11 %, has room again"

    def test_where_no_site_has_room_units_of_one_holder_are_not_looked_at(self, monkeypatch) -> None:
        """There may be very many, and nobody could take their tokens."""
        looked: list[int] = []
        alone = SharedUnit.alone
        monkeypatch.setattr(SharedUnit, "alone", lambda unit, *of: looked.append(unit) or alone(unit, *of))
        for filled, seen in ((95, False), (10, True)):
            sizes = np.where(np.arange(1000) % 2, filled, 95)
            view = ClusterView.at_rest(np.arange(1000) % 2, [50_000, 50_000]).with_units(
                bytes=sizes, rows=np.full(1000, 60), inputs=np.full(1000, 2)
            )
            assert bool(Tokens().decide(view)) == bool(looked) == seen

    def test_then_a_site_that_is_none_yet(self) -> None:
        actions = Tokens().decide(self.view([90, 30, 50], self.shared(0, 1)))
        assert [(type(a), a.site) for a in actions] == [(Share, 2), (PassToken, 2), (PassToken, 2)]

    def test_then_the_holder_that_has_filled_least(self) -> None:
        actions = Tokens().decide(self.view([90, 70, 60], self.shared(0, 1, 2)))
        assert [(type(a), a.site) for a in actions] == [(PassToken, 2), (PassToken, 2)]

    def test_at_last_the_holder_that_has_filled_least_though_it_is_above_high(self) -> None:
        actions = Tokens().decide(self.view([95, 90, 86], self.shared(0, 1)))
        assert [(type(a), a.site) for a in actions] == [(PassToken, 1), (PassToken, 1)]
        assert actions[0].reason == "site 0 has filled 96 % of its memory; site 1, 91 %, has filled least"
        assert Tokens().decide(self.view([90, 95, 86], self.shared(0, 1))) == ()  # it is the emptier one itself

    def test_holders_that_store_in_turn_go_on_until_there_is_room(self) -> None:
        assert Tokens().decide(self.view([90, 90, 90], self.shared(0, 1, 2, turns=True))) == ()
        back = Tokens().decide(self.view([90, 90, 10], self.shared(0, 1, 2, turns=True)))
        assert [(type(a), a.site) for a in back] == [(PassToken, 2), (PassToken, 2)]

    def test_a_unit_that_is_not_shared_yet(self) -> None:
        actions = Tokens().decide(self.view([90, 30, 20]))
        assert [(type(a), a.site) for a in actions] == [(Share, 2), (PassToken, 2), (PassToken, 2)]
        assert Tokens().decide(self.view([80, 30, 20])) == ()

    def test_a_holder_with_nothing_left_is_released(self) -> None:
        actions = Tokens().decide(self.view([20, 20, 20], self.shared(0, 1, 2, token=2), slices=[1, 0, 0]))
        assert [(type(a), a.site) for a in actions] == [(Release, 1)]

    def test_a_holder_with_nothing_left_gets_a_token_rather_than_be_released(self) -> None:
        actions = Tokens().decide(self.view([90, 10, 50], self.shared(0, 1), slices=[1, 0]))
        assert [(type(a), a.site) for a in actions] == [(PassToken, 1), (PassToken, 1)]

    def test_only_the_token_of_the_crowded_site_passes(self) -> None:
        sharing = SharedUnit(0, (0, 1), (0, 1), (0, 1))
        actions = Tokens().decide(self.view([90, 10], sharing))
        assert [(a.input, a.site) for a in actions] == [(0, 1)]

    def test_tokens_of_two_crowded_sites_pass(self) -> None:
        sharing = SharedUnit(0, (0, 1), (0, 1), (0, 1))
        actions = Tokens().decide(self.view([90, 95, 10], sharing))
        assert [(type(a), a.site) for a in actions] == [(Share, 2), (PassToken, 2), (PassToken, 2)]
        assert [a.input for a in actions[1:]] == [1, 0]  # that of the fuller site first

    def crowded(self, rows: list[int], filled: list[int]) -> ClusterView:
        """Units at site 0 that take in so many rows; all sites have filled so much of 100 MiB, the first by them."""
        units, sites = len(rows), len(filled)
        view = ClusterView.at_rest([0] * units + list(range(1, sites)), [100 * MIB] * sites)
        size = np.array([filled[0] / units] * units + filled[1:]) * MIB
        others = [0] * (sites - 1)
        return view.with_units(
            bytes=size.astype(np.int64),
            rows=np.array(rows + others),
            first_rows=np.array(rows + others) // 2,
            inputs=np.array([2] * units + others),
        )

    def test_a_crowded_site_passes_on_all_that_it_stores(self) -> None:
        """One unit a round would leave it growing."""
        actions = Tokens().decide(self.crowded([10, 40, 20], [90, 10]))
        assert [(a.unit, a.input) for a in actions if isinstance(a, PassToken)] == [
            *((1, 0), (1, 1)),
            *((2, 0), (2, 1)),
            *((0, 0), (0, 1)),
        ]

    def test_what_takes_in_nothing_stays(self) -> None:
        assert {a.unit for a in Tokens().decide(self.crowded([0, 40, 0], [90, 10]))} == {1}

    def test_a_round_has_no_more_than_so_many_units(self) -> None:
        assert {a.unit for a in Tokens(most=2).decide(self.crowded([10, 40, 20], [90, 10]))} == {1, 2}

    def test_what_was_just_passed_to_a_site_counts(self) -> None:
        """Were it not for that, all would go to the site that has filled least, and it would fill at once."""
        actions = Tokens().decide(self.crowded([40, 30, 20, 10], [90, 10, 12]))
        assert [(a.unit, a.site) for a in actions if isinstance(a, Share)] == [(0, 1), (1, 2), (2, 2), (3, 1)]

    @given(st.data(), st.integers(2, 6), st.integers(1, 8))
    def test_whatever_it_asks_for_can_be_done(self, data: st.DataObject, sites: int, units: int) -> None:
        draw = data.draw
        numbers = st.lists(st.integers(0, 100), min_size=units, max_size=units).map(np.array)
        routing = Routing(sites, tuple(draw(st.lists(st.integers(0, sites - 1), min_size=units, max_size=units))))
        able = Capabilities(shareable={0: (0, 1)})
        for _ in range(4):
            held = [(s.unit, site) for s in routing.shared for site in s.holders]
            unit, site = np.array(held, dtype=np.int64).reshape(-1, 2).T
            size = np.array(draw(st.lists(st.integers(0, 60), min_size=len(held), max_size=len(held))), dtype=np.int64)
            rows = draw(numbers)
            view = replace(
                ClusterView.at_rest(routing.holders, [100] * sites).with_units(
                    rows=rows,
                    first_rows=rows * draw(st.integers(0, 4)) // 4,
                    bytes=draw(numbers),
                    inputs=np.full(units, 2),
                ),
                shared=SharedUnits(routing.shared, slices=Slices(unit, site, size * 0, size * 0, size)),
            )
            for action in Tokens().decide(view):
                assert action.refuse(Situation(routing, able)) is None
                routing = action.apply(routing, able.shareable[0], since=0)

    @pytest.mark.parametrize("settings", [{"low": 0.9}, {"low": -0.1}, {"high": 1.1}, {"low": 0.5, "high": 0.5}])
    def test_thresholds_that_make_no_sense(self, settings: dict[str, float]) -> None:
        with pytest.raises(FlowError, match=r"(low|high)(=| must be less)"):
            policy("tokens", **settings)

    def test_a_round_that_may_pass_nothing_makes_no_sense(self) -> None:
        with pytest.raises(FlowError, match="most=0: it is how many units"):
            policy("tokens", most=0)
