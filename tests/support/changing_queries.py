"""Queries that come and go in one flow, each with its batch answer in DuckDB for the time that it was there.

What a query has seen is told by the journal: from which epoch on it was there, and since when the states are kept that
it reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from chaos_flows import NOTHING_YET, Marks, joined
from group_by_oracle import last_of, sessions_of, source, windows_of
from oracle import connect_duckdb, on_time, rounded
from specs import SECOND

from sluice.api.stream import DataStream
from sluice.control.journal import Journal
from sluice.model.plan.assignment import StateKey
from sluice.model.plan.layout import OutputKey
from sluice.model.plan.recorded_plan import RecordedPlan
from sluice.model.plan.relation import Relation
from sluice.model.plan.stream import Stream
from sluice.record.epoch import EpochRecord
from sluice.sql import translate

SOME = {"n": ("*", "count"), "total": ("v", "sum"), "newest": ("v", "last")}


@dataclass(frozen=True)
class Lifetime:
    """A query was there in the epochs from `since` up to `until`, which is the first without it. `states` has the epoch
    in which each state began of the operator that it writes the results of, `below` those of the operator below.
    `before` and `after` are the streams' watermarks when it came and when it went."""

    since: int
    until: int
    states: tuple[int, ...]
    below: tuple[int, ...]
    before: Marks
    after: Marks


@dataclass(frozen=True)
class ChangingQuery:
    """What a query writes, and the batch query for it: SQL over all rows of the streams, `all_a` and so on, which have
    the epoch in which they `came`. One that `adds_up` has results that each depend on many rows."""

    rows: DataStream
    oracle: Callable[[Lifetime], str]
    adds_up: bool = False

    @property
    def relation(self) -> Relation:
        return self.rows.relation


def draw_streams(rng: np.random.Generator) -> tuple[DataStream, ...]:
    return tuple(source(name, delay=int(rng.choice([0, 2 * SECOND, 30 * SECOND]))) for name in "abc")


def draw_query(
    rng: np.random.Generator, streams: Sequence[DataStream], sql: Callable[[str], DataStream] | None = None
) -> ChangingQuery:
    """One of few kinds and parameters, so that many have something in common with another; made by calls, or by SQL,
    which is the flow's if there is one. Of some only a few columns are written."""
    choice = rng.spawn(1)[0]
    query = _draw_whole(rng, streams, sql)
    names = [field.name for field in query.relation.stream.shown]
    few = sorted(choice.choice(len(names), int(choice.integers(1, len(names))), replace=False).tolist())
    if choice.random() < 0.4:
        return query
    columns = [f"c{number}" for number in range(len(names))]
    shown = ", ".join(columns[number] for number in few)
    return replace(
        query,
        rows=query.rows.select(*(names[number] for number in few)),
        oracle=lambda life: f"SELECT {shown} FROM ({query.oracle(life)}) AS whole({', '.join(columns)})",
    )


