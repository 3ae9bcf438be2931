"""`readState` of one key is the whole state filtered, for any operator and key type, and reads its unit alone."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from engine_harness import DirectQuery, limits
from hypothesis import given
from hypothesis import strategies as st
from specs import KEYS, SECOND, TIME, handle, join, rows, stream
from table_joins import describe

from sluice import Flow, FlowError, Freeze, Move, Share, Split, readState
from sluice.api.stream import DataStream
from sluice.cli.main import main
from sluice.control.journal import Journal
from sluice.model.plan.planning import plan_of
from sluice.state.files.storage import Storage, watch

Columns = tuple[str, ...]
Describe = Callable[[DataStream, DataStream], DataStream]
FLOWS: dict[str, tuple[Describe, tuple[Columns, ...]]] = {
    "inner join": (lambda a, b: a.join(b, on="k", within="60 seconds"), (("k",),)),
    "full join": (lambda a, b: a.join(b, on="k", within="60 seconds", how="full"), (("k",),)),
    "join on two columns": (
        lambda a, b: a.join(b, on={"a": ["v", "k"], "b": ["v", "k"]}, within="60 seconds", how="left"),
        (("v", "k"),),
    ),
    "windows": (lambda a, b: a.groupBy("k").window("1 minute").agg(n=("*", "count")), (("key0",),)),
    "sessions": (
        lambda a, b: a.groupBy("k", "v").session_window("5 seconds").agg(n=("*", "count")),
        (("key0", "key1"),),
    ),
    "groups": (lambda a, b: a.groupBy("k").agg(n=("*", "count")), (("key0",),)),
    "newest rows": (lambda a, b: a.groupBy("v", "k").last(2).agg(n=("*", "count")), (("v", "k"),)),
    "duplicates": (lambda a, b: a.dropDuplicates(["k"]), (("k",),)),
    "windows over a join": (
        lambda a, b: a.join(b, on="k", within="60 seconds").groupBy("a_k").window("1 minute").agg(n=("*", "count")),
        (("k",), ("key0",)),
    ),
    "groups of columns with the names of those of groups": (
        lambda a, b: a.withColumn("key1", "k").withColumn("key0", "v").groupBy("key1", "key0").agg(n=("*", "count")),
        (("key0", "key1"),),
    ),
    "rows of columns with the names of those of groups": (
        lambda a, b: a.withColumn("key1", "k").withColumn("key0", "v").groupBy("key1").last(2).agg(n=("key0", "max")),
        (("key1",),),
    ),
}
"""Flows, with the columns of state in which each of their operators has its key."""
MIXED = {
    "byte and long": (pa.int8(), pa.int64(), st.integers(-3, 3)),
    "long and decimal": (pa.int64(), pa.decimal128(20, 2), st.integers(-3, 3)),
    "decimals": (pa.decimal128(20, 2), pa.decimal128(10, 4), st.sampled_from([Decimal(0), Decimal(7), Decimal("1.5")])),
    "float and double": (pa.float32(), pa.float64(), st.sampled_from([0.0, -0.0, 1.5, float("nan")])),
}
ACTIONS = (Split(0, "x"), Move(1, 2, "x"), Freeze(2, "x"), Share(3, 0, "x"))


def check_each_key(root: Path, columns: Sequence[Columns]) -> None:
    """What each key has in each input of each operator."""
    where = str(root / "checkpoint")
    newest = Journal(Storage(where)).newest_with_plan()
    assert newest is not None
    plan = newest[1]
    for operator, (recorded, place) in enumerate(zip(plan.operators, columns, strict=True)):
        for state in (plan.states[number] for number in recorded.states):
            (origin,) = state.origins
            input_ = plan.sources[origin] if origin < len(plan.sources) else f"operator {origin - len(plan.sources)}"
            whole = readState(where, operator, input_)
            keys = {repr(key): key for key in zip(*(whole[name].to_pylist() for name in place), strict=True)}
            for key in keys.values():
                part = readState(where, operator, input_, key=dict(zip(state.keys, key, strict=True)))
                assert part.schema == whole.schema
                assert Counter(map(repr, part.to_pylist())) == rows_with(whole, place, key)


def rows_with(whole: pa.Table, columns: Columns, key: tuple[Any, ...]) -> Counter[str]:
    """The rows of a key, as Python tells what is equal. A NaN is equal to a NaN."""

    def is_equal(a: Any, b: Any) -> bool:
        return bool(a == b or (a != a and b != b))

    same = [row for row in whole.to_pylist() if all(map(is_equal, (row[name] for name in columns), key))]
    return Counter(map(repr, same))


def run_some(data: st.DataObject, query: DirectQuery, values: Sequence[st.SearchStrategy]) -> None:
    """Some epochs, with something asked for before each."""
    for number in range(data.draw(st.integers(1, 4))):
        for action in data.draw(st.lists(st.sampled_from(ACTIONS), max_size=2)):
            query.epochs.settings.controller.ask(action)
        sources = query.epochs.plan.sources
        around = 30 * SECOND * number
        query.run([data.draw(rows(s, values["ab".index(s.name)], around, 20 * SECOND)) for s in sources])


@pytest.mark.parametrize("flow", FLOWS)
@given(st.data(), st.sampled_from(sorted(KEYS)))
def test_it_is_the_whole_filtered(flow: str, data: st.DataObject, key: str) -> None:
    type_, values = KEYS[key]
    described, columns = FLOWS[flow]
    a, b = (handle(stream(name, type_)) for name in "ab")
    with tempfile.TemporaryDirectory() as root:
        plan = plan_of([described(a, b).relation])
        query = DirectQuery(plan, Path(root), sites=3, partitions=8, **limits(data))
        run_some(data, query, [values, values])
        check_each_key(Path(root), columns)
        query.close()


@pytest.mark.parametrize("types", MIXED)
@given(st.data(), st.sampled_from(["inner", "full"]))
def test_keys_of_different_types(types: str, data: st.DataObject, how: str) -> None:
    type_a, type_b, values = MIXED[types]
    a, b = handle(stream("a", type_a)), handle(stream("b", type_b))
    with tempfile.TemporaryDirectory() as root:
        plan = plan_of([a.join(b, on="k", within="60 seconds", how=how).relation])
        query = DirectQuery(plan, Path(root), sites=3, partitions=8)
        run_some(data, query, [values, values])
        check_each_key(Path(root), [("k",)])
        query.close()


@pytest.mark.parametrize("kind", [pa.int32(), pa.decimal128(10, 2)])
def test_rows_of_a_divided_table(tmp_path: Path, kind: pa.DataType) -> None:
    """Its keys are of another type than those of the stream."""
    flow, a = Flow(name="flow"), stream("a")
    content = pa.table({"k": pa.array(list(range(40)), kind), "p": range(40)})
    joined = describe(flow, a).join(flow.table("t", content, divided=True), on="k", how="left")
    plan = plan_of([joined.relation])
    query = DirectQuery(plan, tmp_path, sites=3, partitions=8, tables=flow._registry.tables)
    query.run([pa.table([pa.array([7, 8]), pa.array([SECOND] * 2, TIME), pa.array([1, 2])], a.schema)])
    for key in range(41):
        kept = readState(str(tmp_path / "checkpoint"), input="t", key=key)
        assert kept["p"].to_pylist() == [key][: 40 - key]
    query.close()


@pytest.fixture
def where(tmp_path: Path) -> Any:
    """A join of twenty keys at three sites, and a group-by without a key."""
    a, b = handle(stream("a")), handle(stream("b"))
    renamed = b.select("k AS id", "v AS w", "ts")
    flows = [
        a.join(b, on="k", within="600 seconds"),
        a.join(renamed, on={"a": ["k", "v"], "b": ["id", "w"]}, within="600 seconds"),
        a.groupBy().window("1 minute").agg(n=("*", "count")),
    ]
    query = DirectQuery(plan_of([flow.relation for flow in flows], ["pairs", "both", "count"]), tmp_path, sites=3)
    for number in range(3):
        times = pa.array(number * SECOND + np.arange(60), TIME)
        table = pa.table([pa.array(np.arange(60) % 20), times, pa.array(np.arange(60))], stream("a").schema)
        query.run([table, table])
    yield str(tmp_path / "checkpoint")
    query.close()


def test_other_units_are_not_read(where: str) -> None:
    def reads(**choice: Any) -> int:
        read: list[str] = []
        with watch(lambda operation, path: read.append(path) if operation == "read" and "/state/" in path else None):
            assert readState(where, "pairs", **choice).num_rows
        return len(read)

    unit = readState(where, "pairs", key=7)["_unit"][0].as_py()
    assert reads(key=7) == reads(unit=unit) < reads()
    assert readState(where, "pairs", key=7, unit=unit).num_rows == 18
    assert readState(where, "pairs", key=7, input="b").num_rows == 9
    other = next(n for n in readState(where, "pairs")["_unit"].to_pylist() if n != unit)
    assert readState(where, "pairs", key=7, unit=other).num_rows == readState(where, "pairs", key=99).num_rows == 0


def test_a_key_of_several_columns_goes_by_the_names_of_either_input(where: str) -> None:
    for names in (("k", "v"), ("w", "id")):
        key = dict(zip(names, (7, 27) if names[0] == "k" else (27, 7), strict=True))
        kept = readState(where, "both", key=key)
        assert set(kept["_input"].to_pylist()) == {"a", "b"} and kept.num_rows == 6


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"operator": "pairs", "key": "A"}, "key column 'k' is of type bigint; 'A' is no value of it"),
        ({"operator": "pairs", "key": 7.5}, "key column 'k' is of type bigint; 7.5 is no value of it"),
        ({"operator": "pairs", "key": True}, "key column 'k' is of type bigint; True is no value of it"),
        ({"operator": "pairs", "key": 1 << 70}, "is no value of it"),
        ({"operator": "pairs", "key": [7]}, "is no value of it"),
        ({"operator": "pairs", "key": {"symbol": 7}}, "operator 0 has no key column 'symbol'; its key is k"),
        ({"operator": "pairs", "key": {}}, "key= gives nothing; the key of operator 0 is k, all of it"),
        ({"operator": "both", "key": 7}, "the key of operator 1 is k, v or id, w: give key={column: value, …}"),
        ({"operator": "both", "key": {"k": 7}}, "key= gives k; the key of operator 1 is k, v or id, w, all of it"),
        ({"operator": "both", "key": {"k": 7, "w": 27}}, "key= gives k, w; the key of operator 1 is k, v or id, w"),
        ({"operator": "both", "key": {"id": 7, "w": 27}, "input": "a"}, "has no key column 'id'; its key is k, v"),
        ({"operator": "count", "key": 7}, "operator 2 has no key: all of its rows are together"),
    ],
)
def test_what_is_no_key_is_refused_in_words(where: str, choice: dict[str, Any], message: str) -> None:
    with pytest.raises(FlowError) as refused:
        readState(where, **choice)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "value", "wrong"),
    [
        (pa.string(), "A", 7),
        (pa.binary(), b"A", 7),
        (pa.bool_(), True, 1),
        (pa.float64(), 7, "7"),
        (pa.decimal128(10, 2), Decimal("7.50"), Decimal("7.555")),
        (pa.decimal128(10, 2), 7, 7.5),
        (pa.date32(), date(2026, 1, 2), datetime(2026, 1, 2)),
        (TIME, datetime(2026, 1, 2, tzinfo=timezone.utc), 7),
    ],
)
def test_a_value_is_of_its_columns_type(tmp_path: Path, kind: pa.DataType, value: Any, wrong: Any) -> None:
    query = DirectQuery(join([stream("a", kind), stream("b", kind)]), tmp_path)
    table = pa.table([pa.array([value], kind), pa.array([SECOND], TIME), pa.array([1])], stream("a", kind).schema)
    query.run([table, table])
    checkpoint = str(tmp_path / "checkpoint")
    assert readState(checkpoint, key=value).num_rows == 2
    with pytest.raises(FlowError, match="is no value of it"):
        readState(checkpoint, key=wrong)
    query.close()


def test_the_command(where: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", where, "--state", "both", "--key", "k=7", "--key", "v=27"]) == 0
    assert capsys.readouterr().out.startswith("6 rows\n")
    for arguments, message in (
        (["--state", "pairs", "--key", "7"], "'7' is no key column and value; write for example symbol=A"),
        (["--state", "pairs", "--key", "k=A"], "key column 'k' is of type bigint; 'A' is no value of it"),
        (["--state", "pairs", "--key", "x=7"], "operator 0 has no key column 'x'; its key is k"),
        (["--state", "--key", "k=7"], "--key needs an operator: --state OPERATOR --key COLUMN=VALUE"),
        (["--key", "k=7"], "--key needs an operator: --state OPERATOR --key COLUMN=VALUE"),
    ):
        with pytest.raises(SystemExit) if message.startswith("'7'") else nullcontext():
            assert main(["inspect", where, *arguments]) == 2
        assert message in capsys.readouterr().err
