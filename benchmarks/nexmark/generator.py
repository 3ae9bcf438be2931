"""People, auctions and bids by the proportions that the Nexmark suite publishes; the same rows for the same seed.

Of each 50 events the first is a person, the next three are auctions and the others bids. Most auctions are of a hot
seller, most bids by a hot bidder, and half of them for a hot auction: the newest whose number is a multiple of 100.
Others are for one of the newest 100 auctions, by one of the newest 1,000 people.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from benchmarks.workloads import FIRST_EVENT

SECOND = 1_000_000
PEOPLE, AUCTIONS, BIDS = 1, 3, 46
CYCLE = PEOPLE + AUCTIONS + BIDS
FIRST_ID, HOT_UNIT = 1000, 100
HOT_SELLERS, HOT_BIDDERS, HOT_AUCTIONS = 0.75, 0.75, 0.5
ACTIVE_PEOPLE, OPEN_AUCTIONS = 1000, 100
FIRST_CATEGORY, CATEGORIES = 10, 5
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
CHANNELS = 10_000
CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
LONGEST_AUCTION_SECONDS = 10
"""No auction lasts longer."""
TIME = pa.timestamp("us", "UTC")
SCHEMAS = {
    "person": "id bigint, name string, emailAddress string, creditCard string, city string, state string, "
    "dateTime timestamp, extra string",
    "auction": "id bigint, itemName string, description string, initialBid bigint, reserve bigint, "
    "dateTime timestamp, expires timestamp, seller bigint, category bigint, extra string",
    "bid": "auction bigint, bidder bigint, price bigint, channel string, url string, dateTime timestamp, extra string",
}
STREAMS = tuple(SCHEMAS)
SIDE_TABLE, SIDE_ROWS = "side_input", 10_000
"""The table of query 13: a value for each remainder of an auction's number."""


def make_side_table() -> pa.Table:
    """The rows of the table."""
    keys = np.arange(SIDE_ROWS)
    return pa.table({"key": keys, "value": _texts("value ", keys.astype(str))})


@dataclass(frozen=True)
class Events:
    """So many events, of which so many happen in a second of event time, in so many files of each stream."""

    count: int
    files: int = 1
    per_second: int = 10_000
    seed: int = 1

    @property
    def rows_by_stream(self) -> dict[str, int]:
        """How many rows each stream has in all."""
        whole, rest = divmod(self.count, CYCLE)
        people, auctions = min(rest, PEOPLE), min(max(rest - PEOPLE, 0), AUCTIONS)
        bids = max(rest - PEOPLE - AUCTIONS, 0)
        return {"person": whole * PEOPLE + people, "auction": whole * AUCTIONS + auctions, "bid": whole * BIDS + bids}

    def first(self, files: int) -> Events:
        """The events of the first files."""
        return replace(self, count=self._edge(files), files=files)

    def tables(self, file: int) -> dict[str, pa.Table]:
        """The rows of one file of each stream."""
        numbers = np.arange(self._edge(file), self._edge(file + 1))
        rng = np.random.default_rng([self.seed, file])
        offsets = numbers % CYCLE
        is_person, is_auction = offsets < PEOPLE, (offsets >= PEOPLE) & (offsets < PEOPLE + AUCTIONS)
        return {
            "person": self._people(rng, numbers[is_person]),
            "auction": self._auctions(rng, numbers[is_auction]),
            "bid": self._bids(rng, numbers[~is_person & ~is_auction]),
        }

    def _edge(self, file: int) -> int:
        """The number of the first event of a file."""
        return self.count * file // self.files

    def _times(self, numbers: np.ndarray) -> np.ndarray:
        times: np.ndarray = FIRST_EVENT + numbers * SECOND // self.per_second
        return times

    def _people(self, rng: np.random.Generator, numbers: np.ndarray) -> pa.Table:
        count, ids = len(numbers), FIRST_ID + numbers // CYCLE
        names = _pair_up(rng, FIRST_NAMES, LAST_NAMES, " ", count)
        digits = rng.integers(0, 10_000, (4, count)).astype(str)
        return pa.table(
            {
                "id": ids,
                "name": names,
                "emailAddress": _texts(names, "@", rng.integers(0, 10_000, count).astype(str), ".com"),
                "creditCard": _texts(digits[0], " ", digits[1], " ", digits[2], " ", digits[3]),
                "city": rng.choice(CITIES, count),
                "state": rng.choice(STATES, count),
                "dateTime": pa.array(self._times(numbers), TIME),
                "extra": _padding(rng, count),
            }
        )

    def _auctions(self, rng: np.random.Generator, numbers: np.ndarray) -> pa.Table:
        count, cycles = len(numbers), numbers // CYCLE
        times, initial = self._times(numbers), _prices(rng, count)
        open_time = OPEN_AUCTIONS * CYCLE // AUCTIONS * SECOND // self.per_second
        length = np.minimum(rng.integers(1, 2 * open_time + 1, count), LONGEST_AUCTION_SECONDS * SECOND)
        return pa.table(
            {
                "id": FIRST_ID + cycles * AUCTIONS + numbers % CYCLE - PEOPLE,
                "itemName": _padding(rng, count),
                "description": _padding(rng, count),
                "initialBid": initial,
                "reserve": initial + _prices(rng, count),
                "dateTime": pa.array(times, TIME),
                "expires": pa.array(times + length, TIME),
                "seller": _draw(rng, cycles, HOT_SELLERS, ACTIVE_PEOPLE, hot_offset=0),
                "category": FIRST_CATEGORY + rng.integers(0, CATEGORIES, count),
                "extra": _padding(rng, count),
            }
        )

    def _bids(self, rng: np.random.Generator, numbers: np.ndarray) -> pa.Table:
        count, cycles = len(numbers), numbers // CYCLE
        newest_auction = cycles * AUCTIONS + AUCTIONS - 1
        channels, urls = _channels(rng, count)
        return pa.table(
            {
                "auction": _draw(rng, newest_auction, HOT_AUCTIONS, OPEN_AUCTIONS, hot_offset=0),
                "bidder": _draw(rng, cycles, HOT_BIDDERS, ACTIVE_PEOPLE, hot_offset=1),
                "price": _prices(rng, count),
                "channel": channels,
                "url": urls,
                "dateTime": pa.array(self._times(numbers), TIME),
                "extra": _padding(rng, count),
            }
        )


