"""A flow's queries in `sluice top`, `sluice inspect` and the report: a table if there are several, the rest elided."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from epoch_factory import AT, owned_journal, record, with_stats
from html_pages import read_answers
from rich.console import Console

from sluice.cli.inspection import inspect
from sluice.cli.journal_tail import JournalTail
from sluice.cli.top import top
from sluice.dashboard import top as view
from sluice.dashboard.query_table import columns_of, rank_queries
from sluice.dashboard.report import report_checkpoint
from sluice.model.codec import decode, encode
from sluice.model.epoch.work_stats import OperatorColumns, OperatorWork, OutputColumns, OutputWork
from sluice.model.plan.assignment import Digest
from sluice.model.plan.recorded_plan import RecordedOperator, RecordedPlan, RecordedQuery
from sluice.record.epoch import EpochRecord


def plan_of(queries: int) -> RecordedPlan:
    """As many joins, each a query's own, and one query of a filter alone."""
    operators = tuple(
        RecordedOperator(Digest("x"), "Window join", (0,), (2 * n, 2 * n + 1), 0, 0) for n in range(queries - 1)
    )
    joins = [RecordedQuery(f"pairs-{n}", "x", "a join", "noop", origins=(1 + n,)) for n in range(queries - 1)]
    large = RecordedQuery("large", "y", "a filter", "console", origins=(0,))
    return RecordedPlan((*joins, large), "\n".join("Window join" for _ in joins), "", ("trades",), operators)


def epoch(queries: int, **more: Any) -> EpochRecord:
    """The first join has most to do, the last one nothing."""
    works = [OperatorWork(n, 10 * (queries - n), n, (queries - n) / 100, AT + 1) for n in range(queries - 2)]
    outputs = [OutputWork(n, n + 1) for n in range(queries - 2)]
    columns = OperatorColumns.of(works, AT), OutputColumns.of([*outputs, OutputWork(queries - 1, 7, 0.001, AT)], AT)
    return with_stats(record(0, **more), operators=columns[0], outputs=columns[1])


def checkpoint(path: Path, queries: int) -> str:
    plan = plan_of(queries)
    journal = owned_journal(str(path), plan=plan)
    journal.commit(epoch(queries, plan=journal.newest().record.plan))
    return str(path)


def test_a_single_query_has_no_table(tmp_path: Path) -> None:
    uri = checkpoint(tmp_path / "ck", 2)
    assert "By query   2" in inspect(uri)
    alone = RecordedPlan((RecordedQuery("pairs", "x"),))
    journal = owned_journal(str(tmp_path / "one"), plan=alone)
    journal.commit(record(0, plan=journal.newest().record.plan))
    assert "By query" not in inspect(str(tmp_path / "one"))


@pytest.mark.parametrize(("queries", "shown"), [(3, 3), (21, 21), (300, 20)])
def test_inspect_lists_those_with_most_to_do(tmp_path: Path, queries: int, shown: int) -> None:
    lines = inspect(checkpoint(tmp_path / "ck", queries)).split("\n")
    at = next(n for n, line in enumerate(lines) if line.startswith("By query"))
    names = [line.split()[0] for line in lines[at + 2 : at + 2 + shown]]
    assert names[0] == "pairs-0" and len(names) == shown
    assert any("and 280 more queries, with " in line for line in lines) == (queries == 300)
    assert len(lines) < 120 and max(map(len, lines)) < 300


def test_top_fits_and_says_what_is_left_out(tmp_path: Path) -> None:
    uri = checkpoint(tmp_path / "ck", 300)
    tail = JournalTail(owned_journal(uri, plan=plan_of(300)))
    tail.look()
    for width, rows in ((200, 60), (80, 24), (30, 12)):
        console = Console(file=io.StringIO(), width=width, color_system=None)
        with console.capture() as shown:
            console.print(view.screen("desk", tail.records, AT, console, rows, tail.plan))
        lines = shown.get().splitlines()
        assert len(lines) <= rows and max(map(len, lines)) <= width
        assert any("pairs-0" in line for line in lines) == (rows > 12)
    once = io.StringIO()
    top(uri, once=True, stream=once)
    assert "and 281 more queries, with " in once.getvalue() and "pairs-0" in once.getvalue()
    assert len(once.getvalue().splitlines()) < 60


def test_the_report_has_all_of_them(tmp_path: Path) -> None:
    path = tmp_path / "r.html"
    report_checkpoint(checkpoint(tmp_path / "ck", 500), str(path))
    assert "pairs-498" in [query["name"] for query in read_answers(path)["/api/queries"]["queries"]]
    assert path.stat().st_size < 500_000


def test_a_query_that_was_set_aside_comes_first_with_its_error(tmp_path: Path) -> None:
    ranked = rank_queries(plan_of(3), [epoch(3)])
    assert [name for name, _ in columns_of(ranked)][-1] == "sink"
    failed = replace(ranked[-1], error="disk full")
    assert columns_of([failed, *ranked])[-1] == ("error", ["disk full", "", "", ""])


def test_columns_of_work_are_small_in_a_record() -> None:
    """An entry an operator that had rows, none a site."""
    works = [OperatorWork(n, 1000 + n, n, 0.001 * n, AT + n / 1000) for n in range(500) for _ in range(8)]
    columns = OperatorColumns.of(works, AT)
    assert np.array_equal(columns.rows_in, 8 * (1000 + np.arange(500)))
    assert len(encode(columns)) < 12_000
    assert np.array_equal(decode(encode(columns), OperatorColumns).delay, columns.delay)
