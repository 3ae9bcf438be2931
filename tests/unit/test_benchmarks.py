"""The benchmarks start in a clean clone, and say what is missing or in the way."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import contenders, units
from benchmarks.adapt import (
    adaptations,
    alternate,
    elastic,
    exact,
    late_results,
    push,
    scarce,
    tell,
    tokens,
    tuning,
    uneven,
)
from benchmarks.adapt.__main__ import SCENARIOS
from benchmarks.adapt.claims import judge, scaled
from benchmarks.adapt.epochs import Epoch
from benchmarks.adapt.executor_list import Listed
from benchmarks.adapt.outcome import Bar, Outcome, restored
from benchmarks.adapt.papers import LIVE, LiveExperiment
from benchmarks.adapt.rows import JoinRates, Rows, SiteLoad, Surge, keys, keys_at_rates, linked, prepared, units_of_keys
from benchmarks.adapt.running import Run
from benchmarks.data import open_cache
from benchmarks.figures_file import add_figures, refusal
from benchmarks.latency.arrivals import Feeder, arriving
from benchmarks.latency.arrivals import prepare as latency_rows
from benchmarks.latency.bench import (
    Scale,
    as_values,
    first_verdicts,
    latency_verdicts,
    measured,
    right_results,
    run_first,
    run_latency,
)
from benchmarks.latency.result_file import write_results
from benchmarks.latency.sink_reader import Shown, SparkLog, WholeFiles
from benchmarks.many.arrivals import FEW, Arrivals, ManyRows, prepare
from benchmarks.many.bench import ManyRun, verdicts, wrong
from benchmarks.many.queries import KINDS, STREAMS, draw_queries, sharing_queries
from benchmarks.run import taking_part
from benchmarks.workloads import FIRST_EVENT, WORKLOADS, Workload
from scripts import adaptive_page, benchmark_page
from sluice.figures.claim import ANY, ClaimKind
from sluice.figures.lazy_disk_relocation import LAZY_9
from sluice.figures.publish import as_text

ROOT = Path(__file__).resolve().parents[2]


class TestManyQueries:
    def test_the_first_ones_are_the_same_however_many_there_are(self) -> None:
        few, many = draw_queries(20), draw_queries(500)
        assert many[:20] == few
        assert {query.kind for query in many} == set(KINDS) and len({query.name for query in many}) == 500
        assert 300 < len({query.text for query in many}) < 500  # some are the same, as people's are

    def test_files_arrive_when_it_is_time_and_duckdb_answers_over_them(self, tmp_path: Path) -> None:
        rows = ManyRows(rows=50, keys=20, epochs=3, few=2)
        home = prepare(rows, tmp_path)
        assert prepare(rows, tmp_path) == home
        arrivals = Arrivals(home, tmp_path / "run")
        assert (arrivals.arrive(2), arrivals.arrived) == (100, 2)
        times = [pq.read_table(p)["ts"].cast(pa.int64()) for p in arrivals.directory("s3").iterdir()]
        assert max(max(t.to_pylist()) for t in times) == rows.newest(2)
        with duckdb.connect() as db:
            for stream in STREAMS:
                db.execute(f"CREATE VIEW {stream} AS FROM read_parquet('{arrivals.directory(stream)}/*.parquet')")
            for query in (*draw_queries(30), *sharing_queries(3)):
                db.sql(query.duckdb.format(until=rows.final_until(2))).fetchall()
        arrivals.skip_to_few()
        assert arrivals.arrive() == FEW

    def test_bars(self) -> None:
        flow = {"queries": 500, "query_rate": 3e6, "seconds": 12.0, "epochs": 6, "few_epoch_seconds": 3.0}
        flow |= {"add_epoch_seconds": 2.1, "add_ordinary_seconds": 2.0}
        runs = {
            "flow": ManyRun("flow", flow),
            "flow of 1": ManyRun("flow of 1", {"few_epoch_seconds": 1.0}),
            "sharing 16": ManyRun("sharing 16", {"state_bytes": 130}),
            "sharing 1": ManyRun("sharing 1", {"state_bytes": 100}),
            "spark 16": ManyRun("spark 16", {"queries": 16, "query_rate": 1e5}),
            "spark 64": ManyRun("spark 64", {}, failure="killed"),
            "single flows": ManyRun("single flows", {"epochs": 2, "alone_seconds": {"a": 1.0, "b": 3.0}}),
        }
        assert [(round(v.ratio, 9), v.met) for v in verdicts(runs)] == [
            (30.0, True), (250.0, None), (3.0, True), (1.3, True), (1.05, True),
        ]  # fmt: skip
        assert wrong(runs) == []
        assert wrong({"flow": ManyRun("flow", {"wrong": ["join-3: 2 rows differ"]})}) == ["join-3: 2 rows differ"]


class TestLatency:
    def test_is_from_the_later_rows_arrival_to_the_file_with_the_result(self, tmp_path: Path) -> None:
        # A tick is 100 ms of event time: files 0, 1 and 20 of A meet files 1, 0 and 20 of B.
        at = [FIRST_EVENT + file * 100_000 + 5_000 for file in (0, 1, 20, 1, 0, 20)]
        values = [[7, 8, 9], at[:3], [0.5] * 3]
        write_results(tmp_path, 0, [*values, [7, 8, 9], at[3:], [0.5] * 3])
        arrived = np.array([100 + np.arange(30) / 10, 100.01 + np.arange(30) / 10])
        shown = [Shown(tmp_path / "000000.parquet", 3, 105.0)]
        every = measured(shown, arrived, warm_up_seconds=0)
        assert (every["p50"], every["most"]) == pytest.approx((105 - 100.11, 105 - 100.1))
        assert (every["rows_out"], every["results"], every["batches"]) == (3, 3, 1)
        assert every["total"] == sum(at) - 6 * FIRST_EVENT
        warm = measured(shown, arrived, warm_up_seconds=1)
        assert (warm["rows_out"], warm["results"]) == (3, 1) and warm["p99"] == pytest.approx(105 - 102.01)

    def test_files_arrive_as_they_were_made_and_duckdb_has_their_results(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        w = replace(arriving(seconds=1), keys=50)
        home = latency_rows(w, tmp_path)
        monkeypatch.setattr("benchmarks.latency.arrivals.TICK_SECONDS", 0.0)  # all of them at once
        feeder = Feeder(w, home / "csv", tmp_path / "run", "csv")
        feeder.run()
        assert sorted(p.name for p in (tmp_path / "run" / "B").iterdir()) == [f"{n:04d}.csv" for n in range(10)]
        assert (feeder.arrived > 0).all() and Workload.load(tmp_path / "run") == w
        near = "abs(A.ts - B.ts) <= 10000000 AND A.key = B.key"
        pairs = f"'{tmp_path}/run/A/*.csv' A JOIN '{tmp_path}/run/B/*.csv' B ON {near}"
        times = f"sum(A.ts - {FIRST_EVENT} + B.ts - {FIRST_EVENT})"
        assert right_results(w, home) == duckdb.sql(f"SELECT count(*), {times} FROM {pairs}").fetchall()[0]

    def test_only_files_that_are_listed_can_be_read(self, tmp_path: Path) -> None:
        lists = tmp_path / "_spark_metadata"
        sink = SparkLog(tmp_path)
        assert sink.new_files() == []
        lists.mkdir()
        entries = [json.dumps({"path": f"file://{tmp_path}/part%20{i}.parquet", "action": "add"}) for i in range(3)]
        (lists / "8").write_text("\n".join(["v1", entries[0]]))
        (lists / ".9.compact.tmp").write_text("v1")
        assert sink.new_files() == [tmp_path / "part 0.parquet"]
        (lists / "9.compact").write_text("\n".join(["v1", *entries]))
        assert sink.new_files() == [tmp_path / "part 1.parquet", tmp_path / "part 2.parquet"]
        assert sink.new_files() == []

    def test_a_draft_is_not_a_result(self, tmp_path: Path) -> None:
        sink = WholeFiles(tmp_path)
        (tmp_path / "0.draft").touch()
        assert sink.new_files() == []
        (tmp_path / "0.draft").rename(tmp_path / "000000.parquet")
        assert sink.new_files() == [tmp_path / "000000.parquet"] and sink.new_files() == []

    def test_bars(self) -> None:
        def result(name: str, p50: float, p99: float) -> contenders.Result:
            return contenders.Result(name, "latency", 1, {"p50": p50, "p99": p99})

        runs = {r.contender: r for r in (result("sluice", 0.3, 1.5), result("spark-heap", 1.5, 4), result("x", 0.1, 1))}
        judged = {v.what: v.met for v in latency_verdicts(runs)}
        assert judged == {
            "p50 / 0.4 s": True, "p99 / 1.2 s": False, "p50, sluice / spark-heap": True,
            "p99, sluice / spark-heap": False, "p50, sluice / x": None, "p99, sluice / x": None,
        }  # fmt: skip

    @pytest.mark.parametrize(
        ("measure", "run_one"), [(run_latency, "_run_contender"), (run_first, "_run_starts")], ids=["latency", "first"]
    )
    def test_runs_of_an_earlier_call_stay_unless_they_are_taken_again(
        self, measure: Callable[..., dict[str, Any]], run_one: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def run(name: str, *ignored: object) -> contenders.Result:
            figures = dict.fromkeys(("p50", "p95", "p99", "cold", "warm", "drained_seconds"), seconds)
            figures |= {"results": 1, "batches": 1, "rows_out": 7, "starts": [1, 2], "settings": ""}
            return contenders.Result(name, "latency", 1, figures)

        monkeypatch.setattr(f"benchmarks.latency.bench.{run_one}", run)
        monkeypatch.setattr("benchmarks.latency.bench.prepare", lambda w, cache: tmp_path)
        monkeypatch.setattr("benchmarks.latency.bench.right_results", lambda w, home: (7, None))
        seconds = 2.0
        first = json.loads(json.dumps(measure(Scale(), tmp_path, ["spark-heap", "spark-rocksdb"])))
        seconds = 8.0
        again = measure(Scale(), tmp_path, ["spark-heap"], sluice=False, earlier=first)
        measured = {run["contender"]: run["figures"]["warm"] for run in again["runs"]}
        assert measured == {"sluice": 2.0, "spark-heap": 8.0, "spark-rocksdb": 2.0}
        beside = {bar["what"].split("/ ")[-1]: bar["ratio"] for bar in again["bars"]}
        assert beside["spark-heap"] == 0.25 and beside["spark-rocksdb"] == 1
        shorter = measure(Scale(seconds=20), tmp_path, ["spark-heap"], sluice=False, earlier=first)
        assert [run["contender"] for run in shorter["runs"]] == ["spark-heap"]


class TestFiguresFile:
    HEAD: ClassVar[dict[str, Any]] = {
        "code": "a b", "versions": {"numpy": "2"}, "machine": {"cores": "2", "processor": "x"},
    }  # fmt: skip

    def test_a_second_call_adds_its_runs_and_replaces_what_it_measured_again(self, tmp_path: Path) -> None:
        path = tmp_path / "figures.json"
        ours = contenders.Result("sluice", "uniform", 4, {"warm_rate": 30.0, "rows_out": 7}, expected=(7, None))
        add_figures(path, self.HEAD | {"units": [1]}, [replace(ours, figures={"warm_rate": 20.0})])
        assert refusal(path, self.HEAD) == ""
        add_figures(path, self.HEAD, [ours, contenders.Result("duckdb", "uniform", 4, {"warm_rate": 60.0})])
        document = json.loads(path.read_text())
        assert [(r["contender"], r["check"]) for r in document["results"]] == [
            ("sluice", "agrees"), ("duckdb", "not counted"),
        ]  # fmt: skip
        assert {bar["what"]: bar["ratio"] for bar in document["bars"]}["sluice / duckdb"] == 0.5
        assert document["units"] == [1]

    @pytest.mark.parametrize(
        ("differing", "words"),
        [({"code": "c d"}, "code"), ({"versions": {"numpy": "3"}}, "versions"), ({"code": "changed"}, "not committed")],
    )
    def test_figures_of_other_code_are_not_mixed(self, tmp_path: Path, differing: dict[str, Any], words: str) -> None:
        path = tmp_path / "figures.json"
        assert refusal(path, self.HEAD) == ""
        add_figures(path, self.HEAD, [])
        assert words in refusal(path, self.HEAD | differing)

    def test_disturbed_runs_are_named(self) -> None:
        run = {"workload": "wide", "contender": "sluice", "others": 0.4}
        many = {"runs": [{"name": "flow", "others": 0.01}, {"name": "spark 16", "others": 0.16}]}
        assert benchmark_page.disturbed({"results": [run], "many": many}) == [
            "wide sluice (40%)",
            "many spark 16 (16%)",
        ]


@pytest.mark.parametrize("path", benchmark_page.PAGES, ids=lambda path: path.name)
def test_pages_have_what_was_measured(path: Path) -> None:
    page, figures, sections = path.read_text(), benchmark_page.read_figures(path), benchmark_page.PAGES[path]
    assert benchmark_page.write_page(page, sections, figures) == page, "run scripts/benchmark_page.py"
    assert not benchmark_page.disturbed(figures)
    for name in sections:
        assert f"<!-- {name}: scripts/benchmark_page.py -->" in page and f"<!-- end of {name} -->" in page


def test_the_page_of_adaptive_benchmarks_has_what_is_on_file() -> None:
    page, documents = adaptive_page.PAGE.read_text(encoding="utf-8"), adaptive_page.recorded_documents()
    assert adaptive_page.write_bars(page, documents) == page, "run python -m scripts.adaptive_page"
    for document in documents:
        unfiled = page.partition("no file is kept")[2]
        assert f"\n| `{document['scenario']}`" not in unfiled, "what is on file is not told from memory as well"


def test_a_missed_bar_of_an_adaptive_benchmark_is_shown() -> None:
    document = {
        "scenario": "quiet",
        "head": ["policy", "others"],
        "rows": [["static", "3%"], ["hybrid", "12%"]],
        "bars": [["epoch", "1.05", "at most 1.03", "MISSED"], ["rows", "7", "at least 6", "met"]],
        "facts": {},
    }
    page = adaptive_page.write_bars(f"a\n{adaptive_page.BEGIN}old\n{adaptive_page.END}\nb", [document])
    assert "| [`quiet`](../figures/spark-quiet.json) | epoch | 1.05 > 1.03 **missed** | 12% |" in page
    assert "|  | rows | 7 ≥ 6 |  |" in page and "old" not in page


def test_latency_is_written_as_tables() -> None:
    def run(name: str, workload: str, figures: dict[str, Any], failure: str = "") -> contenders.Result:
        return contenders.Result(name, workload, 1, figures, expected=(4_000, None), failure=failure)

    fast = {"p50": 0.31, "p95": 0.5, "p99": 1.25, "results": 3_000, "batches": 12, "drained_seconds": 0.7}
    slow = {name: 4 * value for name, value in fast.items()}
    latency = {
        "sluice": run("sluice", "latency", fast | {"rows_out": 4_000}),
        "spark-heap": run("spark-heap", "latency", slow | {"rows_out": 4_000}),
        "bytewax": run("bytewax", "latency", {}, "no message"),
    }
    first = {
        name: run(name, "first", {"cold": 9.0, "warm": warm, "starts": [9.0, warm, warm]})
        for name, warm in (("sluice", 1.5), ("spark-heap", 3.0))
    }
    document = {
        "latency": as_values(Scale(), latency, latency_verdicts(latency)) | {"left_out": {"pathway": "no interpreter"}},
        "first": as_values(Scale(), first, first_verdicts(first)),
    }
    text = benchmark_page.latency_section(json.loads(json.dumps(document)))
    assert "| Sluice, `readFiles` | 0.31 | 0.50 | 1.25 | 0.7 | 0 | 0 |" in text
    assert "| `latency`: p99 / 1.2 s | 1.25 | 1.20 s | 1.04 > 1 **missed** |" in text
    assert "| `latency`: p50, sluice / spark-heap | 0.31 | 1.24 s | 0.25 ≤ 0.25 |" in text
    assert "| Bytewax | none |" in text and "latency, Bytewax: no message." in text
    assert "2 of 3 runs" in text and "Pathway is left out: no interpreter." in text
    assert (
        "first result, 10 files of each stream being there, " in text
        and "| Sluice, `readFiles` | 1.50 | 9.00 |" in text
    )


def test_every_workload_is_a_row_with_rates_ratios_and_what_went_wrong(tmp_path: Path) -> None:
    def run(name: str, workload: str, rate: float, failure: str = "") -> contenders.Result:
        figures = {} if failure else {"warm_rate": rate, "rows_out": 7, "batch_seconds": 0.2, "phases": {"read": 0.05}}
        return contenders.Result(name, workload, 1, figures, expected=(7, None), failure=failure)

    runs = [run("sluice", name, 60.0) for name in WORKLOADS]
    runs += [run("spark-heap", "wide", 3.0), run("spark-pandas", "last", 20.0), run("flink", "band", 0.0, "no memory")]
    add_figures(tmp_path / "figures.json", {}, runs)
    document = json.loads((tmp_path / "figures.json").read_text())
    text = benchmark_page.throughput_section(document)
    assert "| `wide` | 60 | 3 (20.0 ≥ 12) |  |  |  |" in text
    assert "| `last` | 60 |  | 20 (3.00 < 10 **missed**) |  |  |" in text
    assert "| `band` | 60 |  |  | failed |  |" in text and "band, Flink SQL, heap state: no memory." in text
    assert "| `sliding-1m`: cost of a row, 1 M groups / 10 k | 16,667 | 16,667 µs/row | 1.00 ≤ 1.3 |" in text
    assert all(f"| `{name}` | 60 |" in text for name in WORKLOADS if name != "trickle")
    assert "| `sliding` | 200 | 50 |" in benchmark_page.phases_section(document)


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
    [
        ("", "flink pathway bytewax"),
        ("--quick", "flink pathway bytewax"),
        ("--peers flink-rocksdb,duckdb", "flink"),
        ("--quick --peers duckdb", ""),
        ("--only units,first", ""),
        ("--only latency", "pathway bytewax"),
        ("--only=uniform,latency --peers=bytewax,flink", "flink bytewax"),
    ],
)
def test_an_environment_is_prepared_only_if_its_peer_may_take_part(tmp_path: Path, arguments: str, made: str) -> None:
    for name in ("scripts/peers.sh", *(f"benchmarks/{peer}-requirements.txt" for peer in contenders.OWN_ENVIRONMENT)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    done = subprocess.run(
        [str(tmp_path / "scripts/peers.sh"), *arguments.split()], env={"PATH": "/usr/bin:/bin", "PYTHON": "false"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    prepared = [peer for peer in contenders.OWN_ENVIRONMENT if f"making .venv-{peer} " in done.stderr]
    assert prepared == made.split()


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


def rows_by_site(load: SiteLoad, number: int) -> list[float]:
    """Parts of a file's rows by the site at which their units begin."""
    rows = Rows("load", files=1, rows=60_000, keys=30_000, within=None, streams="ABC", load=load)
    units = units_of_keys(rows.keys, load.all_units)[1][keys(rows, np.random.default_rng(2), number)]
    counts = np.bincount(units, minlength=load.all_units).reshape(len(load.loaded), load.units)
    assert [np.count_nonzero(site) for site in counts] == list(load.loaded)
    return (counts.sum(axis=1) / rows.rows).tolist()


