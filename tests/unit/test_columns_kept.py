"""Of rows that operators keep as they are, the columns are kept that queries need."""

from __future__ import annotations

import pyarrow as pa
import pytest
from specs import TIME

from sluice import Flow, testing
from sluice.api.stream import DataStream
from sluice.model.plan.assignment import Assignment
from sluice.model.plan.deduplication import Deduplication
from sluice.model.plan.join import JoinSpec
from sluice.model.plan.plan import Plan
from sluice.model.plan.planning import plan_of
from sluice.model.plan.relation import Relation
from sluice.model.plan.stream import Stream
from sluice.model.plan.table_lookup import TableLookup
from sluice.model.plan.top_rows import TopRows

COLUMNS = [("k", pa.int64()), ("j", pa.int64()), ("ts", TIME), ("till", TIME), ("v", pa.int64()), ("w", pa.string())]
TABLE = pa.table({"k": pa.array([1]), "p": pa.array([2]), "q": pa.array([3])})
FLOW = Flow(name="tables")
SMALL, LARGE = FLOW.table("small", TABLE), FLOW.table("large", TABLE, divided=True)
STREAMS = (Stream(name, pa.schema(COLUMNS), "ts", 0) for name in "abc")
A, B, C = (DataStream(FLOW._registry, stream.name, Relation(stream, (), stream)) for stream in STREAMS)
NEAR = "5 seconds"
ALL = "k j ts till v w"


def kept(plan: Plan) -> list[str]:
    """The columns of the streams of operators that keep rows as they are."""
    specs = [
        node.spec for node in plan.nodes if isinstance(node.spec, JoinSpec | TopRows | TableLookup | Deduplication)
    ]
    return [" ".join(stream.schema.names) for spec in specs for stream in spec.streams if stream.name != "large"]


def planned(*results: DataStream, after: Plan | None = None, names: str = "") -> Plan:
    """What runs for queries of these names, in a checkpoint that had another plan before."""
    return plan_of([result.relation for result in results], names.split(), after and after.assignment)


def pairs(where: str | None = None, how: str = "inner") -> DataStream:
    return A.join(B, on="k", within=NEAR, where=where, how=how)


WITH_TABLE = A.join(SMALL, on="k", how="left").select("a_k AS k", "a_ts AS ts", "small_p", "small_q", "a_w").alias("t")


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        (pairs(), [ALL, ALL]),
        (pairs().select("a_v"), ["k ts v", "k ts"]),
        (pairs("a.v > b.j").select("a_w AS text", "b_w IS NULL AS none"), ["k ts v w", "k j ts w"]),
        (pairs().filter("b_v > 3").select("a_ts"), ["k ts", "k ts v"]),
        (pairs().withColumn("sum", "a_v + b_v").select("a_w", "sum"), ["k ts v w", "k ts v"]),
        (pairs(how="left").select("b_w"), ["k ts", "k ts w"]),
        (pairs(how="semi").select("a_w"), ["k ts w", "k ts"]),
        (A.join(B, on="k", within=("0 seconds", "a.till")).select("b_v"), ["k ts till", "k ts v"]),
        (A.join(B, within=NEAR, where="a.v > b.v").select("a_w"), ["ts v w", "ts v"]),
        (A.join(B, on="k", within="unbounded").select("a_v"), ["k ts v", "k ts"]),
        (A.alias("x").join(A.alias("y"), on="k", within=NEAR).select("y_v", "x_w"), ["k ts v w"]),
        (A.select("k", "ts", "v AS u", "w").join(B, on="k", within=NEAR).select("a_u"), ["k ts u", "k ts"]),
        (pairs().groupBy("a_j").window("1 second").agg(n=("b_v", "sum")), ["k j ts", "k ts v"]),
        (
            pairs().alias("p").join(C, on={"p": "a_k", "c": "k"}, within=NEAR).select("p_b_w"),
            ["k ts", "k ts w", "__time a_k b_w", "k ts"],
        ),
        (A.groupBy("k").top(2, "v DESC", "ts").select("w"), ["k ts v w"]),
        (A.join(LARGE, on="k").select("large_p"), ["k ts"]),
        (WITH_TABLE.join(B, on="k", within=NEAR).select("t_small_p"), ["__time k small_p", "k ts"]),
        (A.dropDuplicates(["k"]).select("v"), [ALL]),
        (A.union(C).alias("u").join(B, on="k", within=NEAR).select("b_v"), ["k ts", "k ts v"]),
    ],
)
def test_what_a_query_does_not_need_is_left_out(query: DataStream, columns: list[str]) -> None:
    assert kept(planned(query)) == columns


