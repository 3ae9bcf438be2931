"""The rows of a scenario, made once: streams of Parquet files, one file of each an epoch.

A row's id tells the file it came in, so that every result tells when its newest row arrived.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.data import FIRST_ARRIVAL
from benchmarks.workloads import FIRST_EVENT
from sluice.kernels.hashing import hash_keys
from sluice.model.routing.directory import Directory

SECOND = 1_000_000


@dataclass(frozen=True)
class Hot:
    """Keys that get a greater share of the rows: those of some neighbouring units, which move on with time.

    Neighbours in the hash are at one site until something moves them. Skew of as many keys drawn at random would be
    spread evenly by the hash, and no placement would be better than another.
    """

    units: int  # whose keys are hot
    of: int
    share: float  # of the rows that they get
    first: int  # files before the first change
    files: int  # from one change to the next
    step: int  # units that are hot no longer after a change, and as many that are hot now

    def holds(self, unit: np.ndarray, number: int) -> np.ndarray:
        """Which units are hot in a file."""
        turn = max(0, (number - self.first) // self.files)
        hot: np.ndarray = (unit - turn * self.step) % self.of < self.units
        return hot


@dataclass(frozen=True)
class JoinRates:
    """How often keys recur, by unit, as the lazy-disk paper has it: all units get equally many rows, and of two units
    the one with twice the rate has half of the keys."""

    of: int  # units
    cycle: tuple[int, ...]  # the rates of units 0, 1, ..., and over again

    @property
    def by_unit(self) -> np.ndarray:
        return np.resize(self.cycle, self.of)

    def says(self) -> str:
        rates, units = np.unique(self.by_unit, return_counts=True)
        each = (f"{rate} in {count}" for rate, count in zip(rates[::-1].tolist(), units[::-1].tolist(), strict=True))
        return f"join rates of {', '.join(each)} of the {self.of} units"


@dataclass(frozen=True)
class Surge:
    """More rows for the units that begin at one site, then for those of the next, and so on."""

    times: int  # as many rows as a unit of another site
    first: int  # files of the first site's turn
    files: int  # of every turn after it

    def site(self, number: int, sites: int) -> int:
        """Whose turn it is in a file.

        >>> surge = Surge(times=10, first=5, files=10)
        >>> [surge.site(number, sites=2) for number in (0, 4, 5, 14, 15, 25)]
        [0, 0, 1, 1, 0, 1]
        """
        return 0 if number < self.first else (1 + (number - self.first) // self.files) % sites


@dataclass(frozen=True)
class SiteLoad:
    """Rows for some of the units that begin at each site, equally many for each unless there is a surge.

    A query begins with as many units at one site as at any other. Where 60, 20 and 20 of 60 get rows, the load is as if
    the first site had been given 60 % of all units.
    """

    units: int  # that begin at each site
    loaded: tuple[int, ...]  # how many of them get rows, by site
    surge: Surge | None = None

    @property
    def all_units(self) -> int:
        return self.units * len(self.loaded)

    @property
    def loaded_part(self) -> float:
        """The part of all units that get rows."""
        return sum(self.loaded) / self.all_units

    def shares(self, number: int) -> np.ndarray:
        """The part of a file's rows that each unit gets."""
        site, place = np.divmod(np.arange(self.all_units), self.units)
        weights = (place < np.array(self.loaded)[site]).astype(float)
        if self.surge is not None:
            weights[site == self.surge.site(number, len(self.loaded))] *= self.surge.times
        shares: np.ndarray = weights / weights.sum()
        return shares

    def says(self) -> str:
        by_site = ", ".join(map(str, self.loaded))
        text = f"of the {self.units} units that begin at each site {by_site} get rows"
        if self.surge is not None:
            text += (
                f", those of one site {self.surge.times} times as many as the others, for {self.surge.first} files, "
                f"then those of the next for {self.surge.files}, and so on"
            )
        return text


@dataclass(frozen=True)
class Slowdown:
    """A rate of arrival that falls: files that span more event time than those before, with as many rows."""

    first: int  # file of the lower rate
    seconds: int  # of event time in each from there on