def test_a_site_has_as_much_of_the_load_as_it_has_of_the_units_that_get_rows() -> None:
    load = SiteLoad(units=6, loaded=(6, 2, 2))
    assert rows_by_site(load, 0) == pytest.approx([0.6, 0.2, 0.2], abs=0.01)
    rows = Rows("load", files=3, rows=60, keys=30_000, within=None, streams="ABC", load=load)
    assert rows.says() == (
        "3 streams x 3 files x 60 rows, about 16,667 keys, without a window; "
        "of the 6 units that begin at each site 6, 2, 2 get rows"
    )


def test_a_surge_goes_from_site_to_site() -> None:
    load = SiteLoad(units=4, loaded=(4, 4), surge=Surge(times=10, first=4, files=8))
    for number, busy in ((0, 0), (3, 0), (4, 1), (11, 1), (12, 0)):
        assert rows_by_site(load, number)[busy] == pytest.approx(10 / 11, abs=0.01)
    assert "10 times as many as the others, for 4 files, then those of the next for 8" in load.says()


def decision(epoch: int, action: str, unit: int, site: int, refused: str | None = None) -> dict:
    return {
        "epoch": epoch,
        "policy": "p",
        "action": action,
        "unit": unit,
        "site": site,
        "reason": "",
        "refused": refused,
    }


