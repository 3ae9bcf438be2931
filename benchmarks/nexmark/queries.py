"""The queries of Nexmark in Spark's SQL, each from what it asks for, and the batch query of DuckDB that they have to
equal.

What batch SQL would leave open is said here, and listed as `otherwise`: how long state is kept, and when a result is
final. Queries that cannot be run have the reason as `missing`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from benchmarks.nexmark.generator import SIDE_ROWS, SIDE_TABLE, STREAMS


@dataclass(frozen=True)
class NexmarkQuery:
    """One query: what it asks for, its text, and those of DuckDB and of Spark's own streams where they differ. `within`
    goes to `flow.sql`."""

    name: str
    asks: str
    sql: str = ""
    oracle: str = ""
    own_spark_sql: str = ""
    within: str | None = None
    otherwise: str = ""
    missing: str = ""
    changes: bool = False
    """Whether its results change with every epoch."""

    @property
    def batch_sql(self) -> str:
        """The text for DuckDB."""
        return self.oracle or self.sql

    @property
    def spark_sql(self) -> str:
        """The text for Spark's own streams."""
        return self.own_spark_sql or self.sql

    @property
    def is_stateful(self) -> bool:
        """Whether it joins or groups."""
        return re.search(r"\b(JOIN|GROUP BY|OVER|EXISTS)\b", self.sql) is not None

    @property
    def has_windows(self) -> bool:
        """Whether results wait for the end of a window."""
        return "window(" in self.sql

    @property
    def streams(self) -> tuple[str, ...]:
        """Those that it reads."""
        names = re.findall(r"\b(?:FROM|JOIN)\s+(\w+)", self.sql)
        return tuple(stream for stream in STREAMS if stream in names)


def _bucket(column: str, seconds: int) -> str:
    """The start of the tumbling window of a time, in DuckDB."""
    return f"time_bucket(INTERVAL {seconds} SECOND, {column}, TIMESTAMPTZ '1970-01-01 00:00:00+00')"


_MEET = "a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires"
_VALID = f"""SELECT a.id, a.seller, a.category, a.dateTime AS opened, a.expires, b.bidder, b.price, b.dateTime
      FROM auction a JOIN bid b ON {_MEET}"""
_CLOSED = f"""
    WITH closed AS (
      SELECT a.id, a.seller, a.category, a.expires, max(b.price) AS price
      FROM auction a JOIN bid b ON {_MEET}
      GROUP BY a.id, a.seller, a.category, a.expires
    )"""
_CLOSES = "an auction's group closes at its end, expires"
_RANKS = {"rank1": "price < 10000", "rank2": "price >= 10000 AND price < 1000000", "rank3": "price >= 1000000"}


def _counted_by(thing: str, groups: str, day: str) -> str:
    """Bids of each day by bidder or auction, how many of each rank."""
    ranks = ", ".join(f"count(CASE WHEN {condition} THEN 1 END) AS {name}" for name, condition in _RANKS.items())
    return f"""SELECT {groups}{thing}, {"window.end AS till" if day == "till" else day}, count(*) AS n, {ranks}
      FROM bid GROUP BY {groups}{thing}, window(dateTime, '1 day')"""


def _day_statistics(groups: str = "", day: str = "till") -> str:
    """Bids, bidders and auctions of a day, of all and of each rank: distinct ones are groups of groups.

    A day is told by its end, or for Spark by the whole `window`, without which it does not know that days end.
    """
    bids = ", ".join(f"sum({rank}) AS {rank}_bids" for rank in _RANKS)
    distinct = {
        things: ", ".join(f"count(CASE WHEN {rank} > 0 THEN 1 END) AS {rank}_{things}" for rank in _RANKS)
        for things in ("bidders", "auctions")
    }
    columns = [f"b.{rank}_bids" for rank in _RANKS] + ["b.total_bidders"] + [f"b.{rank}_bidders" for rank in _RANKS]
    columns += ["a.total_auctions", *(f"a.{rank}_auctions" for rank in _RANKS)]
    own = f"b.{groups[:-2]}, " if groups else ""
    same = f" AND a.{groups[:-2]} = b.{groups[:-2]}" if groups else ""
    till = "b.till" if day == "till" else "b.window.end AS till"
    return f"""
    WITH bidders AS (
      SELECT {groups}{day}, sum(n) AS total_bids, {bids}, count(*) AS total_bidders, {distinct["bidders"]}
      FROM ({_counted_by("bidder", groups, day)}) GROUP BY {groups}{day}
    ),
    auctions AS (
      SELECT {groups}{day}, count(*) AS total_auctions, {distinct["auctions"]}
      FROM ({_counted_by("auction", groups, day)}) GROUP BY {groups}{day}
    )
    SELECT {own}{till}, b.total_bids, {", ".join(columns)}
    FROM bidders b JOIN auctions a ON a.{day} = b.{day}{same}"""


