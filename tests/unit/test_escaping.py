"""Names, texts and errors that others wrote are shown as text: nothing in them runs, moves a cursor or is left out."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from epoch_factory import RUN, owned_journal, record, with_site, with_stats
from fake_query import FakeQuery
from fake_session import FakeSpark
from html_pages import read_answers

from sluice.cli import run as running
from sluice.cli.main import main
from sluice.control.journal import name_plan
from sluice.dashboard.terminal import watch_all
from sluice.model.epoch.decision import Decision, Verb
from sluice.model.plan.recorded_plan import RecordedPlan, RecordedQuery

CONTROLS = "\x1b[2J\x1b]0;owned\x07\r\x00\x9b31m\u202e"
HOSTILE = f"</pre><script>alert(1)</script>\"'&amp;{CONTROLS}\nsecond"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """One in which everything that a user can name is hostile."""
    stream = {"name": HOSTILE, "columns": [[HOSTILE, HOSTILE]], "eventTime": HOSTILE, "delay": None}
    queries = tuple(RecordedQuery(f"{n} {HOSTILE}", "", HOSTILE) for n in range(2))
    plan = RecordedPlan(queries, HOSTILE, sources=(HOSTILE,))
    journal = owned_journal(str(tmp_path / "ck"), HOSTILE, plan, streams=[stream])
    decision = Decision(0, HOSTILE, Verb.MOVE, unit=1, site=0, reason=HOSTILE, refused=HOSTILE)
    one = record(0, decisions=(decision,), plan=name_plan(plan, 0, RUN))
    one = with_stats(one, streams=(replace(one.stats.streams[0], name=HOSTILE),))
    one = with_site(one, 0, executor=HOSTILE)
    journal.commit(one)
    return tmp_path / "ck"


def assert_plain(text: str) -> None:
    """Lines of printable characters."""
    assert [c for c in text if not c.isprintable() and c != "\n"] == []


@pytest.mark.parametrize("command", [["inspect"], ["top", "--once"]])
def test_what_a_terminal_shows_of_a_checkpoint(
    checkpoint: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    assert main([*command, str(checkpoint)]) == 0
    shown = capsys.readouterr().out
    assert_plain(shown)
    assert "alert(1)" in shown and "owned" in shown


def test_a_report_of_a_checkpoint(checkpoint: Path, tmp_path: Path) -> None:
    assert main(["report", str(checkpoint), "-o", str(tmp_path / "r.html")]) == 0
    answers = read_answers(tmp_path / "r.html")
    assert answers["/events"]["name"] == HOSTILE and answers["/api/marks"][0]["reason"] == HOSTILE


def test_an_error_that_quotes_a_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(tmp_path / "none\x1b[2J\x07")]) == 2
    said = capsys.readouterr().err
    assert_plain(said)
    assert "none [2J" in said


def test_a_query_that_fails_with_somebodys_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = FakeSpark()
    monkeypatch.setattr(running, "_session", lambda wanted, scratch: session)
    flow = "def define(spark):\n    return spark.writer('a', RuntimeError('the file x\\x1b[2J\\x07 is damaged'))\n"
    (tmp_path / "flow.py").write_text(flow)
    assert main(["run", str(tmp_path / "flow.py")]) == 1
    said = capsys.readouterr().err
    assert_plain(said)
    assert "the file x [2J  is damaged" in said


def test_lines_of_several_queries() -> None:
    out = io.StringIO()
    queries: list[Any] = [FakeQuery(2, HOSTILE), FakeQuery(2, "desk")]
    watch_all(queries, out)
    assert_plain(out.getvalue())
    assert "alert(1)" in out.getvalue()
