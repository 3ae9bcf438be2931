"""Cases of outer and semi joins that engines get wrong, epoch by epoch: what comes in, and what has to come out then.

Rows are (key, second, value); both streams have a delay of no time at all, so a watermark is the newest time of its
stream. The bounds are how many seconds the right row may be earlier, and how many later, than the left one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest
from engine_harness import DirectQuery
from specs import SECOND, TIME, join, stream

from sluice.model.plan.join_kind import JoinKind

Row = tuple[int | None, int, int]


@dataclass(frozen=True)
class Case:
    """An entry of `epochs` is the left rows, the right rows, and the values that come out, sorted: of pairs both, None
    for a side that is missing, of semi and anti joins the left one alone."""

    name: str
    kind: JoinKind
    bounds: tuple[int, int]
    epochs: tuple[tuple[list[Row], list[Row], list[object]], ...]
    where: str | None = None


LEFT, RIGHT, FULL, SEMI, ANTI = JoinKind.LEFT, JoinKind.RIGHT, JoinKind.FULL, JoinKind.SEMI, JoinKind.ANTI
CASES = [
    Case(
        "a row that was matched never comes with nulls, though its partner could meet nobody new long before",
        LEFT,
        (0, 5),
        (
            ([(1, 0, 10)], [(1, 0, 90)], [(10, 90)]),
            ([(2, 4, 11)], [(3, 4, 91)], []),
            ([(2, 30, 12)], [(3, 30, 92)], [(11, None)]),
            ([(2, 60, 13)], [(3, 60, 93)], [(12, None)]),
        ),
    ),
    Case(
        "nor does one of the right side",
        RIGHT,
        (5, 0),
        (
            ([(1, 0, 10)], [(1, 0, 90)], [(10, 90)]),
            ([(2, 4, 11)], [(3, 4, 91)], []),
            ([(2, 30, 12)], [(3, 30, 92)], [(None, 91)]),
        ),
    ),
    Case(
        "a partner may have the time of the watermark itself",
        LEFT,
        (0, 5),
        (
            ([(1, 0, 10)], [(2, 5, 90)], []),
            ([], [(1, 5, 91)], [(10, 91)]),
            ([], [(2, 6, 92)], []),
        ),
    ),
    Case(
        "a row whose stream is behind is settled when it comes, and finds the partners that there were",
        LEFT,
        (5, 5),
        (
            ([(9, 0, 10)], [(1, 1, 90), (2, 50, 91)], [(10, None)]),
            ([(1, 2, 11), (7, 3, 12)], [], [(11, 90), (12, None)]),
        ),
    ),
    Case(
        "what ON says of the left side alone leaves its row without a partner",
        LEFT,
        (5, 5),
        (([(1, 0, 10), (1, 0, 20)], [(1, 0, 90), (2, 50, 91)], [(10, None), (20, 90)]),),
        where="a.v > 15",
    ),
    Case(
        "what ON says of the right side alone takes partners away",
        FULL,
        (5, 5),
        (
            ([(1, 0, 10)], [(1, 0, 90), (1, 1, 5)], [(10, 90)]),
            ([(2, 50, 11)], [(3, 50, 91)], [(None, 5)]),
        ),
        where="b.v > 50",
    ),
    Case(
        "late rows are neither partners nor without one",
        FULL,
        (5, 5),
        (
            ([(1, 10, 10)], [(9, 14, 90)], []),
            ([(1, 9, 11)], [(1, 12, 91)], []),
            ([(9, 21, 12)], [(9, 21, 92)], [(12, 92), (10, None), (None, 90)]),
        ),
    ),
    Case(
        "null keys are no partners of each other",
        FULL,
        (5, 5),
        (
            ([(None, 0, 10)], [(None, 0, 90)], []),
            ([(1, 50, 11)], [(1, 50, 91)], [(11, 91), (10, None), (None, 90)]),
        ),
    ),
    Case(
        "equal rows come as often as they are there, with a partner",
        SEMI,
        (5, 5),
        (
            ([(1, 0, 10), (1, 0, 10), (None, 0, 11)], [], []),
            ([], [(1, 1, 90), (1, 1, 91), (None, 0, 92)], [10, 10]),
            ([(1, 2, 12)], [(1, 2, 93)], [12]),
            ([(2, 50, 13)], [(3, 50, 94)], []),
        ),
    ),
    Case(
        "equal rows come as often as they are there, without a partner",
        ANTI,
        (5, 5),
        (
            ([(1, 0, 10), (2, 0, 11), (2, 0, 11), (None, 0, 12)], [(1, 3, 90)], []),
            ([(3, 4, 13)], [(2, 5, 91)], []),
            ([], [(7, 50, 92)], [12, 13]),
        ),
    ),
    Case(
        "the first partner counts, whichever it is, and a condition decides who is one",
        SEMI,
        (5, 5),
        (
            ([(1, 0, 10)], [(1, 0, 5)], []),
            ([], [(1, 1, 20)], [10]),
            ([], [(1, 2, 30)], []),
        ),
        where="b.v > a.v",
    ),
    Case(
        "a side that falls silent keeps the other one waiting",
        FULL,
        (5, 5),
        (
            ([(1, 0, 10)], [(9, 0, 90)], []),
            ([(2, 100, 11)], [], [(None, 90)]),
            ([(3, 200, 12)], [], []),
            ([], [(9, 106, 91)], [(10, None), (11, None), (None, 91)]),
        ),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_comes_out_epoch_by_epoch(tmp_path: Path, case: Case) -> None:
    before, after = (seconds * SECOND for seconds in case.bounds)
    spec = replace(join([stream("a"), stream("b")], (before, after), case.where), kind=case.kind)
    query = DirectQuery(spec, tmp_path)
    shown: list[object] = []
    for number, (left, right, expected) in enumerate(case.epochs):
        query.run([_table(left), _table(right)])
        rows = [tuple(row[name] for name in row if name in ("a_v", "b_v")) for row in query.results().to_pylist()]
        new = [row if len(row) == 2 else row[0] for row in rows]
        for row in shown:
            new.remove(row)
        assert sorted(new, key=str) == sorted(expected, key=str), f"epoch {number}"
        shown += new
    query.close()


def _table(rows: list[Row]) -> pa.Table:
    keys, times, values = zip(*rows, strict=True) if rows else ((), (), ())
    seconds = pa.array([t * SECOND for t in times], TIME)
    return pa.table([pa.array(keys, pa.int64()), seconds, pa.array(values, pa.int64())], schema=stream("a").schema)
