"""The pairs of a theta join: candidates by time and by the order of values, then the condition itself.

Of a candidate only the columns that the condition reads are taken; result rows are made of what it is true for.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluice.kernels.narrowed import ProbeNarrowing, narrow_probes
from sluice.kernels.near import CANDIDATES_AT_ONCE, near_pairs
from sluice.kernels.probe import Run
from sluice.model.plan.join import JoinSpec

Pairs = tuple[np.ndarray, np.ndarray]


class ConditionSearch:
    """Finds partners by the condition of a join of two legs."""

    def __init__(self, spec: JoinSpec) -> None:
        assert spec.where is not None and len(spec.legs) == 2, "it is about two legs and a condition"
        self.spec, self.where = spec, spec.where
        self._read = [self._columns_read(leg) for leg in (0, 1)]
        self._narrowed: tuple[Run, int, ProbeNarrowing] | None = None

    def _columns_read(self, leg: int) -> list[tuple[str, str]]:
        """The columns of a leg that the condition reads: what they are called there, and in it."""
        prefix = f"{self.spec.legs[leg].name}_"
        names = [(column.name, f"{prefix}{column.name}") for column in self.spec.stream_of(leg).shown]
        return [(own, shown) for own, shown in names if shown in self.where.columns]

    def pairs(
        self, probes: Run, leg: int, run: Run, low: np.ndarray, high: np.ndarray, at_once: int
    ) -> Iterator[Pairs]:
        """Pairs (place among the probes, place in the run) for which the condition is true, in chunks of bounded
        size. The run's rows are those of `leg`, the probes those of the other."""
        waiting: list[Pairs] = []
        size = 0
        candidates = min(CANDIDATES_AT_ONCE, at_once)
        for which, run_places in near_pairs(run, low, high, self._narrowing_of(probes, leg), candidates):
            matching = self.filter_by_condition(probes, which, leg, run, run_places)
            if len(matching) == 0:
                continue
            if size + len(matching) > at_once:
                yield _concatenate(waiting)
                waiting, size = [], 0
            waiting.append((which[matching], run_places[matching]))
            size += len(matching)
        if waiting:
            yield _concatenate(waiting)

    def _narrowing_of(self, probes: Run, leg: int) -> ProbeNarrowing:
        """Computed once for all runs that the same rows are compared with."""
        if self._narrowed is None or self._narrowed[0] is not probes or self._narrowed[1] != leg:
            self._narrowed = probes, leg, narrow_probes(self.spec.narrowing, leg, probes.rows)
        return self._narrowed[2]

    def filter_by_condition(
        self, probes: Run, which: np.ndarray, leg: int, run: Run, run_places: np.ndarray
    ) -> np.ndarray:
        """The places among candidates for which the condition is true."""
        columns: dict[str, pa.Array] = {}
        for side, rows, places in ((1 - leg, probes.rows, which), (leg, run.rows, run_places)):
            if not self._read[side]:
                continue
            own = rows.select([name for name, _ in self._read[side]]).take(pa.array(places))
            columns |= dict(zip([shown for _, shown in self._read[side]], own.columns, strict=True))
        if not columns:  # a condition on nothing holds for all or for none
            columns = {"": pa.array(run_places)}
        true = self.spec.evaluate_where(pa.RecordBatch.from_pydict(columns))
        matching: np.ndarray = pc.indices_nonzero(true).to_numpy()
        return matching


def _concatenate(pieces: list[Pairs]) -> Pairs:
    if len(pieces) == 1:
        return pieces[0]
    return np.concatenate([which for which, _ in pieces]), np.concatenate([run_places for _, run_places in pieces])
