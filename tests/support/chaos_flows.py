"""Flows for tests that disturb them, each with its batch query in DuckDB and random rows to go through both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from duplicates_oracle import first_rows
from group_by_oracle import last_of, sessions_of, source, windows_of
from oracle import connect_duckdb, on_time, rounded
from specs import REGISTRY, SECOND, TIME

from sluice import Flow
from sluice.api.joining import build_join
from sluice.api.relation import result_of
from sluice.api.stream import DataStream
from sluice.engine.static_tables import TableSource
from sluice.model.epoch.times import ENDED
from sluice.model.plan.plan import Plan
from sluice.model.plan.planning import plan_of
from sluice.record.epoch import EpochRecord

Marks = dict[str, int]
SOME = {"n": ("*", "count"), "total": ("v", "sum"), "mean": ("v", "avg"), "low": ("w", "min"), "newest": ("v", "last")}
NOTHING_YET = -(10**18)


class ChangingTable:
    """A table `t` that somebody changes while a flow runs, as files or as what a function returns. No two contents have
    as many rows, by which records tell them apart."""

    KEYS = 20

    def __init__(self, rng: np.random.Generator, root: Path, divided: bool) -> None:
        self._rng, self._contents, self.chosen_by_batch = rng, [], {}
        self._path = root / "table" if rng.random() < 0.5 else None
        self._file: Path | None = None
        self.flow = Flow(name="flow")
        self.change()
        refresh = str(rng.choice(["0 seconds", "30 milliseconds"])) if rng.random() < 0.8 else None
        rows = str(self._path) if self._path else self._read
        self.table = self.flow.table("t", rows, refresh=refresh, divided=divided)

    @property
    def sources(self) -> Mapping[str, TableSource]:
        return self.flow._registry.tables

    def change(self) -> None:
        """Another content: keys that several rows have, that none has, and none at all."""
        number = len(self._contents)
        count = int(self._rng.integers(0, 30))
        count += next(extra for extra in range(100) if count + extra not in {len(one) for one in self._contents})
        keys = self._rng.integers(0, self.KEYS, count)
        missing = self._rng.random(count) < 0.1
        values = pa.array(np.full(count, number), pa.int64())
        self._contents.append(pa.table({"k": pa.array(keys, pa.int64(), mask=missing), "p": values}))
        if self._path is not None:
            self._path.mkdir(exist_ok=True)
            before, self._file = self._file, self._path / f"{number}.parquet"
            written = self._path / f"_{number}"
            pq.write_table(self._contents[-1], written)
            if before is not None:
                before.unlink()
            written.rename(self._file)

    def _read(self) -> pa.Table:
        return self._contents[-1]

    def note(self, record: EpochRecord) -> None:
        """Which content the rows of a batch met."""
        (version,) = record.tables
        if not record.stats.catch_up:
            self.chosen_by_batch[record.batch] = version.rows

    def contents(self) -> pa.Table:
        """All of them, each with its number of rows."""
        return pa.concat_tables(
            one.append_column("content", pa.array([len(one)] * len(one), pa.int64())) for one in self._contents
        )

    def chosen(self) -> pa.Table:
        """The content of each batch."""
        batches, contents = self.chosen_by_batch.keys(), self.chosen_by_batch.values()
        return pa.table({"batch": pa.array(batches, pa.int64()), "content": pa.array(contents, pa.int64())})


@dataclass(frozen=True)
class TestedFlow:
    """A plan, and for each of its outputs the SQL over the streams by name, given their final watermarks."""

    name: str
    plan: Plan
    oracles: tuple[Callable[[Marks], str], ...]
    table: ChangingTable | None = None
    __test__ = False

    @property
    def tables(self) -> Mapping[str, TableSource]:
        """What streams are joined with, as drivers get it."""
        return {} if self.table is None else self.table.sources

    def expected(self, seen: Sequence[Sequence[pa.Table]], ended: bool = False) -> tuple[list[Counter], int]:
        """Each output of the batch query over the rows that were not late, given how batches cut the streams and
        whether these have `ended`, and how many rows were late."""
        marks, late = {}, 0
        with connect_duckdb() as db:
            for stream, tables in zip(self.plan.sources, seen, strict=True):
                numbered = [t.append_column("epoch", pa.array([i] * len(t), pa.int64())) for i, t in enumerate(tables)]
                good, too_late = on_time(numbered, "ts", stream.delay)
                late += too_late
                db.register(stream.name, good)
                db.register(f"every_{stream.name}", pa.concat_tables(numbered))
                times = [t for table in tables for t in table["ts"].cast(pa.int64()).to_pylist() if t is not None]
                marks[stream.name] = ENDED if ended else max(times, default=NOTHING_YET) - (stream.delay or 0)
            if self.table is not None:
                db.register("t", self.table.contents())
                db.register("chosen", self.table.chosen())
            return [rounded(db.sql(oracle(marks)).to_arrow_table()) for oracle in self.oracles], late


def drawn(name: str, rng: np.random.Generator, root: Path | None = None) -> TestedFlow:
    """The flow of this name with parameters drawn at random. One with a table has its files below a root."""
    return _FLOWS[name](rng) if root is None or name in _FLOWS else _FLOWS_WITH_TABLES[name](rng, root)


def rows(rng: np.random.Generator, count: int, around: int, spread: int, keys: int, nulls: bool) -> pa.Table:
    """Rows of one batch near a point in time, some keys much more frequent than others; no two of one time."""
    low = max(0, around - spread)
    times = low + np.sort(rng.choice(around + spread + count - low, count, replace=False))
    rng.shuffle(times[: count // 3])  # out of order, but not all of it
    of = np.minimum(rng.geometric(0.25, count) - 1, keys - 1)
    missing = rng.random((4, count)) < (0.08 if nulls else 0.0)
    columns = [of, times, rng.integers(-3, 9, count), rng.choice([0.5, 1e9, -2.25], count)]
    kinds = [pa.int64(), TIME, pa.int64(), pa.float64()]
    arrays = [pa.array(c, k, mask=m) for c, k, m in zip(columns, kinds, missing, strict=True)]
    return pa.table(arrays, schema=source("any").stream.schema)


def _delay(rng: np.random.Generator) -> int:
    return int(rng.choice([0, 2 * SECOND, 30 * SECOND]))


def _flow(name: str, results: list[DataStream], *oracles: Callable[[Marks], str]) -> TestedFlow:
    return TestedFlow(name, plan_of([r.relation for r in results]), oracles)


def joined(names: str, before: int, after: int, where: str | None = None, *, keyed: bool = True) -> str:
    """All rows of some streams, with equal keys, those of the later ones within so many seconds of the first's."""
    columns = ", ".join(f"{n}.{c} AS {n}_{c}" for n in names for c in ("k", "ts", "v", "w"))
    conditions = [f"{a}.k = {b}.k" for a, b in pairwise(names)] if keyed else []
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            apart = f"epoch_us({b}.ts) - epoch_us({a}.ts)"
            conditions.append(f"{apart} BETWEEN {-before * SECOND} AND {after * SECOND}")
    conditions += [f"({where})"] if where else []
    return f"SELECT {columns} FROM {', '.join(names)} WHERE {' AND '.join(conditions)}"


