"""Units as ranges of hashes that split and merge, and the routing over them."""

from __future__ import annotations

import pickle
from dataclasses import replace
from itertools import pairwise
from time import process_time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.control.collection import EpochCollection
from sluice.control.site_memory import SiteMemory
from sluice.model.codec import decode, encode
from sluice.model.epoch.stats import EpochStats, UnitColumns
from sluice.model.epoch.times import Queues
from sluice.model.errors import ProtocolError
from sluice.model.plan.plan import Capabilities
from sluice.model.routing.directory import HASH_SPACE, MOST_UNITS, Directory
from sluice.model.routing.routing import Routing
from sluice.model.routing.unit_ids import UnitIds
from sluice.model.routing.unit_ranges import FEW_RANGES, intersect, numbers, to_ranges
from sluice.model.view import ClusterView
from sluice.record.epoch import EpochRecord
from sluice.record.rebalancing import rebalance
from sluice.record.repartition import repartition_record, successors
from sluice.verbs.base import InFlight, Situation, current_units
from sluice.verbs.split import Merge, Split, SplitProtocol, halved_around

hashes = st.integers(0, HASH_SPACE - 1)


@st.composite
def directories(draw: st.DrawFn) -> Directory:
    """What some splits and merges lead to."""
    directory = Directory(draw(st.integers(1, 9)))
    for at in draw(st.lists(st.integers(0, 10**6), max_size=12)):
        unit = at % directory.units
        merging = at % 3 and directory.buddy(unit) is not None
        directory = directory.merge(unit) if merging else directory.split(unit)
    return directory


@given(directories(), st.lists(hashes, min_size=1))
def test_every_hash_has_one_unit_and_units_lie_in_order(directory: Directory, some: list[int]) -> None:
    ranges = [directory.hashes_of(unit) for unit in range(directory.units)]
    assert ranges[0][0] == 0 and ranges[-1][1] == HASH_SPACE
    assert all(a[1] == b[0] for a, b in pairwise(ranges))
    for value, unit in zip(some, directory.unit_of(np.array(some, dtype=np.uint32)).tolist(), strict=True):
        assert ranges[unit][0] <= value < ranges[unit][1]


@given(directories(), hashes, hashes)
def test_the_units_of_a_range_of_hashes(directory: Directory, one: int, other: int) -> None:
    low, high = min(one, other), max(one, other) + 1
    first, last = directory.units_in(low, high)
    assert first == directory.unit_of(np.array([low], dtype=np.uint32))[0]
    assert last - 1 == directory.unit_of(np.array([high - 1], dtype=np.uint32))[0]


@given(directories(), st.data())
def test_a_split_halves_one_unit_and_a_merge_undoes_it(directory: Directory, data: st.DataObject) -> None:
    unit = data.draw(st.integers(0, directory.units - 1))
    halved = directory.split(unit)
    low, high = directory.hashes_of(unit)
    assert halved.hashes_of(unit) == (low, (low + high) // 2) and halved.hashes_of(unit + 1) == (
        (low + high) // 2,
        high,
    )
    assert halved.buddy(unit) == unit + 1 and halved.buddy(unit + 1) == unit
    for half in (unit, unit + 1):
        assert halved.merge(half) == directory
    assert halved.depth(unit) == directory.depth(unit) + 1


@given(directories())
def test_buddies_are_each_others(directory: Directory) -> None:
    for unit in range(directory.units):
        buddy = directory.buddy(unit)
        if buddy is None:
            with pytest.raises(ProtocolError, match="has no buddy"):
                directory.merge(unit)
        else:
            assert directory.buddy(buddy) == unit and directory.depth(buddy) == directory.depth(unit)


