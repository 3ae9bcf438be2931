"""The benchmark of Nexmark: who runs which query, what is compared, and what its page says."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks.contenders import Result
from benchmarks.nexmark import bench
from benchmarks.nexmark.flink_queries import QUERIES as IN_FLINK
from benchmarks.nexmark.generator import STREAMS, Events
from benchmarks.nexmark.queries import BY_NAME, QUERIES
from benchmarks.nexmark.rows import load, prepare, prepare_csv

PAGE = Path(__file__).parents[2] / "docs" / "research" / "nexmark.md"
EVENTS = Events(count=500, files=2)


def test_rows_are_made_once_and_are_the_same_as_csv(tmp_path: Path) -> None:
    home = prepare(EVENTS, tmp_path)
    made = (home / "bid/0000.parquet").stat().st_mtime_ns
    assert prepare(EVENTS, tmp_path) == home and (home / "bid/0000.parquet").stat().st_mtime_ns == made
    assert load(home) == EVENTS
    counts = {stream: pq.read_table(home / stream).num_rows for stream in STREAMS}
    assert counts == EVENTS.rows_by_stream == {"person": 10, "auction": 30, "bid": 460}
    lines = {s: sum(len(f.read_text().splitlines()) for f in (prepare_csv(home) / s).glob("*.csv")) for s in STREAMS}
    assert lines == counts


def test_results_are_counted_by_duckdb(tmp_path: Path) -> None:
    assert bench.count_results(BY_NAME["q0"], prepare(EVENTS, tmp_path)) == 460


@pytest.mark.parametrize("count", [1, 50, 53, 123])
def test_the_rows_of_streams_are_known_beforehand(count: int) -> None:
    events = Events(count=count)
    assert events.rows_by_stream == {stream: table.num_rows for stream, table in events.tables(0).items()}


def test_a_query_that_cannot_be_run_is_left_to_those_who_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "missing", lambda peer: "")
    everybody = list(bench.PEERS)
    assert bench.line_up(BY_NAME["q3"], everybody, True) == ["sluice", *everybody]
    assert bench.line_up(BY_NAME["q12"], everybody, True) == []
    flink_alone = [query.name for query in QUERIES if query.missing and query.name in IN_FLINK]
    assert all("sluice" not in bench.line_up(BY_NAME[name], everybody, True) for name in flink_alone)
    assert "flink" not in bench.line_up(BY_NAME["q6"], everybody, True), "which Flink cannot run"


def result(contender: str, query: str, rate: float, rows_out: int = 5) -> Result:
    return Result(contender, query, 1, {"warm_rate": rate, "rows_out": rows_out}, expected=(5, None))


def test_bars_are_for_queries_with_state() -> None:
    runs = [result(c, q, r) for q in ("q0", "q3", "q20") for c, r in (("sluice", 60.0), ("spark-heap", 10.0))]
    assert [(v.what, v.bar, v.met) for v in bench.verdicts(runs)] == [
        ("q0, sluice / spark-heap", None, None),
        ("q3, sluice / spark-heap", 5.0, True),
        ("q20, sluice / spark-heap", 10.0, False),
    ]


def test_what_is_wrong_is_told_of_sluice_alone() -> None:
    failed = Result("sluice", "q1", 1, {}, failure="no memory left")
    refused = Result("spark-heap", "q9", 1, {}, failure="AnalysisException")
    assert bench.wrong([result("sluice", "q0", 1.0), refused]) == []
    assert bench.wrong([result("sluice", "q0", 1.0, rows_out=4), failed]) == [
        "q1: no memory left",
        "q0: WRONG, DuckDB has 5",
    ]


def test_last_windows_stay_open_in_spark() -> None:
    assert bench.is_counted("sluice", BY_NAME["q5"]) and not bench.is_counted("spark-heap", BY_NAME["q5"])
    assert bench.is_counted("spark-heap", BY_NAME["q3"]) and not bench.is_counted("flink", BY_NAME["q3"])


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.name)
def test_the_page_lists_every_query(query) -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| {query.name} |")]
    said = f"not there: {query.missing}" if query.missing else query.otherwise
    assert rows == [f"| {query.name} | {query.asks} | {said} |"]
