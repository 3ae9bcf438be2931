"""Which operators of a plan share units and states, and what stays the same from plan to plan."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pyarrow as pa
import pytest
from specs import TIME, handle

from sluice.api.stream import DataStream
from sluice.model.plan.assignment import Assignment
from sluice.model.plan.plan import Plan
from sluice.model.plan.planning import plan_of
from sluice.model.plan.stream import Stream

COLUMNS = pa.schema([("k", pa.int64()), ("j", pa.int64()), ("ts", TIME), ("v", pa.int64())])
A, B, C, D = (handle(Stream(name, COLUMNS, "ts", 0)) for name in "abcd")
PAIRS = A.join(B, on="k", within="5 seconds")


def windows(of: DataStream, *keys: str) -> DataStream:
    return of.groupBy(*keys).window("5 seconds").agg(n=("*", "count"))


@pytest.mark.parametrize(
    ("results", "fragments"),
    [
        ([PAIRS], [0]),
        ([windows(PAIRS, "a_k")], [0, 0]),
        ([windows(PAIRS, "b_k")], [0, 0]),
        ([windows(PAIRS, "a_j")], [0, 1]),
        ([windows(PAIRS, "a_k", "a_j")], [0, 1]),
        ([windows(PAIRS)], [0, 1]),
        ([windows(PAIRS.filter("a_v > 3").select("a_k AS key", "a_v"), "key")], [0, 0]),
        ([windows(PAIRS.select("a_k + 1 AS a_k", "a_v"), "a_k")], [0, 1]),
        ([windows(PAIRS.select("a_j AS a_k", "a_k AS was"), "a_k")], [0, 1]),
        ([windows(PAIRS.select("a_j AS a_k", "a_k AS was"), "was")], [0, 0]),
        ([PAIRS, windows(A, "k"), windows(A, "j")], [0, 1, 2]),
        ([windows(A, "k").alias("bars").join(C, on="k", within="5 seconds")], [0, 0]),
        ([C.join(windows(A, "k").alias("bars"), on="k", within="5 seconds")], [0, 0]),
        ([windows(windows(PAIRS, "a_j"), "a_j")], [0, 1, 1]),
    ],
)
def test_operators_chained_on_one_key_share_units(results: list[DataStream], fragments: list[int]) -> None:
    plan = plan_of([result.relation for result in results])
    assert [node.fragment for node in plan.nodes] == fragments
    assert plan.fragments == 1 + max(fragments)


def test_a_fragment_can_stand_on_several_levels_and_a_level_on_several_fragments() -> None:
    plan = plan_of([windows(PAIRS, "a_k").relation, windows(A, "j").relation])
    assert [plan.fragments_at(level) for level in range(plan.levels)] == [[0, 1], [0]]


def pairs(
    within: str | tuple[str, str] = "5 seconds", where: str | None = None, steps: str | None = None
) -> DataStream:
    left = A.filter(steps) if steps else A
    return left.join(B, on="k", within=within, where=where)


@pytest.mark.parametrize(
    ("results", "operators"),
    [
        ([pairs(), pairs()], 1),
        ([windows(pairs(), "a_k"), windows(pairs(), "a_k"), pairs()], 2),
        ([pairs(steps="v > 3"), pairs(steps="v > 3")], 1),
        ([pairs(steps="v > 3"), pairs(steps="v > 4")], 2),
        ([pairs(steps="v > 3 and k = 1"), pairs(steps=" a.V>3  AND `k` =1")], 1),
        ([pairs(where="a.v > b.v"), pairs(where="A.v>B.v")], 1),
        ([pairs(), pairs("6 seconds")], 2),
        ([pairs(where="a.v > b.v"), pairs(where="a.v > b.v"), pairs()], 2),
        ([windows(A, "k"), windows(B, "k")], 2),
        ([windows(A, "k"), windows(A, "k"), windows(A, "j")], 2),
        ([windows(A.select("k", "ts", "v + 1 AS v"), "k"), windows(A.select("k", "ts", "v + 2 AS v"), "k")], 2),
        ([windows(A, "k"), A.groupBy("k").window("5 seconds").agg(m=("*", "count"))], 2),
    ],
)
def test_what_is_the_same_by_its_structure_runs_once(results: list[DataStream], operators: int) -> None:
    plan = plan_of([result.relation for result in results])
    assert len(plan.nodes) == operators and len(plan.outputs) == len(results)


def test_hundreds_of_equal_queries_are_one_operator() -> None:
    plan = plan_of([windows(pairs(), "a_k").relation for _ in range(500)])
    assert len(plan.nodes) == 2 and {output.inflow[0].origin for output in plan.outputs} == {3}


def number_of_states(results: list[DataStream]) -> tuple[int, int]:
    """How many states a plan keeps, and how many inputs its operators have."""
    plan = plan_of([result.relation for result in results])
    return len(plan.inputs), sum(len(node.inputs) for node in plan.nodes)


def bars(length: str, of: DataStream = A, *, key: str = "k", column: str = "v") -> DataStream:
    return of.groupBy(key).window(length, "5 seconds").agg(total=(column, "sum"))


@pytest.mark.parametrize(
    ("results", "states", "inputs"),
    [
        ([pairs(), pairs("6 seconds")], 2, 4),
        ([pairs(), pairs(where="a.v > b.v")], 2, 4),
        ([pairs(), A.join(C, on="k", within="5 seconds")], 3, 4),
        ([pairs(), A.join(C, on="j", within="5 seconds")], 4, 4),
        ([pairs(), pairs(steps="v > 3")], 3, 4),
        ([pairs(), A.alias("x").join(B.alias("y"), on="k", within="5 seconds")], 2, 4),
        ([A.filter("v > 1").alias("x").join(A.filter("v > 1").alias("y"), on="k", within="1 second")], 1, 2),
        ([bars("5 seconds"), bars("20 seconds")], 1, 2),
        ([bars("5 seconds"), bars("7 seconds")], 2, 2),
        ([bars("5 seconds"), bars("20 seconds", column="j")], 2, 2),
        ([bars("5 seconds"), pairs()], 3, 3),
        ([windows(pairs(), "a_k"), windows(pairs("6 seconds"), "a_k")], 4, 6),
        ([A.groupBy("k").last(3).agg(n=("*", "count")), A.groupBy("k").last(4).agg(n=("*", "count"))], 2, 2),
        ([A.join(B, within="5 seconds", where=text) for text in ("a.v > b.v", "a.v > b.v AND a.k <> b.k")], 2, 4),
        ([A.join(B, within="5 seconds", where=text) for text in ("a.v > b.v", "a.v > b.j")], 4, 4),
        ([A.join(B, on="k", within="1 second"), windows(B, "k").alias("w").join(A, on="k", within="1 second")], 5, 5),
    ],
)
def test_what_operators_keep_in_common_is_kept_once(results: list[DataStream], states: int, inputs: int) -> None:
    assert number_of_states(results) == (states, inputs)


def test_a_state_in_another_fragment_is_kept_again() -> None:
    """The third join goes to the first one's fragment; what the second one has of its other stream stays there."""
    results = [A.join(B, on="k", within="5 seconds"), C.join(D, on="k", within="5 seconds")]
    plan = plan_of([result.relation for result in [*results, A.join(C, on="k", within="5 seconds")]])
    assert [node.fragment for node in plan.nodes] == [0, 1, 0]
    assert [node.inputs for node in plan.nodes] == [(0, 1), (2, 3), (0, 4)]
    assert [(state.fragment, [reader.node for reader in state.readers]) for state in plan.inputs] == [
        (0, [0, 2]),
        (0, [0]),
        (1, [1]),
        (1, [1]),
        (0, [2]),
    ]