def test_units_that_go_together_are_one_spill_or_one_relocation() -> None:
    decisions = (
        decision(3, "freeze", 1, 0), decision(3, "freeze", 2, 0), decision(3, "freeze", 9, 1),
        decision(5, "freeze", 1, 0, "it is on its way"),
        decision(6, "move", 1, 1), decision(6, "move", 2, 1), decision(8, "move", 4, 1, "it does not exist"),
    )  # fmt: skip
    run = Run("c", (epoch(0, 100, 10, 1), epoch(1, 101, 10, 2), epoch(2, 102, 0, 7)), 10, 2, 0.0, decisions)
    assert adaptations.spills(run) == [(3, 0), (3, 1)]
    assert adaptations.relocations(run) == 1
    assert [adaptations.results_in(run, 0), adaptations.results_in(run, 1), adaptations.results_in(run, 0, 1)] == [
        3,
        2,
        1,
    ]
    assert adaptations.highest_memory(run) == 0.9
    assert adaptations.evenness(run.epochs[0]) == pytest.approx(60 / 90)
    assert adaptations.results_chart("so far", [run]).lines["c"] == [(0, 1), (1, 3)]
    assert adaptations.memory_chart("m", [("c", run, 1)]).lines["c"] == [(0, 90), (1, 90)]