@given(directories(), st.integers(1, 4), st.data())
def test_a_routing_keeps_its_directory(directory: Directory, sites: int, data: st.DataObject) -> None:
    holders = tuple(data.draw(st.integers(0, sites - 1)) for _ in range(directory.units))
    routing = Routing(sites, holders, 3, 7, (directory,))
    assert decode(encode(routing), Routing) == pickle.loads(pickle.dumps(routing)) == routing
    unit = data.draw(st.integers(0, routing.units - 1))
    halved = routing.split(unit, since=9)
    one, other = successors(routing, halved)[unit]
    assert halved.holder(one) == halved.holder(other) == routing.holder(unit)
    assert halved.merge(one, since=9).holders == routing.holders
    assert (
        routing.with_move(unit, 0, since=9).directories == rebalance(routing, sites + 1, 9).directories == (directory,)
    )
    assert (halved.version, halved.since) == (4, 9)


def test_buddies_at_two_sites_are_not_merged() -> None:
    routing = Routing(2, (0,)).split(0, since=1).with_move(1, 1, since=2)
    with pytest.raises(ProtocolError, match="units 2 and 1 are at different sites"):
        routing.merge(2, since=3)


def test_a_unit_of_one_hash_is_not_split() -> None:
    directory = Directory(1)
    for _ in range(32):
        directory = directory.split(0)
    with pytest.raises(ProtocolError, match="one hash only"):
        directory.split(0)


class PlainRouting:
    """The same as a routing, kept the plain way: a list of units a fragment, each with its hashes, holders, tokens, and
    id."""

    def __init__(self, fragments: int, units: int, sites: int) -> None:
        self.fragments = [
            [(Directory(units).hashes_of(u), [u * sites // units], None, units * f + u) for u in range(units)]
            for f in range(fragments)
        ]
        self.given = fragments * units

    def find(self, unit: int) -> tuple[list, int]:
        return next((units, at) for units in self.fragments for at, one in enumerate(units) if one[3] == unit)

    def new_id(self) -> int:
        self.given += 1
        return self.given - 1

    def units(self) -> list:
        return [unit for units in self.fragments for unit in units]


def tokens_of(routing: Routing, unit: int) -> list[int]:
    """Who stores new rows of each input of a unit."""
    sharing = routing.sharing(unit)
    return [routing.holder(unit)] * 2 if sharing is None else [sharing.storing(i, 0)[0] for i in (0, 1)]


def changed(routing: Routing, plain: PlainRouting, unit: int, site: int, verb: str) -> Routing:
    """Do the same to both; what one refuses, the other does not hold either."""
    units, at = plain.find(unit)
    (low, high), holders, tokens, _ = units[at]
    since = routing.since + 1
    try:
        if verb == "move":
            routing = routing.with_move(unit, site, since)
            assert len(holders) == 1
            units[at] = ((low, high), [site], None, unit)
        elif verb == "share":
            routing = routing.share(unit, site, inputs=(0, 1), since=since)
            assert site not in holders
            units[at] = ((low, high), [*holders, site], tokens or [holders[0]] * 2, unit)
        elif verb == "pass":
            routing = routing.pass_token(unit, 1, site, since)
            assert site in holders and len(holders) > 1
            units[at] = ((low, high), holders, [tokens[0], site], unit)
        elif verb == "release":
            routing = routing.release(unit, site, since)
            left = [h for h in holders if h != site]
            assert left and len(left) < len(holders)
            heir = [left[0] if t == site else t for t in tokens]
            units[at] = ((low, high), left, heir if len(left) > 1 else None, unit)
        elif verb == "split":
            routing = routing.split(unit, since)
            middle = (low + high) // 2
            halves = [((low, middle), holders, tokens), ((middle, high), holders, tokens)]
            units[at : at + 1] = [(*half, plain.new_id()) for half in halves]
        elif verb == "merge":
            buddy = routing.buddy_of(unit)
            routing = routing.merge(unit, since)
            first = min(at, plain.find(buddy)[1])
            (a, b) = units[first : first + 2]
            assert a[1:3] == b[1:3] and {a[3], b[3]} == {unit, buddy}
            units[first : first + 2] = [((a[0][0], b[0][1]), *a[1:3], plain.new_id())]
    except ProtocolError:
        return routing
    assert routing.since == since
    return routing


verbs = st.sampled_from(["move", "share", "pass", "release", "split", "split", "merge"])


@given(
    st.integers(1, 3),
    st.integers(1, 5),
    st.integers(1, 4),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6), verbs), max_size=25),
    st.integers(1, 5),
)
def test_a_routing_is_what_its_changes_make_it(
    fragments: int, units: int, sites: int, changes: list[tuple[int, int, str]], later_sites: int
) -> None:
    routing, plain = Routing.even(units, sites, fragments=fragments), PlainRouting(fragments, units, sites)
    for place, site, verb in changes:
        routing = changed(routing, plain, routing.unit_at(place % routing.units), site % sites, verb)
        assert decode(encode(routing), Routing) == pickle.loads(pickle.dumps(routing)) == routing
    kept = plain.units()
    assert routing.units == len(kept) and routing.directories[-1].range[1] == len(kept)
    assert routing.ids.array.tolist() == [unit for *_, unit in kept] and routing.ids.next_id == plain.given
    for index, (hashes, holders, tokens, unit) in enumerate(kept):
        assert (routing.unit_at(index), routing.index_of(unit)) == (unit, index)
        directory = routing.directories[routing.fragment_of(unit)]
        assert routing.hashes_of(unit) == hashes
        assert directory.unit_of(np.array(hashes[:1], dtype=np.uint32)).tolist() == [index]
        assert routing.holders_of(unit) == tuple(holders)
        assert tokens_of(routing, unit) == (tokens or [holders[0]] * 2)
    resized = rebalance(routing, later_sites, 99)
    assert resized.ids == routing.ids
    for _, holders, _, unit in kept:
        staying = tuple(h for h in holders if h < later_sites)
        if len(holders) > 1 and staying:
            assert resized.holders_of(unit) == staying
        assert set(tokens_of(resized, unit)) <= set(resized.holders_of(unit))
        assert max(resized.holders_of(unit)) < later_sites
    for fragment, directory in enumerate(routing.directories):
        held = resized.units_by_site([fragment])
        copies = [index for index in range(*directory.range) for _ in resized.holders_of(resized.unit_at(index))]
        assert sorted(np.concatenate(held).tolist()) == copies
        for site, units in enumerate(held):
            assert numbers(intersect(resized.ranges_of(site), (directory.range,))).tolist() == units.tolist()


