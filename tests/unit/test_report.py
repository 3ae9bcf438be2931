"""The report and the terminal view: everything that was measured is shown, whatever its size.

Real checkpoints are written by the engine without Spark. Where a running query is watched it is a fake with the part
of Query's face that `watch` uses: the real one needs Spark.
"""

from __future__ import annotations

import io
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from engine_harness import DirectQuery, single
from epoch_factory import PLAN, RUN, owned_journal, record, with_frozen_units, with_site, with_stats
from fake_query import FakeQuery, progress
from html_pages import read_answers
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from screens import shown_last
from specs import SECOND, TIME, join, stream

from sluice import CheckpointError, StorageError
from sluice.api.progress import epoch_progress, progress_dictionary
from sluice.cli.main import main
from sluice.control.journal import name_plan
from sluice.dashboard.progress_view import Seen, epoch_line, panel
from sluice.dashboard.quantity import BYTES, ROWS, SECONDS, Quantity
from sluice.dashboard.report import report_checkpoint
from sluice.dashboard.terminal import watch, watch_all
from sluice.model.epoch.decision import Decision, Verb
from sluice.model.epoch.stats import PHASES, CleanUpProgress, EpochSeconds, TaskSeconds, phases


class TestReport:
    @pytest.mark.parametrize(("epochs", "sites"), [(0, 1), (1, 1), (16, 8), (100, 64)])
    def test_any_number_of_epochs_and_sites(self, tmp_path: Path, epochs: int, sites: int) -> None:
        journal = owned_journal(str(tmp_path / "ck"))
        for number in range(epochs):
            journal.commit(record(number, sites, plan=name_plan(PLAN, 0, RUN)))
        answers = report(tmp_path)
        news = answers.pop("/events")
        assert news["name"] == "desk" and [point["epoch"] for point in news["points"]] == list(range(epochs))
        views = {path.split("/")[2] for path in answers}
        assert views == ({"units", "sites", "hot", "marks", "plan", "queries", "advice"} if epochs else set())
        assert all(f"/api/{view}/{n}" in answers for view in ("units", "sites", "hot") for n in range(epochs))
        assert (tmp_path / "r.html").stat().st_size < 1_000_000

    def test_it_is_the_same_text_for_the_same_epochs(self, tmp_path: Path) -> None:
        journal = owned_journal(str(tmp_path / "ck"))
        journal.commit(record(0, plan=name_plan(PLAN, 0, RUN)))
        report(tmp_path)
        first = (tmp_path / "r.html").read_bytes()
        report(tmp_path)
        assert (tmp_path / "r.html").read_bytes() == first

    def test_a_damaged_record_is_told_of_and_the_others_are_shown(self, tmp_path: Path) -> None:
        journal = owned_journal(str(tmp_path / "ck"))
        for number in range(3):
            journal.commit(record(number, plan=name_plan(PLAN, 0, RUN)))
        (newest,) = (tmp_path / "ck").rglob(f"*{journal.indexes()[-1]:012d}.json")
        newest.write_bytes(newest.read_bytes()[:-20])
        answers = report(tmp_path)
        news = answers["/events"]
        assert [point["epoch"] for point in news["points"]] == [0, 1] and newest.name in news["problem"]
        assert answers["/api/plan"]["epoch"] == 1

    def test_a_file_that_cannot_be_written_is_named(self, tmp_path: Path) -> None:
        owned_journal(str(tmp_path / "ck"))
        with pytest.raises(StorageError, match=r"cannot write the report to .*nowhere.*No such file"):
            report_checkpoint(str(tmp_path / "ck"), str(tmp_path / "nowhere" / "r.html"))

    def test_a_checkpoint_of_a_real_join(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        spec = join([stream("a"), stream("b")])
        query = DirectQuery(spec, tmp_path)
        for number in range(3):
            at = [(number * 10 + i) * SECOND for i in range(10)]
            rows = pa.table(
                [pa.array([1] * 10), pa.array(at, TIME), pa.array(range(10))], schema=spec.streams[0].schema
            )
            query.run([rows, rows])
        query.close()
        monkeypatch.chdir(tmp_path)
        assert main(["report", str(tmp_path / "checkpoint")]) == 0
        assert "wrote report.html" in capsys.readouterr().out
        answers = read_answers(tmp_path / "report.html")
        assert [point["rows_in"] for point in answers["/events"]["points"]] == [20, 20, 20]
        says = [node["says"] for node in answers["/api/plan"]["nodes"]]
        assert any("at most 30 seconds earlier, at most 30 seconds later than" in text for text in says)
        assert any("event time" in text for text in says)

    def test_no_checkpoint_no_report(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["report", str(tmp_path), "-o", str(tmp_path / "r.html")]) == 2
        assert "holds no Sluice checkpoint" in capsys.readouterr().err
        assert not (tmp_path / "r.html").exists()

    def test_another_format_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "flow.json").write_text('{"format": 99}')
        with pytest.raises(CheckpointError, match="has format 99"):
            report_checkpoint(str(tmp_path), str(tmp_path / "r.html"))