def test_queries_over_the_same_rows_keep_what_any_of_them_needs() -> None:
    """They read one state, and of it each makes its own."""
    queries = [
        pairs().select("a_v"),
        A.join(B, on="k", within="9 seconds").select("b_w"),
        A.join(C, on="k", within=NEAR),
    ]
    plan = planned(*queries, A.filter("v > 1").join(B, on="k", within=NEAR).select("b_j"))
    assert kept(plan) == [ALL, "k j ts w", ALL, "k j ts w", ALL, ALL, "k ts", "k j ts w"]
    assert len(plan.inputs) == 4 and [len(state.readers) for state in plan.inputs] == [3, 3, 1, 1]


class TestQueriesThatComeLater:
    FIRST = planned(pairs().select("a_v", "b_v"), names="first")

    def test_keep_what_is_kept_if_it_is_enough(self) -> None:
        plan = planned(pairs().select("a_v", "b_v"), pairs().select("b_v"), after=self.FIRST, names="first second")
        assert len(plan.nodes) == 1 and plan.states == self.FIRST.states
        assert planned(pairs().select("b_v"), after=plan, names="second").states == self.FIRST.states

    def test_have_a_state_of_their_own_if_they_need_more(self) -> None:
        plan = planned(pairs().select("a_v", "b_v"), pairs().select("b_w"), after=self.FIRST, names="first second")
        assert kept(plan) == ["k ts v", "k ts v", "k ts v", "k ts w"]
        assert set(self.FIRST.states) < set(plan.states) and len(plan.states) == 3
        assert planned(pairs().select("b_w"), after=plan, names="second").states[0] in plan.states

    def test_keep_what_they_did_when_those_that_needed_it_are_gone(self) -> None:
        both = planned(pairs().select("a_v"), pairs().select("b_w"), names="first second")
        alone = planned(pairs().select("a_v"), after=both, names="first")
        assert kept(alone) == ["k ts v", "k ts w"] and alone.states == both.states

    def test_keep_all_where_the_checkpoint_does_not_say(self) -> None:
        before = Assignment(kept={"first": None})
        plan = plan_of([pairs().select(name).relation for name in ("a_v", "b_v")], ["first", "second"], before)
        assert kept(plan) == [ALL, ALL] and [output.kept for output in plan.outputs] == [None, None]

    def test_keep_what_those_did_that_they_replace(self) -> None:
        assert planned(pairs().select("b_v"), after=self.FIRST, names="second").states == self.FIRST.states
        plan = planned(pairs().select("a_v", "a_w"), after=self.FIRST, names="first")
        assert kept(plan) == ["k ts v w", "k ts v"] and not set(plan.states) & set(self.FIRST.states)


def test_many_ways_to_an_operator_are_one() -> None:
    """Two at each level: there are 2^40."""
    rows = A.select("k", "ts", "v")
    for _ in range(40):
        x, y = (rows.filter(f"v > {number}").alias(f"x{number}") for number in range(2))
        rows = x.join(y, on="k", within=NEAR).select("x0_k AS k", "x0_ts AS ts", "x0_v AS v", "x1_v AS u")
    assert kept(planned(rows))[:2] == ["k ts v", "k ts"]


def test_columns_that_are_left_out_are_no_expressions() -> None:
    """With expressions a checkpoint belongs to a time zone."""
    bars = pairs().groupBy("a_k").window("5 seconds")
    assert not planned(bars.agg(n=("b_v", "sum"))).has_expressions
    assert planned(
        pairs().select("a_v").alias("p").groupBy("a_v").window("5 seconds").agg(n=("*", "count"))
    ).has_expressions


S = "k long, ts timestamp, v long"
SIDE = FLOW.table("side", pa.table({"k": pa.array([1]), "p": pa.array([2])}))
X, Y = (FLOW.readStream(name, S, eventTime="ts") for name in "xy")
BOTH = X.join(Y, on="k", within=NEAR)


@pytest.mark.parametrize(
    "rows",
    [
        BOTH.select("x_v"),
        BOTH.union(BOTH.filter("x_v > 100")).select("x_v"),
        *(BOTH.alias("p").join(SIDE, on={"p": "x_k", "side": "k"}, how=how) for how in ("left", "semi", "inner")),
        BOTH.alias("p").join(SIDE, on={"p": "x_v", "side": "k"}, how="anti"),
    ],
)
def test_rows_stay_of_which_no_column_is_needed(rows: DataStream) -> None:
    given = {"k": 1, "ts": "2026-01-01 09:30:01", "v": 5}
    assert testing.run(rows.select("1 AS one"), {"x": [given], "y": [given]}).rows() == [{"one": 1}]
