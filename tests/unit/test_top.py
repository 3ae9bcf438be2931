"""`sluice top`: it fits any terminal, shows what the journal has, and keeps up with one that grows while it is read.

Journals are real files, written by hand; no query runs.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from epoch_factory import AT, UNITS, owned_journal, record, with_frozen_units, with_site, with_stats
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from screens import CODES, pictures

from sluice import FlowError, StorageError
from sluice.cli.journal_tail import KEPT, JournalTail
from sluice.cli.main import main
from sluice.cli.top import top
from sluice.control.journal import KEPT as ON_RECORD
from sluice.control.journal import Journal, name_entry
from sluice.dashboard import top as view
from sluice.model.epoch.decision import Decision, Verb
from sluice.model.epoch.stats import CleanUpProgress, ScaleTarget, UnitColumns
from sluice.model.routing.routing import Routing
from sluice.record.epoch import EpochRecord
from sluice.state.files.storage import Storage, watch

HOSTILE = "a\x1b[2Jb\nc\t注文" * 9
DECISION = Decision(7, "load", Verb.MOVE, unit=17, site=1, reason="idle")
LARGE = (200, 100)
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-9;]*m")


def screen(
    name: str,
    records: list[EpochRecord],
    now: float,
    size: tuple[int, int],
    encoding: str = "utf-8",
    colour: bool = False,
) -> list[str]:
    """The lines on a terminal of so many columns and rows."""
    out = io.TextIOWrapper(io.BytesIO(), encoding)
    console = Console(file=out, width=size[0], color_system="standard" if colour else None, force_terminal=colour)
    with console.capture() as shown:
        console.print(view.screen(name, records, now, console, size[1]))
    return [line.rstrip() for line in shown.get().splitlines()]


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """The checkpoint of a flow that has started, without an epoch."""
    return owned_journal(str(tmp_path / "ck"))


class TestScreen:
    @pytest.mark.parametrize(("wanted", "said"), [(None, ""), (2, ", 2 is leaving"), (5, ", 2 awaited")])
    def test_it_tells_how_many_sites_take_part_and_are_to(self, wanted: int | None, said: str) -> None:
        scaling = with_stats(record(7, sites=3), scale_target=ScaleTarget(wanted, 1, 8))
        assert f" units at 3 of at most 8 sites{said}, routing" in screen("desk", [scaling], AT, LARGE)[0]

    @given(
        st.integers(20, 220),
        st.integers(1, 70),
        st.booleans(),
        st.booleans(),
        st.integers(1, 64),
        st.integers(0, 25),
        st.sampled_from(["desk", HOSTILE]),
        st.integers(0, 10**15),
    )
    def test_it_fits_the_terminal(
        self, columns: int, rows: int, colour: bool, blocks: bool, sites: int, epochs: int, text: str, much: int
    ) -> None:
        decision = replace(DECISION, policy=text, reason=text, unit=much, refused=text)
        spills = [replace(DECISION, action=Verb.SPILL, unit=2 * n, reason=text * n) for n in range(9)]
        records = [record(n, sites, much, decisions=(decision, *spills) * (n % 3)) for n in range(epochs)]
        done = CleanUpProgress(much, much, much, seconds=0.5)
        records = [with_stats(with_frozen_units(r), clean_up=done) if r.number % 2 else r for r in records]
        lines = screen(text, records, AT + much, (columns, rows), "utf-8" if blocks else "latin-1", colour)
        assert 1 <= len(lines) <= rows
        for line in lines:
            plain = CODES.sub("", line)
            assert cell_len(plain) <= columns
            assert plain.isprintable()
            assert colour or plain == line
            assert blocks or plain.replace("注", "").replace("文", "").isascii()

    def test_the_head_tells_how_it_goes(self) -> None:
        records = [with_stats(record(n, rows=500), committed_at=AT + 4 * n) for n in range(20)]
        head = "\n".join(screen("desk", records, AT + 4 * 19 + 3, LARGE)[:4])
        assert head.startswith("desk: epoch 19, committed 3 s ago; 128 units at 2 sites")
        assert re.search(r"rows in +125/s  █{19} ", head)  # 500 every 4 seconds; of the oldest nobody knows
        assert re.search(r"results +250/s", head)
        assert "imbalance 1.67 max/mean" in head and re.search(r"backlog +10 rows", head)
        assert "the last 10 epochs: 5 moves, 10 spills, 0 fetches; 30 late rows dropped" in head

    @pytest.mark.parametrize(
        ("seconds", "told"), [(-5, "0 s"), (119, "119 s"), (600, "10 min"), (9000, "2 h"), (200_000, "2 days")]
    )
    def test_the_age_of_the_newest_epoch(self, seconds: float, told: str) -> None:
        assert f"committed {told} ago" in screen("desk", [record(0)], AT + seconds, LARGE)[0]

    def test_sites_have_bars_of_their_time_and_their_memory(self) -> None:
        lines = screen("desk", [record(0, 2)], AT, LARGE)
        at = next(i for i, line in enumerate(lines) if "busy" in line)
        assert lines[at].split() == [
            *("site", "units", "busy", "rows", "in", "results/unit", "memory", "of", "disk", "backlog", "spilled"),
            "executor",
        ]
        first, second = lines[at + 1 : at + 3]
        assert first.split()[:4] == ["0", "64", "250", "ms"] and first.endswith("-        -  host-0/4711")
        assert "1.25 s  ━━━━━━━━━━━━━━━━━━━━" in second and "2 KiB  ━━━━━━━━━━            4 KiB" in second
        assert second.endswith("1 KiB       10        1  host-1/4711")

    def test_where_there_are_too_many_sites_the_busiest_are_shown(self) -> None:
        lines = screen("desk", [record(0, 40)], AT, (100, 24))
        listed = [line.split()[0] for line in lines if "host-" in line or "━" in line]
        assert any("more sites that were less busy" in line for line in lines)
        assert "39" in listed and "0" not in listed

    def test_the_hottest_units_over_the_last_epochs(self) -> None:
        cold = replace(record(1), routing=Routing.even(UNITS, 2).with_move(127, 0, since=1))
        quiet = np.zeros(UNITS)
        quiet[5] = 99.0
        cold = with_stats(cold, units=replace(cold.stats.units, seconds=quiet, rows=quiet, pending=quiet))
        lines = screen("desk", [record(0), cold], AT, LARGE)
        at = next(i for i, line in enumerate(lines) if line.split()[:2] == ["unit", "site"])
        units = [line.split() for line in lines[at + 1 : at + 11]]
        assert [u[0] for u in units[:3]] == ["5", "127", "126"]
        assert units[0][1:4] == ["0", "99", "s"] and units[0][-1] == "99"
        assert units[1][1:4] == ["0", "127", "ms"] and units[1][-1] == "-"  # moved away from site 1

    def test_units_without_work_are_not_shown(self) -> None:
        idle = with_stats(record(0), units=UnitColumns.none(UNITS))
        assert not any(line.split()[:2] == ["unit", "site"] for line in screen("desk", [idle], AT, LARGE))

    def test_decisions_newest_first_with_their_reasons(self) -> None:
        spill = replace(DECISION, epoch=8, policy="lazy disk", action=Verb.SPILL, reason="site 1 is full")
        fetch = replace(DECISION, epoch=8, action=Verb.FETCH, refused="unit 17 is not on disk")
        others = tuple(replace(spill, unit=unit, reason=f"{unit} bytes") for unit in (4, 3, 9, 30, 18))
        records = [record(7, decisions=(DECISION,) * 2), record(8, decisions=(spill, *others, fetch))]
        lines = [re.sub(" +", " ", line).strip() for line in screen("desk", records, AT, LARGE)]
        assert lines[-4:] == [
            "8 load fetch unit 17 of site 1 refused unit 17 is not on disk; idle",
            "8 lazy disk spill units 3-4, 9, 17-18, … of site 1 8 site 1 is full; …",
            "7 load move unit 17 to site 1 7 idle",
            "7 load move unit 17 to site 1 7 idle",
        ]

    def test_a_long_reason_is_cut_and_takes_no_other_column_away(self) -> None:
        move = replace(DECISION, reason="site 1 is 100 % busy, site 0 78 %; " * 5)
        for columns in (80, 120, 200):
            *_, heading, line = screen("desk", [record(7, decisions=(move,))], AT, (columns, 40))
            assert heading.split() == ["epoch", "by", "decision", "done", "because"]
            assert re.match(r" +7  load  move unit 17 to site 1 +7  site 1 is 100 % b.*…$", line), line
            assert len(line) <= columns

    def test_a_narrow_terminal_loses_what_matters_least(self) -> None:
        def heading(columns: int) -> list[str]:
            lines = screen("desk", [record(0)], AT, (columns, 40))
            return next(line for line in lines if "busy" in line).split()

        assert "executor" in heading(120) and "spilled" in heading(120)
        assert "executor" not in heading(80) and {"units", "disk", "backlog"} <= set(heading(80))
        assert heading(57) == ["site", "busy", "rows", "in", "memory", "backlog"]

    def test_what_units_and_sites_yield(self) -> None:
        yields = with_site(record(0), 1, results_per_unit=1234.5)
        lines = screen("desk", [yields], AT, LARGE)
        sites = next(i for i, line in enumerate(lines) if "busy" in line)
        assert "results/unit" in lines[sites]
        assert lines[sites + 1].split()[6] == "-" and lines[sites + 2].split()[6:8] == ["1.23", "k"]
        units = next(i for i, line in enumerate(lines) if line.split()[:2] == ["unit", "site"])
        assert "productivity" in lines[units]
        assert "85.3/KiB" in lines[units + 1]  # 2 results by 24 bytes in memory and on disk

    def test_without_joins_nothing_is_said_of_it(self) -> None:
        none = np.zeros(UNITS)
        quiet = with_stats(record(0), units=replace(record(0).stats.units, results_produced=none))
        shown = "\n".join(screen("desk", [quiet], AT, LARGE))
        assert "pending" in shown
        assert not re.search("results/unit|productivity|frozen|missing|cleaning", shown)

    def test_frozen_units_and_what_they_miss(self) -> None:
        lines = screen("desk", [with_frozen_units(record(0))], AT, LARGE)
        assert lines[4] == "  frozen: 3 units, 4.5 k rows, 96 KiB; 2 units miss results"
        sites = next(i for i, line in enumerate(lines) if "busy" in line)
        assert lines[sites].split()[-6:] == ["disk", "frozen", "missing", "backlog", "spilled", "executor"]
        assert lines[sites + 1].split()[-6:] == ["KiB", "-", "-", "-", "-", "host-0/4711"]
        assert lines[sites + 2].split()[-6:] == ["96", "KiB", "2", "10", "1", "host-1/4711"]
        units = next(i for i, line in enumerate(lines) if line.split()[:2] == ["unit", "site"])
        assert lines[units].split()[-3:] == ["frozen", "missing", "pending"]
        assert [line.split()[-4:] for line in lines[units + 1 : units + 4]] == [
            ["48", "KiB", "results", "1"],
            ["32", "KiB", "results", "1"],
            ["16", "KiB", "-", "1"],
        ]

    def test_how_far_cleaning_up_has_come(self) -> None:
        done = CleanUpProgress(rows_done=300_000, rows_left=100_000, results=71_500, seconds=75.0)
        lines = screen("desk", [with_stats(with_frozen_units(record(0)), clean_up=done)], AT, LARGE)
        assert lines[5] == "  cleaning up: 300 k rows done, 100 k left (75 %); 71.5 k results found; 4 k/s"

    def test_nothing_yet(self) -> None:
        assert screen("desk", [], AT, LARGE) == ["desk: waiting for the first epoch"]


class TestJournalTail:
    def test_it_grows_with_the_journal(self, journal: Journal) -> None:
        following = JournalTail(journal)
        following.look()
        assert following.records == []
        for number in range(KEPT + 5):
            journal.commit(record(number))
            if number % 3 == 0:
                following.look()
                assert following.records[-1].number == number
        following.look()
        assert [r.number for r in following.records] == list(range(5, KEPT + 5))

    def test_each_record_is_read_once(self, journal: Journal) -> None:
        seen: list[str] = []
        following = JournalTail(journal)
        with watch(lambda operation, path: seen.append(path) if operation == "read" else None):
            for number in range(3):
                journal.commit(record(number))
                following.look()
                following.look()
        entries, plans = (
            [path[-8:] for path in seen if ("/journal/" in path) == is_entry] for is_entry in (True, False)
        )
        assert entries == ["000.json", "001.json", "002.json", "003.json"] and len(plans) == 1

    def test_it_only_reads(self, journal: Journal) -> None:
        done = set()
        journal.commit(record(0))
        with watch(lambda operation, path: done.add(operation)):
            JournalTail(journal).look()
        assert done <= {"size", "list", "read"}

    def test_records_may_go_while_it_reads(self, journal: Journal) -> None:
        """More epochs commit between the list of the journal and the reading of it than it keeps."""
        for number in range(10):
            journal.commit(record(number))
        writer = owned_journal(journal.storage.uri)

        def overtaken(operation: str, path: str) -> None:
            if operation == "read" and path.endswith("001.json"):
                for number in range(10, ON_RECORD + 5):
                    writer.commit(record(number))

        following = JournalTail(journal)
        with watch(overtaken):
            following.look()
        assert [r.number for r in following.records] == list(range(6, 10))
        following.look()
        assert following.records[-1].number == ON_RECORD + 4

    def test_a_busy_writer_beside_it(self, journal: Journal) -> None:
        last = 2 * ON_RECORD
        writing = threading.Thread(target=lambda: [journal.commit(record(number)) for number in range(last)])
        following = JournalTail(Journal(Storage(journal.storage.uri)))
        writing.start()
        try:
            while not following.records or following.records[-1].number < last - 1:
                following.look()
                numbers = [r.number for r in following.records]
                assert numbers == sorted(set(numbers)) and len(numbers) <= KEPT
        finally:
            writing.join()

    def test_a_new_checkpoint_in_the_place_of_the_old(self, journal: Journal) -> None:
        for number in range(3):
            journal.commit(record(number))
        following = JournalTail(journal)
        following.look()
        journal.storage.delete_tree()
        owned_journal(journal.storage.uri, "other").commit(record(0))
        following.look()
        assert following.identity.name == "other" and [r.number for r in following.records] == [0]


def damage(journal: Journal, index: int) -> str:
    """Cut an entry short; its name."""
    entry = Path(journal.storage.uri) / name_entry(index)
    entry.write_bytes(entry.read_bytes()[:-40])
    return entry.name


class TestDamage:
    """A damaged entry is passed by and named. Entry 0 is the owner's, and entry n + 1 is epoch n."""

    @pytest.mark.parametrize(("index", "newest"), [(3, 4), (5, 3)])
    def test_it_is_told_of_and_the_others_are_shown(
        self, journal: Journal, capsys: pytest.CaptureFixture[str], index: int, newest: int
    ) -> None:
        for number in range(5):
            journal.commit(record(number))
        name = damage(journal, index)
        assert main(["top", journal.storage.uri, "--once"]) == 0
        shown = capsys.readouterr().out
        assert f"desk: epoch {newest}," in shown and shown.endswith(f"{name} is damaged: it has no checksum\n")
        assert main(["inspect", journal.storage.uri]) == 0
        lines = capsys.readouterr().out.split("\n")
        epochs = [line.split()[0] for line in lines[lines.index("Last epochs") + 2 :] if line[:9].strip().isdecimal()]
        assert epochs == [str(number) for number in range(5) if number != index - 1]
        assert [line for line in lines if "damaged" in line] == [
            f"Passed by  {journal.storage.uri}/journal/{name} is damaged: it has no checksum"
        ]

    def test_it_is_told_of_until_an_epoch_after_it_is_there(self, journal: Journal) -> None:
        journal.commit(record(0))
        journal.commit(record(1))
        name = damage(journal, 1)
        first, still, last = looked(journal, lambda: None, lambda: journal.commit(record(2))).pictures()
        problem = "".join(f"{journal.storage.uri}/journal/{name} is damaged: it has no checksum".split())
        for shown in (first, still):  # the path is wider than the terminal
            assert "epoch 1" in shown and problem in "".join(shown.split()) and shown.count("\n") <= 23
        assert "epoch 2" in last and "damaged" not in last

    def test_without_an_epoch_that_can_be_read_it_is_refused(
        self, journal: Journal, capsys: pytest.CaptureFixture[str]
    ) -> None:
        journal.commit(record(0))
        name = damage(journal, 1)
        for command in ("top", "inspect"):
            assert main([command, journal.storage.uri]) == 2
            assert f"{name} is damaged" in capsys.readouterr().err


