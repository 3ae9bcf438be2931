"""Delta tables of groups that change: an epoch replaces rows, or all, once, whoever dies or writes meanwhile."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from engine_harness import DirectQuery
from group_by_oracle import source, sql
from hypothesis import given
from hypothesis import strategies as st
from oracle import connect_duckdb, multiset
from random_epochs import rows
from specs import KEYS, SECOND

from sluice import CheckpointError, FlowError, StorageError
from sluice.api.output_mode import OutputMode, in_mode, row_keys
from sluice.api.request import read_request
from sluice.api.stream import DataStream
from sluice.cli.verification import verify
from sluice.model.plan.planning import plan_of
from sluice.spark import delta_sink
from sluice.spark.delta_modes import DeltaMode, DeltaWrite
from sluice.spark.delta_sink import DeltaSink
from sluice.state.files.storage import watch

deltalake = pytest.importorskip("deltalake")

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of drivers that die
FAST = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
WRITES = [DeltaWrite.UPDATE, DeltaWrite.COMPLETE]
AGGREGATES = {"n": ("*", "count"), "total": ("v", "sum"), "high": ("w", "max")}
GROUP_KEYS = {
    **KEYS,
    "double": (pa.float64(), st.sampled_from([0.0, -0.0, 1.5, float("inf"), float("nan"), -float("nan")])),
    "float": (pa.float32(), st.sampled_from([0.0, -0.0, 0.5, float("nan")])),
    "string": (pa.string(), st.sampled_from(["", "a", "b", "ab/%=", "é" * 20, "x" * 300, "x" * 299 + "y"])),
}
PARTITIONED = {
    "long": GROUP_KEYS["long"],
    "string": (pa.string(), st.sampled_from(["a", "b", "a b", "ab/%=", "é", "None"])),
    "bool": GROUP_KEYS["bool"],
    "date": GROUP_KEYS["date"],
}


def changing(keys: str = "k", kind: pa.DataType | None = None) -> DataStream:
    return source("a", kind, None).groupBy(*keys.split()).agg(**AGGREGATES)


def start(
    root: Path,
    write: DeltaWrite,
    result: DataStream | None = None,
    partition_by: tuple[str, ...] = (),
    out: str = "out",
    **options: Any,
) -> DirectQuery:
    mode = OutputMode.COMPLETE if write is DeltaWrite.COMPLETE else OutputMode.UPDATE
    relation = in_mode((result or changing()).relation, mode)
    keys = row_keys(relation) if write is DeltaWrite.UPDATE else ()

    def delta_sink(path: str, schema: pa.Schema) -> DeltaSink:
        return DeltaSink(str(root / out), "snappy", partition_by, schema, DeltaMode(write, keys))

    return DirectQuery(plan_of([relation]), root, make_sink=delta_sink, **options)


def epoch_rows(epoch: int, kind: pa.DataType | None = None, keys: tuple = (None, 1, 2, 3)) -> pa.Table:
    """Rows of a few groups; of one of them in every other epoch alone."""
    here = [key for key in keys if key != 2 or epoch % 2 == 0]
    columns = [here, [epoch * SECOND + i for i in range(len(here))], [epoch] * len(here), [float(epoch)] * len(here)]
    fields = source("a", kind).stream.schema
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, fields, strict=True)], schema=fields)


def read(out: Path, columns: str = "*") -> Counter:
    """What DuckDB finds in the table."""
    with connect_duckdb() as db:
        db.register("t", deltalake.DeltaTable(str(out)).to_pyarrow_dataset())
        return plain(db.sql(f"SELECT {columns} FROM t").to_arrow_table())


def groups(epochs: list[pa.Table], keys: str = "k") -> Counter:
    """The batch group-by."""
    with connect_duckdb() as db:
        db.register("a", pa.concat_tables(epochs))
        by = f"GROUP BY {keys}" if keys else "HAVING count(*) > 0"
        shown = f"{keys}, " if keys else ""
        return plain(db.sql(f"SELECT {shown}{sql(AGGREGATES)} FROM a {by}").to_arrow_table())


def first_rows(epochs: list[pa.Table], count: int) -> Counter:
    """The first rows of each group, without what rows that are equal in the order may differ in."""
    place = "row_number() OVER (PARTITION BY k ORDER BY v DESC NULLS LAST)::INT AS place"
    with connect_duckdb() as db:
        db.register("a", pa.concat_tables(epochs))
        return plain(
            db.sql(f"SELECT k, v, place FROM (SELECT *, {place} FROM a) WHERE place <= {count}").to_arrow_table()
        )


def plain(table: pa.Table) -> Counter:
    """Rows with one zero."""
    one_zero: Counter = Counter()
    for row, count in multiset(table).items():
        one_zero[tuple(0.0 if isinstance(v, float) and v == 0 else v for v in row)] += count
    return one_zero


class Killed(BaseException):
    """The driver dies here."""


@contextmanager
def dies_before(operation: int, path: Path) -> Iterator[None]:
    """Die before one of the file operations on the table, counted from 0."""
    count = 0

    def watcher(name: str, where: str) -> None:
        nonlocal count
        if Path(where).is_relative_to(path):
            count += 1
            if count == operation + 1:
                raise Killed

    with watch(watcher):
        yield


def compact(out: Path) -> None:
    deltalake.DeltaTable(str(out)).optimize.compact()


def compact_and_vacuum(out: Path) -> None:
    compact(out)
    deltalake.DeltaTable(str(out)).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


def checkpoint(out: Path) -> None:
    deltalake.DeltaTable(str(out)).create_checkpoint()


OTHERS = [compact, compact_and_vacuum, checkpoint]


def check(
    data: st.DataObject,
    write: DeltaWrite,
    result: DataStream,
    partition_by: tuple[str, ...],
    epochs_of: Callable[[int], st.SearchStrategy[pa.Table]],
    answer: Callable[[list[pa.Table]], Counter],
    columns: str = "*",
) -> None:
    """After each of random epochs the table is the batch query: through deaths, restarts, and others that tidy up."""
    seen: list[pa.Table] = []
    with tempfile.TemporaryDirectory(dir=FAST) as directory:
        out = Path(directory) / "out"

        def begin() -> DirectQuery:
            return start(Path(directory), write, result, partition_by, sites=data.draw(st.integers(1, 2)), partitions=4)

        query = begin()
        for number in range(data.draw(st.integers(1, 6))):
            seen.append(data.draw(epochs_of(number)))
            if data.draw(st.booleans()):
                try:
                    with dies_before(data.draw(st.integers(0, 25)), out):
                        query.run([seen[-1]], number=number)
                except Killed:
                    query = begin()
            query.run([seen[-1]], number=number)
            assert read(out, columns) == answer(seen)
            if data.draw(st.integers(0, 2)) == 0:
                data.draw(st.sampled_from(OTHERS))(out)
            if data.draw(st.integers(0, 3)) == 0:
                query.close()
                query = begin()
        query.close()
        assert read(out, columns) == answer(seen)


@given(st.data(), st.sampled_from(WRITES), st.sampled_from(sorted(GROUP_KEYS)))
def test_the_table_is_the_batch_group_by(data, write, kind):
    key, values = GROUP_KEYS[kind]
    a = source("a", key, None)
    result = a.groupBy("k").agg(**AGGREGATES)
    check(data, write, result, (), lambda epoch: rows(a, values, epoch * SECOND, 2 * SECOND), groups)


@given(st.data(), st.sampled_from(WRITES), st.sampled_from(sorted(PARTITIONED)), st.sampled_from(["k", "v", "k v"]))
def test_a_partitioned_table_of_groups_by_two_columns(data, write, kind, partition_by):
    key, values = PARTITIONED[kind]
    a = source("a", key, None)
    result = a.groupBy("k", "v").agg(n=("*", "count"), total=("v", "sum"), high=("w", "max"))
    # the columns of partitions are the last ones of the table
    answer = lambda epochs: groups(epochs, "k, v")  # noqa: E731
    by = tuple(partition_by.split())
    check(
        data,
        write,
        result,
        by,
        lambda epoch: rows(a, values, epoch * SECOND, 2 * SECOND),
        answer,
        "k, v, n, total, high",
    )


@given(st.data(), st.sampled_from(WRITES))
def test_the_table_of_one_group(data, write):
    a = source("a", None, None)
    result = a.groupBy().agg(**AGGREGATES)
    answer = lambda epochs: groups(epochs, "")  # noqa: E731
    check(data, write, result, (), lambda epoch: rows(a, KEYS["long"][1], epoch * SECOND, 2 * SECOND), answer)


@given(st.data(), st.sampled_from(WRITES), st.sampled_from(["long", "double", "string"]), st.booleans())
def test_the_table_of_first_rows(data, write, kind, partitioned):
    key, values = PARTITIONED[kind] if partitioned and kind != "double" else GROUP_KEYS[kind]
    a = source("a", key, None)
    result = a.groupBy("k").top(2, "v DESC", number="place")
    by = ("k",) if partitioned and kind != "double" else ("place",) if partitioned else ()
    answer = lambda epochs: first_rows(epochs, 2)  # noqa: E731
    check(data, write, result, by, lambda epoch: rows(a, values, epoch * SECOND, 2 * SECOND), answer, "k, v, place")


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("partition_by", [(), ("k",)])
def test_an_epoch_is_one_version_with_its_number(tmp_path, write, partition_by):
    query = start(tmp_path, write, None, partition_by)
    seen = [epoch_rows(epoch) for epoch in range(4)]
    for epoch in seen:
        query.run([epoch])
    table = deltalake.DeltaTable(str(tmp_path / "out"))
    assert table.version() == 4, "one for each epoch, after the empty table"
    assert table.transaction_version(f"sluice-{query.query}-{write.value}") == 3
    assert read(tmp_path / "out", "k, n, total, high") == groups(seen)
    query.run([seen[0].slice(0, 0)])
    assert deltalake.DeltaTable(str(tmp_path / "out")).version() == 4, "nothing has changed"
    query.close()
    for part in (tmp_path / "out").glob("_sluice-*/part-*"):
        part.unlink()  # nobody needs it
    query = start(tmp_path, write, None, partition_by)
    assert deltalake.DeltaTable(str(tmp_path / "out")).version() == 4
    seen.append(epoch_rows(4))
    query.run([seen[-1]])
    assert read(tmp_path / "out", "k, n, total, high") == groups(seen)
    assert not [p for p in verify(str(tmp_path / "checkpoint")).problems if p.startswith("results: ")]
    query.close()


@pytest.mark.parametrize("write", WRITES)
def test_a_driver_that_dies_at_any_file_operation_shows_each_epoch_once(tmp_path, write):
    """Also within the table's own commit, before it and after it."""
    before = tmp_path / "before"
    query = start(before, write)
    query.run([epoch_rows(0)])
    query.close()
    seen, operation, died = [epoch_rows(epoch) for epoch in range(3)], 0, True
    while died:
        root = tmp_path / str(operation)
        shutil.copytree(before, root)
        try:
            with dies_before(operation, root / "out"):
                start(root, write).run([seen[1]], number=1)
            died = False
        except Killed:
            pass
        query = start(root, write)
        query.run([seen[1]], number=1)
        assert read(root / "out") == groups(seen[:2]), f"after a death at operation {operation}"
        query.run([seen[2]])
        assert read(root / "out") == groups(seen)
        query.close()
        operation += 1
    assert operation > 5


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("when", ["before the commit", "after the commit"])
def test_a_driver_that_dies_at_the_commit_shows_each_epoch_once(tmp_path, monkeypatch, write, when):
    query = start(tmp_path, write)
    seen = [epoch_rows(epoch) for epoch in range(3)]
    query.run([seen[0]])
    commit = DeltaSink._commit

    def die(*given: Any) -> None:
        if when == "after the commit":
            commit(*given)
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(DeltaSink, "_commit", die)
        query.run([seen[1]])
    query = start(tmp_path, write)
    query.run([seen[1]], number=1)
    query.run([seen[2]])
    assert read(tmp_path / "out") == groups(seen)
    assert deltalake.DeltaTable(str(tmp_path / "out")).version() == 3
    query.close()


