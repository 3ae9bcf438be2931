"""The join as an operator: however many runs state is in, each row comes from its own."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from specs import SECOND, join, stream

from sluice.kernels.probe import Run
from sluice.operators import row_hashing
from sluice.operators.window_join import WindowJoin, _LegRows
from sluice.state.segment import sort_run


def run_of(operator: WindowJoin, number: int, *rows: tuple[int, int, int]) -> Run:
    schema = operator.exchange_schema(number)
    columns = [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(schema)]
    leaving = operator.prepare_input(number, pa.RecordBatch.from_arrays(columns, schema=schema))
    return sort_run(operator.state_layout(number), leaving.hashes, leaving.rows)


@pytest.mark.parametrize("before", [0, 255, 256, 65_536])
def test_a_join_of_three_takes_any_number_of_runs(before: int) -> None:
    operator = WindowJoin(join([stream(name) for name in "abc"], SECOND))
    empty = run_of(operator, 1)
    state = [[], [empty] * before + [run_of(operator, 1, (1, 5, 50), (2, 6, 60)), run_of(operator, 1, (1, 7, 70))], []]
    new = [[run_of(operator, 0, (1, 1, 10), (2, 2, 20))], [], [run_of(operator, 2, (1, 8, 80), (2, 9, 90))]]
    rows = [row for _, batch in operator.results(new, state) for row in batch.to_pylist()]
    assert sorted((row["a_v"], row["b_v"], row["c_v"]) for row in rows) == [(10, 50, 80), (10, 70, 80), (20, 60, 90)]


def test_rows_of_many_runs_keep_their_times() -> None:
    operator = WindowJoin(join([stream(name) for name in "abc"], SECOND))
    count = 300
    state = [[], [run_of(operator, 1, (1, number, number)) for number in range(count)], []]
    new = [[run_of(operator, 0, (1, 1, 10))], [], [run_of(operator, 2, (1, 8, 80))]]
    rows = [row for _, batch in operator.results(new, state) for row in batch.to_pylist()]
    assert sorted((row["b_v"], row["b_ts"].microsecond) for row in rows) == [
        (number, number) for number in range(count)
    ]


@pytest.mark.parametrize("names", ["ab", "abc"])
def test_where_hashes_meet_only_the_keys_of_all_candidates_are_fetched(
    names: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_hashing, "hash_keys", lambda columns: np.zeros(len(columns[0]), dtype=np.uint32))
    operator = WindowJoin(join([stream(name) for name in names], SECOND))
    fetched: dict[tuple[str, ...], int] = {}
    columns_of = _LegRows.columns

    def count(self: _LegRows, names: list[str], chosen: np.ndarray | None = None) -> dict[str, pa.Array]:
        columns = columns_of(self, names, chosen)
        fetched[tuple(names)] = fetched.get(tuple(names), 0) + len(next(iter(columns.values())))
        return columns

    monkeypatch.setattr(_LegRows, "columns", count)
    new = [[run_of(operator, leg, *((key, key, 10 * leg + key) for key in range(3)))] for leg in range(len(names))]
    results = list(operator.results(new, [[] for _ in names]))
    rows = [row for _, batch in results for row in batch.to_pylist()]
    expected = [tuple(10 * leg + key for leg in range(len(names))) for key in range(3)]
    assert sorted(tuple(row[f"{name}_v"] for name in names) for row in rows) == expected
    assert all(len(hashes) == batch.num_rows for hashes, batch in results)
    candidates = 3 ** len(names)
    assert fetched == {("k",): len(names) * candidates, ("ts", "v"): len(names) * len(rows)}


@pytest.mark.parametrize("names", ["ab", "abc"])
def test_where_hashes_meet_and_no_keys_are_equal_there_are_no_results(
    names: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_hashing, "hash_keys", lambda columns: np.zeros(len(columns[0]), dtype=np.uint32))
    operator = WindowJoin(join([stream(name) for name in names], SECOND))
    new = [[run_of(operator, leg, (leg, leg, leg))] for leg in range(len(names))]
    assert not list(operator.results(new, [[] for _ in names]))