def filling(number: int, memory: int, results: int, busy: tuple[float, ...] = ()) -> Epoch:
    return Epoch(number, 100.0 + number, 1.0, 10, results, 0, busy, (), (memory,), (1000,), 0, state=(memory,))


def test_what_a_spill_pushed_is_of_the_state_before_it_and_the_rows_of_its_epoch() -> None:
    epochs = (filling(0, 320, 1), filling(1, 640, 2), filling(2, 480, 3))
    run = Run("c", epochs, 6, 0, 0.0, (decision(2, "freeze", 1, 0),))
    assert push.least_pushed(run) == pytest.approx(0.5)  # 480 left of 640 + 10 rows of 32 bytes
    assert np.isnan(push.least_pushed(Run("c", epochs, 6, 0, 0.0)))


def test_the_time_of_a_cleanup_by_site() -> None:
    epochs = (epoch(0, 100, 10, 1), Epoch(1, 101, 1.0, 0, 5, 0, (3.0, 1.0), (), (1, 1), (9, 9), 0))
    assert scarce.cleanup_shares(Run("c", epochs, 6, 0, 0.0)) == [0.75, 0.25]
    assert scarce.cleanup_shares(Run("c", epochs[:1], 1, 0, 0.0)) == []


def test_output_before_a_remiss_state_and_passes_of_tokens() -> None:
    full = replace(filling(2, 50, 10, (1.0,)), limits=(100,), state=(101,), copied=3, rows=2)
    before = [replace(filling(number, 50, 10, (1.0,)), limits=(100,), state=(100,), rows=2) for number in (0, 1)]
    asked = {"action": "pass token", "epoch": 1, "site": 2, "refused": None}
    passed = (asked, {**asked, "input": 1}, {**asked, "epoch": 3, "refused": "no"})
    run = Run("tokens", (*before, full), 30, 0, 0.0, passed)
    assert tokens.remiss_epochs(run) == [2]
    assert tokens.passes(run) == [(1, 2)]
    assert tokens.copies(run) == 1.5
    found = tokens.values({"static": run, "tokens": replace(run, epochs=tuple(before))})
    assert (found["more, n:m"], found["normally"], found["in order"]) == (1.0, 1.0, 1)