def report(directory: Path) -> dict[str, Any]:
    """What the report of the checkpoint in a directory has inside."""
    report_checkpoint(str(directory / "ck"), str(directory / "r.html"))
    return read_answers(directory / "r.html")


class TestPhases:
    def test_they_add_up_to_the_epoch(self) -> None:
        one = record(0)
        assert sum(phases(one.stats).values()) == pytest.approx(2.0)
        one = with_stats(one, seconds=replace(one.stats.seconds, commit=0.5, deliver=0.25, total=2.75))
        assert sum(phases(one.stats).values()) == pytest.approx(one.stats.seconds.elapsed)

    def test_every_one_that_took_time_is_there(self) -> None:
        tasks = TaskSeconds(*(0.1 for _ in fields(TaskSeconds)))
        one = with_stats(record(0), seconds=EpochSeconds(tasks, job=9.0, commit=0.1, deliver=0.1))
        assert all(phases(one.stats).values()) and list(phases(one.stats)) == list(PHASES)


numbers = st.one_of(st.just(0.0), st.floats(1e-6, 1e15), st.integers(0, 10**15))


@given(st.sampled_from([ROWS, BYTES, SECONDS]), numbers)
def test_a_number_is_short(quantity: Quantity, value: float) -> None:
    if value < 9e14 and quantity is not SECONDS:
        assert len(quantity.text(value)) <= 12


class Terminal(io.StringIO):
    """A stream that says it is a terminal, and what is on its screen."""

    def isatty(self) -> bool:
        return True

    def screen(self) -> list[str]:
        return shown_last(self.getvalue())


def lines_of(seen: Seen, columns: int = 80, rows: int = 24) -> list[str]:
    """A panel as the lines of a terminal without colours."""
    console = Console(file=io.StringIO(), width=columns, color_system=None)
    with console.capture() as shown:
        console.print(panel(seen, console, rows))
    return [line.rstrip() for line in shown.get().splitlines()]


class TestWatching:
    def test_a_line_an_epoch_where_there_is_no_terminal(self) -> None:
        out = io.StringIO()
        seen = watch(FakeQuery(3), out)
        heading, *lines = out.getvalue().splitlines()
        assert "rows in" in heading
        assert [line.split()[0] for line in lines] == ["0", "1", "2"]
        assert "\x1b" not in out.getvalue()
        assert (seen.epochs, seen.rows_in, seen.results, seen.late) == (3, 3000, 9000, 6)

    def test_a_terminal_is_drawn_in_place(self) -> None:
        out = Terminal()
        watch(FakeQuery(5, "desk", sites=3), out)
        screen = out.screen()
        assert [line for line in screen if line.startswith("desk")] == ["desk: epoch 4"]
        assert sum("━" in line for line in screen) == 3
        assert any("15,000, 3,000 of them new; 10 late rows" in line for line in screen)

    def test_backlog_and_moves_are_told_when_there_are_any(self) -> None:
        seen = Seen("desk")
        seen.add(progress(0))
        assert not any("backlog" in line for line in [epoch_line(progress(0)), *lines_of(seen)])
        seen.add(progress(1, pending_rows=12_345, moves=2, spills=1))
        assert epoch_line(seen.recent[-1]).endswith("; backlog 24,690; 2 moves")
        seen.add(progress(2))
        assert "  adapted   2 moves, 1 spill, 0 fetches; backlog 0 rows" in lines_of(seen)

    def test_phases_have_their_share_of_the_time(self) -> None:
        seen = Seen("desk")
        seen.add(progress(0))
        (phases,) = (line for line in lines_of(seen, columns=200) if "kernel" in line)
        assert re.search(r"kernel \d+ %", phases) and not re.search(r"\d%", phases)

    def test_several_queries_are_told_apart(self) -> None:
        out = io.StringIO()
        seen = watch_all([FakeQuery(2, "bars"), FakeQuery(3)], out)
        assert [s.epochs for s in seen] == [2, 3]
        assert out.getvalue().count("[bars]") == 2 and out.getvalue().count("[query 2]") == 3
        screen = Terminal()
        watch_all([FakeQuery(2, "bars"), FakeQuery(3)], screen)
        assert {"bars: epoch 1", "query 2: epoch 2"} <= set(screen.screen())

    @pytest.mark.parametrize("stream", [io.StringIO, Terminal])
    def test_ctrl_c_stops_the_query(self, stream: type[io.StringIO]) -> None:
        query = FakeQuery(2, ends=KeyboardInterrupt())
        out = stream()
        assert watch(query, out).epochs == 2
        assert query.stopped
        assert "stopping" in out.getvalue()

    def test_a_failing_query_takes_the_others_with_it(self) -> None:
        good, bad = FakeQuery(1000), FakeQuery(1, ends=ValueError("no space"))
        with pytest.raises(ValueError, match="no space"):
            watch_all([good, bad], io.StringIO())
        assert good.stopped and bad.stopped

    @given(st.integers(40, 200), st.integers(10, 60), st.integers(0, 64), st.integers(0, 120))
    @settings(max_examples=30)
    def test_it_fits_the_terminal(self, columns: int, rows: int, sites: int, epochs: int) -> None:
        seen = Seen("desk" * 30)
        for epoch in range(epochs):
            seen.add(progress(epoch, sites, rows_out=10**9, pending_rows=sites))
        lines = lines_of(seen, columns, rows)
        assert len(lines) <= rows
        assert all(cell_len(line) <= columns for line in lines)