@dataclass(frozen=True)
class Rows:
    """Streams of files with `rows` rows each, joined on `key` within `within` seconds of event time; None is for good.

    With join rates, there are as many `keys` as there would be if all rates were 1; with a load by site, as many as
    there would be if all units got rows.
    """

    name: str
    files: int
    rows: int
    keys: int
    seconds: int = 5  # of event time in a file
    within: int | None = 10
    wide: int = 0  # bytes of payload a row, for state that has a size
    hot: Hot | None = None
    streams: str = "AB"  # a letter each
    one_key: float = 0.0  # of the rows, those of one single key
    where: str | None = None  # in place of equal keys, what a pair has to meet
    rates: JoinRates | None = None
    load: SiteLoad | None = None
    slowdown: Slowdown | None = None

    def says(self, files: int | None = None) -> str:
        within = "without a window" if self.within is None else f"within {self.within} s"
        streams = f"{len(self.streams)} streams x {files or self.files} files x {self.rows:,} rows"
        text = f"{streams}, {self.keys:,} keys, {self.where or 'equal keys'} {within}"
        if self.one_key:
            text += f"; {self.one_key:.0%} of the rows are of one key"
        if self.rates:
            text = f"{streams}, {within}; {self.rates.says()}, where a rate of 1 is {self.keys:,} keys in all units"
        if self.load:
            count = round(self.keys * self.load.loaded_part)
            text = f"{streams}, about {count:,} keys, {within}; {self.load.says()}"
        if self.hot:
            part = self.hot.units / self.hot.of
            text += (
                f"; {self.hot.share:.0%} of the rows on {part:.0%} of the keys, neighbours in the hash, of which "
                f"{self.hot.step / self.hot.units:.0%} change after every {self.hot.files} files"
            )
        if self.slowdown:
            text += (
                f"; a file spans {self.seconds} s of event time, from the {self.slowdown.first + 1}th on "
                f"{self.slowdown.seconds} s"
            )
        return text

    def times(self, ids: np.ndarray) -> np.ndarray:
        """The event times of rows, in microseconds after the first.

        >>> rows = Rows("slower", files=3, rows=2, keys=1, seconds=4, slowdown=Slowdown(first=1, seconds=40))
        >>> (rows.times(np.arange(6)) // SECOND).tolist()
        [0, 2, 4, 24, 44, 64]
        """
        at: np.ndarray = ids * (self.seconds * SECOND) // self.rows
        if self.slowdown is None:
            return at
        since = ids - self.slowdown.first * self.rows
        begin = self.slowdown.first * self.seconds * SECOND
        return np.where(since < 0, at, begin + since * (self.slowdown.seconds * SECOND) // self.rows)


def prepared(rows: Rows, cache: Path) -> Path:
    """Directory with `A/<number>.parquet` and `B/<number>.parquet`, made if it is not there yet."""
    home = cache / f"adapt-{rows.name}-{rows.files}x{rows.rows}"
    about, described = home / "rows.json", json.dumps(asdict(rows))
    if about.exists() and about.read_text() == described:
        return home
    shutil.rmtree(home, ignore_errors=True)
    for stream, name in enumerate(rows.streams):
        (home / name).mkdir(parents=True)
        for number in range(rows.files):
            path = home / name / f"{number:04d}.parquet"
            pq.write_table(table(rows, stream, number), path)
            os.utime(path, (FIRST_ARRIVAL + number,) * 2)
    about.write_text(described)
    return home


def table(rows: Rows, stream: int, number: int) -> pa.Table:
    """One file of one stream; the same rows whenever it is asked for."""
    rng = np.random.default_rng([5, stream, number])
    ids = np.arange(number * rows.rows, (number + 1) * rows.rows)
    at = FIRST_EVENT + rows.times(ids)
    drawn = keys(rows, rng, number)
    columns = {"key": drawn, "ts": pa.array(at, pa.timestamp("us", tz="UTC")), "id": ids}
    if rows.wide:
        drawn_bytes = pa.py_buffer(rng.bytes(rows.wide * rows.rows))
        fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(rows.wide), rows.rows, [None, drawn_bytes])
        columns["payload"] = fixed.cast(pa.binary())
    return pa.table(columns)


def keys(rows: Rows, rng: np.random.Generator, number: int) -> np.ndarray:
    if rows.load is not None:
        shares = rows.load.shares(number)
        units = rng.choice(len(shares), rows.rows, p=shares)
        return keys_of_units(rows.keys, rows.rates or JoinRates(len(shares), (1,)), units, rng)
    if rows.rates is not None:
        return keys_at_rates(rows.keys, rows.rates, rows.rows, rng)
    drawn = rng.integers(0, rows.keys, rows.rows)
    if rows.one_key:
        drawn[rng.random(rows.rows) < rows.one_key] = 0
    if rows.hot is None:
        return drawn
    all_, units = units_of_keys(rows.keys, rows.hot.of)
    hot = all_[rows.hot.holds(units, number)]
    return np.where(rng.random(rows.rows) < rows.hot.share, rng.choice(hot, rows.rows), drawn)


def keys_at_rates(count: int, rates: JoinRates, rows: int, rng: np.random.Generator) -> np.ndarray:
    """Keys for so many rows, of all units equally often."""
    return keys_of_units(count, rates, rng.integers(0, rates.of, rows), rng)


def keys_of_units(count: int, rates: JoinRates, unit: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A key for each row, given its unit: one of the unit's first ones, as many as its rate leaves, each as often as
    the other."""
    all_, units = units_of_keys(count, rates.of)
    by_unit = all_[np.argsort(units, kind="stable")]
    there = np.bincount(units, minlength=rates.of)
    left = np.maximum(1, there // rates.by_unit)
    return by_unit[(np.cumsum(there) - there)[unit] + (rng.random(len(unit)) * left[unit]).astype(np.int64)]


@lru_cache(maxsize=1)
def units_of_keys(count: int, units: int) -> tuple[np.ndarray, np.ndarray]:
    """The keys 0, 1, ... and the unit of each."""
    all_ = np.arange(count)
    return all_, Directory(units).unit_of(hash_keys([pa.array(all_)]))


def linked(streams: str, home: Path, target: Path, first: int, last: int) -> None:
    """Have files of all streams arrive in a directory, each at once and whole."""
    for stream in streams:
        (target / stream).mkdir(parents=True, exist_ok=True)
    for number in range(first, last):
        for stream in streams:
            os.link(home / stream / f"{number:04d}.parquet", target / stream / f"{number:04d}.parquet")