@given(st.integers(1, 3), st.integers(1, 6), st.data())
def test_units_are_redivided_all_at_once_as_one_after_the_other(
    fragments: int, units: int, data: st.DataObject
) -> None:
    before = Routing.even(units, 2, fragments=fragments)
    for at in data.draw(st.lists(st.integers(0, 10**6), max_size=6)):
        before = before.split(before.unit_at(at % before.units), since=1)
    for at in data.draw(st.lists(st.integers(0, 10**6), max_size=2)):
        unit = before.unit_at(at % before.units)
        if before.sharing(unit) is None:
            before = before.share(unit, 1 - before.holder(unit), inputs=(0, 1), since=2)
    split: dict[int, list[tuple[int, int]]] = {}
    merged: list[int] = []
    for unit in before.ids.array.tolist():
        buddy, verb = before.buddy_of(unit), data.draw(st.sampled_from(["stay", "stay", "split", "merge"]))
        if verb == "split" and buddy not in merged:
            low, high = before.hashes_of(unit)
            key = data.draw(st.integers(low, high - 1))
            split[unit] = halved_around((low, high), key)[1 : data.draw(st.integers(1, 6))]
        elif verb == "merge" and buddy is not None and not {buddy} & {*split, *merged} and alike(before, unit, buddy):
            merged.append(unit)
    now = before.repartitioned(split, merged, since=9)
    one_by_one = before
    for unit in [*split, *merged]:
        one_by_one = one_by_one.split(unit, 9) if unit in split else one_by_one.merge(unit, 9)
        for hashes in split.get(unit, ()):
            (part,) = one_by_one.units_in(before.fragment_of(unit), hashes)
            one_by_one = one_by_one.split(part, 9)
    assert same_but_for_new_ids(one_by_one, now)
    assert (now.version, now.since) == (before.version + 1, 9)
    assert_only_the_ended_have_successors(before, now, {*split, *merged, *map(before.buddy_of, merged)})