def test_joins_that_share_a_state_cannot_have_several_holders() -> None:
    alone, both = (plan_of([r.relation for r in results]) for results in ([pairs()], [pairs(), pairs("9 seconds")]))
    assert alone.shareable == {0: (0, 1)} and both.shareable == {}


@pytest.mark.parametrize(("queries", "each"), [(1, 64), (3, 21), (64, 1), (500, 1)])
def test_all_keyed_fragments_begin_with_so_many_units_together(queries: int, each: int) -> None:
    results = [windows(A.filter(f"v > {number}"), "k") for number in range(queries)]
    plan = plan_of([result.relation for result in [*results, windows(A)]])
    routing = plan.first_routing(partitions=64, sites=4)
    assert [len(range(*directory.range)) for directory in routing.directories] == [each] * queries + [1]
    at_sites = [len(units) for units in routing.units_by_site(range(plan.fragments))]
    assert max(at_sites) - min(at_sites) <= (queries + 1 if each >= 4 else 1)


def replanned(before: Plan, results: list[DataStream], **what: object) -> Plan:
    return plan_of([result.relation for result in results], assigned=replace(before.assignment, **what))


def test_operators_stay_in_their_fragments_whatever_is_added_and_dropped() -> None:
    first, second, third = pairs(), windows(A, "j"), pairs("9 seconds")
    all_three = plan_of([r.relation for r in (first, second, third)])
    assert all_three.labels == (0, 1) and [node.fragment for node in all_three.nodes] == [0, 1, 0]
    without = replanned(all_three, [second])
    assert without.labels == (1,) and without.next_label == 2
    again = replanned(without, [second, first])
    assert again.labels == (1, 2) and again.next_label == 3
    assert replanned(again, [first, second]).labels == again.labels
    shared = set(all_three.states) & set(again.states)
    assert shared == {all_three.state_key(all_three.nodes[1].inputs[0])}