def add_group(out: Path) -> None:
    new = {"k": pa.array([77]), "n": pa.array([1]), "total": pa.array([None], pa.int64()), "high": pa.array([0.5])}
    deltalake.write_deltalake(str(out), pa.table(new), mode="append")


def delete_group(out: Path) -> None:
    deltalake.DeltaTable(str(out)).delete("k = 3")


@contextmanager
def meanwhile(monkeypatch: pytest.MonkeyPatch, others: list[Callable[[], None]]) -> Iterator[None]:
    """Others write to the table between an epoch's look at it and its commit."""
    commit = DeltaSink._commit

    def interrupted(*given: Any) -> None:
        if others:
            others.pop(0)()
        commit(*given)

    with monkeypatch.context() as patch:
        patch.setattr(DeltaSink, "_commit", interrupted)
        yield


def test_there_is_one_nan_and_one_zero(tmp_path):
    """Whatever their bits are."""
    query, seen = start(tmp_path, DeltaWrite.UPDATE, changing(kind=pa.float64())), []
    for epoch, sign in enumerate([1, -1, 1]):
        seen.append(epoch_rows(epoch, pa.float64(), (sign * 0.0, sign * float("nan"), None)))
        query.run([seen[-1]])
        assert read(tmp_path / "out") == groups(seen)
    query.close()


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("other", [compact, add_group, delete_group, checkpoint])
def test_other_writers_that_commit_in_between(tmp_path, monkeypatch, write, other):
    out, query = tmp_path / "out", start(tmp_path, write)
    seen = [epoch_rows(epoch) for epoch in range(6)]
    for epoch in seen[:4]:
        query.run([epoch])
        if write is DeltaWrite.UPDATE:
            add_group(out)  # so that there are files to compact
    with meanwhile(monkeypatch, [lambda: other(out)] * 3):
        query.run([seen[4]])
    expected = groups(seen[:5])
    if write is DeltaWrite.UPDATE:
        expected[(77, 1, None, 0.5)] = 4 + 3 * (other is add_group)
    assert read(out) == expected
    query.run([seen[5]])
    assert Counter({row: n for row, n in read(out).items() if row[0] != 77}) == groups(seen)
    query.close()


