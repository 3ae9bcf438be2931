"""Reading the files of a `readFiles` stream as Arrow."""

from __future__ import annotations

import bz2
import gzip
import zlib
from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs, ipc

from sluice.model.errors import CorruptFile, FlowError, MissingFile, StorageError
from sluice.sources import file_paths
from sluice.sources.file_options import FileOptions
from sluice.sources.files import FORMATS, infer_schema, normal_schema, normal_type, read_file

UTC = timezone.utc
INSTANT, LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")
TRADES = pa.schema([("ts", INSTANT), ("symbol", pa.string()), ("price", pa.float64())])
ODD_NAMES = ["x y", "a%20b", "50%", "é日本", "a+b#c?d", "k=v&w", "b[1]{2}*", "q'\"", "a;b:c"]


def trades(rows: int = 10) -> pa.Table:
    at = pa.array(np.arange(rows) * 1_000_000, INSTANT)
    return pa.table([at, [f"S{i % 3}" for i in range(rows)], np.arange(rows) / 4], schema=TRADES)


def write(path: Path, table: pa.Table, format: str) -> None:
    if format == "parquet":
        pq.write_table(table, path)
    elif format == "arrow":
        with ipc.new_file(path, table.schema) as out:
            out.write_table(table)
    elif format == "csv":
        text = [",".join(table.column_names)] + [",".join(map(str, row.values())) for row in table.to_pylist()]
        path.write_text("\n".join(text) + "\n")
    else:
        table.to_pandas().to_json(path, orient="records", lines=True, date_format="iso")


def read(path: Path | str, format: str, schema: pa.Schema, rows_per_chunk: int = 1_000_000, **options: Any) -> pa.Table:
    batches = list(read_file(str(path), format, schema, options, rows_per_chunk))
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema.equals(schema, check_metadata=True)
        assert 0 < batch.num_rows <= rows_per_chunk
    return pa.Table.from_batches(batches, schema)


class Broken(fs.FSSpecHandler):
    """A file system that knows of its files and cannot get at them."""

    def __init__(self, inner: fs.FileSystem) -> None:
        self.fs = inner

    def open_input_stream(self, path: str) -> pa.NativeFile:
        raise OSError("no answer")

    open_input_file = open_input_stream


class TestTypes:
    @pytest.mark.parametrize(
        ("found", "normal"),
        [
            (pa.timestamp("ns", "Asia/Tokyo"), INSTANT),
            (pa.timestamp("s"), LOCAL),
            (pa.dictionary(pa.int8(), pa.timestamp("ms")), LOCAL),
            (pa.string_view(), pa.string()),
            (pa.binary_view(), pa.binary()),
            (pa.large_string(), pa.large_string()),
            (pa.run_end_encoded(pa.int32(), pa.string()), pa.string()),
            (pa.list_(pa.field("element", pa.string_view(), nullable=False)), pa.list_(pa.string())),
            (pa.large_list(pa.timestamp("ns")), pa.large_list(LOCAL)),
            (pa.list_(pa.timestamp("ns"), 2), pa.list_(LOCAL, 2)),
            (pa.map_(pa.string_view(), pa.timestamp("s", "UTC")), pa.map_(pa.string(), INSTANT)),
            (pa.struct([pa.field("a", pa.string_view(), False)]), pa.struct([("a", pa.string())])),
            (pa.uuid(), pa.binary(16)),
            *((t, t) for t in (pa.uint8(), pa.float16(), pa.time32("s"), pa.duration("ns"), pa.null(), pa.date32())),
        ],
    )
    def test_a_type_keeps_its_meaning_and_loses_its_form(self, found: pa.DataType, normal: pa.DataType) -> None:
        assert normal_type(found) == normal
        assert normal_type(normal) == normal

    def test_a_normal_schema_is_nullable_and_has_no_metadata(self) -> None:
        schema = pa.schema([pa.field("a", pa.int64(), False, {"x": "y"})], {"k": "v"})
        assert normal_schema(schema).equals(pa.schema([("a", pa.int64())]), check_metadata=True)


