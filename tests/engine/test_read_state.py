"""`readState`: what operators keep, out of the checkpoint alone, wherever it lies and whatever becomes of it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from engine_harness import DirectQuery
from specs import SECOND, TIME, handle, join, stream

from sluice import CheckpointError, FlowError, Freeze, LayOut, Move, Share, Split, StorageError, readState
from sluice.cli.main import main
from sluice.engine import state_table
from sluice.model.plan.planning import plan_of
from sluice.state.files.storage import watch

A, B = stream("a"), stream("b")


def epoch_rows(number: int, rows: int = 60) -> list[pa.Table]:
    rng = np.random.default_rng(number)
    times = pa.array(number * SECOND + np.arange(rows), TIME)
    return [pa.table([rng.integers(0, 30, rows), times, rng.integers(0, 100, rows)], A.schema) for _ in range(2)]


def counted(table: pa.Table, columns: list[str] | None = None) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in table.select(columns or A.schema.names).to_pylist())


def checkpoint(root: Path) -> str:
    return str(root / "checkpoint")


def test_a_joins_rows_by_input_unit_and_site(tmp_path):
    query = DirectQuery(join([A, B], 600 * SECOND), tmp_path, sites=3)
    batches = [epoch_rows(number) for number in range(6)]  # enough for runs to be merged
    for new in batches:
        query.run(new)
    table = readState(checkpoint(tmp_path))
    assert table.column_names == ["_input", "_unit", "_site", "_generation", "_waiting", "k", "ts", "v"]
    for number, name in enumerate("ab"):
        kept = readState(checkpoint(tmp_path), operator=0, input=name)
        assert counted(kept) == counted(pa.concat_tables([new[number] for new in batches]))
    routing = query.epochs.record.routing
    assert {(row["_unit"], row["_site"]) for row in table.to_pylist()} <= {
        (unit, routing.holder(unit)) for unit in routing.ids.array.tolist()
    }
    by_key: dict[int, set[int]] = {}
    for row in table.to_pylist():
        by_key.setdefault(row["k"], set()).add(row["_unit"])
    assert all(len(units) == 1 for units in by_key.values())
    unit = table["_unit"][0].as_py()
    alone = readState(checkpoint(tmp_path), unit=unit)
    assert counted(alone, table.column_names) == counted(
        pa.Table.from_pylist([row for row in table.to_pylist() if row["_unit"] == unit], table.schema),
        table.column_names,
    )
    query.close()


def test_each_row_once_while_units_move_split_freeze_and_are_shared(tmp_path):
    query = DirectQuery(join([A, B], 600 * SECOND), tmp_path, sites=3, partitions=4)
    ask, expected = query.epochs.settings.controller.ask, [Counter(), Counter()]
    actions = [
        Move(0, 2, "x"),
        Split(1, "x"),
        Freeze(2, "x"),
        Share(3, 0, "x"),
        Share(3, 1, "x"),
        LayOut(3, (1, 3), "x"),
    ]
    for number in range(8):
        if number and actions:
            ask(actions.pop(0))
        new = epoch_rows(number)
        query.run(new)
        for input_ in (0, 1):
            expected[input_] += counted(new[input_])
            assert counted(readState(checkpoint(tmp_path), input="ab"[input_])) == expected[input_]
    assert query.epochs.record.routing.units == 5 and query.epochs.record.routing.shared
    generations = Counter(readState(checkpoint(tmp_path))["_generation"].to_pylist())
    assert generations[0] and generations[1]
    query.close()


def test_input_that_waits_is_there_too(tmp_path):
    query = DirectQuery(join([A, B], 600 * SECOND), tmp_path, seconds=1e-9)
    query.run(epoch_rows(0))
    query.run(epoch_rows(1))
    table = readState(checkpoint(tmp_path))
    assert table.num_rows == 240 and any(table["_waiting"].to_pylist())
    query.close()


def test_operators_are_known_by_number_and_by_the_query_whose_results_they_make(tmp_path, capsys):
    a, b = handle(A), handle(B)
    pairs = a.join(b, on="k", within="600 seconds")
    bars = pairs.withColumn("k", "a_k").groupBy("k").window("1 minute").agg(n=("*", "count"))
    newest = a.groupBy("k").last(2).agg(total=("v", "sum"))
    relations = [pairs.relation, bars.relation, newest.relation, a.filter("v > 3").relation]
    query = DirectQuery(plan_of(relations, ["pairs", "bars", "newest", "some"]), tmp_path)
    query.run(epoch_rows(0))
    where = checkpoint(tmp_path)
    assert set(readState(where, "pairs")["_input"].to_pylist()) == {"a", "b"}
    assert set(readState(where, "bars")["_input"].to_pylist()) == {"operator 0"}
    assert readState(Path(where), operator=2).equals(readState(where, operator="newest"))
    for wrong, message in (
        ({}, r"say whose state: operator=, a number or the name of a query. There are 0: .*; 1: .*; 2: "),
        ({"operator": 9}, "there is no operator 9; there are 0: "),
        ({"operator": "alerts"}, "there is no query 'alerts'; there are pairs, bars, newest, some"),
        ({"operator": "some"}, "query 'some' has no state"),
        ({"operator": 0, "input": "c"}, "operator 0 keeps nothing of 'c'; it keeps rows of a, b"),
        ({"operator": 0, "unit": 99_999}, "there is no unit 99999 now"),
        ({"operator": 2, "unit": 0}, "unit 0 is of another operator than 2"),
        ({"operator": 1.5}, "is neither a name nor a number"),
    ):
        with pytest.raises(FlowError, match=message):
            readState(where, **wrong)
    assert main(["inspect", "--state", where]) == 0
    described = capsys.readouterr().out
    assert main(["inspect", where, "--state"]) == 0
    listing = capsys.readouterr().out
    assert "operator 0: Window join" in listing and "k, ts, v" in listing and listing == described
    lines = listing.splitlines()
    heads = next(line for line in lines if "rows of" in line)
    rows = lines[lines.index(heads) + 1 :]
    for name in ("rows of", "keys", "columns"):
        assert all(re.match(r"  \S", line[heads.index(name) - 2 :]) for line in rows), name
    assert main(["inspect", where, "--state", "pairs"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("120 rows") and "… and 100 more" in shown
    assert main(["inspect", where, "--state", "alerts"]) == 2
    query.close()


def test_columns_of_one_name_and_different_types_are_read_one_input_at_a_time(tmp_path):
    other = stream("b").schema.set(2, pa.field("v", pa.string()))
    spec = join([A, type(B)("b", other, "ts", 0)], 600 * SECOND)
    query = DirectQuery(spec, tmp_path)
    rows = epoch_rows(0)
    query.run([rows[0], rows[1].cast(other)])
    with pytest.raises(FlowError, match="read one at a time: input='a'"):
        readState(checkpoint(tmp_path))
    assert readState(checkpoint(tmp_path), input="b").schema.field("v").type == pa.string()
    query.close()


def test_a_query_that_goes_on_meanwhile(tmp_path):
    """It merges runs and deletes their files in the midst of reading: what is told is one epoch's, whole."""
    query = DirectQuery(join([A, B], 600 * SECOND), tmp_path)
    for number in range(3):
        query.run(epoch_rows(number))
    running = [True]

    def go_on(operation: str, path: str) -> None:
        if operation == "read" and "/state/" in path and running:
            running.clear()
            for number in range(3, 9):
                query.run(epoch_rows(number))

    with watch(go_on):
        table = readState(checkpoint(tmp_path), input="a")
    assert not running
    epochs = table.num_rows // 60
    assert counted(table) == counted(pa.concat_tables([epoch_rows(number)[0] for number in range(epochs)]))
    assert epochs == 9, "no file was deleted meanwhile"
    query.close()