def _day_statistics_oracle(groups: str = "") -> str:
    counts = ["count(*) AS total_bids"]
    counts += [f"count(*) FILTER ({condition}) AS {rank}_bids" for rank, condition in _RANKS.items()]
    for thing in ("bidder", "auction"):
        counts.append(f"count(DISTINCT {thing}) AS total_{thing}s")
        counts += [f"count(DISTINCT {thing}) FILTER ({c}) AS {rank}_{thing}s" for rank, c in _RANKS.items()]
    day = f"{_bucket('dateTime', 86400)} + INTERVAL 1 DAY"
    return f"SELECT {groups}{day} AS till, {', '.join(counts)} FROM bid GROUP BY {groups}till"


_DISTINCT = "distinct values are counted as groups of groups"
_FOR_GOOD = "within='unbounded'"
_CHANGES = "results change"
_WINNING_BIDS = f"""FROM auction a JOIN bid b ON {_MEET}
           QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.dateTime) = 1"""
"""The winning bids with their auctions, in DuckDB."""

QUERIES = (
    NexmarkQuery("q0", "all bids as they are", "SELECT auction, bidder, price, dateTime, extra FROM bid"),
    NexmarkQuery(
        "q1",
        "prices in another currency",
        "SELECT auction, bidder, CAST(0.908 * price AS double) AS price, dateTime, extra FROM bid",
    ),
    NexmarkQuery("q2", "bids for certain auctions", "SELECT auction, price FROM bid WHERE auction % 123 = 0"),
    NexmarkQuery(
        "q3",
        "who sells in a category and lives in certain states",
        """SELECT p.name, p.city, p.state, a.id
           FROM auction a JOIN person p ON a.seller = p.id
           WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
        within="unbounded",
        otherwise=_FOR_GOOD,
    ),
    NexmarkQuery(
        "q4",
        "the mean price at which the auctions of a category have closed",
        f"{_CLOSED} SELECT category, avg(price) AS price FROM closed GROUP BY category",
        f"""SELECT category, avg(price) AS price FROM (SELECT a.category, b.price {_WINNING_BIDS}) GROUP BY category""",
        otherwise=f"{_CHANGES}; {_CLOSES}",
        changes=True,
    ),
    NexmarkQuery(
        "q5",
        "the auctions with most bids of the last ten seconds, every two seconds",
        """WITH counts AS (
             SELECT auction, window.start AS since, window.end AS till, count(*) AS num
             FROM bid GROUP BY auction, window(dateTime, '10 seconds', '2 seconds')
           ),
           most AS (SELECT since, till, max(num) AS num FROM counts GROUP BY since, till)
           SELECT c.auction, c.num, c.till FROM counts c JOIN most m ON c.till = m.till AND c.num = m.num""",
        """WITH counts AS (
             SELECT auction, s + 10000000 AS till, count(*) AS num
             FROM (SELECT *, unnest(range(epoch_us(dateTime) - epoch_us(dateTime) % 2000000,
                                          epoch_us(dateTime) - 10000000, -2000000)) AS s FROM bid)
             GROUP BY auction, s
           )
           SELECT auction, num, make_timestamptz(till) AS till FROM counts
           QUALIFY num = max(num) OVER (PARTITION BY till)""",
        """WITH counts AS (
             SELECT auction, window, count(*) AS num
             FROM bid GROUP BY auction, window(dateTime, '10 seconds', '2 seconds')
           ),
           most AS (SELECT window, max(num) AS num FROM counts GROUP BY window)
           SELECT c.auction, c.num, c.window.end AS till
           FROM counts c JOIN most m ON c.window = m.window AND c.num = m.num""",
        otherwise="counts meet their maxima by the windows' ends",
    ),
    NexmarkQuery(
        "q6",
        "the mean price of the last ten auctions that each seller has closed",
        f"""{_CLOSED}
        SELECT seller, expires, avg(price) OVER (PARTITION BY seller ORDER BY expires
                                                 ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS price
        FROM closed""",
        f"""SELECT seller, expires, avg(price) OVER (PARTITION BY seller ORDER BY expires
                                                     ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS price
            FROM (SELECT a.seller, a.expires, b.price {_WINNING_BIDS})""",
        otherwise=_CLOSES,
    ),
    NexmarkQuery(
        "q7",
        "the highest bids of every ten seconds",
        """WITH highest AS (
             SELECT window.end AS till, max(price) AS price FROM bid GROUP BY window(dateTime, '10 seconds')
           )
           SELECT b.auction, b.price, b.bidder, b.dateTime
           FROM bid b JOIN highest h
             ON b.price = h.price AND b.dateTime >= h.till - INTERVAL 10 SECONDS AND b.dateTime < h.till""",
        f"""SELECT auction, price, bidder, dateTime FROM bid
            QUALIFY price = max(price) OVER (PARTITION BY {_bucket("dateTime", 10)})""",
    ),
    NexmarkQuery(
        "q8",
        "people who opened an auction in the ten seconds in which they came",
        """SELECT p.id, p.name, p.since
           FROM (SELECT id, name, window.start AS since, window.end AS till
                 FROM person GROUP BY id, name, window(dateTime, '10 seconds')) p
           JOIN (SELECT seller, window.end AS till
                 FROM auction GROUP BY seller, window(dateTime, '10 seconds')) a
             ON p.id = a.seller AND p.till = a.till""",
        f"""SELECT DISTINCT p.id, p.name, {_bucket("p.dateTime", 10)} AS since
            FROM person p JOIN auction a
              ON p.id = a.seller AND {_bucket("p.dateTime", 10)} = {_bucket("a.dateTime", 10)}""",
    ),
    NexmarkQuery(
        "q9",
        "the winning bid of each auction",
        f"""SELECT id, seller, category, bidder, price, dateTime
            FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY price DESC, dateTime) AS place
                  FROM ({_VALID}))
            WHERE place <= 1""",
        f"SELECT a.id, a.seller, a.category, b.bidder, b.price, b.dateTime {_WINNING_BIDS}",
        otherwise=_CHANGES,
        changes=True,
    ),
    NexmarkQuery(
        "q10",
        "all bids with their day and hour, for files of each",
        """SELECT auction, bidder, price, dateTime, extra, CAST(dateTime AS date) AS day, hour(dateTime) AS hour
           FROM bid""",
        otherwise="files of a day are the sink's matter",
    ),
    NexmarkQuery(
        "q11",
        "how many bids people make in each session",
        """SELECT bidder, count(*) AS bids, session_window.start AS since, session_window.end AS till
           FROM bid GROUP BY bidder, session_window(dateTime, '10 seconds')""",
        """SELECT bidder, count(*) AS bids, min(dateTime) AS since, max(dateTime) + INTERVAL 10 SECOND AS till
           FROM (SELECT *, sum(CASE WHEN dateTime > previous + INTERVAL 10 SECOND THEN 1 ELSE 0 END)
                           OVER (PARTITION BY bidder ORDER BY dateTime) AS session
                 FROM (SELECT *, lag(dateTime) OVER (PARTITION BY bidder ORDER BY dateTime) AS previous FROM bid))
           GROUP BY bidder, session""",
    ),
    NexmarkQuery(
        "q12",
        "bids by ten seconds of the wall clock",
        missing="each run has another answer",
    ),
    NexmarkQuery(
        "q13",
        "bids with what a table says of their auction",
        f"""SELECT b.auction, b.bidder, b.price, b.dateTime, s.value
            FROM (SELECT *, auction % {SIDE_ROWS} AS side FROM bid) b JOIN {SIDE_TABLE} s ON b.side = s.key""",
        otherwise="the compared column comes from a query in FROM",
    ),
    NexmarkQuery(
        "q14",
        "bids of a range of prices, by time of day, and how many c their text has",
        """SELECT auction, bidder, CAST(0.908 * price AS double) AS price,
                  CASE WHEN hour(dateTime) BETWEEN 8 AND 18 THEN 'dayTime'
                       WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'nightTime'
                       ELSE 'otherTime' END AS bidTimeType,
                  dateTime, extra, length(extra) - length(replace(extra, 'c', '')) AS c_counts
           FROM bid
           WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000""",
        otherwise="length and replace count characters",
    ),
    NexmarkQuery(
        "q15",
        "bids, bidders and auctions of a day, in all and by price",
        _day_statistics(),
        _day_statistics_oracle(),
        _day_statistics(day="window"),
        otherwise=_DISTINCT,
    ),
    NexmarkQuery(
        "q16",
        "bids, bidders and auctions of a day and channel, in all and by price",
        _day_statistics("channel, "),
        _day_statistics_oracle("channel, "),
        _day_statistics("channel, ", day="window"),
        otherwise=_DISTINCT,
    ),
    NexmarkQuery(
        "q17",
        "bids of a day and auction: how many, and their prices",
        """SELECT auction, window.end AS till, count(*) AS total_bids,
                  count(CASE WHEN price < 10000 THEN 1 END) AS rank1_bids,
                  count(CASE WHEN price >= 10000 AND price < 1000000 THEN 1 END) AS rank2_bids,
                  count(CASE WHEN price >= 1000000 THEN 1 END) AS rank3_bids,
                  min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price, sum(price) AS sum_price
           FROM bid GROUP BY auction, window(dateTime, '1 day')""",
        f"""SELECT auction, {_bucket("dateTime", 86400)} + INTERVAL 1 DAY AS till, count(*) AS total_bids,
                  count(*) FILTER (price < 10000) AS rank1_bids,
                  count(*) FILTER (price >= 10000 AND price < 1000000) AS rank2_bids,
                  count(*) FILTER (price >= 1000000) AS rank3_bids,
                  min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price, sum(price) AS sum_price
            FROM bid GROUP BY auction, till""",
        otherwise="a day is a window",
    ),
    NexmarkQuery(
        "q18",
        "the newest bid of each person for each auction",
        """SELECT auction, bidder, price, dateTime
           FROM (SELECT *, row_number() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC) AS place FROM bid)
           WHERE place <= 1""",
        otherwise=_CHANGES,
        changes=True,
    ),
    NexmarkQuery(
        "q19",
        "the ten highest bids of each auction",
        """SELECT auction, bidder, price, dateTime, place
           FROM (SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, dateTime) AS place FROM bid)
           WHERE place <= 10""",
        otherwise=f"{_CHANGES}; of equal prices the earlier comes first",
        changes=True,
    ),
    NexmarkQuery(
        "q20",
        "bids with the auction that they are for, of one category",
        """SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.dateTime, a.itemName, a.description, a.initialBid,
                  a.reserve, a.dateTime AS opened, a.expires, a.seller, a.category
           FROM bid b JOIN auction a ON b.auction = a.id
           WHERE a.category = 10""",
        within="unbounded",
        otherwise=_FOR_GOOD,
    ),
    NexmarkQuery(
        "q21",
        "bids with the number of their channel, from its name or the address",
        r"""SELECT auction, bidder, price, channel,
                   CASE WHEN lower(channel) = 'apple' THEN '0' WHEN lower(channel) = 'google' THEN '1'
                        WHEN lower(channel) = 'facebook' THEN '2' WHEN lower(channel) = 'baidu' THEN '3'
                        ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
            FROM bid
            WHERE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) <> ''
               OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')""",
    ),
    NexmarkQuery(
        "q22",
        "the directories of the addresses of bids",
        """SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2,
                  split_part(url, '/', 6) AS dir3
           FROM bid""",
    ),
)
BY_NAME = {query.name: query for query in QUERIES}