def _pairs(rng: np.random.Generator) -> tuple[DataStream, DataStream, DataStream, str]:
    a, b = source("a", delay=_delay(rng)), source("b", delay=_delay(rng))
    before, after = (int(n) for n in rng.integers(0, 20, 2))
    where = "a.v >= b.v" if rng.random() < 0.3 else None
    pairs = a.join(b, on="k", within=(f"{before} seconds", f"{after} seconds"), where=where)
    return a, b, pairs, joined("ab", before, after, where)


def two_way(rng: np.random.Generator) -> TestedFlow:
    _, _, pairs, text = _pairs(rng)
    return _flow("two-way join", [pairs], lambda marks: text)


def kept_for_good(rng: np.random.Generator) -> TestedFlow:
    """No watermark: nothing is late, nothing expires."""
    a, b = source("a", delay=None), source("b", delay=_delay(rng))
    within = int(rng.integers(0, 30))
    pairs = a.join(b, on="k", within=f"{within} seconds")
    return _flow("join without watermark", [pairs], lambda marks: joined("ab", within, within))


def three_way(rng: np.random.Generator) -> TestedFlow:
    streams = [source(name, delay=_delay(rng)) for name in "abc"]
    within = int(rng.integers(0, 6))
    triples = DataStream(REGISTRY, "", result_of(*build_join(streams, "k", f"{within} seconds", None)))
    return _flow("three-way join", [triples], lambda marks: joined("abc", within, within))