@pytest.mark.parametrize("write", WRITES)
def test_an_epoch_that_another_driver_shows_in_between_is_shown_once(tmp_path, monkeypatch, write):
    out, query = tmp_path / "out", start(tmp_path, write)
    seen = [epoch_rows(epoch) for epoch in range(3)]
    query.run([seen[0]])
    takes_over = meanwhile(monkeypatch, [lambda: start(tmp_path, write) and None])
    with takes_over, pytest.raises(CheckpointError, match="was taken over by another driver"):
        query.run([seen[1]])
    assert deltalake.DeltaTable(str(out)).version() == 2
    query = start(tmp_path, write)
    query.run([seen[2]], number=2)
    assert read(out) == groups(seen)
    query.close()


@pytest.mark.parametrize("write", WRITES)
def test_writers_that_are_always_faster_are_named(tmp_path, monkeypatch, write):
    monkeypatch.setattr(delta_sink, "_COMMIT_ATTEMPTS", 3)
    out, query = tmp_path / "out", start(tmp_path, write)
    query.run([epoch_rows(0)])
    words = "did not take the results of epoch 1: other writers were faster each time"
    with meanwhile(monkeypatch, [lambda: add_group(out)] * 3), pytest.raises(StorageError, match=words):
        query.run([epoch_rows(1)])
    query = start(tmp_path, write)
    query.run([epoch_rows(1)], number=1)
    assert Counter({row: n for row, n in read(out).items() if row[0] != 77}) == groups([epoch_rows(0), epoch_rows(1)])
    query.close()


