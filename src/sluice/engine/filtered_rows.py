"""Rows on their way to many: the stateless steps that several ways begin with are done once."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluice.engine.epoch_tables import NO_TABLES, EpochTables, TooManyPairs
from sluice.kernels.probe import PAIRS_AT_ONCE
from sluice.model.errors import EvaluationError
from sluice.model.plan.steps import Step, TableJoin
from sluice.model.plan.stream import Filter


@dataclass(frozen=True)
class StepPath:
    """Stateless steps, and for each of them what it and those before it do: two paths that begin alike have the same
    keys there."""

    steps: tuple[Step, ...]
    keys: tuple[Hashable, ...]

    @staticmethod
    def of(steps: tuple[Step, ...]) -> StepPath:
        structures = tuple(step.structure() for step in steps)
        return StepPath(steps, tuple(structures[: place + 1] for place in range(len(steps))))

    @property
    def has_tables(self) -> bool:
        """Whether rows are joined with tables on it."""
        return any(isinstance(step, TableJoin) for step in self.steps)


class Selection:
    """Some rows of a batch, those for which `kept` is true; all of them if it is None.

    `places` says where they stand in the origin's batch; None if columns were computed on the way, and what they are of
    is known no longer.
    """

    def __init__(self, base: pa.RecordBatch, kept: pa.Array | None = None, is_of_origin: bool = True) -> None:
        self.base, self.is_of_origin, self._kept = base, is_of_origin, kept

    @cached_property
    def rows(self) -> pa.RecordBatch:
        """The rows themselves."""
        return self.base if self._kept is None else self.base.filter(self._kept, null_selection_behavior="drop")

    @cached_property
    def places(self) -> np.ndarray:
        """Where the rows stand in the batch."""
        if self._kept is None:
            return np.arange(self.base.num_rows)
        places: np.ndarray = pc.indices_nonzero(self._kept).to_numpy().astype(np.int64)
        return places

    @cached_property
    def is_empty(self) -> bool:
        """Whether no row is left."""
        return bool(self.base.num_rows == 0 if self._kept is None else self._kept.true_count == 0)

    def _select(self, columns: tuple[str, ...]) -> pa.RecordBatch:
        """The rows with some columns alone, as far as these are not at hand already."""
        if "rows" in vars(self) or not columns:
            return self.rows
        return self.base.select(list(columns)).filter(self._kept, null_selection_behavior="drop")

    def after(self, step: Step, tables: EpochTables, most_pairs: float = inf) -> Selection:
        """What a step leaves of it. Expressions are evaluated on no other rows: they might fail there. `TooManyPairs`
        if a join with a table would make more."""
        if isinstance(step, TableJoin):
            return Selection(tables.join(step, self.rows, most_pairs), None, is_of_origin=False)
        if not isinstance(step, Filter):
            if step.is_plain:
                return Selection(step.apply(self.base), self._kept, self.is_of_origin)
            return Selection(step.apply(self.rows), None, is_of_origin=False)
        if self._kept is None:
            return Selection(self.base, step.evaluate(self.base), self.is_of_origin)
        passed = self.places[pc.indices_nonzero(step.evaluate(self._select(step.condition.columns))).to_numpy()]
        kept = np.zeros(self.base.num_rows, dtype=bool)
        kept[passed] = True
        return Selection(self.base, pa.array(kept), self.is_of_origin)


class FilteredRows:
    """A batch of rows of one origin, and what paths leave of it in an epoch with these tables."""

    def __init__(self, rows: pa.RecordBatch, tables: EpochTables = NO_TABLES) -> None:
        self._whole, self._tables = Selection(rows), tables
        self._most_pairs = PAIRS_AT_ONCE if rows.num_rows > 1 else inf
        self._after: dict[Hashable, Selection] = {}

    @property
    def rows(self) -> pa.RecordBatch:
        """All rows."""
        return self._whole.base

    def after(self, path: StepPath, whose: str) -> Selection | None:
        """What a path leaves of the rows, None if no row is left; `whose` they are is for errors."""
        selection = self._whole
        for step, key in zip(path.steps, path.keys, strict=True):
            if selection.is_empty:
                return None
            known = self._after.get(key)
            if known is None:
                try:
                    known = self._after[key] = selection.after(step, self._tables, self._most_pairs)
                except EvaluationError as error:
                    raise EvaluationError(f"{whose}, {error}") from error
            selection = known
        return None if selection.is_empty else selection


def join_tables(
    rows: pa.RecordBatch, tables: EpochTables, paths: Sequence[StepPath], whose: str
) -> Iterator[FilteredRows]:
    """Rows on their way along paths with joins with tables, which are done here: as many rows at a time as make a
    bounded number of pairs, or one. Without such paths all rows at once."""
    filtered = FilteredRows(rows, tables)
    try:
        for path in paths:
            filtered.after(path, whose)
    except TooManyPairs:
        half = rows.num_rows // 2
        yield from join_tables(rows.slice(0, half), tables, paths, whose)
        yield from join_tables(rows.slice(half), tables, paths, whose)
    else:
        yield filtered