def test_every_claim_is_measured() -> None:
    """Each with runs in which nothing happened: no claim is left without a value, and none holds by itself alone."""

    def idle(name: str) -> Run:
        epochs = tuple(filling(number, 500, 10, (1.0,)) for number in range(12))
        return Run(name, epochs, 120, 0, 0.0, ended=112.0)

    pushed = [push.ALL_IN_MEMORY, *push.PUSHED.values()]
    by_theta = [alternate.NO_RELOCATION, *alternate.BY_THETA.values()]
    verdicts = [
        judge(push.CLAIMS, push.values({c.name: idle(c.name) for c in pushed})),
        judge(alternate.CLAIMS, alternate.values({c.name: idle(c.name) for c in by_theta})),
        judge(
            uneven.CLAIMS,
            uneven.values({c.name: idle(c.name) for c in (uneven.ALL_IN_MEMORY, uneven.WITH, uneven.WITHOUT)}, 12),
        ),
        judge(scarce.CLAIMS, scarce.values({c.name: idle(c.name) for c in (scarce.LAZY, scarce.NO_RELOCATION)})),
        judge(tokens.CLAIMS, tokens.values({c.name: idle(c.name) for c in (tokens.DISABLED, tokens.TOKENS)})),
        judge(tuning.CLAIMS, tuning.values({c.name: idle(c.name) for c in (tuning.FIXED, tuning.TUNED)}, 8)),
    ]
    for experiment in verdicts:
        assert any(not verdict.held for verdict in experiment)


