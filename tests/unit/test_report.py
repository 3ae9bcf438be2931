"""The report and the terminal view: everything that was measured is shown, whatever its size, and nothing is trusted.

Real checkpoints are written by the engine without Spark. Where a running query is watched it is a fake with the part
of Query's face that `watch` uses: the real one needs Spark.
"""

from __future__ import annotations

import base64
import io
import re
import struct
import xml.etree.ElementTree as ET
import zlib
from dataclasses import fields, replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from engine_harness import DirectQuery, single
from epoch_factory import IDENTITY, PLAN, owned_journal, record, with_frozen_units, with_site, with_stats
from fake_query import FakeQuery, progress
from html_pages import read
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from screens import shown_last
from specs import SECOND, TIME, join, stream

from sluice import CheckpointError, StorageError
from sluice.api.progress import epoch_progress, progress_dictionary
from sluice.cli.main import main
from sluice.dashboard import plot, series
from sluice.dashboard.progress_view import Seen, epoch_line, panel
from sluice.dashboard.quantity import BYTES, ROWS, SECONDS, Quantity
from sluice.dashboard.report import read_checkpoint, write_report
from sluice.dashboard.series import Series
from sluice.dashboard.terminal import watch, watch_all
from sluice.model.epoch.decision import Decision, Verb
from sluice.model.epoch.stats import PHASES, CleanUpProgress, EpochSeconds, TaskSeconds
from sluice.model.identity import CheckpointIdentity, StreamIdentity
from sluice.model.plan.recorded_plan import RecordedPlan
from sluice.model.routing.routing import Routing
from sluice.record.epoch import EpochRecord

HOSTILE = "</style><script>alert(1)</script>\"'&amp;"


class TestPage:
    @pytest.mark.parametrize(("epochs", "sites"), [(0, 1), (1, 1), (2, 3), (16, 8), (100, 64)])
    def test_any_number_of_epochs_and_sites(self, tmp_path: Path, epochs: int, sites: int) -> None:
        path = tmp_path / "report.html"
        write_report([record(n, sites) for n in range(epochs)], IDENTITY, PLAN, str(path))
        page = read(path)
        assert "desk" in page.text
        assert ("no epoch has committed yet" in page.text) == (epochs == 0)
        assert path.stat().st_size < 1_000_000

    def test_the_summary_adds_the_epochs_up(self, tmp_path: Path) -> None:
        write_report([record(n, rows=100 * (n + 1)) for n in range(3)], IDENTITY, PLAN, str(tmp_path / "r.html"))
        tiles = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", (tmp_path / "r.html").read_text())
        assert dict(tiles) == {
            "Epochs": "3",
            "Rows in": "600",
            "Results": "1.2 k",
            "Late rows, dropped": "9",
            "Rows in per second": "100",
            "State, rows": "2 k",
            "State, bytes": "6 KiB",
        }

    def test_decisions_and_refusals_are_told_with_their_reasons(self, tmp_path: Path) -> None:
        decision = Decision(1, "hybrid", Verb.MOVE, unit=17, site=1, reason="site 0 is full")
        decisions = (decision, replace(decision, refused="there is no site 1"))
        write_report([record(1, decisions=decisions)], IDENTITY, PLAN, str(tmp_path / "r.html"))
        text = read(tmp_path / "r.html").text
        assert "move unit 17 to site 1" in text and "site 0 is full" in text
        assert "refused: there is no site 1" in text

    def test_what_waited_and_what_changed_its_place_is_plotted_if_there_was_any(self, tmp_path: Path) -> None:
        path = tmp_path / "r.html"
        plots = ("Imbalance", "Backlog by site", "Units that changed their place")
        write_report([record(0), record(1)], IDENTITY, PLAN, str(path))
        assert all(f"<h3>{plot}</h3>" in path.read_text() for plot in plots)
        assert "host-1/4711" in read(path).text
        calm = with_stats(record(0, sites=1), moves=0, spills=0, fetches=0)
        write_report([calm], IDENTITY, PLAN, str(path))
        assert not any(plot in path.read_text() for plot in plots)

    def test_what_a_user_named_is_text_and_nothing_else(self, tmp_path: Path) -> None:
        decision = Decision(0, HOSTILE, Verb.MOVE, unit=1, site=0, reason=HOSTILE, refused=HOSTILE)
        one = record(0, decisions=(decision,))
        one = with_stats(one, streams=(replace(one.stats.streams[0], name=HOSTILE),))
        hostile = StreamIdentity(HOSTILE, ((HOSTILE, HOSTILE),), HOSTILE, None)
        identity, plan = replace(IDENTITY, name=HOSTILE, streams=(hostile,)), RecordedPlan(says=HOSTILE)
        write_report([one], identity, plan, str(tmp_path / "r.html"))
        page = read(tmp_path / "r.html")
        assert page.text.count("alert(1)") >= 8

    def test_figures_that_are_not_there_count_nothing(self, tmp_path: Path) -> None:
        bare = EpochRecord(0, (), Routing.even(2, 1), ((),))
        identity = CheckpointIdentity(id="0", name="desk", partitions=2)
        write_report([bare, record(1)], identity, PLAN, str(tmp_path / "r.html"))
        read(tmp_path / "r.html")

    def test_a_file_that_cannot_be_written_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(StorageError, match=r"cannot write the report to .*nowhere.*No such file"):
            write_report([], IDENTITY, PLAN, str(tmp_path / "nowhere" / "r.html"))


