"""Cases of stream joins as Spark's Structured Streaming answers them: rows in, results out, and where Sluice's differ.

Rows are (key, second, value). The values of all rows of a case differ, so results name rows by them. An epoch is the
left rows and the right rows, and a file of each. The last epoch of each case moves both watermarks far beyond all else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
from specs import SECOND, TIME

from sluice.model.plan.join_kind import JoinKind

Row = tuple[int | None, float, int]
Epoch = tuple[list[Row], list[Row]]
Result = tuple[int | None, int | None]

SCHEMA = pa.schema([("k", pa.int64()), ("ts", TIME), ("v", pa.int64())])
LAST_EPOCH: Epoch = ([(8, 1000, 98)], [(9, 1000, 99)])
"""Without partners, and no later row tells that none can come: whether these appear is not looked at."""

BEGIN = 1_000_000
"""Second 0, in seconds since 1970: before any row has come, Spark's watermark is there, and what is older is late."""


@dataclass(frozen=True)
class Answer:
    """Which rows met, and which met nobody: all kinds of join follow from it."""

    pairs: frozenset[tuple[int, int]] = frozenset()
    left_alone: frozenset[int] = frozenset()
    right_alone: frozenset[int] = frozenset()

    def of_kind(self, kind: JoinKind) -> Counter[Result]:
        """The results of a join, the right side None where it has no column of it."""
        left = [(value, None) for value in self.left_alone]
        right = [(None, value) for value in self.right_alone]
        match kind:
            case JoinKind.INNER:
                return Counter(self.pairs)
            case JoinKind.LEFT:
                return Counter([*self.pairs, *left])
            case JoinKind.RIGHT:
                return Counter([*self.pairs, *right])
            case JoinKind.FULL:
                return Counter([*self.pairs, *left, *right])
            case JoinKind.SEMI:
                return Counter((value, None) for value in {pair[0] for pair in self.pairs})
            case JoinKind.ANTI:
                return Counter(left)


@dataclass(frozen=True)
class Case:
    """What `spark` answers, `spark_full` where its full join answers something else, and `sluice` where that does.
    `bounds` are how many seconds the right row may be earlier and later than the left one, `delays` those of the two
    streams, and `restarts` the epochs before which a query is stopped and started again."""

    name: str
    epochs: tuple[Epoch, ...]
    spark: Answer
    sluice: Answer | None = None
    spark_full: Answer | None = None
    bounds: tuple[int, int] = (5, 5)
    delays: tuple[int, int] = (0, 0)
    restarts: tuple[int, ...] = ()


def answer(pairs: str = "", left: str = "", right: str = "") -> Answer:
    """Written as `10-90 11-91`, `12`, `92`."""
    split = [tuple(map(int, pair.split("-"))) for pair in pairs.split()]
    alone = (frozenset(map(int, values.split())) for values in (left, right))
    return Answer(frozenset((one, other) for one, other in split), *alone)


def count_results(results: Iterable[Result]) -> Counter[Result]:
    """Results but those of the last epoch's rows."""
    last = {row[2] for rows in LAST_EPOCH for row in rows}
    return Counter(result for result in results if last.isdisjoint(result))


def table_of(rows: list[Row]) -> pa.Table:
    keys, times, values = zip(*rows, strict=True) if rows else ((), (), ())
    seconds = pa.array([round((BEGIN + second) * SECOND) for second in times], TIME)
    return pa.table([pa.array(keys, pa.int64()), seconds, pa.array(values, pa.int64())], schema=SCHEMA)