def test_a_claim_keeps_the_paper_s_words_and_number_and_is_told_beside_the_bars(
    capsys: pytest.CaptureFixture[str],
) -> None:
    claim = scaled(LAZY_9, "many", 6, ANY, "relocations", "fewer epochs")
    assert (claim.says, claim.value, claim.low) == ("24 relocations with θ 90 %", 24, 6)
    outcome = Outcome("s", "about", {}, ["a"], [["1"]], [Bar("b", 2.0, 1.0)], verdicts=judge([claim], {"many": 5.0}))
    assert not outcome.met
    tell.outcome(outcome)
    assert "24 relocations with θ 90 %" in capsys.readouterr().out
    assert "| 24 relocations with θ 90 % | 24 | 5 | at least 6 relocations | **missed** |" in tell.section(
        outcome.document()
    )


@pytest.mark.parametrize("experiment", [live for of_paper in LIVE.values() for live in of_paper], ids=lambda e: e.name)
def test_a_claim_on_spark_says_why_it_is_judged_so_and_the_papers_own_value_passes(experiment: LiveExperiment) -> None:
    assert experiment.scenario in SCENARIOS
    assert len({claim.name for claim in experiment.claims}) == len(experiment.claims)
    for claim in experiment.claims:
        assert claim.low <= claim.high and claim.why and claim.says
        if claim.value is not None:
            assert claim.verdict(claim.value).held
        if claim.kind is ClaimKind.DERIVED:
            assert claim.value is not None, "only a number can be worked out"