def _draw_whole(
    rng: np.random.Generator, streams: Sequence[DataStream], sql: Callable[[str], DataStream] | None
) -> ChangingQuery:
    a, b, c = streams
    read = sql or (lambda text: translate(text, dict(zip("abc", streams, strict=True)), None))  # none joins many
    by_text = rng.spawn(1)[0].random() < 0.5

    def made(calls: DataStream, text: str) -> DataStream:
        return read(text) if by_text else calls

    before, after = (int(n) for n in rng.choice([3, 8, 12], 2))
    within = f"{before} seconds", f"{after} seconds"
    match int(rng.choice(12)):
        case 0 | 1:
            where = "a.v >= b.v" if rng.random() < 0.3 else None
            pairs = a.join(b, on="k", within=within, where=where)
            text = f"SELECT {_columns('ab')} FROM {_join('ab', before, after, where)}"
            return ChangingQuery(made(pairs, text), lambda life: _pairs("ab", before, after, life, where))
        case 2:
            pairs = a.join(c, on="k", within=within)
            text = f"SELECT {_columns('ac')} FROM {_join('ac', before, after)}"
            return ChangingQuery(made(pairs, text), lambda life: _pairs("ac", before, after, life))
        case 3:
            where = "a.v > b.v"
            pairs = a.join(b, within="3 seconds", where=where)
            text = f"SELECT {_columns('ab')} FROM {_join('ab', 3, 3, where, keyed=False)}"
            return ChangingQuery(made(pairs, text), lambda life: _pairs("ab", 3, 3, life, where, keyed=False))
        case 4:
            seconds = 5 * int(rng.integers(1, 4))
            windows = a.groupBy("k").window(f"{seconds} seconds", "5 seconds").agg(**SOME)
            text = f"""SELECT k, {_aggregates("v", last=True)} FROM a
                       GROUP BY k, window(ts, '{seconds} seconds', '5 seconds')"""
            oracle = lambda life: _windows_of_rows(seconds * SECOND, life)  # noqa: E731
            return ChangingQuery(made(windows, text), oracle, adds_up=True)
        case 5:
            newest = c.groupBy("k").last(3).agg(**SOME)
            over = "OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)"
            text = f"SELECT k, ts, count(*) {over} AS n, sum(v) {over} AS total, last(v) {over} AS newest FROM c"
            return ChangingQuery(made(newest, text), _newest, adds_up=True)
        case 6:
            some = a.filter("v > 2").select("k", "v * 2 AS twice")
            return ChangingQuery(made(some, "SELECT k, v * 2 AS twice FROM a WHERE v > 2"), _some)
        case 7:
            left = a.join(b, on="k", within=within, how="left")
            return ChangingQuery(left, lambda life: _left(before, after, life), adds_up=True)
        case 8:
            semi = a.join(b, on="k", within=within, how="semi")
            return ChangingQuery(semi, lambda life: _semi(before, after, life), adds_up=True)
        case 9:
            gap = int(rng.choice([1, 4])) * SECOND
            sessions = a.groupBy("k").session_window(f"{gap} microseconds").agg(**SOME)
            return ChangingQuery(sessions, lambda life: _sessions(gap, life), adds_up=True)
        case _:
            key = str(rng.choice(["a_k", "b_v"]))
            pairs = a.join(b, on="k", within=within)
            grouped = pairs.groupBy(key).window("10 seconds", "5 seconds").agg(n=("*", "count"), total=("a_v", "sum"))
            column, time = key.replace("_", "."), "greatest(a.ts, b.ts)"
            text = f"""SELECT {column} AS {key}, {_aggregates("a.v")} FROM {_join("ab", before, after)}
                       GROUP BY {column}, window({time}, '10 seconds', '5 seconds')"""
            oracle = lambda life: _windows_of_pairs(key, before, after, life)  # noqa: E731
            return ChangingQuery(made(grouped, text), oracle, adds_up=True)


def _columns(names: str) -> str:
    return ", ".join(f"{name}.{column} AS {name}_{column}" for name in names for column in ("k", "ts", "v", "w"))


def _join(names: str, before: int, after: int, where: str | None = None, *, keyed: bool = True) -> str:
    a, b = names
    bounds = f"{b}.ts BETWEEN {a}.ts - INTERVAL {before} SECONDS AND {a}.ts + INTERVAL {after} SECONDS"
    conditions = [*([f"{a}.k = {b}.k"] if keyed else []), bounds, *([where] if where else [])]
    return f"{a} JOIN {b} ON {' AND '.join(conditions)}"


def _aggregates(column: str, *, last: bool = False) -> str:
    newest = f", last({column}) AS newest" if last else ""
    return f"window.start, window.end, count(*) AS n, sum({column}) AS total{newest}"


def _rows(name: str, since: int) -> str:
    return f"{name} AS (FROM all_{name} WHERE came >= {since})"


def _pairs(names: str, before: int, after: int, life: Lifetime, where: str | None = None, *, keyed: bool = True) -> str:
    return _all_pairs(names, before, after, life.states, life.since, life.until, where, keyed=keyed)


def _all_pairs(
    names: str,
    before: int,
    after: int,
    states: Sequence[int],
    since: int,
    until: int,
    where: str | None = None,
    *,
    keyed: bool = True,
) -> str:
    """Pairs of which one row came while the query was there, and the other one is kept since then, or before."""
    came = f"greatest({names[0]}.came, {names[1]}.came)"
    conditions = [f"{came} >= {since}", f"{came} < {until}", *([f"({where})"] if where else [])]
    kept = ", ".join(_rows(name, state) for name, state in zip(names, states, strict=True))
    return f"WITH {kept} {joined(names, before, after, ' AND '.join(conditions), keyed=keyed)}"


def _partners(before: int, after: int, life: Lifetime) -> tuple[str, str]:
    """The rows of two streams that a query sees, and when two of them are partners."""
    kept = (
        f"(FROM all_{n} WHERE came >= {since} AND came < {life.until})"
        for n, since in zip("ab", life.states, strict=True)
    )
    apart = f"epoch_us(b.ts) - epoch_us(a.ts) BETWEEN {-before * SECOND} AND {after * SECOND}"
    return f"WITH {', '.join(f'{n} AS {rows}' for n, rows in zip('ab', kept, strict=True))}", f"a.k = b.k AND {apart}"