def same_but_for_new_ids(one: Routing, other: Routing) -> bool:
    """Whether two routings have the same units at the same holders, whatever the ids of those that are new."""
    plain = [
        (r.holders, r.directories, [(r.index_of(s.unit), replace(s, unit=0)) for s in r.shared]) for r in (one, other)
    ]
    return plain[0] == plain[1]


def assert_only_the_ended_have_successors(before: Routing, now: Routing, ended: set[int]) -> None:
    """Units that were neither split nor merged keep their ids and hashes; the new ones have ids that nobody has had,
    and make up the hashes of those that are gone."""
    replaced, staying = successors(before, now), set(before.ids.array.tolist()) - ended
    assert replaced.keys() == ended
    assert all(before.hashes_of(unit) == now.hashes_of(unit) for unit in staying)
    new = set(now.ids.array.tolist()) - staying
    assert min(new, default=before.ids.next_id) >= before.ids.next_id and len(new) == now.units - len(staying)
    assert new == set(range(before.ids.next_id, now.ids.next_id)) == set(current_units(ended, replaced))
    for unit, parts in replaced.items():
        low, high = before.hashes_of(unit)
        edges = [now.hashes_of(part) for part in parts]
        assert edges[0][0] <= low and edges[-1][1] >= high and (len(parts) > 1 or edges[0] != (low, high))
        assert list(parts) == list(range(parts[0], parts[-1] + 1)), "they are named as from the first to the last"


def alike(routing: Routing, one: int, other: int) -> bool:
    return not (routing.sharing(one) or routing.sharing(other)) and routing.holder(one) == routing.holder(other)


@given(st.integers(1, 5), st.lists(st.tuples(st.integers(0, 10**6), st.booleans()), max_size=60))
def test_no_id_is_given_twice(units: int, changes: list[tuple[int, bool]]) -> None:
    routing, given_ids = Routing.even(units, 1), list(range(units))
    for at, merging in changes:
        unit = routing.unit_at(at % routing.units)
        if merging and routing.buddy_of(unit) is None:
            continue
        before, routing = routing, routing.merge(unit, 1) if merging else routing.split(unit, 1)
        given_ids += sorted(set(routing.ids.array.tolist()) - set(before.ids.array.tolist()))
        routing = decode(encode(routing), Routing)  # as after a restart
    assert given_ids == list(range(routing.ids.next_id))


def test_a_unit_that_is_not_there_is_refused_in_words() -> None:
    routing = Routing.even(4, 2).split(1, since=1)
    for verb in (routing.holder, routing.hashes_of, routing.fragment_of, routing.buddy_of):
        with pytest.raises(ProtocolError, match="there is no unit 1 any more: it was split or merged"):
            verb(1)
    for unit in (6, -1):
        with pytest.raises(ProtocolError, match=f"there is no unit {unit}; ids go from 0 to 5"):
            routing.with_move(unit, 0, since=2)
    with pytest.raises(ProtocolError, match="an id is given twice"):
        UnitIds(((0, 4), (3, 6)), 6)
    with pytest.raises(ProtocolError, match="an id is given twice"):
        UnitIds(((0, 4),), 3)
    with pytest.raises(ProtocolError, match="5 units have a site, 4 have an id"):
        replace(routing, ids=UnitIds.new(4))


def test_ids_of_many_units_take_little_room_and_time() -> None:
    """What a record has to say of them grows with the units that were split, not with those that there are."""
    routing = Routing.even(60_000, 4)
    for unit in (7, 30_000, 59_999):
        routing = routing.split(unit, since=1)
    assert len(encode(routing.ids)) < 150
    fresh, begun = decode(encode(routing), Routing), process_time()
    for _ in range(10_000):
        assert fresh.holder(59_998) == 3 and fresh.unit_at(8) == 60_001
    assert process_time() - begun < 1.0
    assert fresh.with_move(8, 3, since=2).ids is fresh.ids, "what is at hand of them stays so"