class Screen(io.StringIO):
    """A terminal of 24 lines of 80 characters, and every picture that was drawn on it."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True

    def pictures(self) -> list[str]:
        """Without the last, which rich draws once more at the end."""
        return pictures(self.getvalue())[:-1]


def looked(journal: Journal, *between: Callable[[], object], out: Screen | None = None) -> Screen:
    """What is seen with these things happening between the looks; Ctrl-C after the last."""
    out, happening = out or Screen(), iter(between)

    def sleep(seconds: float) -> None:
        try:
            next(happening)()
        except StopIteration:
            raise KeyboardInterrupt from None

    assert top(journal.storage.uri, stream=out, sleep=sleep, clock=lambda: AT + 60) == 0
    return out


class TestWatching:
    def test_a_checkpoint_without_an_epoch_is_waited_for(self, journal: Journal) -> None:
        pictures = looked(journal, lambda: None, lambda: journal.commit(record(0))).pictures()
        assert ["waiting for the first epoch" in p for p in pictures] == [True, True, False]
        assert "desk: epoch 0" in pictures[-1]

    def test_it_is_drawn_in_place(self, journal: Journal) -> None:
        out = looked(journal, *(lambda n=n: journal.commit(record(n)) for n in range(5)))
        assert [re.findall(r"epoch (\d)", p) for p in out.pictures()[1:]] == [[str(n)] for n in range(5)]
        assert all(p.count("\n") <= 23 for p in out.pictures())

    def test_a_store_out_of_reach_is_tried_again(self, journal: Journal) -> None:
        journal.commit(record(0))
        away = []

        def unreachable(operation: str, path: str) -> None:
            if away:
                raise StorageError("cannot list s3://bucket/ck: timed out")

        with watch(unreachable):
            out = looked(journal, lambda: away.append(1), away.clear, lambda: journal.commit(record(1)))
        _, lost, found, last = out.pictures()
        assert "epoch 0" in lost and "timed out; trying again" in lost and lost.count("\n") <= 23
        assert "timed out" not in found
        assert "epoch 1" in last

    def test_a_checkpoint_that_goes_ends_it(self, journal: Journal) -> None:
        journal.commit(record(0))
        with pytest.raises(Exception, match="holds no Sluice checkpoint"):
            looked(journal, journal.storage.delete_tree)

    def test_no_color(self, journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
        journal.commit(record(0))
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.setenv("TERM", "xterm")
        assert COLOUR.search(looked(journal).getvalue())
        monkeypatch.setenv("NO_COLOR", "1")
        assert not COLOUR.search(looked(journal).getvalue())

    def test_a_terminal_without_block_characters(self, journal: Journal) -> None:
        journal.commit(record(0))
        out = Screen()
        out.encoding = "latin-1"  # type: ignore[misc]
        assert looked(journal, out=out).getvalue().isascii()


class TestCommand:
    def test_plain_and_once_where_there_is_no_terminal(
        self, journal: Journal, capsys: pytest.CaptureFixture[str]
    ) -> None:
        long = "a reason that is longer than any terminal is wide " * 4
        journal.commit(record(0, 40, decisions=(replace(DECISION, reason=long),)))
        assert main(["top", journal.storage.uri]) == 0
        told = capsys.readouterr().out
        assert "\x1b" not in told and long.strip() in told
        assert told.count("host-") == 40
        assert main(["top", f"file://{journal.storage.uri}", "--once"]) == 0
        assert capsys.readouterr().out.split("committed")[0] == told.split("committed")[0]

    def test_once_in_a_terminal(self, journal: Journal) -> None:
        journal.commit(record(0, 40))
        out = Screen()
        assert top(journal.storage.uri, once=True, stream=out) == 0
        lines = CODES.sub("", out.getvalue()).splitlines()
        assert len(lines) > 50 and max(map(len, lines)) <= 80 and "\x1b[1A" not in out.getvalue()

    def test_a_terminal_that_cannot_be_drawn_on(self, journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TERM", "dumb")
        out = Screen()
        assert top(journal.storage.uri, stream=out) == 0
        assert out.getvalue() == "desk: no epoch has committed yet\n"

    def test_what_is_no_checkpoint(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        said = []
        for command in ("inspect", "top"):
            assert main([command, str(tmp_path)]) == 2
            said.append(capsys.readouterr().err)
        assert said[0] == said[1] and f"{tmp_path} holds no Sluice checkpoint" in said[0]

    @pytest.mark.parametrize("wrong", ["often", "-1s", "0s", "2 days"])
    def test_an_interval_that_is_none(self, journal: Journal, capsys: pytest.CaptureFixture[str], wrong: str) -> None:
        assert main(["top", journal.storage.uri, f"--interval={wrong}"]) == 2
        assert "sluice: interval " in capsys.readouterr().err
        with pytest.raises(FlowError, match="interval"):
            top(journal.storage.uri, wrong)

    def test_output_without_the_characters_of_a_name(self, journal: Journal) -> None:
        journal.storage.delete_tree()
        owned_journal(journal.storage.uri, "börse").commit(record(0))
        for command in (["top"], ["inspect"]):
            done = subprocess.run(
                [sys.executable, "-m", "sluice.cli.main", *command, journal.storage.uri],
                env={**os.environ, "PYTHONIOENCODING": "ascii"},
                capture_output=True,
                check=True,
            )
            assert b"b?rse" in done.stdout and done.stderr == b""

    def test_in_a_real_terminal(self, journal: Journal) -> None:
        """Started by a shell, told its size by the terminal, ended by the keys Ctrl-C."""
        with PseudoTerminal(30, 130, ["top", journal.storage.uri, "--interval", "50ms"]) as terminal:
            terminal.until("waiting for the first epoch")
            journal.commit(record(0, 3))
            shown = terminal.until("desk: epoch 0", "host-2", "pending")
            assert max(cell_len(CODES.sub("", line)) for line in shown.splitlines()) <= 130
            journal.commit(record(1, 3))
            terminal.until("desk: epoch 1")
            os.write(terminal.keys, b"\x03")
            assert terminal.ended() == 0


def _take_terminal() -> None:
    """As a shell starts a command: the terminal is its own, and Ctrl-C ends it, however the tests were started."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class PseudoTerminal:
    """A `sluice` command in a terminal of so many rows and columns."""

    def __init__(self, rows: int, columns: int, arguments: list[str]) -> None:
        self.keys, shown = pty.openpty()
        inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        fcntl.ioctl(shown, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sluice.cli.main", *arguments],
            stdin=shown,
            stdout=shown,
            stderr=shown,
            env={**inherited, "PYTHONIOENCODING": "utf-8", "TERM": "xterm", "NO_COLOR": "1"},
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(shown)

    def __enter__(self) -> PseudoTerminal:
        return self

    def __exit__(self, *failure: Any) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.keys)

    def until(self, *words: str, seconds: float = 60.0) -> str:
        """What it shows until all these words have come."""
        text, end = "", time.monotonic() + seconds
        while not all(word in CODES.sub("", text) for word in words):
            ready, _, _ = select.select([self.keys], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"it showed only …{text[-2000:]!r}"
            text += os.read(self.keys, 65_536).decode(errors="ignore")
        return text

    def ended(self, seconds: float = 60.0) -> int:
        """How it ended. It is read until then: a terminal that nobody reads holds up whoever writes to it."""
        end = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < end:
            if select.select([self.keys], [], [], 0.1)[0]:
                with suppress(OSError):  # it has just closed the terminal
                    os.read(self.keys, 65_536)
        return self.process.wait(timeout=0)
