"""The search of a theta join: exactly the pairs for which the condition is true, each once, whichever way is taken."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from oracle import batch_join, multiset
from specs import SECOND, handle
from theta import CONDITIONS, rows, stream, theta_join

from sluice.api.joining import build_join
from sluice.kernels import narrowed, near
from sluice.kernels.probe import Run
from sluice.kernels.value_order import as_doubles
from sluice.model.epoch.segments import SegmentRef
from sluice.model.errors import FlowError
from sluice.model.ids import InputNumber
from sluice.model.plan.inequalities import orderings_of
from sluice.model.plan.planning import plan_of
from sluice.operators import condition_search
from sluice.operators.window_join import WindowJoin
from sluice.state.segment import decode, encode, sort_run


def run_of(operator: WindowJoin, input_: int, table: pa.Table) -> Run:
    batch = table.filter(table["ts"].is_valid()).combine_chunks().to_batches()[0]
    return sort_run(operator.state_layout(input_), np.zeros(batch.num_rows, dtype=np.uint32), batch)


@pytest.mark.parametrize("worth", [-1, 16])
@pytest.mark.parametrize("where", CONDITIONS)
def test_new_rows_meet_state_and_each_other_as_in_the_batch_join(monkeypatch, where, worth):
    monkeypatch.setattr(near, "_WORTH_A_SEARCH", worth)
    monkeypatch.setattr(condition_search, "CANDIDATES_AT_ONCE", 1000)
    spec = theta_join([stream("a"), stream("b")], ("3 seconds", "5 seconds"), where)
    if not spec.is_theta:
        return
    operator, rng = WindowJoin(spec), np.random.default_rng(7)
    old = [rows(rng, 80, 0, 15 * SECOND) for _ in "ab"]
    new = [rows(rng, 40, 8 * SECOND, 7 * SECOND) for _ in "ab"]
    before = [[run_of(operator, i, t.slice(0, 50)), run_of(operator, i, t.slice(50))] for i, t in enumerate(old)]
    now = [[run_of(operator, i, t)] for i, t in enumerate(new)]
    found = [batch for _, batch in operator.results(now, before)]
    everything = batch_join(spec, [pa.concat_tables(pair) for pair in zip(old, new, strict=True)], where)
    later = multiset(everything) - multiset(batch_join(spec, old, where))
    assert multiset(pa.Table.from_batches(found, spec.output_schema())) == later
    crossing = [batch for _, batch in operator.join_generations(before, now)]
    alone = multiset(batch_join(spec, new, where))
    assert multiset(pa.Table.from_batches(crossing, spec.output_schema())) == later - alone


class TestWhatIsSearchedBy:
    @pytest.mark.parametrize(
        ("where", "left", "right"),
        [
            ("a.n > b.n", ["n"], ["n"]),
            ("a.n + 1 > b.x - 2", ["n"], ["x"]),
            ("abs(a.x - b.x) <= 5", ["x"], ["x"]),
            ("a.d BETWEEN b.d - 1 AND b.d + 1", ["d"], ["d"]),
            ("a.x BETWEEN b.n AND b.x", ["x"], ["n", "x"]),
            ("a.s < b.s AND a.n - b.n > 1", ["s", "n"], ["s", "n"]),
            ("a.n * 2 > b.n", ["(n * 2)"], ["n"]),
            ("a.t > b.t + INTERVAL 1 SECOND", ["t"], ["t"]),
            ("a.n > b.n OR a.x > b.x", [], []),
            ("a.n <> b.n", [], []),
            ("NOT (a.n > b.n)", [], []),
            ("abs(a.n - b.n) >= 2", [], []),
            ("a.n > 3", [], []),
            ("a.ts > b.ts", [], []),
        ],
    )
    def test_comparisons_between_the_sides(self, where: str, left: list[str], right: list[str]) -> None:
        spec = theta_join([stream("a"), stream("b")], "5 seconds", where)
        found = [[o.expression.text for o in orderings_of(spec.inequalities, leg)] for leg in (0, 1)]
        assert found == [left, right]

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("a.n > 0 AND a.x > 0", "a.n > 0 OR a.x > 0"),
            (f"a.n IN {tuple(range(40))}", f"a.n IN {(*range(19), 50, *range(20, 40))}"),
        ],
    )
    def test_values_that_differ_have_orders_of_their_own(self, one: str, other: str) -> None:
        where = f"CASE WHEN {one} THEN 1 ELSE 0 END <= b.n AND CASE WHEN {other} THEN 1 ELSE 0 END >= b.n"
        spec = theta_join([stream("a"), stream("b")], "5 seconds", where)
        assert len(orderings_of(spec.inequalities, 0)) == 2

    def test_both_bounds_of_a_band_are_of_one_order(self) -> None:
        spec = theta_join([stream("a"), stream("b")], "5 seconds", "a.x BETWEEN b.x - 1 AND b.x + 2")
        probes = rows(np.random.default_rng(1), 50, 0, SECOND).combine_chunks().to_batches()[0]
        (bounds,) = narrowed.bounds_for(spec.inequalities, 1, probes)
        assert bounds.least is not None and bounds.most is not None

    def test_a_stream_with_itself_has_one_order_for_both_sides(self) -> None:
        spec = theta_join([stream("s")], "5 seconds", "a.x > b.x AND a.n < b.n")
        assert [o.expression.text for o in spec.orderings(0)] == ["x", "n"]

    def test_an_equality_of_columns_is_a_key_and_the_rest_stays(self) -> None:
        spec = theta_join([stream("a"), stream("b")], "5 seconds", "a.n = b.n AND a.x > b.x AND a.s = b.s")
        assert [i.keys for i in spec.inputs] == [("n", "s"), ("n", "s")] and not spec.is_theta
        assert spec.where is not None and set(spec.where.columns) == {"a_x", "b_x"}
        assert theta_join([stream("a"), stream("b")], "5 seconds", "b.n = a.n").where is None

    @pytest.mark.parametrize("column", ["big", "d"])
    def test_an_equality_of_rounded_values_is_no_key(self, column: str) -> None:
        where = f"CAST(a.{column} AS DOUBLE) = CAST(b.{column} AS DOUBLE)"
        spec = theta_join([stream("a"), stream("b")], "5 seconds", where)
        assert spec.is_theta and len(spec.inequalities) == 2

    def test_an_equality_of_what_cannot_be_a_key_is_a_condition(self) -> None:
        spec = theta_join([stream("a"), stream("b")], "5 seconds", "a.n = b.x")
        assert spec.is_theta and len(spec.inequalities) == 2


def test_explain_says_how_candidates_are_found() -> None:
    spec = theta_join([stream("a"), stream("b")], "5 seconds", "a.x > b.n")
    assert "by event time or by the order of values, whichever are fewer (a: x; b: n)" in spec.describe()
    spec = theta_join([stream("a"), stream("b")], "5 seconds", "a.x <> b.n")
    assert "nothing in the condition narrows them down" in spec.describe()


def test_what_can_be_meant_is_asked_for() -> None:
    a, b, c = (handle(stream(name)) for name in "abc")
    with pytest.raises(FlowError, match=r"needs on=.* or where=, a condition like where='a\.price > b\.ask'"):
        a.join(b, within="5 seconds")
    with pytest.raises(FlowError, match=r"needs within="):
        a.join(b, where="a.n > b.n")
    with pytest.raises(FlowError, match=r"a join of 3 streams needs on="):
        build_join([a, b, c], None, "5 seconds", "a.n > b.n")
    with pytest.raises(FlowError, match=r"names 'z', which is a column of none"):
        a.join(b, where="z > 1", within="5 seconds")


def test_a_theta_join_is_a_fragment_of_one_unit() -> None:
    a, b, c = (handle(stream(name)) for name in "abc")
    pairs = a.join(b, where="a.n > b.n", within="5 seconds")
    sums = pairs.groupBy("a_n").window("10 seconds").agg(n=("*", "count"))
    triples = pairs.alias("pair").join(c, where="pair.a_x > c.x", within="5 seconds")
    plan = plan_of([sums.relation, triples.relation])
    assert [node.fragment for node in plan.nodes] == [0, 1, 2]
    assert [plan.units_of(fragment, 16) for fragment in (0, 1, 2)] == [1, 16, 1]
    assert plan.freezable == {0, 2}


def test_orders_that_are_stored_are_used_as_they_are(tmp_path) -> None:
    spec = theta_join([stream("a"), stream("b")], "5 seconds", "a.x > b.x AND a.s < b.s")
    operator = WindowJoin(spec)
    run, layout = run_of(operator, 0, rows(np.random.default_rng(3), 100, 0, SECOND)), operator.state_layout(0)
    read = pa.ipc.read_record_batch(encode(layout, run), layout.stored_schema)
    span = (run.earliest, run.earliest, run.latest, run.scale.base, run.scale.shift)
    ref = SegmentRef("s", "f", 0, 0, InputNumber(0), len(run), *span, 0, ((0, 1),), (len(run),), ())
    again = decode(layout, ref, encode(layout, run))
    assert read.num_columns == 1 + 4 + len(layout.schema) and repr(again.rows.to_pydict()) == repr(run.rows.to_pydict())
    for ordering in layout.orderings:
        assert np.array_equal(again.by_value[ordering].places, run.order_by(ordering).places)
        assert np.array_equal(again.by_value[ordering].values, run.order_by(ordering).values, equal_nan=True)


def test_texts_are_in_the_order_of_their_bytes() -> None:
    texts = sorted(["", "a", "a\0", "ab", "b", "é", "zzzzzzzz", "zzzzzzzzz"], key=str.encode)
    values = as_doubles(pa.array([None, *texts]).slice(1))
    assert np.all(np.diff(values) >= 0) and len(set(values.tolist())) >= 6


def test_a_value_that_cannot_be_computed_narrows_nothing() -> None:
    spec = theta_join([stream("a"), stream("b")], "5 seconds", "a.n <> 0 AND 6 / a.n < b.x")
    table = rows(np.random.default_rng(3), 200, 0, SECOND)
    operator = WindowJoin(spec)
    assert not run_of(operator, 0, table).order_by(spec.orderings(0)[0]).is_usable
    assert run_of(operator, 1, table).order_by(spec.orderings(1)[0]).is_usable