def test_progress_has_what_the_journal_has() -> None:
    spec = join([stream("a"), stream("b")])
    one = replace(record(3), newest=(None, None), batch=2)
    told = progress_dictionary({"batchId": 2, "durationMs": {"triggerExecution": 500}}, one, single(spec))
    assert (told["moves"], told["spills"], told["fetches"], told["backlogRows"], told["imbalance"]) == (
        1,
        1,
        0,
        10,
        1.25 / 0.75,
    )
    assert (told["batchId"], told["epoch"], told["numInputRows"]) == (2, 3, 100)
    site = told["sites"][1]
    assert (site["pendingRows"], site["memoryLimit"], site["spilledUnits"]) == (10, 4096, 1)
    assert site["executor"] == "host-1/4711" and "operators" not in site


def test_progress_tells_of_frozen_units_and_how_far_cleaning_up_has_come() -> None:
    spark, plan = {"batchId": 2, "durationMs": {"triggerExecution": 500}}, single(join([stream("trades"), stream("b")]))
    two_streams = replace(record(3), newest=(None, None))
    assert progress_dictionary(spark, two_streams, plan)["cleanUp"] is None
    done = CleanUpProgress(rows_done=300, rows_left=100, results=70, seconds=2.0)
    one = with_site(
        with_frozen_units(with_stats(two_streams, clean_up=done)), 1, results_per_unit=2.5, productivity=0.5
    )
    told = progress_dictionary(spark, one, plan)
    assert told["cleanUp"] == {"rowsDone": 300, "rowsLeft": 100, "results": 70, "rowsPerSecond": 150.0}
    assert told["missingUnits"] == 2
    site = told["sites"][1]
    assert (site["resultsPerUnit"], site["productivity"], site["frozenUnits"], site["missingUnits"]) == (2.5, 0.5, 3, 2)
    seen = Seen("desk")
    seen.add(epoch_progress(spark, one, plan))
    lines = lines_of(seen)
    assert "  frozen    3 units, 4.5 k rows, 96 KiB; 2 units miss results" in lines
    assert "  cleaning  300 rows done, 100 left (75 %); 70 results found; 150/s" in lines
    assert epoch_line(seen.recent[-1]).endswith(
        "; cleaning up: 300 rows done, 100 left (75 %); 70 results found; 150/s"
    )


def test_inspect_tells_what_state_yields_and_what_is_frozen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = owned_journal(str(tmp_path))
    journal.commit(with_site(record(0), 1, results_per_unit=1234.5, productivity=0.25))
    assert main(["inspect", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = lines.index("Yields     in epoch 0, and by byte of state since its units were frozen last")
    assert lines[at + 1].split() == ["site", "results/unit", "productivity"]
    assert [line.split() for line in lines[at + 2 : at + 4]] == [["0", "0.0", "0/KiB"], ["1", "1,234.5", "256/KiB"]]
    assert lines[at + 4].startswith("  units that yield most: 1 (85.3/KiB), 2 (85.3/KiB)")
    assert lines[at + 5].startswith("  units that yield least: 127 (85.3/KiB), 126 (85.3/KiB)")
    assert "Frozen" not in "\n".join(lines)

    done = CleanUpProgress(rows_done=300, rows_left=100, results=70, seconds=2.0)
    journal.commit(with_frozen_units(with_stats(record(1), clean_up=done)))
    assert main(["inspect", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = lines.index("Frozen     3 units, 4.5 k rows, 96 KiB; 2 units miss results")
    assert lines[at + 3].split() == ["1", "3", "2", "4,500", "96", "KiB", "7"]
    assert "Cleaning   300 rows done, 100 left (75 %); 70 results found; 150/s" in lines
    assert max(map(len, lines)) <= 120


def test_inspect_fits_120_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = owned_journal(str(tmp_path))
    decision = Decision(1, "load", Verb.SPILL, unit=17, site=1, reason="full")
    for number in range(12):
        one = record(number, decisions=(decision,) * (number == 5))
        one = with_site(with_stats(one, rows_in=10**8, rows_out=10**8), 1, pending_rows=10**7)
        journal.commit(one)
    assert main(["inspect", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 120
    heading = next(line for line in lines if "imbalance" in line).split()
    assert {"moves", "spills", "fetches", "backlog", "imbalance"} <= set(heading)
    last = next(line for line in lines if line.split()[:1] == ["11"]).split()
    assert last == ["11", "100,000,000", "100,000,000", "3", "1", "1", "0", "10,000,000", "1.67", "2.00", *last[-2:]]
    assert "backlog  spilled units" in "\n".join(lines)
    assert "  epoch 1: load spill unit 17 of site 1 (full): done" in lines
