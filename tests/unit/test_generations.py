"""The state of a join in generations: what is found inside each and between them is the batch join, once."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import batch_join, multiset
from specs import SECOND, join, rows, self_join, stream

from sluice.kernels.probe import Run
from sluice.model.durations import LONGEST
from sluice.model.plan.join import JoinSpec
from sluice.operators import operator
from sluice.operators.protocol import FreezableOperator
from sluice.operators.window_join import WindowJoin
from sluice.state.segment import sort_run


def run_of(join_: WindowJoin, input_: int, table: pa.Table) -> Run:
    batch = table.combine_chunks().to_batches()[0] if len(table) else pa.RecordBatch.from_pylist([], table.schema)
    going = join_.prepare_input(input_, batch)
    return sort_run(join_.state_layout(input_), going.hashes, going.rows)


def check(data: st.DataObject, spec: JoinSpec, where: str | None = None) -> None:
    join_ = operator(spec)
    assert isinstance(join_, WindowJoin)
    tables: list[list[pa.Table]] = [[] for _ in spec.streams]
    older: list[list[Run]] = [[] for _ in spec.inputs]
    found: list[pa.RecordBatch] = []
    for _ in range(data.draw(st.integers(1, 4))):
        newer: list[list[Run]] = [[] for _ in spec.inputs]
        for _ in range(data.draw(st.integers(0, 3))):  # epochs of this generation
            new = []
            for number, s in enumerate(spec.streams):
                table = data.draw(rows(s, st.integers(0, 2), 0, 40 * SECOND))
                table = table.filter(pc.is_valid(table["ts"]))
                tables[number].append(table)
                new.append(table)
            fresh = [run_of(join_, i, new[input_.stream]) for i, input_ in enumerate(spec.inputs)]
            found += [batch for _, batch in join_.results([[run] for run in fresh], newer)]
            newer = [[*runs, run] for runs, run in zip(newer, fresh, strict=True)]
        found += [batch for _, batch in join_.join_generations(older, newer)]
        older = [a + b for a, b in zip(older, newer, strict=True)]
    every = [pa.concat_tables(t) if t else s.schema.empty_table() for t, s in zip(tables, spec.streams, strict=True)]
    assert multiset(pa.Table.from_batches(found, join_.schema)) == multiset(batch_join(spec, every, where))


@pytest.mark.parametrize("within", [10 * SECOND, LONGEST])
@given(st.data(), st.integers(2, 5))
def test_generations_of_several_streams(within, data, count):
    check(data, join([stream(name) for name in "abcde"[:count]], within))


@given(st.data())
def test_generations_with_a_condition(data):
    where = "a.v > b.v OR c.k = 1"
    check(data, join([stream(name) for name in "abc"], 30 * SECOND, where), where)


@given(st.data(), st.sampled_from(["k", "v"]))
def test_generations_of_a_stream_with_itself(data, other_key):
    check(data, self_join(stream("a"), other_key=other_key))


def test_what_can_be_frozen() -> None:
    assert isinstance(operator(join([stream("a"), stream("b")])), FreezableOperator)