def _left(before: int, after: int, life: Lifetime) -> str:
    """Pairs of which one row came while the query was there, and rows that were settled then or as they came."""
    rows, on = _partners(before, after, life)
    settled, until = (f"{marks['b'] - after * SECOND}" for marks in (life.before, life.after))
    columns = ", ".join(f"{n}.{c} AS {n}_{c}" for n in "ab" for c in ("k", "ts", "v", "w"))
    alone = f"epoch_us(a.ts) < {until} AND (epoch_us(a.ts) >= {settled} OR a.came >= {life.since})"
    return f"""{rows} SELECT {columns} FROM a LEFT JOIN b ON {on}
        WHERE CASE WHEN b.came IS NULL THEN {alone} ELSE greatest(a.came, b.came) >= {life.since} END"""


def _semi(before: int, after: int, life: Lifetime) -> str:
    """Rows whose first partner came while the query was there, or that came then themselves."""
    rows, on = _partners(before, after, life)
    columns = ", ".join(f"a.{c} AS a_{c}" for c in ("k", "ts", "v", "w"))
    first = f"(SELECT min(greatest(a.came, b.came)) FROM b WHERE {on})"
    return f"{rows} SELECT {columns} FROM a WHERE {first} >= {life.since}"


def _windows_of_rows(length: int, life: Lifetime) -> str:
    rows = f"(FROM all_a WHERE came >= {life.states[0]} AND came < {life.until})"
    return _closed(windows_of(rows, length, 5 * SECOND, SOME, life.after["a"]), life.before["a"])


def _sessions(gap: int, life: Lifetime) -> str:
    rows = f"(FROM all_a WHERE came >= {life.states[0]} AND came < {life.until})"
    ended = sessions_of(rows, gap, SOME, life.after["a"])
    return f"SELECT * FROM ({ended}) WHERE epoch_us(window_end) >= {life.before['a']}"


def _windows_of_pairs(key: str, before: int, after: int, life: Lifetime) -> str:
    pairs = _all_pairs("ab", before, after, life.below, life.states[0], life.until)
    timed = f"(SELECT *, greatest(a_ts, b_ts) AS ts, {key} AS k, a_v AS v FROM ({pairs}))"
    named = {"n": ("*", "count"), "total": ("v", "sum")}
    first, last = (min(marks["a"], marks["b"]) for marks in (life.before, life.after))
    return _closed(windows_of(timed, 10 * SECOND, 5 * SECOND, named, last), first)


def _closed(windows: str, mark: int) -> str:
    """Windows that were not closed by a watermark."""
    return f"SELECT * FROM ({windows}) WHERE epoch_us(window_end) > {mark}"


def _newest(life: Lifetime) -> str:
    rows = f"(FROM all_c WHERE came >= {life.states[0]} AND came < {life.until})"
    text = last_of(rows, 3, SOME, life.after["c"]).replace("k, ts,", "k, ts, came,", 1)
    shown = ", ".join(SOME)
    return f"SELECT k, ts, {shown} FROM ({text}) WHERE epoch_us(ts) > {life.before['c']} OR came >= {life.since}"


def _some(life: Lifetime) -> str:
    return f"SELECT k, v * 2 AS twice FROM all_a WHERE v > 2 AND came >= {life.since} AND came < {life.until}"


@dataclass
class History:
    """What the journal tells of queries and states, epoch by epoch."""

    delays: dict[str, int | None]
    born: dict[int, dict[StateKey, int]] = field(default_factory=dict)
    """The states that there were in each epoch, with that in which each began."""
    since: dict[str, int] = field(default_factory=dict)
    until: dict[str, int] = field(default_factory=dict)
    reads: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    """When the states began of each query's operator, and of the one below it."""
    batches: dict[int, int] = field(default_factory=dict)
    """The epoch that took in each batch."""
    marks: dict[int, Marks] = field(default_factory=dict)
    lagging: set[int] = field(default_factory=set)
    """Epochs after which input waited, or results were missing."""
    newest: int = -1

    @classmethod
    def of(cls, streams: Sequence[Stream]) -> History:
        history = cls({stream.name: stream.delay for stream in streams})
        history.marks[-1] = dict.fromkeys(history.delays, NOTHING_YET)
        return history

    def forget(self, number: int) -> None:
        """An epoch was done again: another record counts."""
        self.since, self.until = (
            {name: epoch for name, epoch in epochs.items() if epoch < number} for epochs in (self.since, self.until)
        )
        self.batches = {batch: epoch for batch, epoch in self.batches.items() if epoch < number}
        self.lagging -= {epoch for epoch in self.lagging if epoch >= number}
        self.newest = number - 1

    def add(self, record: EpochRecord, plan: RecordedPlan) -> None:
        """Another epoch was committed."""
        number = record.number
        assert number == self.newest + 1
        self.newest = number
        before = self.born.get(number - 1, {})
        born = self.born[number] = {key: before.get(key, number) for key in plan.layout.states}
        names = [query.name for query in plan.queries]
        for query in plan.queries:
            if query.name not in self.since:
                self.since[query.name] = number
                own, below = (tuple(born[key] for key in keys) for keys in _states_read(plan, query.origins[0]))
                self.reads[query.name] = own, below
        for name in self.since:
            if name not in names:
                self.until.setdefault(name, number)
        self.batches.setdefault(record.batch, number)
        self.marks[number] = {
            name: NOTHING_YET if newest is None else newest - (delay or 0)
            for (name, delay), newest in zip(self.delays.items(), record.newest, strict=True)
        }
        if record.lagging or record.missing_units:
            self.lagging.add(number)

    def lifetime(self, name: str) -> Lifetime:
        since, until = self.since[name], self.until.get(name, self.newest + 1)
        return Lifetime(since, until, *self.reads[name], self.marks[since - 1], self.marks[until - 1])

    def waited_as_it_came(self, name: str) -> bool:
        """Whether rows waited when a query came that had arrived before: they count for it."""
        return self.since[name] - 1 in self.lagging

    def waited_as_it_went(self, name: str) -> bool:
        """Whether rows waited when a query went that had arrived before, or results were missing: it lacks those."""
        return self.until.get(name, 0) - 1 in self.lagging