def test_queues_of_many_units_are_laid_out_in_one_pass() -> None:
    """Eight times the units take about eight times as long, not sixty-four times."""
    took = []
    for units in (4_000, 32_000):
        routing = Routing.even(units, 1)
        queues = Queues(0, 0, memory=tuple(range(0, units, 2)), disk=tuple(range(1, units, 2)), rest=0.0)
        record = EpochRecord(0, (None,), routing, ((),), queues=(queues,))
        took.append(min(seconds_for(record, routing.split(7, since=1)) for _ in range(3)))
    assert took[1] < 24 * took[0]


def seconds_for(record: EpochRecord, routing: Routing) -> float:
    begun = process_time()
    after = repartition_record(record, routing, ())
    assert after.queues[0].disk[3:5] == (7, 8)
    return process_time() - begun


def test_there_are_at_most_so_many_units() -> None:
    """A key may be set apart by as many splits as a hash has bits; merges are always welcome."""
    full, able = Routing.even(MOST_UNITS - 1, 2).split(0, since=0), Capabilities(divisible=frozenset({0}))
    too_many = "an operator's state has at most 65,536 units"
    assert Split(3, "to see").refuse(Situation(full, able)) == too_many
    assert Merge(MOST_UNITS, "to see").refuse(Situation(full, able)) is None
    nearly, in_flight = Routing.even(MOST_UNITS - 100, 2), InFlight()
    assert Split(4, "to see").refuse(Situation(nearly, able, in_flight)) is None
    in_flight.add(SplitProtocol(Split(3, "to see"), nearly.hashes_of(3)), (3,))
    assert Split(4, "to see").refuse(Situation(nearly, able, in_flight)) == too_many


def view_of(routing: Routing) -> ClusterView:
    """What a policy sees after an epoch without rows."""
    collection = EpochCollection(SiteMemory(1 << 30), Capabilities(divisible=frozenset({0})), 0.0, 1 << 20)
    stats = EpochStats(units=UnitColumns.none(routing.units))
    collection.add(EpochRecord(0, (None,), routing, ((),) * routing.sites, stats=stats), 0.0)
    return collection.view()


def test_policies_do_not_ask_to_split_units_of_one_hash() -> None:
    routing = Routing(2, (1,))
    for _ in range(32):
        routing = routing.split(routing.unit_at(0), since=0)
    view = view_of(routing)
    assert view.units.id.tolist() == routing.ids.array.tolist()
    assert view.units.single_key.tolist() == [True, True, *[False] * 31]
    assert view.units.buddy.tolist() == [1, 0, *[-1] * 31]


def test_policies_do_not_ask_to_split_where_there_is_no_room() -> None:
    assert view_of(Routing.even(1000, 2)).units.divisible.all()
    assert not view_of(Routing.even(MOST_UNITS, 2)).units.divisible.any()


@pytest.mark.parametrize("count", [0, 1, FEW_RANGES - 1, FEW_RANGES, 500])
def test_units_of_few_and_of_many_ranges_one_by_one(count):
    few = [(7 * n, 7 * n + 1 + n % 5) for n in range(count)]
    assert numbers(tuple(few)).tolist() == [unit for low, high in few for unit in range(low, high)]


@given(st.sets(st.integers(0, 120), min_size=40), st.integers(0, 120), st.integers(0, 120))
def test_many_ranges_and_one_have_the_units_of_both_in_common(units, low, high):
    low, high = sorted((low, high + 1))
    many, one = to_ranges(sorted(units)), ((low, high),) if low < high else ()
    common = to_ranges(sorted(units & set(range(low, high))))
    assert intersect(many, one) == intersect(one, many) == common
