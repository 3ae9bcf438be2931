"""The join: new rows against state and against each other, every combination once.

Of an epoch's combinations, those whose first new leg is s are found by starting from the new rows of leg s and adding
the other legs in turn: legs before s from state only, legs after s from state and new rows. So no combination is found
twice and none is missed, for two legs or many. Between two generations of a unit's state it is the same, the older one
for the state, the newer one for the new rows, without the combinations of newer rows alone: those have been found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluice.kernels.hashing import keys_equal
from sluice.kernels.probe import PAIRS_AT_ONCE, Run, pairs
from sluice.model.epoch.times import Times
from sluice.model.plan.join import JoinSpec
from sluice.model.plan.stream import EARLIEST, LATEST, TIME_COLUMN, Stream
from sluice.operators.condition_search import ConditionSearch
from sluice.operators.protocol import Outgoing, ResultBatch, State, hash_rows
from sluice.operators.row_hashing import RowHashing
from sluice.state.segment import Layout

Runs = Sequence[Run]
BYTES_AT_ONCE = 256 << 20
LEAST_AT_ONCE = 1024
"""Results that are made at a time however large they are."""


@dataclass(frozen=True)
class _LegRows:
    """Where one leg's rows of partial combinations are: position `at` in run number `run` (all in one run if None)."""

    runs: Runs
    run: np.ndarray | None
    at: np.ndarray
    times: np.ndarray

    def take(self, places: np.ndarray) -> _LegRows:
        return _LegRows(self.runs, self._runs_at(places), self.at[places], self.times[places])

    def columns(self, names: list[str], chosen: np.ndarray | None = None) -> dict[str, pa.Array]:
        """Some columns of the rows, of those at `chosen` places (None: of all)."""
        at, run = (self.at, self.run) if chosen is None else (self.at[chosen], self._runs_at(chosen))
        if not names:
            return {}
        if run is None:
            rows = self.runs[0].rows.select(names).take(pa.array(at))
            return dict(zip(names, rows.columns, strict=True))
        groups = list(_by_run(run))
        pieces = [self.runs[number].rows.select(names).take(pa.array(at[places])) for number, places in groups]
        back = np.empty(len(at), dtype=np.int64)
        back[np.concatenate([places for _, places in groups])] = np.arange(len(at))
        return dict(zip(names, pa.concat_batches(pieces).take(pa.array(back)).columns, strict=True))

    def _runs_at(self, places: np.ndarray) -> np.ndarray | None:
        return None if self.run is None else self.run[places]


@dataclass(frozen=True)
class _Combinations:
    """Combinations found so far: the key hash and, for every leg already joined, its row."""

    hashes: np.ndarray
    legs: dict[int, _LegRows]