def _states_read(plan: RecordedPlan, origin: int) -> tuple[tuple[StateKey, ...], tuple[StateKey, ...]]:
    operator = origin - len(plan.sources)
    if operator < 0:
        return (), ()
    keys = plan.layout.states
    below = [o - len(plan.sources) for o in plan.operators[operator].origins if o >= len(plan.sources)]
    own = tuple(keys[state] for state in plan.operators[operator].states)
    return own, tuple(keys[state] for one in below for state in plan.operators[one].states)


class Answer(NamedTuple):
    """The results that a query has at least, and at most: more where rows waited as it came."""

    least: Counter
    most: Counter


def answers(
    history: History, queries: dict[str, ChangingQuery], streams: Sequence[Stream], seen: Sequence[Sequence[pa.Table]]
) -> tuple[dict[str, Answer], int]:
    """The batch answer of each query for its lifetime, given how batches cut the streams; and how many rows were
    late."""
    late = 0
    with connect_duckdb() as db:
        for stream, tables in zip(streams, seen, strict=True):
            numbered = []
            for batch, table in enumerate(tables):
                at = history.batches[batch]
                columns = [pa.array([n] * len(table), pa.int64()) for n in (batch, at)]
                numbered.append(table.append_column("epoch", columns[0]).append_column("came", columns[1]))
            good, too_late = on_time(numbered, "ts", stream.delay)
            late += too_late
            db.register(f"all_{stream.name}", good)
        expected = {}
        for name in (name for name in queries if name in history.since):
            query, life = queries[name], history.lifetime(name)
            least = rounded(db.sql(query.oracle(life)).to_arrow_table())
            most = least
            if history.waited_as_it_came(name) and not query.adds_up and life.states:
                earlier = replace(life, since=min(life.states))
                most = rounded(db.sql(query.oracle(earlier)).to_arrow_table())
            expected[name] = Answer(least, most)
        return expected, late


def assert_exact(
    history: History,
    queries: dict[str, ChangingQuery],
    expected: dict[str, Answer],
    results: Callable[[str], pa.Table],
) -> Counter[str]:
    """Each query equals its batch answer for the time that it was there. Where input waited as it came or went, it is
    not known which rows had been processed: then it has no pair that no row of that time can have made, and none twice;
    and if it stayed, all pairs of rows that came later. Says how many were compared in which way."""
    compared: Counter[str] = Counter()
    for name, answer in expected.items():
        table = results(name)
        found = rounded(table) if table.num_columns else Counter()
        query, has_state = queries[name], bool(history.lifetime(name).states)
        came, went = (has_state and waited(name) for waited in (history.waited_as_it_came, history.waited_as_it_went))
        compared["exact" if not (came or went) else "while input waited"] += 1
        compared["results"] += sum(answer.least.values())
        if not (query.adds_up and (came or went)):
            assert not found - answer.most, f"{name}: {found - answer.most} too many"
        if not went and not (query.adds_up and came):
            assert not answer.least - found, f"{name}: {answer.least - found} missing"
    return compared


def new_of(journal: Journal, history: History) -> list[tuple[EpochRecord, RecordedPlan]]:
    """Epochs that are not in the history yet."""
    records = [record for record in journal.epochs() if record.number > history.newest]
    return [(record, journal.read_plan(record.plan)) for record in records]


__all__ = ["ChangingQuery", "History", "OutputKey", "answers", "assert_exact", "draw_query", "draw_streams", "new_of"]