def test_rows_of_others_stay_in_update_mode_and_go_in_complete_mode(tmp_path):
    for write in WRITES:
        root = tmp_path / write.value
        with_zeros = pa.table(
            {"k": pa.array([-0.0, -float("nan"), 7.0, None]), "n": [1] * 4, "total": [0] * 4, "high": [0.5] * 4}
        )
        deltalake.write_deltalake(str(root / "out"), with_zeros)
        query = start(root, write, changing(kind=pa.float64()))
        new = epoch_rows(0, pa.float64(), (None, 0.0, float("nan")))
        query.run([new])
        query.close()
        theirs = Counter({(7.0, 1, 0, 0.5): 1} if write is DeltaWrite.UPDATE else {})
        assert read(root / "out") == groups([new]) + theirs


def test_files_that_cannot_have_the_groups_are_not_read(tmp_path):
    """Those of other partitions; and of groups without a null, files of other keys."""
    for partition_by in ((), ("k",)):
        root = tmp_path / str(len(partition_by))
        query = start(root, DeltaWrite.UPDATE, None, partition_by, partitions=1)
        for key in range(12):
            query.run([epoch_rows(0, keys=(key * 10 + 1,))])
        query.run([epoch_rows(1, keys=(51, 61, None) if partition_by else (51, 61))])
        metrics = deltalake.DeltaTable(str(root / "out")).history(1)[0]["operationMetrics"]
        assert metrics["num_target_files_scanned"] == 2
        query.close()