def test_a_run_is_on_file_with_all_that_its_epochs_had() -> None:
    asked = decision(3, "freeze", 1, 0)
    run = Run("c", (replace(filling(0, 500, 10, (1.0,)), fetched=(7, 8)), filling(1, 600, 9)), 19, 0, 0.25, (asked,))
    outcome = Outcome("s", "about", {}, ["a"], [["1"]], runs=[run])
    assert restored(json.loads(as_text(outcome.document()))["runs"][0]) == run


def test_the_largest_unit_the_work_and_the_bytes_of_the_last_epochs_at_the_high_rate() -> None:
    def run(name: str, units: tuple[int, ...], largest: float, busy: float, written: int) -> Run:
        epochs = [
            Epoch(number, 100.0 + number, 1.0, 10, 1, 0, (busy,) * 2, (count,), (), (), 0, written=written,
                  fetched=(0, 5), largest_unit=int(largest * tuning.THETA))
            for number, count in enumerate(units)
        ]  # fmt: skip
        return Run(name, tuple(epochs), 9, 0, 0.0)

    fixed = run(tuning.FIXED.name, (60,) * 6, 3.4, 2.0, 95)
    tuned = run(tuning.TUNED.name, (60, 60, 90, 120, 100, 66), 1.9, 1.5, 105)
    assert tuning.values({fixed.contender: fixed, tuned.contender: tuned}, high=4) == pytest.approx(
        {"within 2θ": 1.9, "grows": 3.4, "splits": 2.0, "merges": 1.1, "cpu, tuned": 0.75, "communication": 1.1}
    )


def elastic_epoch(number: int, committed: float, seconds: float, fetched: list[int], received: list[int]) -> Epoch:
    sites = len(fetched)
    return Epoch(
        number, committed, seconds, 10, 1, 0, (1.0,) * sites, (8,) * sites, (), (), 0,
        fetched=tuple(fetched), received=tuple(received),
    )  # fmt: skip


def test_site_seconds_are_counted_from_when_it_has_settled_to_the_end_of_what_arrives() -> None:
    settled, last = elastic.SETTLED, elastic.RATES.last
    epochs = (
        elastic_epoch(0, 100.0 + settled + 10, settled + 10, [0] * 3, [0] * 3),
        elastic_epoch(1, 100.0 + settled + 15, 5.0, [0], [0]),
        elastic_epoch(2, 100.0 + last + 7, last - settled - 8, [0, 0], [0, 0]),
    )
    run = Run("elastic", epochs, 3, 0, 0.0, arrived={24: 100.0, 25: 101.0})
    assert elastic.site_seconds(run) == pytest.approx(3 * 10 + 5 + 2 * (last - settled - 15))
    assert elastic.sites_over_time(run)[0] == (settled + 10, 3.0)


