"""Outer, semi and anti joins: how they are asked for, what they keep, and how few candidates are looked at."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from specs import SECOND, handle, stream

from sluice.api.settling import check_that_rows_settle
from sluice.api.stream import DataStream
from sluice.kernels.existence import find_candidates, find_matched
from sluice.kernels.probe import Run
from sluice.model.errors import FlowError
from sluice.model.plan.join import JoinSpec
from sluice.model.plan.join_kind import JoinKind
from sluice.model.plan.planning import plan_of
from sluice.model.plan.relation import Applied
from sluice.state.segment import run_of

A, B = handle(stream("a")), handle(stream("b"))
FOREVER = handle(stream("f", delay=None))


def check(joined: DataStream, closes_at_end: bool = False) -> None:
    check_that_rows_settle(plan_of([joined.relation]), closes_at_end)


def spec_of(how: str, within: object = "10 seconds", **options: str) -> JoinSpec:
    origin = A.join(B, within=within, how=how, **(options or {"on": "k"})).relation.origin
    assert isinstance(origin, Applied) and isinstance(origin.spec, JoinSpec)
    return origin.spec


@pytest.mark.parametrize(
    ("spellings", "kind"),
    [
        (("inner", "Inner"), JoinKind.INNER),
        (("left", "leftouter", "left_outer", "LEFT_OUTER"), JoinKind.LEFT),
        (("right", "rightouter", "right_outer"), JoinKind.RIGHT),
        (("full", "outer", "fullouter", "full_outer"), JoinKind.FULL),
        (("semi", "leftsemi", "left_semi"), JoinKind.SEMI),
        (("anti", "leftanti", "left_anti"), JoinKind.ANTI),
    ],
)
def test_how_is_spelled_as_in_spark(spellings: tuple[str, ...], kind: JoinKind) -> None:
    assert {spec_of(how).kind for how in spellings} == {kind}


@pytest.mark.parametrize(
    ("how", "columns"),
    [
        ("left", ["a_k", "a_ts", "a_v", "b_k", "b_ts", "b_v"]),
        ("semi", ["a_k", "a_ts", "a_v"]),
        ("anti", ["a_k", "a_ts", "a_v"]),
    ],
)
def test_a_semi_join_shows_its_left_side_alone(how: str, columns: list[str]) -> None:
    assert A.join(B, on="k", within="1 second", how=how).columns == columns


@pytest.mark.parametrize(
    ("how", "within", "says"),
    [
        ("left", "unbounded", "one of 'b' may come at any time; bound how much later than 'a'"),
        ("anti", ("1 second", "unbounded"), "one of 'b' may come at any time"),
        ("right", ("unbounded", "1 second"), "one of 'a' may come at any time; bound how much later than 'b'"),
        ("full", ("unbounded", "1 second"), "one of 'a' may come at any time"),
    ],
)
def test_what_could_never_be_answered_is_refused_unless_all_input_ends(how: str, within: object, says: str) -> None:
    joined = A.join(B, on="k", within=within, how=how)
    with pytest.raises(FlowError, match=f"{says}.*closeAtEnd"):
        check(joined)
    check(joined, closes_at_end=True)


@pytest.mark.parametrize("how", ["cross", None])
def test_what_is_no_kind_of_join(how: str | None) -> None:
    with pytest.raises(FlowError, match=f"how={how!r} is no kind of join; there are inner, left, right, full, semi, a"):
        A.join(B, on="k", within="1 second", how=how)


def test_a_partner_that_is_never_late_is_refused_where_rows_wait_for_it() -> None:
    with pytest.raises(FlowError, match=r"nothing of 'f' is ever late; give 'f' a delay.*closeAtEnd"):
        check(A.join(FOREVER, on="k", within="1 second", how="left"))
    check(FOREVER.join(A, on="k", within="1 second", how="left"))
    check(A.join(FOREVER, on="k", within="unbounded", how="semi"))
    check(A.join(B, on="k", within=("unbounded", "1 second"), how="left"))
    pairs = A.join(B, on="k", within="unbounded", how="left").alias("p")
    with pytest.raises(FlowError, match="may come at any time"):  # below another operator, too
        check(pairs.join(A, on={"p": "a_k", "a": "k"}, within="1 second"))


def test_what_comes_out_of_an_unbounded_semi_join_has_no_watermark() -> None:
    ever = A.join(B, on="k", within="unbounded", how="semi").alias("ever")
    with pytest.raises(FlowError, match="nothing of 'ever' is ever late"):
        check(B.join(ever, on={"b": "k", "ever": "a_k"}, within="1 second", how="left"))


def test_partners_are_kept_until_rows_are_settled() -> None:
    watermarks = (100 * SECOND, 70 * SECOND)
    inner, left = (spec_of(how, ("10 seconds", "20 seconds")) for how in ("inner", "left"))
    assert inner.keep_from(0, watermarks) == left.keep_from(0, watermarks) == 50 * SECOND
    assert inner.keep_from(1, watermarks) == 90 * SECOND
    assert left.keep_from(1, watermarks) == 40 * SECOND, "a row of 50 may have had a partner of 40"


def test_a_result_may_be_as_old_as_a_row_that_waits() -> None:
    watermarks = (100 * SECOND, 70 * SECOND)
    within = ("10 seconds", "20 seconds")
    marks = {how: spec_of(how, within).watermark(watermarks) for how in ("inner", "left", "right", "full", "anti")}
    assert marks == {how: t * SECOND for how, t in dict(inner=70, left=50, right=70, full=50, anti=50).items()}


def test_units_of_outer_joins_are_neither_frozen_nor_shared_and_their_state_is_their_own() -> None:
    inner, outer = (A.join(B, on="k", within="1 second", how=how).relation for how in ("inner", "left"))
    assert not plan_of([outer]).freezable and not plan_of([outer]).shareable
    plan = plan_of([inner, outer])
    assert len(plan.states) == 4 and plan.fragments == 2 and len(plan.freezable) == 1


def test_an_inner_join_is_what_it_was() -> None:
    """Its identity is in checkpoints."""
    assert "how" not in spec_of("inner").identity()
    assert spec_of("left").identity()["how"] == "left"
    assert spec_of("left").describe().startswith("Left outer window join")
    assert spec_of("anti", where="a.v > b.v").describe().startswith("Anti theta join")


times = st.integers(0, 12)
probes = st.lists(st.tuples(st.integers(0, 3), times, times, st.integers(0, 3)), max_size=12)
stored = st.lists(st.tuples(st.integers(0, 3), times, st.integers(0, 3)), max_size=30)


@given(probes, stored)
def test_a_probe_has_a_match_or_not(rows: list[tuple], state: list[tuple]) -> None:
    state.sort(key=lambda row: row[:2])
    run = run_with([row[0] for row in state], [row[1] for row in state])
    hashes, first, second, wanted = (np.array([row[i] for row in rows], dtype=np.int64) for i in range(4))
    low, high = np.minimum(first, second), np.maximum(first, second)
    values = np.array([row[2] for row in state], dtype=np.int64)
    near = [[h == s[0] and a <= s[1] <= b for s in state] for h, a, b in zip(hashes, low, high, strict=True)]
    expected = [n for n, each in enumerate(near) if any(ok and values[i] == wanted[n] for i, ok in enumerate(each))]
    matched = find_matched(
        run, hashes.astype(np.uint32), low, high, lambda at, places: np.flatnonzero(values[places] == wanted[at])
    )
    assert sorted(matched.tolist()) == expected
    candidates = find_candidates(run, hashes.astype(np.uint32), low, high)
    assert sorted(candidates.tolist()) == [i for i in range(len(state)) if any(each[i] for each in near)]


def test_a_hot_key_is_not_looked_at_row_by_row() -> None:
    size, looked_at = 10_000, 0
    run = run_with([7] * size, range(size))

    def all_match(at: np.ndarray, places: np.ndarray) -> np.ndarray:
        nonlocal looked_at
        looked_at += len(places)
        return np.arange(len(places))

    hashes, whole = np.full(size, 7, dtype=np.uint32), (np.zeros(size, np.int64), np.full(size, size))
    assert len(find_matched(run, hashes, *whole, all_match)) == size
    assert looked_at == size, "one candidate for each"
    assert len(find_candidates(run, hashes, *whole)) == size


def run_with(hashes: list[int], times: object) -> Run:
    rows = pa.RecordBatch.from_pydict({"t": pa.array(list(times), pa.int64())})
    return run_of(np.array(hashes, dtype=np.uint32), np.array(list(times), dtype=np.int64), rows)
