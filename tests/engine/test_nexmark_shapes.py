"""Queries of the shape of Nexmark's, in SQL, on days good and bad: each equals the batch query over what has closed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from group_by_oracle import sessions_of, windows_of
from oracle import connect_duckdb, multiset
from specs import SECOND, TIME

from sluice import Flow, testing

EPOCHS, PER_EPOCH, DELAY = 6, 60, 2
BID = pa.schema([("auction", pa.int64()), ("bidder", pa.int64()), ("price", pa.int64()), ("ts", TIME)])
AUCTION = pa.schema([("id", pa.int64()), ("seller", pa.int64()), ("expires", TIME), ("ts", TIME)])
HOT = """(SELECT auction, count(*) AS num, window.start AS since, window.end AS till
          FROM bid GROUP BY auction, window(ts, '10 seconds', '2 seconds'))"""


@dataclass(frozen=True)
class Shape:
    """A query, and its answer as SQL for DuckDB, given the final watermark."""

    text: str
    expected: Callable[[int], str]
    mode: str = "append"
    """Where it is complete, the answer is the table of the last epoch."""


def _hot(mark: int) -> str:
    """The counts of auctions in the windows that have closed."""
    return windows_of("bid", 10 * SECOND, 2 * SECOND, {"num": ("*", "count")}, mark, "auction, ")


CLOSED = """SELECT a.id, a.seller, a.expires, max(b.price) AS price, count(*) AS bids
            FROM auction a JOIN bid b ON a.id = b.auction AND b.ts BETWEEN a.ts AND a.expires
            GROUP BY a.id, a.seller, a.expires"""
"""Auctions and their bids; as a stream, of each auction once it has ended."""

SHAPES = {
    "4: what auctions have closed at": Shape(
        CLOSED, lambda mark: f"SELECT * FROM ({CLOSED}) WHERE epoch_us(expires) < {mark}"
    ),
    "6: the last auctions of a seller": Shape(
        f"""SELECT seller, expires, price, max(price) OVER (PARTITION BY seller ORDER BY expires
                                                            ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS most
            FROM (SELECT id AS auction, seller, expires, price FROM ({CLOSED})) AS closed""",
        lambda mark: (
            f"""SELECT seller, expires, price, max(price) OVER (PARTITION BY seller ORDER BY expires
                                                                ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS most
            FROM ({CLOSED}) WHERE epoch_us(expires) < {mark}"""
        ),
    ),
    "5: hot items": Shape(
        f"""SELECT b.auction, b.num, b.till FROM {HOT} AS b
            JOIN (SELECT max(num) AS most, since, till FROM {HOT} AS c GROUP BY since, till) AS m
              ON b.since = m.since AND b.till = m.till AND b.num >= m.most""",
        lambda mark: (
            f"""SELECT auction, num, window_end FROM ({_hot(mark)}) AS b
            WHERE num = (SELECT max(num) FROM ({_hot(mark)}) AS c WHERE c.window_end = b.window_end)"""
        ),
    ),
    "7: the highest bid": Shape(
        """SELECT b.auction, b.price, b.bidder FROM bid b
            JOIN (SELECT max(price) AS most, window.end AS till FROM bid GROUP BY window(ts, '10 seconds')) AS m
              ON b.price = m.most AND b.ts BETWEEN m.till - INTERVAL 10 SECONDS AND m.till""",
        lambda mark: (
            f"""SELECT b.auction, b.price, b.bidder FROM bid b
            JOIN ({windows_of("bid", 10 * SECOND, 10 * SECOND, {"most": ("price", "max")}, mark, "")}) m
              ON b.price = m.most AND b.ts BETWEEN m.window_end - INTERVAL 10 SECONDS AND m.window_end"""
        ),
    ),
    "9: bids while an auction lasts": Shape(
        """SELECT a.id, a.seller, b.price, b.bidder FROM auction a
            JOIN bid b ON a.id = b.auction AND b.ts BETWEEN a.ts AND a.expires""",
        lambda mark: (
            """SELECT a.id, a.seller, b.price, b.bidder FROM auction a
            JOIN bid b ON a.id = b.auction AND b.ts BETWEEN a.ts AND a.expires"""
        ),
    ),
    "9: winning bids": Shape(
        """SELECT id, seller, price, bidder FROM (
              SELECT a.id, a.seller, b.price, b.bidder,
                     row_number() OVER (PARTITION BY a.id, a.ts ORDER BY b.price DESC, b.ts) AS place
              FROM auction a JOIN bid b ON a.id = b.auction AND b.ts BETWEEN a.ts AND a.expires
            ) AS ranked WHERE place = 1""",
        lambda mark: (
            """SELECT id, seller, price, bidder FROM (
              SELECT a.id, a.seller, b.price, b.bidder,
                     row_number() OVER (PARTITION BY a.id, a.ts ORDER BY b.price DESC, b.ts) AS place
              FROM auction a JOIN bid b ON a.id = b.auction AND b.ts BETWEEN a.ts AND a.expires)
            WHERE place = 1"""
        ),
        "complete",
    ),
    "18: the last bid of each bidder": Shape(
        """SELECT bidder, auction, price FROM (
              SELECT *, row_number() OVER (PARTITION BY bidder, auction ORDER BY ts DESC) AS place FROM bid
            ) AS ranked WHERE place <= 1""",
        lambda mark: "SELECT bidder, auction, arg_max(price, ts) FROM bid GROUP BY bidder, auction",
        "complete",
    ),
    "19: the ten highest bids": Shape(
        """SELECT auction, place, price FROM (
              SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, ts) AS place FROM bid
            ) AS ranked WHERE place <= 10""",
        lambda mark: (
            """SELECT auction, place, price FROM (
              SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, ts)::INT AS place FROM bid)
            WHERE place <= 10"""
        ),
        "complete",
    ),
    "11: sessions of bidders": Shape(
        """SELECT bidder, count(*) AS bids, session_window.start AS since, session_window.end AS till
            FROM bid GROUP BY bidder, session_window(ts, '3 seconds')""",
        lambda mark: (
            f"""SELECT bidder, bids, window_start, window_end
            FROM ({sessions_of("bid", 3 * SECOND, {"bids": ("*", "count")}, mark, "bidder, ")})"""
        ),
    ),
    "the three hottest items of each window": Shape(
        f"""SELECT auction, num, till, place FROM (
              SELECT *, row_number() OVER (PARTITION BY till ORDER BY num DESC, auction) AS place FROM {HOT} AS hot
            ) AS ranked WHERE place <= 3""",
        lambda mark: (
            f"""SELECT auction, num, window_end, place FROM (
              SELECT *, row_number() OVER (PARTITION BY window_end ORDER BY num DESC, auction)::INT AS place
              FROM ({_hot(mark)}))
            WHERE place <= 3"""
        ),
    ),
}


def draw_rows(rng: np.random.Generator, epoch: int) -> tuple[pa.Table, pa.Table]:
    """Bids and auctions of an epoch of five seconds, out of order, none of them late."""
    times = np.sort(rng.choice(5 * SECOND, PER_EPOCH, replace=False)) + epoch * 5 * SECOND
    rng.shuffle(times[-PER_EPOCH // 4 :])
    bids = [rng.geometric(0.2, PER_EPOCH), rng.integers(0, 20, PER_EPOCH), rng.integers(1, 400, PER_EPOCH), times]
    begins = times[:: PER_EPOCH // 3]
    lasting = rng.integers(0, 20 * SECOND, len(begins))
    auctions = [rng.geometric(0.2, len(begins)), rng.integers(0, 5, len(begins)), begins + lasting, begins]
    return tuple(  # type: ignore[return-value]
        pa.table([pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema)
        for columns, schema in ((bids, BID), (auctions, AUCTION))
    )


@pytest.mark.parametrize(
    ("disturb", "ends"), [pytest.param(None, False, marks=pytest.mark.slow), (1, False), (2, True)]
)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_answer_is_that_of_the_batch_query(shape, disturb, ends):
    rng = np.random.default_rng(5)
    epochs = [draw_rows(rng, epoch) for epoch in range(EPOCHS)]
    flow = Flow(name="nexmark")
    flow.readStream("bid", BID, eventTime="ts", delay=f"{DELAY} seconds")
    flow.readStream("auction", AUCTION, eventTime="ts", delay=f"{DELAY} seconds")
    result = flow.sql(SHAPES[shape].text)
    streams = ("bid", "auction") if "auction a" in SHAPES[shape].text else ("bid",)
    bids, auctions = ([tables[place] for tables in epochs] for place in (0, 1))
    given = {name: tables for name, tables in (("bid", bids), ("auction", auctions)) if name in streams}
    writer = result.writeStream.outputMode(SHAPES[shape].mode).option("closeAtEnd", ends)
    outcome = testing.run(writer, given, disturb=disturb)
    is_table = SHAPES[shape].mode == "complete"
    (answer,) = outcome.epochs[-1].results.values() if is_table else (outcome.results(),)
    with connect_duckdb() as db:
        for name, tables in (("bid", bids), ("auction", auctions)):
            db.register(name, pa.concat_tables(tables).append_column("epoch", pa.array([0] * sum(map(len, tables)))))
        newest = [pc.max(pa.concat_tables(tables)["ts"].cast(pa.int64())).as_py() for tables in given.values()]
        mark = min(newest) - DELAY * SECOND
        mark += 3600 * SECOND if ends else 0  # all windows close
        expected: Counter = multiset(db.sql(SHAPES[shape].expected(mark)).to_arrow_table())
    assert multiset(answer) == expected, outcome.disturbances
    assert sum(expected.values()) > 2