def test_sites_by_rate_and_delays_of_what_counts() -> None:
    up, last = elastic.RATES.seconds[2], elastic.RATES.last

    def run(name: str, sites: tuple[int, int, int], late: float) -> Run:
        at = (elastic.SETTLED - 5, up + 10, last - 3)
        epochs = [elastic_epoch(n, 100.0 + at[n], 5.0, [0] * sites[n], [0] * sites[n]) for n in range(3)]
        arrived = {0: 100.0, 1: 100.0 + at[1] - late, 2: 100.0 + at[2] - 2 * late}
        return Run(name, tuple(epochs), 3, 0, 0.0, given=((0, 0, 50), (1, 1, 3), (2, 2, 1)), arrived=arrived)

    fixed, adapted = run("all sites", (4, 4, 4), 4.0), run("elastic", (4, 3, 1), 6.0)
    assert elastic.values({"all sites": fixed, "elastic": adapted}) == pytest.approx(
        {"high rate": 3, "low rate": 1, "adaptive": (3 * 5 + 1 * 5 + 1 * 3) / (4 * 13), "flat": 1.5}
    )


def test_the_least_site_seconds_cover_the_rate_at_every_moment() -> None:
    one, three = (elastic.RATES.at(np.array([at]))[0] * elastic.SERVICE for at in (0.0, elastic.RATES.seconds[2]))
    assert three == pytest.approx(4 * one)
    _, sites = elastic.RATES.fewest_sites(elastic.SERVICE, elastic.SETTLED)
    assert sites.min() == np.ceil(one) and sites.max() == np.ceil(three)
    assert elastic.least_site_seconds() == pytest.approx(sites.mean() * (elastic.RATES.last - elastic.SETTLED))


def test_files_arrive_as_fast_as_the_rates_say() -> None:
    due = np.array(elastic.SCHEDULE.due)
    gaps = np.diff(due)
    flat = (due[:-1] > elastic.RATES.seconds[2]) & (due[1:] < elastic.RATES.seconds[3])
    assert gaps[flat].mean() == pytest.approx(2 * elastic.FILE_ROWS / elastic.HIGH, rel=0.02)
    assert gaps[:10].mean() == pytest.approx(2 * elastic.FILE_ROWS / elastic.LOW, rel=0.02)


def test_what_sites_read_that_joined_and_no_others() -> None:
    epochs = (
        elastic_epoch(0, 1.0, 1.0, [500, 500], [0, 0]),
        elastic_epoch(1, 2.0, 1.0, [900], [700]),
        elastic_epoch(2, 3.0, 1.0, [0, 60], [0, 0]),
        elastic_epoch(3, 4.0, 1.0, [0, 60], [0, 100]),
    )
    assert elastic.read_by_joining(Run("elastic", epochs, 4, 0, 0.0)) == pytest.approx(1.2)


def test_executors_that_went_and_others_that_came() -> None:
    up, down = 100.0 + elastic.RATES.seconds[1], 100.0 + elastic.RATES.seconds[3]
    lists = [(101.0, "0 1 2 3"), (up - 5, "0 1"), (up - 1, "0"), (up + 9, "0 4"), (down - 1, "0 4 5"), (down + 1, "0")]
    listed = Listed([(at, frozenset(ids.split())) for at, ids in lists])
    run = Run("elastic", (), 0, 0, 0.0, arrived={24: 100.0})
    assert elastic.gone_and_back(run, listed) == (1, 2)


def test_what_units_cost_the_driver_is_measured_in_every_epoch() -> None:
    measured = units.measure(units.Case(units=64, policy="hybrid", rows=100, scattered=True, epochs=3))
    assert [m.epoch for m in measured] == [0, 1, 2]
    assert all(m.entry_bytes > 0 and m.kept_bytes > 0 and set(m.seconds) == set(units.PHASES) for m in measured)
    assert all(seconds >= 0 for m in measured for seconds in m.seconds.values())