def test_an_epoch_costs_as_much_after_many(tmp_path):
    """Files and log: of a table whose groups stay the same."""
    for write in WRITES:
        query, costs = start(tmp_path / write.value, write, partitions=1), []
        for epoch in range(60):
            before = bytes_read()
            query.run([epoch_rows(epoch)])
            costs.append(bytes_read() - before)
        query.close()
        assert max(costs[40:]) < 1.3 * max(costs[10:30]), costs


def bytes_read() -> int:
    """What this process has read so far, from files that are not mapped."""
    return int(Path("/proc/self/io").read_text().split()[1])


@pytest.mark.parametrize("write", WRITES)
def test_a_query_that_nobody_writes_any_more_shows_what_was_not_shown(tmp_path, monkeypatch, write):
    query = start(tmp_path, write)
    query.run([epoch_rows(0)])

    def die(*given: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(DeltaSink, "_commit", die)
        query.run([epoch_rows(1)])
    results = query.epochs.record.results_of(0)
    former = DeltaSink(str(tmp_path / "out"), "none", (), None)
    former.check(query.query, results)
    former.open(query.query, results)
    former.tidy((), lambda name: True)
    assert read(tmp_path / "out") == groups([epoch_rows(0), epoch_rows(1)])
    (waiting,) = (tmp_path / "out").glob("_sluice-*")
    later = waiting / "part-000000000002-0000-c6e8e010-02d52aed7-0.parquet"  # of the query that takes its place
    later.touch()
    former.leave()
    assert list(waiting.glob("part-*")) == [later]


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "brotli", "zstd", "lz4"])
def test_every_compression(tmp_path, compression):
    relation = in_mode(changing().relation, OutputMode.UPDATE)

    def delta_sink(path: str, schema: pa.Schema) -> DeltaSink:
        return DeltaSink(str(tmp_path / "out"), compression, (), schema, DeltaMode(DeltaWrite.UPDATE, ("k",)))

    query = DirectQuery(plan_of([relation]), tmp_path, make_sink=delta_sink)
    for epoch in range(2):
        query.run([epoch_rows(epoch)])
    assert read(tmp_path / "out") == groups([epoch_rows(0), epoch_rows(1)])
    query.close()


def test_a_table_that_does_not_fit_is_refused_untouched(tmp_path):
    deltalake.write_deltalake(str(tmp_path / "out"), pa.table({"k": [1], "n": [1]}))
    for write in WRITES:
        with pytest.raises(FlowError, match="has other columns than these results: it has k"):
            start(tmp_path, write)
    assert deltalake.DeltaTable(str(tmp_path / "out")).version() == 0
    columns = pa.table({"k": [1], "n": [1], "total": [1], "high": [0.5]})
    deltalake.write_deltalake(str(tmp_path / "only"), columns, configuration={"delta.appendOnly": "true"})
    for write in WRITES:
        with pytest.raises(FlowError, match=r"has rules that the delta sink does not follow: delta\.appendOnly"):
            start(tmp_path, write, out="only")


def test_a_table_that_the_query_wrote_in_another_mode_is_refused(tmp_path):
    query = start(tmp_path, DeltaWrite.UPDATE)
    query.run([epoch_rows(0)])
    query.close()
    schema = query.plan.outputs[0].schema
    for write in (DeltaWrite.COMPLETE, DeltaWrite.APPEND):
        sink = DeltaSink(str(tmp_path / "out"), "snappy", (), schema, DeltaMode(write))
        words = (
            f"results that this query wrote in outputMode('update'), and those of outputMode({write.value!r}) do not"
        )
        with pytest.raises(FlowError, match=re.escape(words)):
            sink.check(query.query, query.epochs.record.results_of(0))


