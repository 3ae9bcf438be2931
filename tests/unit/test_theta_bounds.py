"""The search of a theta join leaves out no pair for which its condition is true or fails, at the edges of all types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from edges import EDGES, conditions, keyed_conditions, row, stream, tables
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from theta import theta_join

from sluice.expressions import EvaluationError, compile_condition
from sluice.kernels import near
from sluice.kernels.probe import Run
from sluice.model.epoch.segments import SegmentRef
from sluice.model.errors import FlowError
from sluice.model.ids import InputNumber
from sluice.model.plan.join import JoinSpec
from sluice.operators import condition_search
from sluice.operators.window_join import WindowJoin
from sluice.state.segment import decode, encode, sort_run

Pairs = list[tuple[int, int]] | None
"""The event times of rows that match, which tell rows apart here; None if the condition fails for a pair."""


@pytest.fixture(autouse=True, scope="module")
def always_by_value() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(near, "_WORTH_A_SEARCH", -1)
        yield


def join_of(where: str) -> JoinSpec:
    return theta_join([stream("a"), stream("b")], "1 second", where)


def evaluated(spec: JoinSpec, where: str, left: pa.RecordBatch, right: pa.RecordBatch) -> Pairs:
    """What the condition says of all pairs; of those with equal keys, where it gives a key."""
    places = [np.repeat(np.arange(len(left)), len(right)), np.tile(np.arange(len(right)), len(left))]
    columns = {
        f"{name}_{field.name}": rows.column(field.name).take(pa.array(at))
        for name, rows, at in zip("ab", (left, right), places, strict=True)
        for field in rows.schema
    }
    table = pa.RecordBatch.from_pydict(columns)
    keys = zip(spec.inputs[0].keys, spec.inputs[1].keys, strict=True)
    for text in (*(f"a.{one} = b.{other}" for one, other in keys), where):
        condition = compile_condition(text, lambda s, c: f"{s}_{c}", table.schema)
        try:
            table = table.filter(condition.evaluate(table))
        except EvaluationError:
            return None
    return pairs_in([table])


def pairs_in(batches: list[pa.RecordBatch]) -> list[tuple[int, int]]:
    times = [[batch.column(f"{name}_ts").cast(pa.int64()).to_pylist() for name in "ab"] for batch in batches]
    return sorted(pair for left, right in times for pair in zip(left, right, strict=True))


def searched(spec: JoinSpec, left: pa.RecordBatch, right: pa.RecordBatch) -> list[Pairs]:
    """What the join yields: of new rows of both, and with either side in state."""
    operator = WindowJoin(spec)
    one, other = (run_of(operator, number, rows) for number, rows in enumerate((left, right)))
    answers: list[Pairs] = []
    for new, old in (
        ([[one], [other]], [[], []]),
        ([[one], []], [[], [stored(operator, 1, other)]]),
        ([[], [other]], [[stored(operator, 0, one)], []]),
    ):
        try:
            answers.append(pairs_in([batch for _, batch in operator.results(new, old)]))
        except EvaluationError:
            answers.append(None)
    return answers


def run_of(operator: WindowJoin, number: int, rows: pa.RecordBatch) -> Run:
    leaving = operator.prepare_input(number, rows)
    return sort_run(operator.state_layout(number), leaving.hashes, leaving.rows)


def stored(operator: WindowJoin, number: int, run: Run) -> Run:
    """The run as it comes back from a segment."""
    span = (run.earliest, run.earliest, run.latest, run.scale.base, run.scale.shift)
    ref = SegmentRef("s", "f", 0, 0, InputNumber(number), len(run), *span, 0, ((0, 1),), (len(run),), ())
    return decode(operator.state_layout(number), ref, encode(operator.state_layout(number), run))


def check(where: str, left: pa.RecordBatch, right: pa.RecordBatch) -> None:
    try:
        spec = join_of(where)
    except FlowError:
        assume(False)
    expected = evaluated(spec, where, left, right)
    assert searched(spec, left, right) == [expected] * 3


@settings(max_examples=settings().max_examples * 4)
@given(st.data(), conditions())
def test_the_search_finds_what_the_condition_is_true_for_and_fails_where_it_fails(
    data: st.DataObject, where: str
) -> None:
    check(where, data.draw(tables(where)), data.draw(tables(where)))


@given(st.data(), keyed_conditions())
def test_an_equality_that_is_a_key_means_what_the_condition_does(data: st.DataObject, where: str) -> None:
    check(where, data.draw(tables(where)), data.draw(tables(where)))


@pytest.mark.parametrize("column", EDGES)
@pytest.mark.parametrize("compared", ["<", ">=", "="])
def test_all_edges_of_a_type_are_in_order(column: str, compared: str) -> None:
    values = [*EDGES[column][1], None]
    rows = pa.concat_batches([row(**{column: value}, ts=number) for number, value in enumerate(values)])
    check(f"a.{column} {compared} b.{column}", rows, rows)


def rows(column: str, *values: object) -> pa.RecordBatch:
    return pa.concat_batches([row(**{column: value}, ts=number) for number, value in enumerate(values)])


class TestWhereArithmeticEnds:
    @pytest.mark.parametrize(
        "where",
        [
            "a.f - b.f > 7e38",
            "b.f - a.f < -7e38",
            "7e38 < a.f - b.f",
            "CAST(a.f - b.f AS DOUBLE) - 1e30 > 7e38",
            "abs(a.f - b.f) > 7e38 AND a.f - b.f > 7e38",
        ],
    )
    def test_a_difference_that_becomes_infinite_is_above_every_number(self, where: str) -> None:
        left, right = rows("f", 3e38, 0.0), rows("f", -3e38, 0.0)
        assert searched(join_of(where), left, right) == [[(0, 0)]] * 3

    @pytest.mark.parametrize(
        "where",
        [
            "abs(a.big - b.big) <= 3",
            "a.big - b.big < 5",
            "a.big + 1 < b.big",
            "a.big BETWEEN b.big - 2 AND b.big + 1",
            "-b.big < a.big - 1",
        ],
    )
    def test_a_sum_that_leaves_its_type_fails_the_query(self, where: str) -> None:
        most, least = 2**63 - 1, -(2**63)
        assert searched(join_of(where), rows("big", most, 0), rows("big", least, 0)) == [None] * 3

    def test_what_stands_behind_a_false_conjunct_is_not_evaluated(self) -> None:
        left, right = rows("big", 2**63 - 1), rows("big", -(2**63))
        assert searched(join_of("a.big < b.big AND a.big - b.big < 5"), left, right) == [[]] * 3
        assert searched(join_of("a.big - b.big < 5 AND a.big < b.big"), left, right) == [None] * 3

    def test_what_stands_behind_a_null_is(self) -> None:
        where = "a.big < b.big AND a.x / b.x > 1"
        left, right = row(x=1.0), row(big=1, x=0.0)
        assert searched(join_of(where), left, right) == [None] * 3
        assert searched(join_of(where), row(big=1, x=1.0), row(big=1, x=0.0)) == [[]] * 3

    def test_a_key_comes_first_wherever_it_stands(self) -> None:
        spec = join_of("a.x / b.x > 1 AND a.i = b.i")
        assert searched(spec, row(i=1, x=1.0), row(i=2, x=0.0)) == [[]] * 3
        assert searched(spec, row(i=1, x=1.0), row(i=1, x=0.0)) == [None] * 3


class TestWhatIsStillNarrowedDown:
    """How many pairs the condition is evaluated on, of ten thousand."""

    @pytest.mark.parametrize(
        ("where", "most"),
        [
            ("abs(a.big - b.big) <= 3", 700),
            ("a.big BETWEEN b.big - 3 AND b.big + 3", 700),
            ("a.i + 1 < b.i AND b.i < a.i + 5", 700),
            ("a.i % 2 = 0 AND a.big - b.big = 0", 200),
            ("a.ts - b.ts < INTERVAL 1 DAY AND abs(a.i - b.i) <= 3", 700),
            ("abs(a.i - b.i) <= 3 AND a.i / b.i > 0", 700),
            ("abs(a.f - b.f) <= 3", 700),
        ],
    )
    def test_ordinary_values(self, monkeypatch: pytest.MonkeyPatch, where: str, most: int) -> None:
        evaluated_pairs = count_evaluated(monkeypatch)
        table = hundred()
        searched(join_of(where), table, table)
        assert 0 < max(evaluated_pairs) <= most

    def test_one_value_at_the_end_of_its_type_costs_its_own_pairs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        evaluated_pairs = count_evaluated(monkeypatch)
        far = pa.concat_batches([hundred(), row(big=2**63 - 2, ts=100)])
        spec = join_of("a.big < b.big AND a.big - b.big > -4")
        searched(spec, far, hundred())
        assert max(evaluated_pairs) <= 700 + 100

    @pytest.mark.parametrize(
        ("where", "is_searched"),
        [
            ("a.big * 2 <> b.i AND a.x < b.x", False),
            ("a.x < b.x AND a.big * 2 <> b.i", True),
            ("a.x / b.x > 2 AND a.x < b.x", False),
            ("a.tiny * 2 <> b.i AND a.x < b.x", True),
        ],
    )
    def test_a_conjunct_that_can_fail_for_any_pair_bars_those_behind_it(self, where: str, is_searched: bool) -> None:
        assert bool(join_of(where).inequalities) == is_searched


def hundred() -> pa.RecordBatch:
    numbers = range(1, 101)
    return pa.concat_batches([row(ts=n, big=n, i=n, f=float(n), x=float(n)) for n in numbers])


def count_evaluated(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of each search from here on, how many pairs the condition is evaluated on."""
    counts: list[int] = []
    find = condition_search.near_pairs

    def counting(*arguments: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        counts.append(0)
        for which, places in find(*arguments):
            counts[-1] += len(which)
            yield which, places

    monkeypatch.setattr(condition_search, "near_pairs", counting)
    return counts
