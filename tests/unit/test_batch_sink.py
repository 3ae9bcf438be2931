"""How results reach a function that takes DataFrames: few as rows of the driver, many by a scan of their files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluice.engine.part_writer import PartWriter
from sluice.model.epoch.results import Part, Results
from sluice.spark.sinks import SMALL_BYTES, BatchSink

SCHEMA = pa.schema([("k", pa.int64()), ("text", pa.string())])


class HandedRows(BatchSink):
    """One whose function is handed Arrow rows, or the names of the files to scan."""

    def __init__(self, checkpoint: Path) -> None:
        self.handed: list[Any] = []
        session: Any = self
        super().__init__(session, str(checkpoint), SCHEMA, "pairs", lambda frame, epoch: self.handed.append(frame))

    def createDataFrame(self, rows: pa.Table, schema: object) -> Any:
        return rows

    def _frame(self, parts: list[str], directory: str) -> Any:
        return parts


def write(sink: HandedRows, epoch: int, *tables: pa.Table) -> Results:
    """What sites write in an epoch, a table each."""
    parts: list[Part] = []
    for site, rows in enumerate(tables):
        writer = PartWriter(sink.staging, f"part-{epoch:08d}-{site}", SCHEMA)
        for batch in rows.to_batches():
            writer.add(batch)
        parts += writer.close()
    return Results(epoch, tuple(parts))


def test_few_results_are_handed_over_as_rows_and_none_as_no_files(tmp_path: Path) -> None:
    sink = HandedRows(tmp_path)
    sink.open("query", Results(-1))
    tables = [pa.table([[site] * 5000, ["a"] * 5000], schema=SCHEMA) for site in range(2)]
    sink.deliver(write(sink, 0, *tables))
    sink.deliver(Results(1))
    assert sink.handed[0].equals(pa.concat_tables(tables))
    assert sink.handed[1] == []


@pytest.mark.parametrize(("count", "text"), [(2_000_000, "a"), (200, "a" * 100_000)])
def test_many_rows_in_small_files_stay_in_their_files(tmp_path: Path, count: int, text: str) -> None:
    """Equal values are in a file once: a few kilobytes of it can be gigabytes of rows."""
    sink = HandedRows(tmp_path)
    sink.open("query", Results(-1))
    results = write(sink, 0, pa.table([[1], ["b"]], schema=SCHEMA), pa.table([[0] * count, [text] * count], SCHEMA))
    assert sum(part.bytes for part in results.parts) < SMALL_BYTES
    sink.deliver(results)
    assert sink.handed == [[part.name for part in results.parts]]