def test_a_changed_query_needs_another_path(tmp_path):
    """Of a former query in any mode, results of another one would come on top."""
    query = start(tmp_path, DeltaWrite.UPDATE)
    query.run([epoch_rows(0)])
    query.close()
    for write in DeltaWrite:
        sink = DeltaSink(str(tmp_path / "out"), "snappy", (), query.plan.outputs[0].schema, DeltaMode(write, ("k",)))
        with pytest.raises(FlowError, match="has results of a former query of this checkpoint, and those of this one"):
            sink.check_new(query.query)
        sink.check_new("another query")


def test_an_empty_text_in_a_column_of_partitions_is_refused(tmp_path):
    query = start(tmp_path, DeltaWrite.UPDATE, changing(kind=pa.string()), ("k",))
    query.run([epoch_rows(0, pa.string(), ("a", None))])
    with pytest.raises(StorageError, match="a group has an empty text in 'k', by which the Delta table is partitioned"):
        query.run([epoch_rows(1, pa.string(), ("a", ""))])
    assert deltalake.DeltaTable(str(tmp_path / "out")).version() == 1


def delta_writer(result: DataStream, *partition_by: str) -> Any:
    return result.writeStream.format("delta").outputMode("update").option("path", "x").partitionBy(*partition_by)


def test_rows_are_replaced_by_the_columns_of_their_group():
    a = source("a")
    running = a.groupBy("k").agg(n=("*", "count"))
    tops = a.groupBy("k").top(2, "v", number="place").filter("place < 2").select("place AS at", "k AS key", "v")
    for result, keys in (
        (running, ("k",)),
        (running.filter("k > 3").select("n * 2 AS twice", "k AS key").withColumn("more", "key + 1"), ("key",)),
        (running.select("k AS key", "k + 1 AS next", "n").filter("next > 3"), ("key",)),
        (tops, ("key", "at")),
        (a.groupBy().agg(n=("*", "count")), ()),
    ):
        (sink,) = read_request([delta_writer(result).choices()]).sinks
        assert sink.row_keys == keys
        assert sink.delta_mode == DeltaMode(DeltaWrite.UPDATE, keys)
    (sink,) = read_request([delta_writer(running).outputMode("complete").choices()]).sinks
    assert sink.delta_mode == DeltaMode(DeltaWrite.COMPLETE)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda r: delta_writer(r.filter("n > 1")),
            r"filter 'n > 1' may let a row through no longer, and outputMode\('u",
        ),
        (
            lambda r: delta_writer(r.select("k", "n * 2 AS m").filter("m > 1")),
            "filter 'm > 1' may let a row through no",
        ),
        (
            lambda r: delta_writer(r.select("n")),
            "replace rows of a Delta table by 'k', which select leaves out: select",
        ),
        (
            lambda r: delta_writer(r.select("k + 1 AS k", "n")),
            "replace rows of a Delta table by 'k', which select leaves",
        ),
        (lambda r: delta_writer(r.select("k", "n AS `a``b`")), "'a`b' has a backtick in its name"),
        (
            lambda r: delta_writer(r.select("k", "CAST(n AS decimal(9, 2)) AS d"), "d"),
            r"column 'd' is decimal128\(9, 2\), a",
        ),
        (lambda r: delta_writer(r.select("k AS `a:b`", "n"), "a:b"), "column 'a:b' has a colon in its name"),
        (lambda r: delta_writer(r).outputMode("append"), r"cannot be appended.*outputMode\('update'\)"),
        (
            lambda r: delta_writer(r).format("parquet"),
            r"the parquet sink appends, .*write groups that change to format\('d",
        ),
        (lambda r: delta_writer(source("b")), "these results are final, and appended"),
    ],
)
def test_what_is_refused(make, says):
    with pytest.raises(FlowError, match=says):
        read_request([make(source("a").groupBy("k").agg(n=("*", "count"))).choices()])


def test_keys_that_a_table_cannot_compare_are_refused():
    running = source("a", pa.time64("us")).groupBy("k").agg(n=("*", "count"))
    with pytest.raises(
        FlowError, match=r"column 'k' is time64\[us\], which rows of a Delta table cannot be told apart by"
    ):
        read_request([delta_writer(running).choices()])
    read_request([delta_writer(running).outputMode("complete").choices()])
