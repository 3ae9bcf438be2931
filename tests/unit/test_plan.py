"""Which operators of a plan share units."""

from __future__ import annotations

import pyarrow as pa
import pytest
from specs import TIME, handle

from sluice.api.stream import DataStream
from sluice.model.plan.relation import plan_of
from sluice.model.plan.stream import Stream

COLUMNS = pa.schema([("k", pa.int64()), ("j", pa.int64()), ("ts", TIME), ("v", pa.int64())])
A, B, C = (handle(Stream(name, COLUMNS, "ts", 0)) for name in "abc")
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


def pairs(within: str = "5 seconds", where: str | None = None, steps: str | None = None) -> DataStream:
    left = A.filter(steps) if steps else A
    return left.join(B, on="k", within=within, where=where)


@pytest.mark.parametrize(
    ("results", "operators"),
    [
        ([pairs(), pairs()], 1),
        ([windows(pairs(), "a_k"), windows(pairs(), "a_k"), pairs()], 2),
        ([pairs(steps="v > 3"), pairs(steps="v > 3")], 1),
        ([pairs(steps="v > 3"), pairs(steps="v > 4")], 2),
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
    assert len(plan.nodes) == 2 and {output.feed.origin for output in plan.outputs} == {3}