class TestCommand:
    @pytest.fixture
    def checkpoint(self, tmp_path: Path) -> Path:
        """Three epochs of a real join."""
        spec = join([stream("a"), stream("b")])
        query = DirectQuery(spec, tmp_path)
        for number in range(3):
            at = [(number * 10 + i) * SECOND for i in range(10)]
            rows = pa.table(
                [pa.array([1] * 10), pa.array(at, TIME), pa.array(range(10))], schema=spec.streams[0].schema
            )
            query.run([rows, rows])
        query.close()
        return tmp_path / "checkpoint"

    def test_a_checkpoint_becomes_a_page(
        self, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        out = tmp_path / "out.html"
        assert main(["report", str(checkpoint), "-o", str(out)]) == 0
        assert str(out) in capsys.readouterr().out
        text = read(out).text
        assert "epochs 0 to 2" in text
        assert "at most 30 seconds earlier, at most 30 seconds later than" in text

    def test_the_file_is_report_html_unless_given(
        self, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert main(["report", str(checkpoint)]) == 0
        read(tmp_path / "report.html")

    def test_a_record_that_went_while_it_was_read_is_left_out(
        self, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        answers = chain([[0, 1, 2, 3, 4]], repeat([0, 1, 2, 3]))
        monkeypatch.setattr("sluice.control.journal.Journal.indexes", lambda self: next(answers))
        assert [r.number for r in read_checkpoint(str(checkpoint))[2]] == [0, 1, 2]

    def test_a_record_that_cannot_be_read_is_an_error(self, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("sluice.control.journal.Journal.indexes", lambda self: [0, 1, 2, 3, 4])
        with pytest.raises(StorageError, match=r"000000000004\.json"):
            read_checkpoint(str(checkpoint))

    def test_no_checkpoint_no_report(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["report", str(tmp_path), "-o", str(tmp_path / "r.html")]) == 2
        assert "holds no Sluice checkpoint" in capsys.readouterr().err
        assert not (tmp_path / "r.html").exists()

    def test_another_format_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "flow.json").write_text('{"format": 99}')
        with pytest.raises(CheckpointError, match="has format 99"):
            read_checkpoint(str(tmp_path))


class TestSeries:
    def test_phases_add_up_to_the_epoch(self) -> None:
        one = record(0)
        assert sum(series.phases(one.stats).values()) == pytest.approx(2.0)
        one = with_stats(one, seconds=replace(one.stats.seconds, commit=0.5, deliver=0.25, total=2.75))
        assert sum(series.phases(one.stats).values()) == pytest.approx(one.stats.seconds.elapsed)

    def test_sites_may_come_and_go(self) -> None:
        columns = series.by_site([record(0, 1), record(1, 3), record(2, 2)], "rows")
        assert [s.values for s in columns] == [[1000, 1000, 1000], [None, 1001, 1001], [None, 1002, None]]

    def test_every_phase_that_took_time_is_shown(self) -> None:
        tasks = TaskSeconds(*(0.1 for _ in fields(TaskSeconds)))
        one = with_stats(record(0), seconds=EpochSeconds(tasks, job=9.0, commit=0.1, deliver=0.1))
        assert [s.name for s in series.by_phase([one])] == list(PHASES)


numbers = st.one_of(st.just(0.0), st.floats(1e-6, 1e15), st.integers(0, 10**15))


class TestPlots:
    @given(st.sampled_from([ROWS, BYTES, SECONDS]), numbers)
    def test_a_number_is_short(self, quantity: Quantity, value: float) -> None:
        if value < 9e14 and quantity is not SECONDS:
            assert len(quantity.text(value)) <= 12

    @pytest.mark.parametrize("draw", [plot.stack, plot.lines, plot.heat, plot.by_site])
    @pytest.mark.parametrize("columns", [[], [[]], [[None]], [[0.0, 0.0]], [[None, 1e15, 1e-6]] * 9])
    def test_any_values_can_be_drawn(self, draw: Any, columns: list[list[float | None]]) -> None:
        epochs = list(range(len(columns[0]) if columns else 0))
        page = draw("title", epochs, [Series(f"s{i}", c) for i, c in enumerate(columns)], ROWS)
        ET.fromstring(re.search(r"<svg.*</svg>", page, re.DOTALL)[0])  # type: ignore[index]
        assert "NaN" not in page and "Infinity" not in page
        assert page.count("<title>epoch ") == len(epochs)

    def test_parts_of_a_bar_stand_on_each_other(self) -> None:
        page = plot.stack("t", [0], [Series("a", [30.0]), Series("b", [70.0])], ROWS)
        shapes = re.findall(r'd="M0,([\d.]+)L480,[\d.]+L480,([\d.]+)L0,[\d.]+Z" fill="#', page)
        (high_a, low_a), (high_b, low_b) = ((float(a), float(b)) for a, b in shapes)
        assert high_a == low_b
        assert (low_b - high_b) / (low_a - high_a) == pytest.approx(70 / 30, abs=0.05)

    def test_a_line_breaks_where_there_is_no_value(self) -> None:
        page = plot.lines("t", [0, 1, 2, 3, 4], [Series("a", [1.0, 2.0, None, 2.0, 1.0])], ROWS)
        (shape,) = re.findall(r' d="(M[^"Z]*)" stroke="#0072b2"', page)
        assert shape.count("M") == 2

    def test_many_sites_become_a_heat_map(self) -> None:
        columns = [Series(f"site {i}", [1.0]) for i in range(9)]
        assert "<image" not in plot.by_site("t", [0], columns[:8], ROWS)
        assert "<image" in plot.by_site("t", [0], columns, ROWS)

    def test_a_heat_map_of_any_size_stays_small_and_keeps_its_peak(self) -> None:
        shares = np.zeros((1_000, 10_000))
        shares[777, 7_777] = 1.0
        image = base64.b64decode(plot.heat_image(shares).partition(",")[2])
        width, height = struct.unpack(">II", image[16:24])
        assert (width, height) == (480, 190) and len(image) < 10_000
        start = image.index(b"IDAT")
        levels = zlib.decompress(image[start + 4 : start + 4 + struct.unpack(">I", image[start - 4 : start])[0]])
        assert levels.count(7) == 1 and set(levels) == {0, 1, 7}


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