def compared(rng: np.random.Generator) -> TestedFlow:
    """A theta join, whose one unit moves as a whole, and windows of its results in units of their own."""
    a, b = source("a", delay=_delay(rng)), source("b", delay=_delay(rng))
    before, after = (int(n) for n in rng.integers(0, 6, 2))
    where = str(rng.choice(["a.v > b.v", "abs(a.v - b.v) <= 1 AND a.w <> b.w", "a.v = 2 OR b.k > a.k"]))
    pairs = a.join(b, within=(f"{before} seconds", f"{after} seconds"), where=where)
    some = {"n": ("*", "count"), "total": ("a_v", "sum")}
    result = pairs.groupBy("b_v").window("10 seconds", "5 seconds").agg(**some)
    text = joined("ab", before, after, where, keyed=False)
    return _flow("theta join, then windows", [result], lambda marks: _windows_of_pairs(text, marks, "b_v"))


def joined_with_itself(rng: np.random.Generator) -> TestedFlow:
    a = source("a", delay=_delay(rng))
    within = int(rng.integers(0, 12))
    pairs = a.alias("x").join(a.alias("y"), on="k", within=f"{within} seconds")
    text = joined("xy", within, within)
    return _flow("join with itself", [pairs], lambda marks: f"WITH x AS (FROM a), y AS (FROM a) {text}")


def compared_pairs(rng: np.random.Generator) -> TestedFlow:
    """A theta join over the results of an equality join and a filtered stream: the units of both can be shared."""
    _, _, pairs, text = _pairs(rng)
    c, within = source("c", delay=_delay(rng)), int(rng.integers(0, 6))
    some = c.filter("v > 0").alias("some")
    chosen = pairs.select("a_k AS k", "a_v AS v", "b_v AS u").alias("p")
    triples = chosen.join(some, within=f"{within} seconds", where="p.v > some.v AND p.k <> some.k")
    result = triples.select("p_k", "p_v", "p_u", "some_k", "some_v", "some_w")

    def oracle(marks: Marks) -> str:
        return f"""SELECT p.a_k AS p_k, p.a_v AS p_v, p.b_v AS p_u, c.k AS some_k, c.v AS some_v, c.w AS some_w
            FROM (SELECT *, greatest(epoch_us(a_ts), epoch_us(b_ts)) AS at FROM ({text})) p, c
            WHERE c.v > 0 AND p.a_v > c.v AND p.a_k <> c.k AND abs(epoch_us(c.ts) - p.at) <= {within * SECOND}"""

    return _flow("theta join over a join", [result], oracle)


def time_windows(rng: np.random.Generator) -> TestedFlow:
    a = source("a", delay=_delay(rng))
    length, slide = (int(s) * SECOND for s in rng.choice([(10, 10), (10, 4), (3, 7), (30, 5)]))
    result = a.groupBy("k").window(f"{length} microseconds", f"{slide} microseconds").agg(**SOME)
    return _flow("time windows", [result], lambda marks: windows_of("a", length, slide, SOME, marks["a"]))


