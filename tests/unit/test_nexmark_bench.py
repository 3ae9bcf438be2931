"""The benchmark of Nexmark: who runs which query, what is compared, and what its page says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from benchmarks.contenders import Result
from benchmarks.nexmark import bench
from benchmarks.nexmark.flink_queries import MISSING as NOT_IN_FLINK
from benchmarks.nexmark.flink_queries import QUERIES as IN_FLINK
from benchmarks.nexmark.flink_queries import SIDE_ROWS as SIDE_ROWS_IN_FLINK
from benchmarks.nexmark.generator import SIDE_ROWS, STREAMS, Events
from benchmarks.nexmark.queries import BY_NAME, QUERIES, NexmarkQuery
from benchmarks.nexmark.rows import first, load, prepare, prepare_csv
from benchmarks.nexmark.spark_job import count_once
from scripts import benchmark_page

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


def test_who_runs_a_query(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "missing", lambda peer: "")
    everybody = list(bench.PEERS)
    assert bench.line_up(BY_NAME["q3"], everybody, True) == ["sluice", *everybody]
    assert bench.line_up(BY_NAME["q3"], ["flink", "duckdb"], False) == ["flink"]
    assert bench.line_up(BY_NAME["q12"], everybody, True) == []


def test_flink_has_a_text_or_a_reason_for_every_query() -> None:
    assert {*IN_FLINK, *NOT_IN_FLINK} == {query.name for query in QUERIES if not query.missing}
    assert not {*IN_FLINK} & {*NOT_IN_FLINK} and SIDE_ROWS == SIDE_ROWS_IN_FLINK


def test_what_flink_has_no_text_for_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "missing", lambda peer: "")
    scale = bench.Scale(EVENTS, ("q6",))
    (run,) = bench.run_nexmark(scale, tmp_path, ["flink"], sluice=False)["runs"]
    assert run["failure"] == NOT_IN_FLINK["q6"] and not run["figures"]


def test_triggers_have_as_many_rows_whichever_streams_are_read() -> None:
    scale = bench.Scale(Events(count=6_000_000, files=48), trigger_rows=920_000)
    assert [scale.files_per_trigger(BY_NAME[name]) for name in ("q0", "q3", "q9")] == [8, 16, 8]
    assert [scale.files_given(name, BY_NAME["q9"]) for name in ("sluice", "spark-heap", "flink")] == [48, 48, 16]
    assert scale.files_given("flink", BY_NAME["q3"]) == 32


def test_rows_that_spark_reads_twice_count_once() -> None:
    bids = {"description": "FileStreamSource[file:/bid]", "numInputRows": 8}
    auctions = {"description": "FileStreamSource[file:/auction]", "numInputRows": 3}
    progress = count_once({"batchId": 4, "sources": [bids, auctions, bids], "numInputRows": 19})
    assert (progress["batchId"], progress["numInputRows"]) == (4, 11)


def test_a_peer_reads_the_first_files(tmp_path: Path) -> None:
    events = Events(count=1_000, files=4)
    home = prepare(events, tmp_path)
    part = first(home, 2)
    assert load(part) == Events(count=500, files=2) and first(home, 4) == home
    assert pq.read_table(part / "bid").equals(pq.read_table([home / f"bid/000{file}.parquet" for file in range(2)]))
    assert sum(len(path.read_text().splitlines()) for path in (prepare_csv(part) / "bid").iterdir()) == 460


def test_figures_are_kept_after_every_query_and_beside_earlier_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(name: str, query: NexmarkQuery, *ignored: object) -> Result:
        return result(name, query.name, 10.0) if query.name != "q1" else Result(name, "q1", 1, {}, failure="killed")

    monkeypatch.setattr(bench, "_run", run)
    kept: list[dict[str, Any]] = []
    scale = bench.Scale(EVENTS, ("q0", "q1", "q2"))
    bench.run_nexmark(scale, tmp_path, [], keep=lambda figures: kept.append(json.loads(json.dumps(figures))))
    assert [[run["workload"] for run in figures["runs"]] for figures in kept] == [
        ["q0"],
        ["q0", "q1"],
        [*scale.queries],
    ]
    monkeypatch.setattr(bench, "_run", lambda name, query, *ignored: result(name, query.name, 20.0))
    again = bench.run_nexmark(bench.Scale(EVENTS, ("q1",)), tmp_path, [], earlier=kept[-1])
    assert [(run["workload"], run["figures"]["warm_rate"]) for run in again["runs"]] == [
        ("q0", 10.0),
        ("q1", 20.0),
        ("q2", 10.0),
    ]
    other_rows = bench.Scale(Events(count=600, files=2), ("q1",))
    assert len(bench.run_nexmark(other_rows, tmp_path, [], earlier=kept[-1])["runs"]) == 1


def test_the_reason_of_a_refusal_is_the_peers_own(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        "py4j.protocol.Py4JJavaError: An error occurred while calling o8.executeSql.\n"
        "Caused by: org.apache.flink.table.api.ValidationException: No such function\n\tat org.apache.flink.Some\n"
    )
    assert bench.explain_failure(1, log, 120.0) == "No such function"
    assert bench.explain_failure(-9, log, 120.0) == "killed: no figures within 120 s, or no memory left"
    log.write_text("pyspark.errors.exceptions.captured.AnalysisException: [NON_TIME] Window is not there;\nProject\n")
    assert bench.explain_failure(1, log, 120.0) == "[NON_TIME] Window is not there;"
    log.write_text("nothing of the kind\n")
    assert bench.explain_failure(1, log, 120.0).startswith("nothing of the kind (all of it in ")


def test_the_page_has_rates_ratios_and_reasons() -> None:
    runs = [result("sluice", "q3", 600.0), result("spark-heap", "q3", 100.0), result("flink", "q3", 150.0)]
    runs += [result("sluice", "q6", 50.0), result("spark-heap", "q6", 5.0)]
    runs.append(Result("flink", "q6", 1, {}, failure="it cannot a|b"))
    runs += [Result("spark-heap", name, 1, {}, failure=f"[NON_TIME] no window in {name}") for name in ("q9", "q18")]
    head = {"versions": {"python": "3", "java": "17"}, "machine": {"cores": "2", "processor": "x", "memory": "8 GB"}}
    document = head | {"nexmark": bench.as_values(bench.Scale(), runs)}
    text = benchmark_page.nexmark_section(json.loads(json.dumps(document)))
    assert "| q3 | 600 | 100 (6.00 ≥ 5) | 150 (4.00 < 5 **missed**) |" in text
    assert "| q6 | 50 | 5 (10.0 ≥ 5) | not run |" in text
    assert "| Flink SQL, heap state | q6 | it cannot a\\|b |" in text
    assert "| Spark, heap provider | q9, q18 | `[NON_TIME]` |" in text
    busy = [{"workload": "q3", "contender": "flink", "others": 0.3}]
    assert benchmark_page.disturbed({"nexmark": {"runs": busy}}) == ["nexmark q3 flink (30%)"]


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
    said = f"not there: {query.missing}" if query.missing else query.otherwise
    lines = benchmark_page.NEXMARK_PAGE.read_text().splitlines()
    assert f"| {query.name} | {query.asks} | {said} |" in lines