class WindowJoin:
    """The join as an operator: rows cross the exchange as they are, and are kept until nothing can match them."""

    def __init__(self, spec: JoinSpec) -> None:
        self.spec = spec
        self.schema = spec.output_schema()
        self.retention = spec.retention()
        self.by_time = False
        self.shrinks = spec.until_leg is not None  # rows leave in merges, one sooner than another
        self._search = ConditionSearch(spec) if spec.is_theta else None

    def _stream(self, input_: int) -> Stream:
        return self.spec.streams[self.spec.inputs[input_].stream]

    def exchange_schema(self, input_: int) -> pa.Schema:
        return self._stream(input_).schema

    def state_layout(self, input_: int) -> Layout:
        stream = self._stream(input_)
        time = self.spec.until_of(input_) or stream.event_time
        return Layout(stream.schema, time, orderings=self.spec.orderings(input_))

    def prepare_input(self, input_: int, rows: pa.RecordBatch) -> Outgoing:
        """Rows with a null in their key match nothing and stay behind, and so do those without a time until which they
        have partners. Without a key all rows have the same hash."""
        until = self.spec.until_of(input_)
        if until is None:
            return hash_rows(self._hashing(input_), rows)
        column = rows.column(until).cast(pa.int64())
        usable = pc.and_(pc.greater_equal(column, EARLIEST), pc.less_equal(column, LATEST))
        kept = rows.filter(usable, null_selection_behavior="drop")
        outgoing = hash_rows(self._hashing(input_), kept)
        return replace(outgoing, dropped=outgoing.dropped + rows.num_rows - kept.num_rows)

    def row_hashing(self, input_: int) -> RowHashing | None:
        return None if self.spec.until_of(input_) is not None else self._hashing(input_)

    def _hashing(self, input_: int) -> RowHashing:
        return RowHashing(self.spec.inputs[input_].keys, self.spec.key_types)

    def keep_from(self, input_: int, watermarks: Times) -> int | None:
        return self.spec.keep_from(input_, watermarks)

    def expires(self, input_: int) -> bool:
        return self.spec.expires(input_)

    def due_span(self, before: Times, after: Times) -> tuple[int, int] | None:
        return None

    def compact(self, input_: int, run: Run, after: Times) -> Run:
        return run

    def epoch(
        self, number: int, new: Sequence[Run | None], state: State, before: Times, after: Times
    ) -> Iterator[ResultBatch]:
        return self.shared_epoch(new, [None] * len(new), state)

    def shared_epoch(
        self, new: Sequence[Run | None], probing: Sequence[Run | None], state: State
    ) -> Iterator[ResultBatch]:
        stored_runs, probing_runs = ([[] if run is None else [run] for run in runs] for runs in (new, probing))
        new_runs = [[*stored, *others] for stored, others in zip(stored_runs, probing_runs, strict=True)]
        spans = [self._span_of(input_, runs) for input_, runs in enumerate(new_runs)]
        old = [state.runs(i, self.spec.reachable_span(i, spans)) for i in range(len(new))]
        yield from self.results(stored_runs, old, probing_runs)
        for i, run in enumerate(new):
            if run is not None:
                state.stage(i, run)

    def _span_of(self, input_: int, runs: Runs) -> tuple[int, int] | None:
        """From the earliest event time of some runs to the latest one, or to the latest until which they matter."""
        span = span_of(runs)
        if span is None or self.spec.until_of(input_) is None:
            return span
        times = [self._event_times(input_, run) for run in runs]
        return min((int(own.min()) for own in times if len(own)), default=span[0]), span[1]

    def _event_times(self, input_: int, run: Run) -> np.ndarray:
        """The event times of a run whose own times are others."""
        times: np.ndarray = run.rows.column(self._stream(input_).event_time).cast(pa.int64()).to_numpy()
        return times

    def join_generations(self, older: Sequence[Runs], newer: Sequence[Runs]) -> Iterator[ResultBatch]:
        """The results with rows of both, given each input's runs of the one and of the other."""
        return self.results(newer, older, crossing=True)

    def results(
        self, new: Sequence[Runs], old: Sequence[Runs], probing: Sequence[Runs] | None = None, crossing: bool = False
    ) -> Iterator[ResultBatch]:
        """The results with new rows, given each input's new runs and those of its state; where they are to be
        `crossing`, those with rows of state. Rows of `probing` are stored elsewhere: they meet what is here as the
        first leg that is new, and no others as a later one."""
        for start, leg in enumerate(self.spec.legs):
            rest = [i for i in range(len(self.spec.legs)) if i != start]
            for fresh in (*new[leg.input], *(probing[leg.input] if probing else ())):
                if len(fresh):
                    everything = np.arange(len(fresh))
                    begun = _Combinations(fresh.hashes, {start: _LegRows([fresh], None, everything, fresh.times)})
                    yield from self._grow(begun, start, rest, new, old, crossing and start == 0)

    def _grow(
        self,
        partial: _Combinations,
        start: int,
        rest: list[int],
        new: Sequence[Runs],
        old: Sequence[Runs],
        crossing: bool,
    ) -> Iterator[ResultBatch]:
        """Adds the other legs. As long as all rows are new and combinations are to be `crossing`, a leg of state has to
        follow."""
        leg, further = rest[0], rest[1:]
        source = self.spec.legs[leg].input
        if crossing and further:
            yield from self._add(partial, start, rest, list(new[source]), new, old, crossing=True)
        runs = [*old[source], *(new[source] if leg > start and not crossing else ())]
        yield from self._add(partial, start, rest, runs, new, old, crossing=False)

    def _add(
        self,
        partial: _Combinations,
        start: int,
        rest: list[int],
        runs: list[Run],
        new: Sequence[Runs],
        old: Sequence[Runs],
        crossing: bool,
    ) -> Iterator[ResultBatch]:
        """Adds the next leg from these runs, then those after it."""
        leg, further = rest[0], rest[1:]
        low, high = self._bounds(partial, leg)
        if not further:
            at_once = self._results_at_once(partial, runs)
            for run in runs:
                for left, right in self._match_last_leg(partial, leg, run, low, high, at_once):
                    last = _LegRows([run], None, right, run.times[:0])
                    combined = {i: f.take(left) for i, f in partial.legs.items()} | {leg: last}
                    kept, batch = self._materialise(combined)
                    if batch.num_rows:
                        hashes = partial.hashes[left]
                        yield hashes if kept is None else hashes[kept], batch
            return
        for grown in self._add_leg(partial, leg, runs, low, high):
            yield from self._grow(grown, start, further, new, old, crossing)

    def _match_last_leg(
        self, partial: _Combinations, leg: int, run: Run, low: np.ndarray, high: np.ndarray, at_once: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Which combinations a run's rows complete: by their keys' hashes, or where there are none by the condition."""
        if leg == self.spec.until_leg:
            return self._match_until(partial, leg, run, low, high, at_once)
        if self._search is None:
            return pairs(run, partial.hashes, low, high, at_once)
        (fresh,) = (leg_rows.runs[0] for leg_rows in partial.legs.values())
        return self._search.pairs(fresh, leg, run, low, high, at_once)

    def _match_until(
        self, partial: _Combinations, leg: int, run: Run, low: np.ndarray, high: np.ndarray, at_once: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Rows that have partners until the other's time, or later: of these the ones near it by their event times."""
        own, theirs = self._event_times(self.spec.legs[leg].input, run), partial.legs[1 - leg].times
        earlier, later = self.spec.reach[leg][1 - leg], self.spec.reach[1 - leg][leg]
        for left, right in pairs(run, partial.hashes, low, high, at_once):
            apart = theirs[left] - own[right]
            near = np.flatnonzero((apart >= -later) & (apart <= earlier))
            if len(near):
                yield left[near], right[near]

    def _results_at_once(self, partial: _Combinations, runs: list[Run]) -> int:
        """How many results to make at a time: as many as fit a bounded number of bytes, for rows of average size."""
        if len(partial.hashes) * max(map(len, runs), default=0) <= LEAST_AT_ONCE:
            return LEAST_AT_ONCE  # there are no more to make
        sides = [f.runs for f in partial.legs.values()] + [runs]
        wide = sum(sum(r.rows.nbytes for r in side) / max(1, sum(len(r) for r in side)) for side in sides)
        return max(LEAST_AT_ONCE, min(PAIRS_AT_ONCE, int(BYTES_AT_ONCE / max(wide, 1.0))))

    def _add_leg(
        self, partial: _Combinations, leg: int, runs: list[Run], low: np.ndarray, high: np.ndarray
    ) -> Iterator[_Combinations]:
        """The combinations with one leg more, over all its runs, in pieces of bounded size."""
        left_parts, right_parts, run_parts, size = [], [], [], 0
        limit = 1 << 20
        numbers = np.min_scalar_type(len(runs))  # narrow ones are sorted faster
        for number, run in enumerate(runs):
            for left, right in pairs(run, partial.hashes, low, high, limit):
                left_parts.append(left)
                right_parts.append(right)
                run_parts.append(np.full(len(right), number, dtype=numbers))
                size += len(right)
                if size >= limit:
                    yield self._combine(partial, leg, runs, left_parts, right_parts, run_parts)
                    left_parts, right_parts, run_parts, size = [], [], [], 0
        if size:
            yield self._combine(partial, leg, runs, left_parts, right_parts, run_parts)

    @staticmethod
    def _combine(
        partial: _Combinations,
        leg: int,
        runs: list[Run],
        left_parts: list[np.ndarray],
        right_parts: list[np.ndarray],
        run_parts: list[np.ndarray],
    ) -> _Combinations:
        left, right, run = np.concatenate(left_parts), np.concatenate(right_parts), np.concatenate(run_parts)
        if len(left_parts) > 1:
            # back to hash order: the next leg's searches then walk through memory instead of jumping
            order = np.argsort(left, kind="stable")
            left, right, run = left[order], right[order], run[order]
        times = np.empty(len(right), dtype=np.int64)
        for number, places in _by_run(run):
            times[places] = runs[number].times[right[places]]
        legs = {i: f.take(left) for i, f in partial.legs.items()}
        return _Combinations(partial.hashes[left], legs | {leg: _LegRows(runs, run, right, times)})

    def _bounds(self, partial: _Combinations, leg: int) -> tuple[np.ndarray, np.ndarray]:
        """The earliest and latest time the next leg's row may have, for every partial combination."""
        reach, until = self.spec.reach, self.spec.until_leg
        if until is not None:
            (rows,) = partial.legs.values()
            if leg == until:
                return rows.times, np.full(len(rows.times), LATEST)
            times = self._event_times(self.spec.legs[until].input, rows.runs[0])[rows.at]
            return times - reach[leg][until], np.minimum(rows.times, times + reach[until][leg])
        lows = [f.times - reach[leg][i] for i, f in partial.legs.items()]
        highs = [f.times + reach[i][leg] for i, f in partial.legs.items()]
        low, high = lows[0], highs[0]
        for other_low, other_high in zip(lows[1:], highs[1:], strict=True):
            low, high = np.maximum(low, other_low), np.minimum(high, other_high)
        return low, high

    def _materialise(self, combined: dict[int, _LegRows]) -> tuple[np.ndarray | None, pa.RecordBatch]:
        """Result rows of combinations with equal hashes, and which these are (None: all): keys are compared in full,
        then the extra condition. Those that were found by the condition are results as they are.

        Hashes of different keys meet now and then, in nearly every large epoch. So the keys are fetched and compared
        first, and of the other columns only what is in results.
        """
        legs = [combined[i] for i in range(len(self.spec.legs))]
        keys: list[dict[str, pa.Array]] = [{} for _ in legs]
        kept: np.ndarray | None = None
        if self._search is None:
            keys = [rows.columns(list(dict.fromkeys(self._key_names(i)))) for i, rows in enumerate(legs)]
            equal = self._compare_keys(keys)
            if not pc.all(equal).as_py():
                kept = np.flatnonzero(equal.to_numpy(zero_copy_only=False))
                if not len(kept):
                    return kept, pa.RecordBatch.from_pylist([], schema=self.schema)
                keys = [{name: column.filter(equal) for name, column in columns.items()} for columns in keys]
        names = [[n for n in rows.runs[0].rows.schema.names if n not in keys[i]] for i, rows in enumerate(legs)]
        columns_of = [keys[i] | rows.columns(names[i], kept) for i, rows in enumerate(legs)]
        columns = [
            columns_of[i][name]
            for i, rows in enumerate(legs)
            for name in rows.runs[0].rows.schema.names
            if name != TIME_COLUMN
        ]
        if self.spec.timed:
            times = [columns_of[i][self.spec.stream_of(i).event_time].cast(pa.int64()) for i in range(len(legs))]
            columns = [pc.max_element_wise(*times).cast(self.schema.field(TIME_COLUMN).type), *columns]
        result = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        if self._search is not None or self.spec.where is None:
            return kept, result
        return _filter(kept, result, self.spec.evaluate_where(result))

    def _compare_keys(self, keys: list[dict[str, pa.Array]]) -> pa.Array:
        """Whether all legs of a combination have the same key."""
        first, *others = ([keys[i][name] for name in self._key_names(i)] for i in range(len(keys)))
        equal: pa.Array | None = None
        for other in others:
            for a, b, kind in zip(first, other, self.spec.key_types, strict=True):
                same = keys_equal(a.cast(kind), b.cast(kind))
                equal = same if equal is None else pc.and_(equal, same)
        assert equal is not None  # a join has two legs or more, and a key where it has no condition to search by
        return equal.fill_null(False) if equal.null_count else equal  # null keys come to outer joins

    def _key_names(self, leg: int) -> tuple[str, ...]:
        return self.spec.inputs[self.spec.legs[leg].input].keys


def _by_run(numbers: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """The numbers of runs that occur, and where each does."""
    grouped = np.argsort(numbers, kind="stable")
    occurring, begins = np.unique(numbers[grouped], return_index=True)
    return zip(occurring.tolist(), np.split(grouped, begins[1:]), strict=True)


def span_of(runs: Runs) -> tuple[int, int] | None:
    """The earliest and the latest time of some runs."""
    return (min(run.earliest for run in runs), max(run.latest for run in runs)) if runs else None


def _filter(
    kept: np.ndarray | None, rows: pa.RecordBatch, condition: pa.Array
) -> tuple[np.ndarray | None, pa.RecordBatch]:
    """The rows for which a condition is true, and their places, given those of the rows before (None: all)."""
    if pc.all(pc.fill_null(condition, False)).as_py():
        return kept, rows
    at = pc.indices_nonzero(condition)
    places = at.to_numpy().astype(np.int64)
    return places if kept is None else kept[places], rows.take(at)
