"""The benchmarks start in a clean clone, and say what is missing or in the way."""

from __future__ import annotations

import shutil
import subprocess
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import contenders
from benchmarks.adapt import exact, late_results
from benchmarks.adapt.epochs import Epoch
from benchmarks.adapt.rows import JoinRates, Rows, keys_at_rates, linked, prepared, units_of_keys
from benchmarks.adapt.running import Run
from benchmarks.data import open_cache
from benchmarks.run import taking_part

ROOT = Path(__file__).resolve().parents[2]


def test_the_directory_for_rows_is_made(tmp_path: Path) -> None:
    for _ in range(2):
        cache = open_cache(tmp_path / "some" / ".bench")
        assert (cache / ".gitignore").read_text() == "*\n"


def test_a_gitignore_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("/.venv/\n")
    open_cache(tmp_path)
    assert (tmp_path / ".gitignore").read_text() == "/.venv/\n"


@pytest.mark.parametrize("kind", ["file", "link to nowhere", "file above"])
def test_something_else_in_its_place_is_named(tmp_path: Path, kind: str) -> None:
    cache = tmp_path / ".bench"
    if kind == "link to nowhere":
        cache.symlink_to(tmp_path / "nowhere")
    else:
        cache.write_text("")
    with pytest.raises(SystemExit, match=rf"{cache}.* is in the way.* no directory.* --cache"):
        open_cache(cache / "below" if kind == "file above" else cache)


def test_a_peer_asked_for_by_name_must_be_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(contenders, "missing", lambda peer: "it is not installed" if peer == "duckdb" else "")
    with pytest.raises(SystemExit, match="duckdb cannot take part: it is not installed"):
        taking_part(["spark-heap", "duckdb"])
    assert "duckdb" not in taking_part(None)
    assert "duckdb is left out: it is not installed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "made"),
    [("", True), ("--quick", True), ("--peers flink,duckdb", True), ("--quick --peers duckdb", False)],
)
def test_flink_is_prepared_only_if_it_may_take_part(tmp_path: Path, arguments: str, made: bool) -> None:
    for name in ("scripts/flink.sh", "benchmarks/flink-requirements.txt"):
        (tmp_path / name).parent.mkdir()
        shutil.copy(ROOT / name, tmp_path / name)
    done = subprocess.run(
        [str(tmp_path / "scripts/flink.sh"), *arguments.split()], env={"PATH": "/usr/bin:/bin", "PYTHON": "false"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert ("making .venv-flink" in done.stderr) == made


THREE = Rows("three", files=3, rows=60, keys=40, within=None, streams="ABC", rates=JoinRates(4, (4, 1)))


def test_units_get_as_many_rows_whatever_their_rate_and_keys_that_recur_as_it_says() -> None:
    rates = JoinRates(6, (4, 2, 1))
    drawn = keys_at_rates(60_000, rates, 600_000, np.random.default_rng(1))
    units = units_of_keys(60_000, 6)[1][drawn]
    assert np.bincount(units) == pytest.approx(100_000, rel=0.02)
    recur = [100_000 / len(np.unique(drawn[units == unit])) for unit in range(6)]
    assert recur == pytest.approx([40, 20, 10] * 2, rel=0.05)
    assert rates.says() == "join rates of 4 in 2, 2 in 2, 1 in 2 of the 6 units"


@pytest.mark.parametrize("within", [None, 6])
def test_three_streams_are_summed_up_as_their_join(tmp_path: Path, within: int | None) -> None:
    rows = Rows("three", files=3, rows=30, keys=40, within=within, streams="ABC", rates=JoinRates(4, (4, 1)))
    linked(rows.streams, prepared(rows, tmp_path / "cache"), tmp_path / "in", 0, 2)
    tables = [pq.read_table(tmp_path / "in" / stream).to_pylist() for stream in rows.streams]
    results = [
        {f"{name}_id": row["id"] for name, row in zip(rows.streams, combined, strict=True)}
        for combined in product(*tables)
        if len({row["key"] for row in combined}) == 1
        and (within is None or spread([row["ts"] for row in combined]) <= within)
    ]
    assert len(results) > 100 and (within is None or spread([row["ts"] for row in tables[0]]) > within)
    (tmp_path / "out").mkdir()
    pq.write_table(pa.Table.from_pylist(results), tmp_path / "out" / "part-000000000001-x.parquet")
    assert exact.found(rows, tmp_path / "out") == exact.expected(rows, tmp_path / "in")
    assert exact.recompute(rows, tmp_path / "in", tmp_path / "duckdb.parquet") > 0
    again = pq.read_table(tmp_path / "duckdb.parquet")
    columns = ["key", "ts", "id"]
    assert again.column_names == [f"{stream}_{column}" for stream in rows.streams for column in columns]
    assert again.num_rows == len(results)
    newest = exact.by_file(rows, tmp_path / "out")
    assert sum(count for *_, count in newest) == len(results) and {file for file, *_ in newest} <= {0, 1}
    pq.write_table(pa.Table.from_pylist(results[1:]), tmp_path / "out" / "part-000000000001-x.parquet")
    assert exact.found(rows, tmp_path / "out") != exact.expected(rows, tmp_path / "in")


def spread(times: list) -> float:
    return (max(times) - min(times)).total_seconds()


def test_rows_are_made_once_and_anew_where_they_are_others(tmp_path: Path) -> None:
    (prepared(THREE, tmp_path) / "mark").touch()
    assert (prepared(THREE, tmp_path) / "mark").exists()
    other = Rows("three", files=3, rows=60, keys=50, within=None, streams="ABC", rates=JoinRates(4, (4, 1)))
    home = prepared(other, tmp_path)
    assert (home / "C" / "0002.parquet").exists() and not (home / "mark").exists()


def epoch(number: int, committed: float, rows: int, results: int) -> Epoch:
    return Epoch(number, committed, 1.0, rows, results, 0, (), (), (60, 90), (100, 100), 0, durable=6 + number)


def test_what_was_found_by_when() -> None:
    fast = Run("fast", (epoch(0, 100, 10, 1), epoch(1, 101, 10, 2), epoch(2, 105, 0, 40)), 43, 0, 0.0, ended=106.0)
    slow = Run("slow", (epoch(0, 200, 10, 5), epoch(1, 203, 10, 6)), 11, 0, 0.0, ended=203.5)
    slow_held = Run("slow", slow.epochs, 11, 0, 0.0, resident=((201.0, (50, 120)),), ended=203.5)
    compared = late_results.first_to_take_all([fast, slow])
    assert compared == 1.0
    assert [late_results.output(run, compared) for run in (fast, slow)] == [3, 5]
    assert [late_results.taken_in(run, compared) for run in (fast, slow)] == [1.0, 0.5]
    assert [late_results.cleanup_seconds(run) for run in (fast, slow)] == [5.0, 0.5]
    assert [late_results.cleaned_up(run) for run in (fast, slow)] == [40, 0]
    assert late_results.state_bytes(fast) == 7
    assert late_results.found_with_input(fast) == pytest.approx(3 / 43)
    assert [late_results.most_in_memory(run) for run in (slow, slow_held)] == [0.9, 1.2]
    assert late_results.over_time("so far", [fast], compared).lines["fast"] == [(0, 1), (1, 3), (5, 43)]