class TestPaths:
    @pytest.mark.parametrize("name", ODD_NAMES)
    @pytest.mark.parametrize("prefix", ["", "file:", "file://"])
    def test_nothing_in_a_path_is_escaped_or_wild(self, tmp_path: Path, name: str, prefix: str) -> None:
        write(tmp_path / name, trades(), "parquet")
        assert read(f"{prefix}{tmp_path}/{name}", "parquet", TRADES) == trades()

    def test_a_relative_path_is_a_local_one(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write(tmp_path / "a", trades(), "parquet")
        monkeypatch.chdir(tmp_path)
        assert read("a", "parquet", TRADES) == trades()
        assert infer_schema("s", "*", "parquet", {}) == TRADES

    def test_a_uri_is_looked_up_on_its_file_system(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = []

        def bucket(scheme: str, authority: str) -> tuple[fs.FileSystem, str]:
            asked.append((scheme, authority))
            return fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), authority

        monkeypatch.setattr(file_paths, "_remote", bucket)
        (tmp_path / "desk" / "in").mkdir(parents=True)
        write(tmp_path / "desk" / "in" / "x%20y", trades(), "parquet")
        assert read("s3a://desk/in/x%20y", "parquet", TRADES) == trades()
        assert infer_schema("s", "s3://desk/in", "parquet", {}) == TRADES
        assert infer_schema("s", "s3://desk/*/x*", "parquet", {}) == TRADES
        assert set(asked) == {("s3", "desk")}

    def test_an_unknown_scheme_is_named(self) -> None:
        with pytest.raises(StorageError, match="nowhere://a/b"):
            read_file("nowhere://a/b", "parquet", TRADES, {})
        with pytest.raises(FlowError, match=r"stream 's'.*nowhere://a/b"):
            infer_schema("s", "nowhere://a/b", "parquet", {})


class TestInference:
    @pytest.mark.parametrize("format", FORMATS)
    def test_a_format_gives_its_schema(self, tmp_path: Path, format: str) -> None:
        write(tmp_path / "a", trades(), format)
        for path in (str(tmp_path), f"file://{tmp_path}", f"{tmp_path}/[^b]", f"{tmp_path}/{{x,?}}"):
            assert infer_schema("s", path, format, {}).equals(TRADES, check_metadata=True)

    def test_hidden_and_filtered_files_are_passed_over(self, tmp_path: Path) -> None:
        for name in ("_SUCCESS", ".part.crc", "a.txt"):
            (tmp_path / name).write_text("no parquet")
        write(tmp_path / "part-0.parquet", trades(), "parquet")
        assert infer_schema("s", str(tmp_path), "parquet", {}, "*.{parquet,pq}") == TRADES
        (tmp_path / "a.txt").unlink()
        assert infer_schema("s", str(tmp_path), "parquet", {}) == TRADES

    def test_directories_are_entered_where_there_are_no_files(self, tmp_path: Path) -> None:
        for directory in ("_temporary", "_day=1"):
            (tmp_path / directory).mkdir()
        (tmp_path / "_temporary" / "a").write_text("no parquet")
        write(tmp_path / "_day=1" / "a", trades(), "parquet")
        assert infer_schema("s", str(tmp_path), "parquet", {}) == TRADES

    @pytest.mark.parametrize("format", FORMATS)
    def test_without_files_a_schema_is_asked_for(self, tmp_path: Path, format: str) -> None:
        for path in (tmp_path, tmp_path / "missing", tmp_path / "*.x"):
            with pytest.raises(FlowError, match=r"stream 'fills'.*give schema="):
                infer_schema("fills", str(path), format, {})

    def test_an_empty_file_or_column_leaves_it_to_the_next_file(self, tmp_path: Path) -> None:
        (tmp_path / "0").write_text("")
        (tmp_path / "1").write_text("a,b\n1,\n")
        (tmp_path / "2").write_text("a,b,c\n2.5,x,y\n")
        found = infer_schema("s", str(tmp_path), "csv", {})
        assert found == pa.schema([("a", pa.float64()), ("b", pa.string()), ("c", pa.string())])

    def test_a_file_that_is_no_such_file_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_text("x")
        with pytest.raises(FlowError, match=r"stream 's'.*cannot read file .*/a' as parquet"):
            infer_schema("s", str(tmp_path), "parquet", {})

    def test_two_columns_of_one_name_are_refused(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_text("x,x\n1,2\n")
        with pytest.raises(FlowError, match=r"more than one column named \['x'\]"):
            infer_schema("s", str(tmp_path), "csv", {})


class TestAnyFormat:
    @pytest.mark.parametrize("format", FORMATS)
    def test_rows_come_out_under_the_schema(self, tmp_path: Path, format: str) -> None:
        write(tmp_path / "a", trades(), format)
        assert read(tmp_path / "a", format, TRADES) == trades()
        two = pa.schema([TRADES.field("price"), TRADES.field("ts")])
        if format != "csv":  # whose columns go by their place
            assert read(tmp_path / "a", format, two) == trades().select(["price", "ts"])

    @pytest.mark.parametrize("format", FORMATS)
    def test_chunks_have_the_rows_asked_for(self, tmp_path: Path, format: str) -> None:
        write(tmp_path / "a", trades(10), format)
        batches = list(read_file(str(tmp_path / "a"), format, TRADES, {}, 4))
        assert [b.num_rows for b in batches] == [4, 4, 2]
        assert pa.Table.from_batches(batches) == trades(10)

    @pytest.mark.parametrize("format", FORMATS)
    def test_a_file_without_rows_yields_nothing(self, tmp_path: Path, format: str) -> None:
        write(tmp_path / "a", trades(0), format)
        assert list(read_file(str(tmp_path / "a"), format, TRADES, {})) == []

    @pytest.mark.parametrize("format", ["parquet", "json"])
    def test_an_absent_column_is_null(self, tmp_path: Path, format: str) -> None:
        write(tmp_path / "a", trades(3), format)
        wider = TRADES.append(pa.field("venue", pa.list_(pa.string())))
        got = read(tmp_path / "a", format, wider)
        assert got.column("venue").null_count == 3
        assert got.drop_columns(["venue"]) == trades(3)

    @pytest.mark.parametrize("format", FORMATS)
    def test_a_column_of_another_type_is_named(self, tmp_path: Path, format: str) -> None:
        write(tmp_path / "bad", trades(), format)
        wrong = pa.schema([TRADES.field("ts"), ("symbol", pa.int64()), TRADES.field("price")])
        with pytest.raises(StorageError, match=r"/bad', column 'symbol': found \w+, expected int64"):
            read(tmp_path / "bad", format, wrong)

    @pytest.mark.parametrize("format", FORMATS)
    def test_a_missing_file_is_named(self, tmp_path: Path, format: str) -> None:
        with pytest.raises(MissingFile, match="/gone' is gone"):
            read(tmp_path / "gone", format, TRADES)

    @pytest.mark.parametrize("format", FORMATS)
    def test_a_file_without_bytes_is_named(self, tmp_path: Path, format: str) -> None:
        (tmp_path / "lost").touch()
        with pytest.raises(CorruptFile, match="/lost'"):
            read(tmp_path / "lost", format, TRADES)

    @pytest.mark.parametrize("format", FORMATS)
    def test_a_file_that_cannot_be_reached_is_not_taken_for_damaged(
        self, tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(path: str) -> file_paths.Place:
            return file_paths.Place(fs.PyFileSystem(Broken(fs.LocalFileSystem())), path, path)

        write(tmp_path / "a", trades(), format)
        monkeypatch.setattr("sluice.sources.files.locate", broken)
        with pytest.raises(StorageError, match=r"/a.*no answer") as failure:
            read(tmp_path / "a", format, TRADES)
        assert type(failure.value) is StorageError

    @pytest.mark.parametrize("format", ["parquet", "arrow"])
    def test_a_file_of_something_else_is_not_taken_for_nulls(self, tmp_path: Path, format: str) -> None:
        write(tmp_path / "a", trades(), format)
        with pytest.raises(StorageError, match=r"none of the schema's columns \['volume'\], only \['ts', 'symbol'"):
            read(tmp_path / "a", format, pa.schema([("volume", pa.int64())]))


class TestParquet:
    def test_columns_that_are_not_needed_are_not_read(self, tmp_path: Path) -> None:
        table = pa.table({"n": list(range(1000)), "text": [f"text {i}" for i in range(1000)]})
        pq.write_table(table, tmp_path / "a", compression="none", use_dictionary=False, write_page_checksum=True)
        (tmp_path / "a").write_bytes((tmp_path / "a").read_bytes().replace(b"text 900", b"text 90?", 1))
        with pytest.raises(StorageError, match="cannot read"):
            read(tmp_path / "a", "parquet", table.schema)
        (batch,) = read_file(str(tmp_path / "a"), "parquet", table.schema, {}, columns={"n"})
        assert batch.schema == table.schema
        assert batch["n"].to_pylist() == table["n"].to_pylist()
        assert batch["text"].null_count == batch.num_rows

    def test_rows_are_there_though_the_file_has_no_column_that_is_needed(self, tmp_path: Path) -> None:
        pq.write_table(pa.table({"n": [1, 2, 3]}), tmp_path / "a")
        schema = pa.schema([("n", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
        (batch,) = read_file(str(tmp_path / "a"), "parquet", schema, {}, columns={"ts"})
        assert batch["ts"].null_count == 3

    def test_row_groups_are_joined_and_split(self, tmp_path: Path) -> None:
        table = trades(10_000)
        for group in (300, 10_000):
            pq.write_table(table, tmp_path / "a", row_group_size=group)
            batches = list(read_file(str(tmp_path / "a"), "parquet", TRADES, {}, 4000))
            assert [b.num_rows for b in batches] == [4000, 4000, 2000]
            assert pa.Table.from_batches(batches) == table

    @pytest.mark.parametrize("distinct", [1, 50, 10_000])
    def test_text_reads_the_same_with_and_without_a_dictionary(self, tmp_path: Path, distinct: int) -> None:
        text = pa.table({"s": [None if i % 7 == 0 else f"ключ{i % distinct}" for i in range(10_000)]})
        for dictionary in (True, False):
            pq.write_table(text, tmp_path / "a", row_group_size=3000, use_dictionary=dictionary)
            assert read(tmp_path / "a", "parquet", text.schema) == text

    def test_forms_of_other_writers_are_normalised(self, tmp_path: Path) -> None:
        found = pa.table(
            {
                "ns": pa.array([1_234_567, None], pa.timestamp("ns", "Asia/Tokyo")),
                "d": pa.array(["x", None]).dictionary_encode(),
                "n": pa.array([[{"t": 1_999}], None], pa.list_(pa.struct([("t", pa.timestamp("ns"))]))),
                "u": pa.array([b"0" * 16, None], pa.uuid()),
            }
        )
        pq.write_table(found, tmp_path / "a")
        schema = infer_schema("s", str(tmp_path), "parquet", {})
        assert schema == normal_schema(found.schema)
        first = read(tmp_path / "a", "parquet", schema).slice(0, 1)
        assert first.column("ns").cast(pa.int64()).to_pylist() == [1234]
        assert first.column("n").to_pylist() == [[{"t": datetime(1970, 1, 1, 0, 0, 0, 1)}]]
        assert (first["d"][0].as_py(), first["u"][0].as_py()) == ("x", b"0" * 16)

    def test_int96_times_are_instants(self, tmp_path: Path) -> None:
        at = [datetime(1, 1, 1), datetime(2024, 1, 1, 10, 0, 0, 5)]
        nested = pa.array([[{"t": t, "i": 1}] for t in at], pa.list_(pa.struct([("t", LOCAL), ("i", pa.int32())])))
        pq.write_table(pa.table({"i": [1, 2], "t": pa.array(at, LOCAL), "n": nested}), tmp_path / "a",
                       use_deprecated_int96_timestamps=True, store_schema=False)  # fmt: skip
        schema = infer_schema("s", str(tmp_path), "parquet", {})
        assert schema.field("t").type == INSTANT
        assert schema.field("n").type == pa.list_(pa.struct([("t", INSTANT), ("i", pa.int32())]))
        got = read(tmp_path / "a", "parquet", schema)
        assert got["t"].to_pylist() == [t.replace(tzinfo=UTC) for t in at]
        assert [row[0]["t"] for row in got["n"].to_pylist()] == [t.replace(tzinfo=UTC) for t in at]

    @pytest.mark.parametrize(
        ("values", "to"),
        [
            (pa.array([1, None], pa.int32()), pa.int64()),
            (pa.array([1, None], pa.int64()), pa.int8()),
            (pa.array([1, None], pa.int64()), pa.float64()),
            (pa.array([1.5, None], pa.float32()), pa.float64()),
            (pa.array([Decimal("1.50")]), pa.decimal128(20, 1)),
            (pa.array([b"x", None]), pa.string()),
            (pa.array(["x", None]), pa.large_string()),
            (pa.array([date(2024, 1, 1)]), LOCAL),
            (pa.array([None, None]), pa.struct([("a", pa.int64())])),
            (pa.array([{"a": 1, "x": 2}]), pa.struct([("b", pa.string()), ("a", pa.int64())])),
            (pa.array([[1], None], pa.list_(pa.int16())), pa.large_list(pa.int64())),
        ],
    )
    def test_a_column_may_widen_or_narrow_where_its_values_fit(
        self, tmp_path: Path, values: pa.Array, to: pa.DataType
    ) -> None:
        pq.write_table(pa.table({"c": values}), tmp_path / "a")
        got = read(tmp_path / "a", "parquet", pa.schema([("c", to)]))
        assert got["c"].combine_chunks() == values.cast(to)

    @pytest.mark.parametrize(
        ("values", "to"),
        [
            (pa.array([300]), pa.int8()),
            (pa.array([2**60 + 1]), pa.float64()),
            (pa.array([1.5]), pa.int64()),
            (pa.array([1.5]), pa.float32()),
            (pa.array(["12"]), pa.int64()),
            (pa.array([12]), pa.string()),
            (pa.array([12]), INSTANT),
            (pa.array([12], LOCAL), INSTANT),
            (pa.array([12], INSTANT), LOCAL),
            (pa.array([b"\xff"]), pa.string()),
            (pa.array([Decimal("1.55")]), pa.decimal128(20, 1)),
            (pa.array([{"a": 1}]), pa.struct([("b", pa.int64())])),
            (pa.array([[1]]), pa.list_(pa.string())),
            (pa.array([1]), pa.list_(pa.int64())),
        ],
    )
    def test_a_column_never_changes_its_meaning(self, tmp_path: Path, values: pa.Array, to: pa.DataType) -> None:
        pq.write_table(pa.table({"c": values}), tmp_path / "a")
        with pytest.raises(StorageError, match=r"/a', column 'c': found .*, expected .*give a schema="):
            read(tmp_path / "a", "parquet", pa.schema([("c", to)]))

    def test_columns_outside_the_schema_are_not_read(self, tmp_path: Path) -> None:
        pq.write_table(
            pa.table({"extra": np.arange(5000)[::-1], "a": [1] * 5000}), tmp_path / "a", use_dictionary=False
        )
        raw = bytearray((tmp_path / "a").read_bytes())
        raw[100:2000] = b"\xff" * 1900
        (tmp_path / "a").write_bytes(raw)
        assert read(tmp_path / "a", "parquet", pa.schema([("a", pa.int64())])).num_rows == 5000
        with pytest.raises(StorageError, match="cannot read file"):
            read(tmp_path / "a", "parquet", pa.schema([("extra", pa.int64())]))

    def test_damage_is_found_by_checksums(self, tmp_path: Path) -> None:
        table = pa.table({"a": np.arange(5000)})
        pq.write_table(table, tmp_path / "a", use_dictionary=False, compression="none", write_page_checksum=True)
        raw = bytearray((tmp_path / "a").read_bytes())
        raw[1000] ^= 1
        (tmp_path / "a").write_bytes(raw)
        with pytest.raises(StorageError, match=r"cannot read file .*/a' as parquet.*(CRC|checksum)"):
            read(tmp_path / "a", "parquet", table.schema)

    @pytest.mark.parametrize("keep", [0, 3, 100, -1])
    def test_a_truncated_file_is_named(self, tmp_path: Path, keep: int) -> None:
        write(tmp_path / "a", trades(1000), "parquet")
        raw = (tmp_path / "a").read_bytes()
        (tmp_path / "a").write_bytes(raw[:keep])
        with pytest.raises(StorageError, match=r"cannot read file .*/a' as parquet"):
            read(tmp_path / "a", "parquet", TRADES)


class TestArrow:
    @pytest.mark.parametrize("new", [ipc.new_file, ipc.new_stream])
    def test_files_and_streams_are_told_apart(self, tmp_path: Path, new: type) -> None:
        table = trades(1000)
        encoded = table.set_column(1, "symbol", table["symbol"].dictionary_encode()).append_column("x", table["price"])
        with new(tmp_path / "a", encoded.schema) as out:
            out.write_table(encoded, 100)
        assert infer_schema("s", str(tmp_path), "arrow", {}) == TRADES.append(pa.field("x", pa.float64()))
        assert read(tmp_path / "a", "arrow", TRADES, 300) == table

    def test_views_and_runs_are_unfolded(self, tmp_path: Path) -> None:
        views = pa.array(["x", None, "a text too long for a view's own bytes"], pa.string_view())
        runs = pa.RunEndEncodedArray.from_arrays([2, 3], [7, None])
        write(tmp_path / "a", pa.table({"v": views, "r": runs}), "arrow")
        schema = infer_schema("s", str(tmp_path), "arrow", {})
        assert schema == pa.schema([("v", pa.string()), ("r", pa.int64())])
        assert read(tmp_path / "a", "arrow", schema).to_pydict() == {"v": views.to_pylist(), "r": [7, 7, None]}

    def test_a_local_file_is_mapped_not_copied(self, tmp_path: Path) -> None:
        table = pa.table({"a": np.arange(1_000_000)})
        write(tmp_path / "a", table, "arrow")
        before = pa.total_allocated_bytes()
        batches = list(read_file(str(tmp_path / "a"), "arrow", table.schema, {}))
        assert pa.total_allocated_bytes() - before < 1_000_000
        assert pa.Table.from_batches(batches) == table

    @pytest.mark.parametrize("new", [ipc.new_file, ipc.new_stream])
    def test_a_truncated_file_is_named(self, tmp_path: Path, new: type) -> None:
        with new(tmp_path / "whole", TRADES) as out:
            out.write_table(trades(1000), 500)
        raw = (tmp_path / "whole").read_bytes()
        for keep in (0, 4, 100, len(raw) // 2, len(raw) - 8, len(raw) - 1):
            (tmp_path / "a").write_bytes(raw[:keep])
            with pytest.raises(StorageError, match=r"cannot read file .*/a' as arrow"):
                read(tmp_path / "a", "arrow", TRADES)

    def test_a_missing_column_is_named(self, tmp_path: Path) -> None:
        write(tmp_path / "a", trades(), "arrow")
        with pytest.raises(StorageError, match=r"/a' lacks the columns \['venue'\]"):
            read(tmp_path / "a", "arrow", TRADES.append(pa.field("venue", pa.string())))


class TestCsv:
    def rows(self, tmp_path: Path, text: str, schema: pa.Schema, **options: Any) -> Any:
        (tmp_path / "a.csv").write_text(text)
        return read(tmp_path / "a.csv", "csv", schema, **options).to_pylist()

    def test_characters_and_nulls_follow_the_options(self, tmp_path: Path) -> None:
        schema = pa.schema([("a", pa.string()), ("b", pa.float64())])
        doubled = 'a,b\n"x,""y""",1\n"",\n,NaN\n'
        got = self.rows(tmp_path, doubled, schema, escape='"')
        assert [row["a"] for row in got] == ['x,"y"', None, None]
        assert str([row["b"] for row in got]) == "[1.0, None, nan]"
        odd = "a;b\n'x;\\'y';1\nNA;NA\n'NA';2\n'';\n"
        assert self.rows(tmp_path, odd, schema, sep=";", quote="'", nullValue="NA") == [
            {"a": "x;'y", "b": 1.0}, {"a": None, "b": None}, {"a": None, "b": 2.0}, {"a": "", "b": None},
        ]  # fmt: skip
        assert self.rows(tmp_path, 'a\tb\n"x\t1\n', schema, delimiter="\\t", quote="") == [{"a": '"x', "b": 1.0}]

    def test_escapes_count_in_quoted_fields_only(self, tmp_path: Path) -> None:
        schema = pa.schema([("a", pa.string()), ("b", pa.string())])
        text = 'a,b\n"5\\" pipe","c:\\\\x"\n5" pipe,c:\\\\x\n"\\\\\\"",\\\\\n"\\t",x\\"y\n'
        assert [tuple(row.values()) for row in self.rows(tmp_path, text, schema)] == [
            ('5" pipe', "c:\\x"), ('5" pipe', "c:\\\\x"), ('\\"', "\\\\"), ("\\t", 'x\\"y'),
        ]  # fmt: skip

    @pytest.mark.parametrize("line", ['"x"y,1', '"x" ,1', '"x,1', '"x""y",1', '"x\\",1', '1,"'])
    def test_quotes_out_of_order_are_refused(self, tmp_path: Path, line: str) -> None:
        schema = pa.schema([("a", pa.string()), ("b", pa.string())])
        with pytest.raises(StorageError, match=r"a\.csv': in the line .* a quote .* is not closed, or text follows"):
            self.rows(tmp_path, f"a,b\nx,y\n{line}\n", schema)

    @pytest.mark.parametrize("text", ["b,a\n1,2\n", "a\n1\n", "a,b,c\n1,2,3\n", "a;b\n1;2\n"])
    def test_a_header_has_to_name_the_columns_in_their_order(self, tmp_path: Path, text: str) -> None:
        schema = pa.schema([("a", pa.string()), ("b", pa.string())])
        with pytest.raises(StorageError, match=r"a\.csv' has the columns \[.*\] in its header, the schema is"):
            self.rows(tmp_path, text, schema)
        if text.startswith("b,a"):
            assert self.rows(tmp_path, text, schema, enforceSchema="true") == [{"a": "1", "b": "2"}]
        assert self.rows(tmp_path, 'A,"b"\n1,2\n', schema) == [{"a": "1", "b": "2"}]

    @pytest.mark.parametrize(
        ("text", "to"),
        [
            ("0x1F", pa.int64()), ("+1", pa.int8()), (" 1", pa.int64()), ("nan", pa.float64()), ("inf", pa.float32()),
            ("+-1", pa.float64()), ("1", pa.bool_()), ("1.555", pa.decimal128(9, 2)), (" 1", pa.decimal128(9, 2)),
            ("2024-01-01 10:00Z", INSTANT), ("2024-01-01 10:00:00+19:00", INSTANT), ("24-01-01", LOCAL),
        ],
    )  # fmt: skip
    def test_a_value_that_spark_would_read_otherwise_is_refused(
        self, tmp_path: Path, text: str, to: pa.DataType
    ) -> None:
        with pytest.raises(StorageError, match=r"a\.csv', column 'a': found text, expected"):
            self.rows(tmp_path, f"a\n{text}\n", pa.schema([("a", to)]))

    def test_text_in_another_encoding_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_bytes("a\nà\n".encode("latin-1"))
        with pytest.raises(StorageError, match=r"a\.csv' is not text in UTF-8 .* option encoding="):
            read(tmp_path / "a.csv", "csv", pa.schema([("a", pa.string())]))

    def test_lines_are_whole_wherever_a_block_ends(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        text = '\ufeffa,b\r\n\r\n1,"x\\"é"\r2,y\n3,"ü"'.encode()
        (tmp_path / "a.csv").write_bytes(text)
        for size in range(1, len(text) + 1):
            monkeypatch.setattr("sluice.sources.text_files.BLOCK", size)
            got = read(tmp_path / "a.csv", "csv", pa.schema([("a", pa.int64()), ("b", pa.string())]))
            assert got.to_pydict() == {"a": [1, 2, 3], "b": ['x"é', "y", "ü"]}

    def test_without_a_header_places_decide(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text("1,x,2\n")
        assert infer_schema("s", str(tmp_path), "csv", {"header": "false"}).names == ["_c0", "_c1", "_c2"]
        schema = pa.schema([("n", pa.int64()), ("s", pa.string())])
        assert self.rows(tmp_path, "1,x\n", schema, HEADER="False") == [{"n": 1, "s": "x"}]

    def test_inferred_times_have_a_zone_only_with_an_offset(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_text(
            "a,b,c,d\n2024-01-01T10:00:00,2024-01-01 10:00:00.5,2024-01-01T10:00:00Z,2024-01-01\n"
        )
        assert infer_schema("s", str(tmp_path), "csv", {}).types == [LOCAL, LOCAL, INSTANT, pa.date32()]
        (tmp_path / "a").write_text("a\n1.2.2024 10:00\n")
        assert infer_schema("s", str(tmp_path), "csv", {"timestampFormat": "%d.%m.%Y %H:%M"}).types == [LOCAL]

    def test_times_without_an_offset_are_read_in_the_time_zone(self, tmp_path: Path) -> None:
        schema = pa.schema([("t", INSTANT)])
        nine, ten = datetime(2024, 1, 1, 9, tzinfo=UTC), datetime(2024, 1, 1, 10, tzinfo=UTC)
        berlin = {"timeZone": "Europe/Berlin"}
        assert self.rows(tmp_path, "t\n2024-01-01 10:00:00\n", schema) == [{"t": ten}]
        assert self.rows(tmp_path, "t\n2024-01-01 10:00:00\n", schema, **berlin) == [{"t": nine}]
        mixed = (
            "t\n2024-01-01 10:00:00\n2024-01-01T10:00:00Z\n2024-01-01 10:00:00+01:00\n2024-01-01T11:00:00.000000001\n"
        )
        assert [row["t"] for row in self.rows(tmp_path, mixed, schema, **berlin)] == [nine, ten, nine, ten]
        midnight = datetime(2023, 12, 31, 23, tzinfo=UTC)
        two = schema.append(pa.field("x", pa.int64()))
        got = self.rows(tmp_path, "t,x\n2024-01-01,1\n,2\n", two, **berlin)
        assert got == [{"t": midnight, "x": 1}, {"t": None, "x": 2}]
        form = {"timestampFormat": "%d.%m.%Y %H:%M", **berlin}
        assert self.rows(tmp_path, "t\n1.1.2024 10:00\n", schema, **form) == [{"t": nine}]
        form["timestampFormat"] += " %z"
        assert self.rows(tmp_path, "t\n1.1.2024 10:00 +0000\n", schema, **form) == [{"t": ten}]

    def test_hours_that_a_clock_change_skips_or_repeats_are_settled(self, tmp_path: Path) -> None:
        text = "t\n2024-03-31 02:30:00\n2024-10-27 02:30:00\n"
        got = self.rows(tmp_path, text, pa.schema([("t", INSTANT)]), timeZone="Europe/Berlin")
        assert [row["t"] for row in got] == [
            datetime(2024, 3, 31, 1, 30, tzinfo=UTC),
            datetime(2024, 10, 27, 0, 30, tzinfo=UTC),
        ]

    @pytest.mark.parametrize("text", ["2024-01-01T10:00:00Z", "yesterday", "1704103200"])
    def test_text_that_is_no_such_time_is_refused(self, tmp_path: Path, text: str) -> None:
        with pytest.raises(StorageError, match=r"a\.csv', column 't': found text, expected timestamp\[us\].*" + text):
            self.rows(tmp_path, f"x,t\n1,{text}\n", pa.schema([("x", pa.int64()), ("t", LOCAL)]))

    def test_types_that_spark_declares(self, tmp_path: Path) -> None:
        schema = pa.schema([("d", pa.date32()), ("n", pa.decimal128(9, 2)), ("b", pa.bool_()), ("i", pa.int8()),
                            ("x", pa.binary()), ("f", pa.float32())])  # fmt: skip
        got = self.rows(tmp_path, "d,n,b,i,x,f\n2024-01-01,1.5,true,7,ab,0.5\n", schema)
        assert list(got[0].values()) == [date(2024, 1, 1), Decimal("1.50"), True, 7, b"ab", 0.5]

    def test_a_value_that_does_not_fit_names_its_column_far_into_the_file(self, tmp_path: Path) -> None:
        text = "k,v\n" + "".join(f"{i},{i}\n" for i in range(2_000_000)) + "1,x\n"
        with pytest.raises(StorageError, match=r"a\.csv', column 'v': found text, expected int64 .*'x'"):
            self.rows(tmp_path, text, pa.schema([("k", pa.int64()), ("v", pa.int64())]))

    def test_a_row_with_too_few_columns_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(StorageError, match=r"cannot read file .*a\.csv' as csv.*Expected 2 columns, got 1"):
            self.rows(tmp_path, "a,b\n1,2\n3\n", pa.schema([("a", pa.int64()), ("b", pa.int64())]))

    def test_a_file_without_lines_has_no_rows(self, tmp_path: Path) -> None:
        for text in ("\n", "\r\n \t\n", "ts,symbol,price\n"):
            assert self.rows(tmp_path, text, TRADES) == []


class TestJson:
    def rows(self, tmp_path: Path, text: str, schema: pa.Schema, **options: Any) -> Any:
        (tmp_path / "a.json").write_text(text)
        return read(tmp_path / "a.json", "json", schema, **options).to_pylist()

    def test_nested_values_and_times_are_inferred(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_text(
            '{"a": 1, "l": "2024-01-01T10:00:00", "f": "2024-01-01 10:00:00.25", "z": "2024-01-01T10:00:00Z",'
            ' "s": "no time", "n": {"at": ["2024-01-01T10:00:00+01:00"], "x": 1.5}}\n{"a": null}\n'
        )
        schema = infer_schema("s", str(tmp_path), "json", {})
        nested = pa.struct([("at", pa.list_(INSTANT)), ("x", pa.float64())])
        assert schema.types == [pa.int64(), LOCAL, LOCAL, INSTANT, pa.string(), nested]
        first, second = read(tmp_path / "a", "json", schema).to_pylist()
        assert first["f"] == datetime(2024, 1, 1, 10, 0, 0, 250_000)
        assert first["z"] == datetime(2024, 1, 1, 10, tzinfo=UTC)
        assert first["n"] == {"at": [datetime(2024, 1, 1, 9, tzinfo=UTC)], "x": 1.5}
        assert set(second.values()) == {None}

    def test_types_that_spark_declares(self, tmp_path: Path) -> None:
        schema = pa.schema([("d", pa.date32()), ("n", pa.decimal128(9, 2)), ("i", pa.int8()), ("t", INSTANT),
                            ("l", pa.large_list(pa.date32())), ("s", pa.string())])  # fmt: skip
        text = (
            '{"d": "2024-01-01", "n": 1.5, "i": 7, "t": "2024-01-01 10:00", "l": ["2024-01-02"], "s": "2024-01-01"}\n'
        )
        got = self.rows(tmp_path, text, schema, timeZone="Asia/Tokyo")
        assert list(got[0].values()) == [
            date(2024, 1, 1), Decimal("1.50"), 7, datetime(2024, 1, 1, 1, tzinfo=UTC), [date(2024, 1, 2)], "2024-01-01",
        ]  # fmt: skip

    def test_a_time_format_is_followed(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_text('{"t": "1.2.2024"}\n')
        options: dict[str, Any] = {"timestampFormat": "%d.%m.%Y"}
        assert infer_schema("s", str(tmp_path), "json", options).types == [LOCAL]
        assert read(tmp_path / "a", "json", pa.schema([("t", LOCAL)]), **options)["t"][0].as_py() == datetime(
            2024, 2, 1
        )

    @pytest.mark.parametrize("value", ["1.5", '"1"', "[1]", "300"])
    def test_a_value_that_does_not_fit_names_its_column(self, tmp_path: Path, value: str) -> None:
        schema = pa.schema([("k", pa.int8()), ("v", pa.int8())])
        with pytest.raises(StorageError, match=r"a\.json', column 'v': found text, expected int8"):
            self.rows(tmp_path, f'{{"k": 1, "v": {value}}}\n', schema)

    def test_damage_is_named_and_emptiness_is_not_damage(self, tmp_path: Path) -> None:
        schema = pa.schema([("a", pa.int64())])
        for text in ('{"a": 1}\n{"a": ', '{"a": 1}\nxx\n', '[{"a": 1}]\n'):
            with pytest.raises(StorageError, match=r"cannot read file .*a\.json' as json"):
                self.rows(tmp_path, text, schema)
        assert self.rows(tmp_path, "\n", schema) == self.rows(tmp_path, "\n \t\n", schema) == []
        assert self.rows(tmp_path, "{}\n{}\n", schema) == [{"a": None}] * 2

    @pytest.mark.parametrize("text", ['{"a": 1} {"a": 2}\n', '{"a":\n1}\n', '[{"a": 1}]\n', "null\n", '{"a": -0}\n',
                                      '{"a": 1, "a": 2}\n', '{"a": Inf}\n'])  # fmt: skip
    def test_what_spark_reads_otherwise_is_refused(self, tmp_path: Path, text: str) -> None:
        with pytest.raises(StorageError, match=r"a\.json"):
            self.rows(tmp_path, text, pa.schema([("a", pa.float64())]))


class TestCompression:
    @pytest.mark.parametrize("format", ["csv", "json"])
    def test_text_is_decompressed_by_its_extension(self, tmp_path: Path, format: str) -> None:
        write(tmp_path / "plain", trades(), format)
        raw = gzip.compress((tmp_path / "plain").read_bytes())
        packed = tmp_path / f"a.{format}.gz"
        packed.write_bytes(raw)
        assert infer_schema("s", str(packed), format, {}) == TRADES
        assert read(packed, format, TRADES) == trades()
        for damaged in (raw[:-12], raw[:20], raw[:1], b"", b"plain"):
            packed.write_bytes(damaged)
            with pytest.raises(CorruptFile, match=rf"a\.{format}\.gz"):
                read(packed, format, TRADES)
        packed.write_bytes(gzip.compress(b""))
        assert list(read_file(str(packed), format, TRADES, {})) == []

    @pytest.mark.parametrize(
        ("suffix", "pack"), [("deflate", zlib.compress), ("bz2", bz2.compress), ("GZ", gzip.compress)]
    )
    def test_the_compressions_of_spark_are_known(
        self, tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]
    ) -> None:
        write(tmp_path / "plain", trades(), "csv")
        half = len(trades().schema.names)
        raw = (tmp_path / "plain").read_bytes()
        packed = tmp_path / f"a.csv.{suffix}"
        packed.write_bytes(pack(raw[:half]) + pack(raw[half:]))
        assert read(packed, "csv", TRADES) == trades()
        packed.write_bytes(pack(raw)[:-5])
        with pytest.raises(CorruptFile, match=r"a\.csv"):
            read(packed, "csv", TRADES)

    @pytest.mark.parametrize("suffix", ["snappy", "lz4"])
    def test_hadoops_own_compressions_are_refused(self, tmp_path: Path, suffix: str) -> None:
        (tmp_path / f"a.csv.{suffix}").write_text("a\n")
        with pytest.raises(StorageError, match="Hadoop's snappy or lz4 cannot be read here"):
            read(tmp_path / f"a.csv.{suffix}", "csv", TRADES)


class TestOptions:
    @pytest.mark.parametrize(
        ("format", "options", "message"),
        [
            ("csv", {"separator": ";"}, r"csv files have no option 'separator'; the options are: header, sep,"),
            (
                "json",
                {"header": "true"},
                r"json files have no option 'header'; the options are: timestampFormat, timeZone, ignoreMissingFiles",
            ),
            ("parquet", {"header": "true"}, r"parquet files have no option 'header'; the options are: ignoreMiss"),
            ("csv", {"quote": "''"}, "'quote' must be one character"),
            ("csv", {"sep": ";", "delimiter": ","}, "'sep' and 'delimiter' mean the same"),
            ("csv", {"header": "yes"}, "'header' must be true or false, not 'yes'"),
            ("csv", {"inferSchema": "false"}, "give a schema="),
            ("csv", {"timestampFormat": "%Y", "multiLine": "true"}, "must be one of Spark's patterns, not '%Y'"),
            ("csv", {"timestampFormat": "%H:%M:%S.%f"}, "fractions of a second"),
            ("json", {"timeZone": "Mars/North"}, "must be a time zone .* not 'Mars/North'"),
            ("orc", {}, "no file format 'orc'; the formats are: parquet, csv, json, arrow"),
        ],
    )
    def test_a_wrong_option_is_refused_before_anything_is_read(
        self, format: str, options: dict[str, str], message: str
    ) -> None:
        with pytest.raises(FlowError, match=message):
            read_file("/missing", format, TRADES, options)
        with pytest.raises(FlowError, match="stream 'fills': .*" + message):
            infer_schema("fills", "/missing", format, options)

    @pytest.mark.parametrize(
        ("format", "options", "why"),
        [
            ("csv", {"sep": "||"}, ["the option sep='||'"]),
            ("csv", {"multiline": "TRUE", "mode": "failfast", "encoding": "UTF-8"}, ["the option multiLine='TRUE'"]),
            ("csv", {"timestampFormat": "dd.MM.yyyy"}, ["the option timestampFormat='dd.MM.yyyy'"]),
            ("csv", {"escape": "", "timeZone": "UTC+1"}, ["the option escape=''", "the time zone 'UTC+1'"]),
            ("json", {"mode": "PERMISSIVE"}, ["the option mode='PERMISSIVE'"]),
            ("csv", {"sep": "\\t", "quote": "", "nullValue": "NA"}, []),
        ],
    )
    def test_what_only_spark_can_read_is_left_to_it(self, format: str, options: dict[str, str], why: list[str]) -> None:
        assert list(FileOptions.of(format, options).why_spark) == why

    def test_columns_that_only_spark_can_read_are_left_to_it(self) -> None:
        schema = pa.schema(
            [("b", pa.binary()), ("m", pa.map_(pa.string(), pa.string())), ("_corrupt_record", pa.string())]
        )
        reasons = {f: len(FileOptions.defaults().for_columns(f, schema).why_spark) for f in FORMATS}
        assert reasons == {"csv": 2, "json": 3, "parquet": 0, "arrow": 0}


@pytest.mark.spark
def test_the_paths_that_spark_gives_are_read(tmp_path: Path, spark: Any) -> None:
    source = tmp_path / "in dir"
    source.mkdir()
    for i, name in enumerate(ODD_NAMES):
        write(source / f"{name}.parquet", trades(i + 1), "parquet")
    columns = "path string, modificationTime timestamp, length long, content binary"
    paths = spark.readStream.format("binaryFile").schema(columns).load(str(source)).select("path")
    running = paths.writeStream.format("memory").queryName("paths").trigger(availableNow=True).start()
    running.awaitTermination()
    # Spark repeats other files' paths beside one that looks like a glob (SPARK-58518).
    found = sorted({row.path for row in spark.table("paths").collect()})
    assert found == sorted(f"file:{source}/{name}.parquet" for name in ODD_NAMES)
    sizes = sorted(read(path, "parquet", TRADES).num_rows for path in found)
    assert sizes == [i + 1 for i in range(len(ODD_NAMES))]


@pytest.mark.spark
def test_the_files_that_spark_writes_are_read(tmp_path: Path, spark: Any) -> None:
    rows = spark.sql("select timestamp'2024-01-01 10:00:00.5Z' ts, timestamp_ntz'2024-01-01 10:00:00' n, 'a\"b' s")
    wanted = pa.schema([("ts", INSTANT), ("n", LOCAL), ("s", pa.string())])
    row = [datetime(2024, 1, 1, 10, 0, 0, 500_000, UTC), datetime(2024, 1, 1, 10), 'a"b']
    writers: dict[str, dict[str, Any]] = {"parquet": {}, "json": {}, "csv": {"header": "true"}}
    for format, options in writers.items():
        out = str(tmp_path / format)
        rows.coalesce(1).write.options(**options).format(format).save(out)
        assert infer_schema("s", out, format, options) == wanted
        [file] = (p for p in Path(out).iterdir() if p.name.startswith("part"))
        assert list(read(file, format, wanted, **options).to_pylist()[0].values()) == row