CASES = [
    Case(
        "rows meet within the bounds, and not a moment beyond them",
        (
            ([(1, 10, 10), (2, 10, 11), (3, 10, 12), (4, 10, 13)], []),
            ([], [(1, 5, 50), (2, 15, 51), (3, 4.999, 52), (4, 15.001, 53)]),
        ),
        answer("10-50 11-51", "12 13", "52 53"),
    ),
    Case(
        "a bound in one direction",
        (([(1, 10, 10), (2, 10, 11)], [(1, 9.999, 50), (2, 20, 51)]),),
        answer("11-51", "10", "50"),
        bounds=(0, 10),
    ),
    Case(
        "equal times alone",
        (
            ([(1, 10, 10), (1, 11, 11)], [(1, 10, 50)]),
            ([(1, 11, 12)], [(1, 11, 51), (1, 12, 52)]),
        ),
        answer("10-50 11-51 12-51", "", "52"),
        bounds=(0, 0),
    ),
    Case(
        "a matched row never comes with nulls, though its partner's state has gone long before",
        (
            ([(1, 0, 10)], [(1, 0, 50)]),
            ([(2, 4, 11)], [(3, 4, 51)]),
            ([(2, 30, 12)], [(3, 30, 52)]),
        ),
        answer("10-50", "11 12", "51 52"),
        bounds=(0, 5),
    ),
    Case(
        "null keys meet nobody",
        (([(None, 0, 10), (1, 0, 11)], [(None, 0, 50), (1, 0, 51)]), ([(None, 20, 12)], [(None, 20, 52)])),
        answer("11-51", "10 12", "50 52"),
        spark_full=answer("10-50 11-51 12-52"),
    ),
    Case(
        "many partners, before and after",
        (
            ([(1, 10, 10), (1, 11, 11)], [(1, 10, 50)]),
            ([(1, 12, 12)], [(1, 12, 51), (1, 30, 52)]),
            ([(1, 33, 13)], []),
        ),
        answer("10-50 10-51 11-50 11-51 12-50 12-51 13-52"),
    ),
    Case(
        "a row below both watermarks is late",
        (
            ([(1, 20, 10)], [(1, 20, 50)]),
            ([], []),
            ([(2, 3, 11), (2, 21, 12)], [(2, 21, 51), (1, 19, 52)]),
        ),
        answer("10-50 12-51"),
    ),
    Case(
        "it comes in the very next epoch",
        (
            ([(1, 20, 10)], [(1, 20, 50)]),
            ([(2, 3, 11), (2, 21, 12)], [(2, 21, 51), (1, 19, 52)]),
        ),
        spark=answer("10-50 10-52 12-51", "11"),
        sluice=answer("10-50 12-51"),
    ),
    Case(
        "a row at both watermarks",
        (
            ([(1, 20, 10)], [(2, 20, 50)]),
            ([], []),
            ([(2, 20, 11)], [(1, 20, 51)]),
        ),
        spark=answer("", "10", "50"),
        sluice=answer("10-51 11-50"),
    ),
    Case(
        "a row a moment above both watermarks",
        (
            ([(1, 20, 10)], [(2, 20, 50)]),
            ([], []),
            ([(2, 20.001, 11)], [(1, 20.001, 51)]),
        ),
        answer("10-51 11-50"),
    ),
    Case(
        "the last partner in time comes when the watermark is a moment below it",
        (
            ([(1, 10, 10), (7, 14.999, 11)], [(7, 14.999, 50)]),
            ([], []),
            ([], [(1, 15, 51)]),
        ),
        answer("10-51 11-50"),
    ),
    Case(
        "the last partner in time comes when the watermark is there",
        (
            ([(1, 10, 10), (7, 15, 11)], [(7, 15, 50)]),
            ([], []),
            ([], [(1, 15, 51)]),
        ),
        spark=answer("11-50", "10"),
        sluice=answer("10-51 11-50"),
    ),
    Case(
        "the delay is what a row may be late by, in both streams",
        (
            ([(1, 30, 10)], [(1, 30, 50)]),
            ([], []),
            ([(2, 21, 11), (3, 19, 12)], [(2, 23, 51), (3, 19, 52)]),
        ),
        answer("10-50 11-51"),
        delays=(10, 10),
    ),
    Case(
        "each stream has a delay of its own",
        (
            ([(1, 30, 10)], [(1, 30, 50)]),
            ([], []),
            ([(2, 21, 11), (3, 19, 12)], [(2, 16, 51), (3, 19, 52)]),
        ),
        spark=answer("10-50 11-51 12-52"),
        sluice=answer("10-50 11-51", "", "52"),
        delays=(10, 20),
    ),
    Case(
        "one stream is ahead, and its rows go back",
        (
            ([(1, 100, 10)], [(1, 0, 50)]),
            ([(2, 50, 11)], [(2, 50, 51)]),
            ([(3, 51, 12)], [(3, 51, 52)]),
        ),
        spark=answer("11-51 12-52", "10", "50"),
        sluice=answer("", "10", "50 51 52"),
    ),
    Case(
        "one stream falls silent",
        (
            ([(1, 0, 10)], [(1, 0, 50)]),
            ([(2, 100, 11)], []),
            ([(3, 200, 12)], []),
            ([], [(2, 100, 51), (3, 196, 52)]),
        ),
        answer("10-50 11-51 12-52"),
    ),
    Case(
        "epochs without rows in between",
        (
            ([(1, 10, 10)], []),
            ([], []),
            ([], [(1, 12, 50)]),
            ([], []),
            ([(2, 30, 11)], [(3, 30, 51)]),
            ([], []),
        ),
        answer("10-50", "11", "51"),
    ),
    Case(
        "a restart before each epoch",
        (
            ([(1, 10, 10), (2, 10, 11)], []),
            ([(3, 20, 12)], [(1, 12, 50), (4, 20, 51)]),
            ([(4, 24, 13)], [(3, 24, 52)]),
        ),
        answer("10-50 12-52 13-51", "11"),
        restarts=(1, 2, 3),
    ),
]
