"""Queries whose results are looked at epoch by epoch."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
from engine_harness import DirectQuery


class EpochByEpoch(DirectQuery):
    """A query of which the results of each epoch are looked at."""

    def results_of_epoch(self, output: int) -> pa.Table:
        storage = self.sinks[output].storage
        parts = [storage.read(part.name) for part in self.epochs.record.results_of(output).parts]
        tables = [pq.read_table(pa.BufferReader(part)) for part in parts]
        return pa.concat_tables([self.plan.outputs[output].schema.empty_table(), *tables])
