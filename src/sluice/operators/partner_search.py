"""Whether rows of one leg of a join have a partner in runs of the other: the keys, the times and the condition decide.

That is a question about rows, not about what has been found of them before. So nothing has to be kept of it: as long as
the partners that a row can have are in the state, their runs answer it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluice.kernels.existence import find_candidates, find_matched
from sluice.kernels.hashing import keys_equal
from sluice.kernels.probe import PAIRS_AT_ONCE, Run, is_near
from sluice.model.plan.join import JoinSpec
from sluice.operators.condition_search import ConditionSearch

_NEVER = np.iinfo(np.int64).max


class PartnerSearch:
    """Finds out which rows have partners, in a join of two legs."""

    def __init__(self, spec: JoinSpec) -> None:
        self.spec = spec
        self._condition = None if spec.where is None else ConditionSearch(spec)

    def columns_read(self, leg: int) -> list[str]:
        """The columns that decide which partners a row of a leg has."""
        stream = self.spec.stream_of(leg)
        prefix = f"{self.spec.legs[leg].name}_"
        read = () if self.spec.where is None else self.spec.where.columns
        by_condition = [column.name for column in stream.shown if f"{prefix}{column.name}" in read]
        return list(dict.fromkeys([stream.event_time, *self._keys(leg), *by_condition]))

    def partner_span(self, leg: int, times: np.ndarray) -> tuple[int, int]:
        """The times between which partners of rows of a leg with these times lie."""
        reach, other = self.spec.reach, 1 - leg
        return int(times.min()) - reach[other][leg], int(times.max()) + reach[leg][other]

    def find_matched(self, leg: int, rows: Run, partners: Sequence[Run]) -> np.ndarray:
        """Whether each row of a leg has a partner in any of these runs of the other leg."""
        low, high = self._bounds(leg, rows.times)
        matched = np.zeros(len(rows), dtype=bool)
        for run in partners:
            if self.spec.is_theta:
                assert self._condition is not None, "a join without keys has a condition"
                for which, _ in self._condition.pairs(rows, 1 - leg, run, low, high, PAIRS_AT_ONCE):
                    matched[which] = True
                low[matched] = _NEVER  # they are not looked for any more
            else:
                left = np.flatnonzero(~matched)
                within = low[left], high[left]
                found = find_matched(run, rows.hashes[left], *within, _PairFilter(self, leg, rows, left, run, within))
                matched[left[found]] = True
        return matched

    def find_candidates(self, leg: int, run: Run, partners: Run) -> np.ndarray:
        """The places of a run's rows, of one leg, that may have one of these partners, of the other; with no equality
        those that have."""
        low, high = self._bounds(1 - leg, partners.times)
        if not self.spec.is_theta:
            return find_candidates(run, partners.hashes, low, high)
        assert self._condition is not None, "a join without keys has a condition"
        places = [at for _, at in self._condition.pairs(partners, leg, run, low, high, PAIRS_AT_ONCE)]
        return np.unique(np.concatenate([np.arange(0), *places]))

    def _bounds(self, leg: int, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The earliest and the latest time that a partner of each row may have."""
        reach, other = self.spec.reach, 1 - leg
        return times - reach[other][leg], times + reach[leg][other]

    def _keys(self, leg: int) -> tuple[str, ...]:
        return self.spec.inputs[self.spec.legs[leg].input].keys

    def filter_pairs(self, leg: int, rows: Run, at: np.ndarray, run: Run, places: np.ndarray) -> np.ndarray:
        """Which pairs with equal hashes and near times match: keys are compared in full, then the condition."""
        equal: pa.Array | None = None
        for own, theirs, kind in zip(self._keys(leg), self._keys(1 - leg), self.spec.key_types, strict=True):
            a, b = rows.rows.column(own).take(pa.array(at)), run.rows.column(theirs).take(pa.array(places))
            same = keys_equal(a.cast(kind), b.cast(kind))
            equal = same if equal is None else pc.and_(equal, same)
        matching: np.ndarray = pc.indices_nonzero(equal).to_numpy().astype(np.int64)
        if self._condition is None or not len(matching):
            return matching
        true = self._condition.filter_by_condition(rows, at[matching], 1 - leg, run, places[matching])
        kept: np.ndarray = matching[true]
        return kept


class _PairFilter:
    """Which pairs of rows of a leg, those at `left`, and of a run match."""

    def __init__(
        self,
        search: PartnerSearch,
        leg: int,
        rows: Run,
        left: np.ndarray,
        run: Run,
        within: tuple[np.ndarray, np.ndarray],
    ) -> None:
        self._search, self._leg, self._rows, self._left, self._run = search, leg, rows, left, run
        self._low, self._high = within

    def __call__(self, which: np.ndarray, places: np.ndarray) -> np.ndarray:
        near: np.ndarray | None = None
        if self._run.scale.shift:
            near = np.flatnonzero(is_near(self._run, places, self._low[which], self._high[which]))
            which, places = which[near], places[near]
        matching = self._search.filter_pairs(self._leg, self._rows, self._left[which], self._run, places)
        return matching if near is None else near[matching]