def sessions(rng: np.random.Generator) -> TestedFlow:
    """Sessions that end all the time, now and then, or never, of a stream and of the windows over it."""
    a, gap = source("a", delay=_delay(rng)), int(rng.choice([1, SECOND // 4, SECOND, 5 * SECOND, 60 * SECOND]))
    result = a.groupBy("k").session_window(f"{gap} microseconds").agg(**SOME)
    bars = a.groupBy("k").window("2 seconds").agg(n=("*", "count"), total=("v", "sum"))
    busy = bars.groupBy("k").session_window("3 seconds").agg(windows=("*", "count"), n=("n", "sum"))

    def of_windows(marks: Marks) -> str:
        bars = windows_of("a", 2 * SECOND, 2 * SECOND, {"n": ("*", "count"), "total": ("v", "sum")}, marks["a"])
        timed = f"(SELECT *, window_end AS ts, 0 AS epoch FROM ({bars}))"
        return sessions_of(timed, 3 * SECOND, {"windows": ("*", "count"), "n": ("n", "sum")}, marks["a"])

    return _flow("sessions", [result, busy], lambda marks: sessions_of("a", gap, SOME, marks["a"]), of_windows)


def windows_over_windows(rng: np.random.Generator) -> TestedFlow:
    """What the windows of one time amount to, and the first of them, in units of their own."""
    a, count = source("a", delay=_delay(rng)), int(rng.integers(1, 4))
    length, slide = (int(s) * SECOND for s in rng.choice([(10, 10), (10, 4), (3, 1), (30, 5)]))
    some = {"n": ("*", "count"), "high": ("w", "max")}
    bars = a.groupBy("k").window(f"{length} microseconds", f"{slide} microseconds").agg(**some)
    most = bars.groupBy("window_start", "window_end").agg(most=("n", "max"), groups=("*", "count"))
    first = bars.groupBy("window_end").top(count, "n DESC", "k", number="place")

    def of_bars(text: str) -> Callable[[Marks], str]:
        return lambda marks: text.format(f"({windows_of('a', length, slide, some, marks['a'])})")

    by = "window_start, window_end"
    place = "row_number() OVER (PARTITION BY window_end ORDER BY n DESC, k NULLS FIRST)::INT AS place"
    return _flow(
        "windows over windows",
        [most, first],
        of_bars(f"SELECT {by}, max(n) AS most, count(*) AS groups FROM {{}} GROUP BY {by}"),
        of_bars(f"SELECT * FROM (SELECT *, {place} FROM {{}}) WHERE place <= {count}"),
    )


def newest_rows(rng: np.random.Generator) -> TestedFlow:
    a, count = source("a", delay=_delay(rng)), int(rng.integers(1, 8))
    result = a.groupBy("k").last(count).agg(**SOME)
    return _flow("newest rows", [result], lambda marks: last_of("a", count, SOME, marks["a"]))


def joined_then_windows(rng: np.random.Generator) -> TestedFlow:
    """Two levels: what waits at the lower one holds the watermark of the upper one back."""
    _, _, pairs, text = _pairs(rng)
    some = {"n": ("*", "count"), "total": ("a_v", "sum")}
    result = pairs.groupBy("a_k").window("10 seconds", "5 seconds").agg(**some)
    return _flow("join, then windows", [result], lambda marks: _windows_of_pairs(text, marks))


def joined_then_by_another_key(rng: np.random.Generator) -> TestedFlow:
    """Two fragments: units of the join and units of the windows move apart."""
    _, _, pairs, text = _pairs(rng)
    some = {"n": ("*", "count"), "total": ("a_v", "sum")}
    result = pairs.groupBy("b_v").window("10 seconds", "5 seconds").agg(**some)
    return _flow("join, then windows by another key", [result], lambda marks: _windows_of_pairs(text, marks, "b_v"))


def two_outputs(rng: np.random.Generator) -> TestedFlow:
    """A join, and what is made of it: both are shown."""
    a, _, pairs, text = _pairs(rng)
    if rng.random() < 0.5:
        newest = a.groupBy("k").last(3).agg(**SOME)
        return _flow("two outputs", [pairs, newest], lambda m: text, lambda m: last_of("a", 3, SOME, m["a"]))
    some = {"n": ("*", "count"), "total": ("a_v", "sum")}
    grouped = pairs.groupBy("a_k").window("10 seconds", "5 seconds").agg(**some)
    return _flow("two outputs, two levels", [pairs, grouped], lambda m: text, lambda m: _windows_of_pairs(text, m))


def sharing_states(rng: np.random.Generator) -> TestedFlow:
    """Several queries over the same streams: they have states in common wholly, on one side, for other times, or not
    at all."""
    streams = tuple(source(name, delay=_delay(rng)) for name in "abc")
    where = str(rng.choice(["a.v > b.v", "abs(a.v - b.v) <= 1"]))
    queries = [_query_that_shares(rng, *streams, where) for _ in range(int(rng.integers(2, 6)))]
    results, oracles = zip(*(pair for query in queries for pair in query), strict=True)
    return _flow("queries that share states", list(results), *oracles)


def _query_that_shares(
    rng: np.random.Generator, a: DataStream, b: DataStream, c: DataStream, where: str
) -> list[tuple[DataStream, Callable[[Marks], str]]]:
    before, after = (int(n) for n in rng.integers(0, 16, 2))
    within = f"{before} seconds", f"{after} seconds"
    match int(rng.choice(8)):
        case 0 | 1:
            condition = "a.v >= b.v" if rng.random() < 0.3 else None
            text = joined("ab", before, after, condition)
            return [(a.join(b, on="k", within=within, where=condition), lambda marks: text)]
        case 2:
            text = joined("ac", before, after)
            return [(a.join(c, on="k", within=within), lambda marks: text)]
        case 3:
            text = f"WITH f AS (FROM a WHERE v > 2) {joined('fb', before, after)}"
            return [(a.filter("v > 2").alias("f").join(b, on="k", within=within), lambda marks: text)]
        case 4:
            length, some = 5 * int(rng.integers(1, 5)) * SECOND, {"n": ("*", "count"), "total": ("v", "sum")}
            windows = a.groupBy("k").window(f"{length} microseconds", "5 seconds").agg(**some)
            return [(windows, lambda marks: windows_of("a", length, 5 * SECOND, some, marks["a"]))]
        case 5:
            text = joined("ab", after % 4, after % 4, where, keyed=False)
            return [(a.join(b, within=f"{after % 4} seconds", where=where), lambda marks: text)]
        case 6:
            text = f"SELECT k, v * 2 AS twice FROM a WHERE v > {before % 5}"
            return [(a.filter(f"v > {before % 5}").select("k", "v * 2 AS twice"), lambda marks: text)]
        case _:
            pairs, text = a.join(b, on="k", within=within), joined("ab", before, after)
            grouped = pairs.groupBy("a_k").window("10 seconds", "5 seconds").agg(n=("*", "count"), total=("a_v", "sum"))
            return [
                (pairs, lambda marks: text),
                (grouped, lambda marks: _windows_of_pairs(text, marks, "a_k", "ab")),
            ]


def late_rows(rng: np.random.Generator) -> TestedFlow:
    """A join, and the rows that came too late for it."""
    a, _, pairs, text = _pairs(rng)
    late = a.filter("v > 0").late().select("k", "v")
    missing = "SELECT k, v FROM (FROM every_a EXCEPT ALL FROM a) WHERE v > 0 AND ts IS NOT NULL"
    return _flow("late rows", [pairs, late], lambda marks: text, lambda marks: missing)


def three_levels(rng: np.random.Generator) -> TestedFlow:
    """Windows of one stream, joined with another stream, grouped again."""
    a, b = source("a", delay=_delay(rng)), source("b", delay=_delay(rng))
    bars = a.groupBy("k").window("4 seconds").agg(n=("*", "count")).alias("bars")
    near = bars.join(b.filter("v IS NOT NULL"), on="k", within=("6 seconds", "2 seconds"))
    chosen = near.select("bars_k AS k", "bars_n * 2 AS twice", "b_v AS v")
    result = chosen.groupBy("k").window("3 seconds").agg(total=("twice", "sum"), low=("v", "min"))

    def oracle(marks: Marks) -> str:
        bars = windows_of("a", 4 * SECOND, 4 * SECOND, {"n": ("*", "count")}, marks["a"])
        joined = f"""SELECT bars.k, bars.n * 2 AS twice, b.v, greatest(window_end, b.ts) AS ts
            FROM ({bars}) bars JOIN b ON bars.k = b.k AND b.v IS NOT NULL
             AND epoch_us(b.ts) - epoch_us(window_end) BETWEEN {-6 * SECOND} AND {2 * SECOND}"""
        names = {"total": ("twice", "sum"), "low": ("v", "min")}
        return windows_of(f"({joined})", 3 * SECOND, 3 * SECOND, names, min(marks.values()))

    return _flow("three levels", [result], oracle)


def until_a_column_says(rng: np.random.Generator) -> TestedFlow:
    """Rows of one side say how long they have partners: some for long, some not at all."""
    a, b = source("a", delay=_delay(rng)), source("b", delay=_delay(rng))
    lives = zip((6, 3, 0), rng.integers(1, 60, 3).tolist(), strict=True)
    until = f"CASE {' '.join(f'WHEN v > {v} THEN ts + INTERVAL {n} SECONDS' for v, n in lives)} END"
    earlier = int(rng.integers(0, 3))
    pairs = a.withColumn("until", until).alias("a").join(b, on="k", within=(f"{earlier} seconds", "a.until"))
    columns = "a.k AS a_k, a.ts AS a_ts, a.v AS a_v, a.w AS a_w, a.until AS a_until, b.k, b.ts, b.v, b.w"
    text = f"""SELECT {columns} FROM (SELECT *, {until} AS until FROM a) a JOIN b
        ON a.k = b.k AND b.ts <= a.until AND epoch_us(a.ts) - epoch_us(b.ts) <= {earlier * SECOND}"""
    return _flow("join until a column says", [pairs], lambda marks: text)


def _windows_of_pairs(text: str, marks: Marks, key: str = "a_k", streams: str = "") -> str:
    """Windows over the results of a join of these streams, of all that there are unless they are named."""
    timed = f"(SELECT *, greatest(a_ts, b_ts) AS ts, {key} AS k, a_v AS v FROM ({text}))"
    named = {"n": ("*", "count"), "total": ("v", "sum")}
    return windows_of(timed, 10 * SECOND, 5 * SECOND, named, min(marks[name] for name in streams or marks))


@dataclass(frozen=True)
class _OuterPairs:
    """Streams a and b in a join of any kind, and what there is of it in batch SQL: rows without a partner appear when
    the watermark of the other stream says that none can come."""

    how: str
    before: int
    after: int
    where: str | None
    keyed: bool

    @staticmethod
    def drawn(rng: np.random.Generator, hows: Sequence[str] = ("left", "right", "full", "semi", "anti")) -> _OuterPairs:
        keyed = bool(rng.random() < 0.7)
        before, after = (int(n) for n in rng.integers(0, 20 if keyed else 6, 2))
        conditions = [None, "a.v >= b.v"] if keyed else ["a.v > b.v", "abs(a.v - b.v) <= 1 AND a.w <> b.w"]
        return _OuterPairs(str(rng.choice(hows)), before, after, rng.choice(np.array(conditions, object)), keyed)

    def join(self, a: DataStream, b: DataStream) -> DataStream:
        within = f"{self.before} seconds", f"{self.after} seconds"
        return a.join(b, on="k" if self.keyed else None, within=within, where=self.where, how=self.how)

    def text(self, marks: Marks) -> str:
        names = "a" if self.how in ("semi", "anti") else "ab"
        columns = ", ".join(f"{n}.{c} AS {n}_{c}" for n in names for c in ("k", "ts", "v", "w"))
        apart = f"epoch_us(b.ts) - epoch_us(a.ts) BETWEEN {-self.before * SECOND} AND {self.after * SECOND}"
        on = " AND ".join([*(["a.k = b.k"] if self.keyed else []), apart, *([f"({self.where})"] if self.where else [])])
        joined = f"SELECT {columns} FROM (SELECT *, true AS here FROM a) a {self.how.upper()} JOIN " + (
            f"(SELECT *, true AS here FROM b) b ON {on}"
        )
        settled_a = f"epoch_us(a.ts) < {marks['b'] - self.after * SECOND}"
        settled_b = f"epoch_us(b.ts) < {marks['a'] - self.before * SECOND}"
        shown = {
            "left": f"b.here OR {settled_a}",
            "right": f"a.here OR {settled_b}",
            "full": f"(a.here AND b.here) OR {settled_a} OR {settled_b}",
            "semi": "true",
            "anti": settled_a,
            "inner": "true",
        }
        return f"{joined} WHERE {shown[self.how]}"

    def mark(self, marks: Marks) -> int:
        """The watermark of its results."""
        alone = {"a": marks["b"] - self.after * SECOND, "b": marks["a"] - self.before * SECOND}
        kept = {"right": "b", "full": "ab", "inner": ""}.get(self.how, "a")
        return min(marks["a"], marks["b"], *(alone[name] for name in kept))


def outer(rng: np.random.Generator) -> TestedFlow:
    a, b = source("a", delay=_delay(rng)), source("b", delay=_delay(rng))
    pairs = _OuterPairs.drawn(rng)
    return _flow(f"{pairs.how} join", [pairs.join(a, b)], pairs.text)


def outer_then_windows(rng: np.random.Generator) -> TestedFlow:
    """Rows without a partner come later than their epoch, and the windows above them wait for these."""
    a, b = source("a", delay=_delay(rng)), source("b", delay=_delay(rng))
    pairs = _OuterPairs.drawn(rng)
    key, value = ("b_k", "b_v") if pairs.how == "right" else ("a_k", "a_v")
    result = pairs.join(a, b).groupBy(key).window("10 seconds", "5 seconds").agg(n=("*", "count"), total=(value, "sum"))
    times = "a_ts" if pairs.how in ("semi", "anti") else "greatest(a_ts, b_ts)"

    def oracle(marks: Marks) -> str:
        timed = f"(SELECT *, {times} AS ts, {key} AS k, {value} AS v FROM ({pairs.text(marks)}))"
        named = {"n": ("*", "count"), "total": ("v", "sum")}
        return windows_of(timed, 10 * SECOND, 5 * SECOND, named, pairs.mark(marks))

    return _flow(f"{pairs.how} join, then windows", [result], oracle)


def outer_over_outer(rng: np.random.Generator) -> TestedFlow:
    """What comes out of a join of any kind goes into another one, beside what itself shows. Of units with an inner join
    and another one the inner join is frozen alone."""
    a, b, c = (source(name, delay=_delay(rng)) for name in "abc")
    pairs, within = _OuterPairs.drawn(rng, ("inner", "left", "full", "semi", "anti")), int(rng.integers(0, 8))
    how = str(rng.choice(["inner", "left", "semi", "anti"]))
    below = pairs.join(a, b)
    chosen = below.select("a_k AS k", "a_v AS v").alias("p")
    keyed = bool(rng.random() < 0.6)
    by = {"on": "k"} if keyed else {"where": "p.v > c.v"}
    result = chosen.join(c, within=f"{within} seconds", how=how, **by)
    times = "a_ts" if pairs.how in ("semi", "anti") else "greatest(a_ts, b_ts)"

    def oracle(marks: Marks) -> str:
        columns = "p.k AS p_k, p.v AS p_v" + (", c.k, c.ts, c.v, c.w" if how in ("inner", "left") else "")
        on = "p.k = c.k" if keyed else "p.v > c.v"
        shown = {"left": "c.here OR ", "anti": ""}.get(how, "true OR ")
        return f"""SELECT {columns}
            FROM (SELECT a_k AS k, a_v AS v, epoch_us({times}) AS at FROM ({pairs.text(marks)})) p
            {how.upper()} JOIN (SELECT *, true AS here FROM c) c
              ON {on} AND abs(epoch_us(c.ts) - p.at) <= {within * SECOND}
            WHERE {shown} p.at < {marks["c"] - within * SECOND}"""

    return _flow(f"{how} join over a {pairs.how} join", [below, result], pairs.text, oracle)


COUNTED = {"n": ("*", "count"), "total": ("v", "sum"), "low": ("w", "min")}


def united(rng: np.random.Generator) -> TestedFlow:
    """Streams with delays of their own as one: written as they are, and in windows; one of them may be there twice."""
    a, b = source("a", delay=_delay(rng)), source("b", delay=_delay(rng))
    both, text = a.union(b.filter("v > 2")), "SELECT * FROM a UNION ALL SELECT * FROM b WHERE v > 2"
    if rng.random() < 0.5:
        both, text = (
            both.unionByName(a.select("w", "v", "k", "ts").filter("k = 1")),
            f"{text} UNION ALL FROM a WHERE k = 1",
        )
    windows = both.groupBy("k").window("10 seconds", "5 seconds").agg(**COUNTED)
    written = both.select("k", "v * 2 AS twice", "w")
    return _flow(
        "union, then windows",
        [written, windows],
        lambda marks: f"SELECT k, v * 2 AS twice, w FROM ({text})",
        lambda marks: windows_of(f"({text})", 10 * SECOND, 5 * SECOND, COUNTED, min(marks.values())),
    )


def united_results(rng: np.random.Generator) -> TestedFlow:
    """The results of a join and rows of a stream as one: written by sites and map tasks, in windows on the key of the
    join, and joined with another stream."""
    _, b, pairs, text = _pairs(rng)
    c, within = source("c", delay=_delay(rng)), int(rng.integers(0, 8))
    both = pairs.select("a_k AS k", "a_v AS v").union(c.filter("v > 0").select("k", "v")).alias("both")
    rows_text = f"""SELECT a_k AS k, a_v AS v, greatest(a_ts, b_ts) AS ts FROM ({text})
        UNION ALL SELECT k, v, ts FROM c WHERE v > 0"""
    counted = {"n": ("*", "count"), "total": ("v", "sum")}
    windows = both.groupBy("k").window("10 seconds").agg(**counted)
    near = both.join(b, on="k", within=f"{within} seconds")

    def joined_text(marks: Marks) -> str:
        return f"""SELECT p.k AS both_k, p.v AS both_v, b.k, b.ts, b.v, b.w FROM ({rows_text}) p, b
            WHERE p.k = b.k AND abs(epoch_us(p.ts) - epoch_us(b.ts)) <= {within * SECOND}"""

    return _flow(
        "union of a join's results and a stream",
        [both, windows, near],
        lambda marks: f"SELECT k, v FROM ({rows_text})",
        lambda marks: windows_of(f"({rows_text})", 10 * SECOND, 10 * SECOND, counted, min(marks.values())),
        joined_text,
    )


def without_duplicates(rng: np.random.Generator) -> TestedFlow:
    """First rows by one key, once or again after a while, and windows of them by another key."""
    a = source("a", delay=_delay(rng))
    within = None if rng.random() < 0.5 else int(rng.integers(0, 20)) * SECOND
    first = a.dropDuplicates(["k", "v"], within=None if within is None else f"{within} microseconds")
    some = {"n": ("*", "count"), "total": ("v", "sum")}
    grouped = first.groupBy("k").window("10 seconds", "5 seconds").agg(**some)

    def oracle(marks: Marks) -> str:
        return first_rows("a", marks["a"], within, keys="k, v", others="w")

    def windows(marks: Marks) -> str:
        return windows_of(f"({oracle(marks)})", 10 * SECOND, 5 * SECOND, some, marks["a"])

    return _flow("without duplicates", [first.select("k", "v", "ts", "w"), grouped], oracle, windows)


def joined_with_table(rng: np.random.Generator, root: Path) -> TestedFlow:
    """Rows meet what the table had in their epoch, though they wait; windows and another join stand behind."""
    divided = bool(rng.random() < 0.7)
    table = ChangingTable(rng, root, divided)
    delay = int(rng.choice([0, 2, 30]))
    schema = source("a").stream.schema
    a, b = (table.flow.readStream(name, schema, eventTime="ts", delay=f"{delay} seconds") for name in "ab")
    how, where = str(rng.choice(["inner", "left", "semi", "anti"])), rng.choice(np.array([None, "a.v > t.p"], object))
    joined = a.filter("w < 2").alias("a").join(table.table, on="k", how=how, where=where)
    windows = joined.groupBy("a_k").window("10 seconds", "5 seconds").agg(n=("*", "count"), total=("a_v", "sum"))
    within = int(rng.integers(0, 8))
    pairs = joined.alias("j").join(b, on={"j": "a_k", "b": "k"}, within=f"{within} seconds")
    columns = "a.k AS a_k, a.ts AS a_ts, a.v AS a_v, a.w AS a_w" + (
        ", t.k AS t_k, t.p AS t_p" if how in ("inner", "left") else ""
    )
    text = f"""SELECT {columns} FROM (SELECT a.*, chosen.content FROM a JOIN chosen ON a.epoch = chosen.batch) a
        {how.upper()} JOIN t ON a.k = t.k AND a.content = t.content AND {where or "true"} WHERE a.w < 2"""
    shown = ["a_k", "a_ts", "a_v", "a_w", *(["t_k", "t_p"] if how in ("inner", "left") else [])]

    def windows_text(marks: Marks) -> str:
        timed = f"(SELECT *, a_ts AS ts, a_v AS v FROM ({text}))"
        named = {"n": ("*", "count"), "total": ("v", "sum")}
        return windows_of(timed, 10 * SECOND, 5 * SECOND, named, marks["a"], keys="a_k, ")

    def pairs_text(marks: Marks) -> str:
        names = ", ".join(f"j.{name} AS j_{name}" for name in shown)
        return f"""SELECT {names}, b.k, b.ts, b.v, b.w FROM ({text}) j JOIN b ON j.a_k = b.k
            AND abs(epoch_us(b.ts) - epoch_us(j.a_ts)) <= {within * SECOND}"""

    plan = plan_of([r.relation for r in (joined, windows, pairs)])
    name = f"{how} join with a {'divided ' if divided else ''}table"
    return TestedFlow(name, plan, (lambda marks: text, windows_text, pairs_text), table)


_FLOWS: dict[str, Callable[[np.random.Generator], TestedFlow]] = {
    f.__name__: f
    for f in (
        two_way,
        kept_for_good,
        three_way,
        compared,
        joined_with_itself,
        compared_pairs,
        time_windows,
        sessions,
        windows_over_windows,
        newest_rows,
        joined_then_windows,
        joined_then_by_another_key,
        two_outputs,
        three_levels,
        until_a_column_says,
        sharing_states,
        outer,
        outer_then_windows,
        outer_over_outer,
        united,
        united_results,
        late_rows,
        without_duplicates,
    )
}
_FLOWS_WITH_TABLES: dict[str, Callable[[np.random.Generator, Path], TestedFlow]] = {
    joined_with_table.__name__: joined_with_table
}
NAMES = (*_FLOWS, *_FLOWS_WITH_TABLES)