def test_what_never_holds_still_is_refused(tmp_path, monkeypatch):
    query = DirectQuery(join([A, B], 600 * SECOND), tmp_path)
    query.run(epoch_rows(0))

    def gone(*arguments: Any) -> pa.Table:
        query.run(epoch_rows(query.next))
        raise StorageError("gone")

    monkeypatch.setattr(state_table.CheckpointState, "read", gone)
    with pytest.raises(StorageError, match="changed 10 times while it was read: read one unit at a time"):
        readState(checkpoint(tmp_path))
    query.close()


def test_what_cannot_be_read_is_said_in_words(tmp_path):
    with pytest.raises(CheckpointError, match="holds no Sluice checkpoint"):
        readState(str(tmp_path / "nothing"))
    query = DirectQuery(join([A, B], 600 * SECOND), tmp_path)
    with pytest.raises(CheckpointError, match="has no state yet: no epoch has committed"):
        readState(checkpoint(tmp_path))
    query.run(epoch_rows(0))
    file = next((tmp_path / "checkpoint" / "state").iterdir())
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(StorageError, match="is damaged"):
        readState(checkpoint(tmp_path))
    query.close()


def test_a_flow_without_operators_keeps_nothing(tmp_path):
    query = DirectQuery(plan_of([handle(A).filter("v > 3").relation]), tmp_path)
    query.run([epoch_rows(0)[0]])
    with pytest.raises(FlowError, match="none of its queries has an operator"):
        readState(checkpoint(tmp_path))
    query.close()
