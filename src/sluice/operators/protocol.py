"""What the engine asks of an operator, and what an operator may ask of its state.

An operator is a pure state transition: new rows and state in, results and new state out. It knows nothing of sites,
files or Spark. Its inputs are numbered from 0; `before` and `after` are the watermarks of its streams before the epoch
and after it, that is, with the epoch's own rows seen.

What that means for an operator:

- Rows without a usable time, and those that came later than the watermark before, are gone before `outgoing`. New rows
  may have exactly that time still. A row is due, where an operator waits for the watermark, once it is not later than
  `after`.
- New rows come sorted by hash and time. A unit that was behind gets the rows of several epochs as one batch: the
  number of an epoch says nothing about the order in which rows arrived.
- `compacted` is handed rows of units that have come equally far, and the watermarks there.
- State may have other columns than what crosses the exchange; `state.segment.sort_run` makes a run of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from sluice.kernels.probe import Run
from sluice.model.epoch.times import Times
from sluice.operators.row_hashing import RowHashing
from sluice.state.segment import Layout


@dataclass(frozen=True)
class Outgoing:
    """An input's rows as they cross the exchange, with their key hashes; `dropped` is how many can have no effect."""

    hashes: np.ndarray
    rows: pa.RecordBatch
    dropped: int = 0


def hash_rows(hashing: RowHashing, rows: pa.RecordBatch) -> Outgoing:
    """Rows as they are, but for those that are not needed."""
    before, valid = rows.num_rows, hashing.find_valid(rows)
    if valid is not None:
        rows = rows.filter(valid)
    return Outgoing(hashing.hash(rows), rows, before - rows.num_rows)


ResultBatch = tuple[np.ndarray, pa.RecordBatch]
"""Some results, and the key hash of each."""


class State(Protocol):
    """An operator's state at one site in one epoch."""

    def runs(self, input_: int, span: tuple[int, int] | None) -> list[Run]:
        """The runs with rows inside a span of time, as they were before the epoch; none without a span."""

    def stage(self, input_: int, run: Run) -> None:
        """Add a run to the state."""


class Operator(Protocol):
    """A stateful step."""

    schema: pa.Schema
    retention: int | None
    """For how long, in its state's time, rows may be needed; None is for good."""
    by_time: bool
    """Whether results may come without new rows, when the watermark moves on."""
    shrinks: bool
    """Whether rows are replaced by newer ones, so that merged runs are smaller and merging them keeps state small."""

    def exchange_schema(self, input_: int) -> pa.Schema:
        """The columns that cross the exchange."""

    def state_layout(self, input_: int) -> Layout:
        """The columns of an input's state, and which of them is the time that it is ordered by and expires by."""

    def prepare_input(self, input_: int, rows: pa.RecordBatch) -> Outgoing:
        """What of an input's rows, of which there are some, has to reach the sites; runs before the exchange."""

    def row_hashing(self, input_: int) -> RowHashing | None:
        """How an input's rows are hashed, if they cross the exchange as they are, with the columns of the exchange
        alone; None if something is made of them before."""

    def keep_from(self, input_: int, watermarks: Times) -> int | None:
        """The time below which rows of the state are useless, where streams have these watermarks; None keeps all."""

    def due_span(self, before: Times, after: Times) -> tuple[int, int] | None:
        """The times of state of which results may come without new rows, now that the watermarks have moved on; None if
        none can."""

    def compact(self, input_: int, run: Run, after: Times) -> Run:
        """A merged run with fewer rows that mean the same."""

    def epoch(
        self, number: int, new: Sequence[Run | None], state: State, before: Times, after: Times
    ) -> Iterator[ResultBatch]:
        """The epoch's results; the new state is staged before the last of them."""


@runtime_checkable
class FreezableOperator(Operator, Protocol):
    """One whose units can go on without their state so far: what is missing then can be found later."""

    def expires(self, input_: int) -> bool:
        """Whether rows of an input are needed for a bounded time only."""

    def join_generations(self, older: Sequence[Sequence[Run]], newer: Sequence[Sequence[Run]]) -> Iterator[ResultBatch]:
        """The results with rows of both generations of a unit, given each input's runs in the one and the other."""


@runtime_checkable
class ShareableOperator(Operator, Protocol):
    """One whose units can have several holders: each result is found once, where a row of it is stored."""

    def shared_epoch(
        self, new: Sequence[Run | None], probing: Sequence[Run | None], state: State
    ) -> Iterator[ResultBatch]:
        """The epoch's results. Rows of `new` are stored here and staged. Rows of `probing` are stored elsewhere; they
        only meet state. A pair of new rows is a result where the row of the later leg is stored."""


@runtime_checkable
class TableOperator(Operator, Protocol):
    """One whose state is a table, which can be shown as a whole."""

    shows_all: bool
    """Whether all of it is shown after each epoch; else what has changed comes as the epoch's results."""

    def show_all(self, runs: Sequence[Run]) -> Iterator[ResultBatch]:
        """All that there is of some units, given all runs of their state, in the order of their age."""