@pytest.mark.parametrize(
    ("added", "label"),
    [
        (pairs("5 seconds", where="a.v > b.v"), 0),
        (pairs("4 seconds"), 0),
        (pairs("6 seconds"), 1),
        (pairs(("0 seconds", "5 seconds")), 0),
        (pairs(("0 seconds", "6 seconds")), 1),
        (A.join(C, on="k", within="4 seconds"), 1),  # c is behind: rows are gone that its rows can still need
        (A.join(C, on="k", within="5 seconds").alias("p"), 1),
        (B.join(D, on="k", within="5 seconds"), 0),
        (pairs("unbounded"), 1),
    ],
)
def test_an_operator_joins_a_fragment_that_keeps_all_rows_that_it_can_need(added: DataStream, label: int) -> None:
    streams = [s.relation.origin for s in (A, B, C, D)]
    before = plan_of([pairs().relation], sources=streams)
    seconds = (100, 100, 97, 120)
    assigned = replace(before.assignment, begun=(tuple(s * 1_000_000 for s in seconds),))
    plan = plan_of([pairs().relation, added.relation], assigned=assigned, sources=streams)
    assert plan.labels[plan.nodes[1].fragment] == label
    at_start = plan_of([pairs().relation, added.relation], assigned=before.assignment, sources=streams)
    assert at_start.labels[at_start.nodes[1].fragment] == 0, "as long as nothing was taken in"
    closed = replace(before.assignment, closed=frozenset(before.labels))
    apart = plan_of([pairs().relation, added.relation], assigned=closed, sources=streams)
    assert apart.labels == (0, 1)


def test_what_is_chained_to_a_closed_fragment_gets_its_own() -> None:
    before = plan_of([pairs().relation])
    chained, apart = (
        replanned(before, [pairs(), windows(pairs(), "a_k")], closed=frozenset(labels)) for labels in ((), (0,))
    )
    assert chained.labels == (0,) and apart.labels == (0, 1)


def test_a_state_whose_readers_are_all_gone_is_shared_with_nobody() -> None:
    """What was kept for the readers that are dropped need not be all that a new one needs."""
    before = plan_of([r.relation for r in (pairs("5 seconds"), A.join(C, on="k", within="60 seconds"))])
    assert before.labels == (0,)
    dropped = [A.join(C, on="k", within="60 seconds"), pairs("20 seconds")]
    plan = replanned(before, dropped, begun=((0, 0, 0),))
    assert plan.labels == (0, 1)


def test_structures_are_the_same_in_every_process() -> None:
    """They are part of checkpoints."""
    relation = windows(pairs(steps="v > 3"), "a_k").relation
    plan = plan_of([relation])
    assert [node.structure for node in plan.nodes] == ["51114be7806d5d409a4b658a", "53614878bd19d16b9538ceb0"]
    assert plan.state_key(plan.nodes[0].inputs[1]) == (0, "3cdefe7522a8c51a7dc39dea")
    with_all_columns = plan_of([relation], ["bars"], Assignment(kept={"bars": None}))
    structures = [node.structure for node in with_all_columns.nodes]
    assert structures == ["9dd6326ad2679e9e7ea8bafb", "2886c2e62890f93b500d65e2"]
    assert with_all_columns.state_key(with_all_columns.nodes[0].inputs[1]) == (0, "7f783c0a2faf83fe8db37a5f")


def test_a_plan_that_is_sent_again_is_the_one_that_is_there():
    """What was worked out from it in a process serves all epochs."""
    plan = plan_of([A.groupBy("k").last(2).agg(n=("*", "count")).relation])
    sent = [pickle.dumps((plan, epoch)) for epoch in range(2)]
    first, again = (pickle.loads(one)[0] for one in sent)
    assert first is again and first is not plan
    assert first == plan and first.inputs == plan.inputs
    other = pickle.loads(pickle.dumps(replace(plan, time_zone="UTC")))
    assert other != first and other.time_zone == "UTC"
