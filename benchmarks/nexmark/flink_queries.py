"""The queries of Nexmark in Flink's SQL, each from what it asks for; only the standard library is imported here, as by
the interpreter that has Flink.

Flink has windows as functions of tables. What it cannot run has the reason in `MISSING`.
"""

from __future__ import annotations

_WATERMARK = "WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '0.001' SECOND"
TABLES = {
    "person": "id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, state STRING, "
    f"`dateTime` TIMESTAMP(3), extra STRING, {_WATERMARK}",
    "auction": "id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, "
    f"`dateTime` TIMESTAMP(3), expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra STRING, {_WATERMARK}",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, `dateTime` TIMESTAMP(3), "
    f"extra STRING, {_WATERMARK}",
    "side_input": "`key` BIGINT, `value` STRING",
}
SIDE_ROWS = 10_000
"""Rows of the table of query 13, as in `generator`, which this interpreter cannot import."""
_VALID = """SELECT a.id, a.seller, a.category, b.bidder, b.price, b.`dateTime`
    FROM auction a JOIN bid b ON a.id = b.auction AND b.`dateTime` BETWEEN a.`dateTime` AND a.expires"""
_RANKS = {"rank1": "price < 10000", "rank2": "price >= 10000 AND price < 1000000", "rank3": "price >= 1000000"}
_RANKED = ", ".join(f"count(*) FILTER (WHERE {condition}) AS {rank}_bids" for rank, condition in _RANKS.items())
_DISTINCT = ", ".join(
    f"count(DISTINCT {thing}) AS total_{thing}s, "
    + ", ".join(f"count(DISTINCT {thing}) FILTER (WHERE {c}) AS {rank}_{thing}s" for rank, c in _RANKS.items())
    for thing in ("bidder", "auction")
)
_DAY = "DATE_FORMAT(`dateTime`, 'yyyy-MM-dd')"
_CHANNEL_ID = "REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2)"


def _window(function: str, table: str, *durations: str) -> str:
    lengths = ", ".join(f"INTERVAL '{seconds}' SECOND" for seconds in durations)
    return f"TABLE({function}(TABLE {table}, DESCRIPTOR(`dateTime`), {lengths}))"


_TEN_SECONDS = "GROUP BY window_start, window_end"
QUERIES = {
    "q0": "SELECT auction, bidder, price, `dateTime`, extra FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, `dateTime`, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0",
    "q3": """SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
             WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    "q4": f"""SELECT category, avg(price) AS price FROM (
                SELECT id, category, max(price) AS price FROM ({_VALID}) GROUP BY id, category
              ) GROUP BY category""",
    "q5": f"""WITH counts AS (
                SELECT auction, count(*) AS num, window_start, window_end
                FROM {_window("HOP", "bid", "2", "10")} GROUP BY auction, window_start, window_end
              )
              SELECT c.auction, c.num, c.window_end FROM counts c
              JOIN (SELECT max(num) AS num, window_start, window_end FROM counts {_TEN_SECONDS}) m
                ON c.window_start = m.window_start AND c.window_end = m.window_end AND c.num = m.num""",
    "q7": f"""SELECT b.auction, b.price, b.bidder, b.`dateTime` FROM bid b
              JOIN (SELECT max(price) AS price, window_time AS till
                    FROM {_window("TUMBLE", "bid", "10")} GROUP BY window_start, window_end, window_time) h
                ON b.price = h.price AND b.`dateTime` BETWEEN h.till - INTERVAL '10' SECOND AND h.till""",
    "q8": f"""SELECT p.id, p.name, p.window_start AS since
              FROM (SELECT id, name, window_start, window_end
                    FROM {_window("TUMBLE", "person", "10")} GROUP BY id, name, window_start, window_end) p
              JOIN (SELECT seller, window_start, window_end
                    FROM {_window("TUMBLE", "auction", "10")} GROUP BY seller, window_start, window_end) a
                ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end""",
    "q9": f"""SELECT id, seller, category, bidder, price, `dateTime` FROM (
                SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY price DESC, `dateTime`) AS place FROM ({_VALID})
              ) WHERE place <= 1""",
    "q10": f"SELECT auction, bidder, price, `dateTime`, extra, {_DAY} AS `day`, HOUR(`dateTime`) AS `hour` FROM bid",
    "q11": """SELECT bidder, count(*) AS bids, window_start AS since, window_end AS till
              FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
              GROUP BY bidder, window_start, window_end""",
    "q13": f"""SELECT b.auction, b.bidder, b.price, b.`dateTime`, s.`value`
               FROM (SELECT *, MOD(auction, {SIDE_ROWS}) AS side FROM bid) b
               JOIN side_input s ON b.side = s.`key`""",
    "q14": """SELECT auction, bidder, 0.908 * price AS price,
                CASE WHEN HOUR(`dateTime`) BETWEEN 8 AND 18 THEN 'dayTime'
                     WHEN HOUR(`dateTime`) <= 6 OR HOUR(`dateTime`) >= 20 THEN 'nightTime'
                     ELSE 'otherTime' END AS bidTimeType,
                `dateTime`, extra, CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) AS c_counts
              FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000""",
    "q15": f"SELECT {_DAY} AS `day`, count(*) AS total_bids, {_RANKED}, {_DISTINCT} FROM bid GROUP BY {_DAY}",
    "q16": f"""SELECT channel, {_DAY} AS `day`, count(*) AS total_bids, {_RANKED}, {_DISTINCT}
               FROM bid GROUP BY channel, {_DAY}""",
    "q17": f"""SELECT auction, {_DAY} AS `day`, count(*) AS total_bids, {_RANKED}, min(price) AS min_price,
                 max(price) AS max_price, avg(price) AS avg_price, sum(price) AS sum_price
               FROM bid GROUP BY auction, {_DAY}""",
    "q18": """SELECT auction, bidder, price, `dateTime` FROM (
                SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY `dateTime` DESC) AS place FROM bid
              ) WHERE place <= 1""",
    "q19": """SELECT auction, bidder, price, `dateTime`, place FROM (
                SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS place FROM bid
              ) WHERE place <= 10""",
    "q20": """SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.`dateTime`, a.itemName, a.description,
                a.initialBid, a.reserve, a.`dateTime` AS opened, a.expires, a.seller, a.category
              FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10""",
    "q21": f"""SELECT auction, bidder, price, channel,
                 CASE WHEN LOWER(channel) = 'apple' THEN '0' WHEN LOWER(channel) = 'google' THEN '1'
                      WHEN LOWER(channel) = 'facebook' THEN '2' WHEN LOWER(channel) = 'baidu' THEN '3'
                      ELSE {_CHANNEL_ID} END AS channel_id
               FROM bid
               WHERE {_CHANNEL_ID} IS NOT NULL OR LOWER(channel) IN ('apple', 'google', 'facebook', 'baidu')""",
    "q22": """SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3) AS dir1,
                SPLIT_INDEX(url, '/', 4) AS dir2, SPLIT_INDEX(url, '/', 5) AS dir3 FROM bid""",
}
MISSING = {"q6": "Flink orders the rows of a table that changes by no time"}
"""Why there is no text of a query."""
