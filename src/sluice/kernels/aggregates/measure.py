"""The shape that all measures have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from sluice.kernels.grouping import Groups
from sluice.kernels.windows import Windows

Columns = Sequence[pa.Array]


class Measure(Protocol):
    """Some columns of a partial state, and how they come about. Equal measures are computed once."""

    @property
    def fields(self) -> list[pa.Field]:
        """The columns of the partial state that are this measure's."""
        ...

    def partial(self, rows: pa.RecordBatch, times: np.ndarray, groups: Groups) -> Columns:
        """One value a group from its rows."""
        ...

    def merge(self, partials: pa.RecordBatch, groups: Groups) -> Columns:
        """One value a group from its partial states, those of other measures included."""
        ...

    def roll(self, rows: pa.RecordBatch, windows: Windows) -> Columns:
        """One value a window over rows that lie group by group."""
        ...
