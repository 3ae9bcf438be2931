"""Columns with an entry a unit: the same numbers come back, and few bytes stand for many units."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.model.codec import DecodeError, decode, encode
from sluice.model.columns import IntColumn
from sluice.model.epoch.packed_manifests import PackedManifests
from sluice.model.epoch.segments import Block, RunRef, SegmentRef, reuse_values, unit_bytes, unit_rows
from sluice.model.routing.routing import Routing
from sluice.model.routing.unit_ranges import Ranges, numbers

UNITS = 65_536
whole_numbers = st.one_of(st.integers(0, 300), st.integers(-(2**63), 2**63 - 1))


@given(st.lists(st.integers(-(2**62), 2**62)), st.sampled_from(["<i8", ">i8", "<i4", "<f8", ">f8", "<f4"]))
def test_arrays_survive_packing(values: list[int], kind: str) -> None:
    column = np.array(values).astype(kind)
    again = decode(encode(column), np.ndarray)
    assert np.array_equal(again, column)
    assert again.dtype == (np.int64 if "i" in kind else np.dtype(kind).newbyteorder("<"))


@given(st.lists(whole_numbers))
def test_columns_are_like_tuples(values: list[int]) -> None:
    column = IntColumn(values)
    for again in (column, decode(encode(column), IntColumn), pickle.loads(pickle.dumps(column)), column[:]):
        assert len(again) == len(values) and list(again) == values and np.array(again).tolist() == values
        assert again == column == tuple(values) and hash(again) == hash(tuple(values)) and repr(again) == repr(column)
    assert IntColumn([*values, 1]) != column != (*values, 1)


@pytest.mark.parametrize("text", ['""', '"3"', '"u1:eAFjAAAAAQAB"', '"3*zz:eAFjAAAAAQAB"', '"x*u1:eAFjAAAAAQAB"', "7"])
def test_what_is_no_column_is_refused(text: str) -> None:
    with pytest.raises(DecodeError):
        decode(text.encode(), np.ndarray)
    with pytest.raises(DecodeError):
        decode(b'{"sites":2,"holders":%b}' % text.encode(), Routing)


@pytest.mark.parametrize("data", ["", "AAAA", "eAFjAAAAAQAB"])
def test_nor_are_other_numbers_read_than_were_packed(data: str) -> None:
    with pytest.raises(DecodeError):
        decode(f'"3*u1:{data}"'.encode(), np.ndarray)
    with pytest.raises(ValueError):
        list(IntColumn.from_text(f"3*u1:{data}"))


def scattered() -> Ranges:
    """Every third unit of all."""
    return tuple((first, first + 1) for first in range(0, UNITS, 3))


def runs_of(units: Ranges, count: int) -> tuple[RunRef, ...]:
    """Runs of as many segments, each with a few rows of each unit."""
    rng, held = np.random.default_rng(3), len(numbers(units))
    rows = [IntColumn(rng.integers(0, 4, held)) for _ in range(count)]
    segments = [SegmentRef(f"s{i}", "f", 0, 100, 0, 9, 0, 0, 0, 0, 0, 0, units, r, ()) for i, r in enumerate(rows)]
    return tuple(RunRef(segment, units) for segment in segments)


class TestManyUnits:
    def test_a_routing_is_small(self) -> None:
        routing = Routing.even(UNITS, 2)
        assert len(encode(routing)) < 500 and len(pickle.dumps(routing)) < 2_000
        moved = routing.with_move(7, 1, since=3).split(9, since=4)
        assert len(encode(moved)) < 1_000 and decode(encode(moved), Routing) == moved

    def test_a_segment_has_less_than_half_a_byte_of_each_unit(self) -> None:
        """Two bits tell how many of up to three rows a unit has."""
        runs = runs_of(((0, UNITS),), 8)
        assert len(encode(PackedManifests.of([runs]))) < 8 * UNITS / 2

    def test_scattered_units_are_named_once(self) -> None:
        few, many = (len(encode(PackedManifests.of([runs_of(scattered(), count)]))) for count in (4, 8))
        alone = len(encode(PackedManifests.of([runs_of(((0, len(scattered())),), 4)])))
        assert abs(many - few - alone) < 0.05 * alone, "more runs of them cost what the same runs of neighbours do"

    def test_values_that_are_there_stay(self) -> None:
        """What they have at hand is not worked out again in every epoch."""
        before = runs_of(((0, UNITS),), 3)
        reported = decode(encode(PackedManifests.of([before])), PackedManifests).unpack()
        assert all(run is not old for run, old in zip(reported[0], before, strict=True))
        (again,) = reuse_values(reported, [before])
        assert all(run is old for run, old in zip(again, before, strict=True))
        moved = RunRef(reported[0][0].segment, ((0, 5),))
        ((part,),) = reuse_values([(moved,)], [before])
        assert part == moved and part.segment is before[0].segment

    def test_a_segment_that_is_another_by_the_same_name_is_taken_as_it_is(self) -> None:
        (before,), (other,) = runs_of(((0, 9),), 1), runs_of(((0, 7),), 1)
        assert reuse_values([(other,)], [(before,)]) == ((other,),)

    @pytest.mark.parametrize("units", [((0, UNITS),), ((5, 9), (4000, 60_000)), scattered()])
    def test_parts_of_runs_add_up(self, units: Ranges) -> None:
        (whole,) = runs_of(((0, UNITS),), 1)
        part, held = whole.of(units), numbers(units)
        rows = np.zeros(UNITS, dtype=np.int64)
        rows[held] = np.array(whole.segment.counts)[held]
        assert np.array_equal(part.unit_rows[0], held) and np.array_equal(part.unit_rows[1], rows[held])
        assert np.array_equal(unit_rows([part, part], UNITS), 2 * rows)
        assert np.allclose(unit_bytes([part], UNITS), rows * 100 / 9)


class TestManyStates:
    """Hundreds of queries: hundreds of states, each with a few segments of one unit or two at each site."""

    @staticmethod
    def segments(count: int) -> tuple[RunRef, ...]:
        rng, runs = np.random.default_rng(4), []
        for n in range(count):
            epoch, rows = n % 7, int(rng.integers(1, 50_000))
            units = ((n % 150, n % 150 + 1 + n % 3 // 2),)
            attempt = f"{epoch:012d}-0001-ab12cd34-0{epoch:08x}"
            counts = (rows,) if n % 3 < 2 else (rows - rows // 3, rows // 3)
            at = 1_700_000_000_000_000 + 5_000_000 * epoch
            checksums = [2 * int(number) + 1 for number in rng.integers(0, 1 << 62, 1 + n % 2)]
            blocks = tuple(Block(rows, 40 * rows, (1 << 63) + checksum) for checksum in checksums)
            ref = SegmentRef(
                f"{attempt}-{n}", f"state/{attempt}.segments", 64 * n, 40 * rows, n % 250, rows, at + n, at + 2 * n,
                at + 4_999_999, at, 0, n % 2, units, counts, blocks, n % 11 == 0, (0, 1 << (31 + n % 2)), 9_000_000,
            )  # fmt: skip
            runs.append(RunRef(ref, units, n % 5 // 4))
        return tuple(runs)

    def test_they_come_back_as_they_were(self) -> None:
        sites = (self.segments(40), self.segments(7), ())
        packed = PackedManifests.of(sites)
        assert packed.unpack() == sites == decode(encode(packed), PackedManifests).unpack()
        assert PackedManifests.of([]).unpack() == ()

    def test_a_segment_takes_few_bytes(self) -> None:
        """Names, times and units that segments have in common cost next to nothing: 80 bytes, 11 of them a checksum."""
        assert len(encode(PackedManifests.of([self.segments(800)]))) < 80 * 800