def _draw(rng: np.random.Generator, newest: np.ndarray, hot: float, active: int, hot_offset: int) -> np.ndarray:
    """Ids of those that were there: with this probability the hot one of the moment, else one of the newest."""
    is_hot = rng.random(len(newest)) < hot
    chosen = newest - (rng.random(len(newest)) * np.minimum(newest + 1, active)).astype(np.int64)
    hottest = np.minimum(newest // HOT_UNIT * HOT_UNIT + hot_offset, newest)
    ids: np.ndarray = FIRST_ID + np.where(is_hot, hottest, chosen)
    return ids


def _prices(rng: np.random.Generator, count: int) -> np.ndarray:
    """Cents; each power of ten is as likely as the next."""
    prices: np.ndarray = np.round(10 ** (rng.random(count) * 6) * 100).astype(np.int64)
    return prices


def _channels(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Half of the bids come from few channels, the others name their channel in the address, most of them."""
    is_hot, number = rng.random(count) < 0.5, rng.integers(0, CHANNELS, count)
    channels = np.where(is_hot, rng.choice(HOT_CHANNELS, count), _texts("channel-", number.astype(str)))
    host = _texts(
        "https://www.nexmark.com/", *(part for _ in range(3) for part in (_word(rng, count), "/")), "item.htm"
    )
    named = _texts(host, "?query=1&channel_id=", number.astype(str))
    return channels, np.where(is_hot | (rng.random(count) < 0.1), _texts(host, "?query=1"), named)


def _word(rng: np.random.Generator, count: int) -> np.ndarray:
    letters = rng.integers(ord("a"), ord("f"), (count, 5), dtype=np.uint32)
    return letters.view("<U5").reshape(count) if count else np.empty(0, "<U5")


def _padding(rng: np.random.Generator, count: int) -> np.ndarray:
    return _texts(_word(rng, count), " ", _word(rng, count))


def _pair_up(
    rng: np.random.Generator, first: tuple[str, ...], second: tuple[str, ...], by: str, count: int
) -> np.ndarray:
    return _texts(rng.choice(first, count), by, rng.choice(second, count))


def _texts(*parts: np.ndarray | str) -> np.ndarray:
    """Texts put together, row by row."""
    whole: np.ndarray = np.asarray(parts[0], dtype=np.str_)
    for part in parts[1:]:
        whole = np.char.add(whole, part)
    return whole
