"""Units as ranges of hashes that split and merge, and the routing over them."""

from __future__ import annotations

import pickle
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.model.codec import decode, encode
from sluice.model.directory import HASH_SPACE, Directory
from sluice.model.errors import ProtocolError
from sluice.model.routing import Routing

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
    owners = tuple(data.draw(st.integers(0, sites - 1)) for _ in range(directory.units))
    routing = Routing(sites, owners, 3, 7, directory)
    assert decode(encode(routing), Routing) == pickle.loads(pickle.dumps(routing)) == routing
    unit = data.draw(st.integers(0, routing.units - 1))
    halved = routing.split(unit, since=9)
    assert halved.owners[unit] == halved.owners[unit + 1] == routing.owners[unit]
    assert halved.merge(unit, since=9).owners == routing.owners
    assert routing.moved(unit, 0, since=9).directory == routing.resized(sites + 1, 4, 9).directory == directory
    assert (halved.version, halved.since) == (4, 9)


def test_buddies_at_two_sites_are_not_merged() -> None:
    routing = Routing(2, (0,)).split(0, since=1).moved(1, 1, since=2)
    with pytest.raises(ProtocolError, match="at different sites"):
        routing.merge(0, since=3)


def test_a_unit_of_one_hash_is_not_split() -> None:
    directory = Directory(1)
    for _ in range(32):
        directory = directory.split(0)
    with pytest.raises(ProtocolError, match="one hash only"):
        directory.split(0)
