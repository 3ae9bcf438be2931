"""The view of a table that every epoch shows anew: the newest epoch's parts, whatever died in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluice.model.codec import checksum
from sluice.model.epoch.attempt import Attempt
from sluice.model.epoch.results import Part, Results
from sluice.model.errors import CheckpointError
from sluice.model.ids import Site
from sluice.spark.sinks import TableSink

SCHEMA = pa.schema([("k", pa.int64())])


class SeenTable(TableSink):
    """One whose view is looked at without Spark."""

    def __init__(self, checkpoint: Path) -> None:
        session: Any = None
        super().__init__(session, str(checkpoint), SCHEMA, "totals")
        self.seen: list[str] = []

    def _show_parts(self, names: list[str]) -> None:
        self.seen = names

    @property
    def kept(self) -> list[str]:
        """The files where the view looks."""
        return sorted(entry.name for entry in self.storage.files(self.view))


def write(sink: SeenTable, epoch: int, parts: int = 2) -> Results:
    """What sites write in an epoch."""
    written = []
    for site in range(parts):
        name, data = f"part-{Attempt(epoch, Site(site), 'ab', 'cd')}-0.parquet", f"{epoch} {site}".encode()
        sink.storage.write(f"{sink.directory}/{name}", [data])
        written.append(Part(name, 1, len(data), checksum(data)))
    return Results(epoch, tuple(written))


def names(results: Results) -> list[str]:
    return [part.name for part in results.parts]


def test_each_epoch_takes_the_place_of_those_before(tmp_path):
    sink = SeenTable(tmp_path)
    sink.open("query", Results(-1))
    assert sink.seen == []
    before = Results(-1)
    for epoch in range(5):
        results = write(sink, epoch)
        sink.deliver(results)
        assert sink.seen == names(results)
        assert sink.kept == sorted([*names(before), *names(results)])
        before = results


def test_a_table_that_has_become_empty(tmp_path):
    sink = SeenTable(tmp_path)
    sink.open("query", Results(-1))
    for epoch, parts in enumerate((2, 0, 0)):
        sink.deliver(write(sink, epoch, parts))
    assert (sink.seen, sink.kept) == ([], [])


def test_a_restart_shows_what_was_committed_last(tmp_path):
    """Whether its driver died before it was shown or after."""
    sink = SeenTable(tmp_path)
    sink.open("query", Results(-1))
    sink.deliver(write(sink, 0))
    newest = write(sink, 1)
    for _ in range(2):
        again = SeenTable(tmp_path)
        again.check("query", newest)
        again.open("query", newest)
        again.deliver(newest)
        assert again.seen == names(newest)
    after = SeenTable(tmp_path)
    after.open("query", newest)
    assert after.seen == names(newest)
    with pytest.raises(CheckpointError, match="shows results of epoch 1, the checkpoint only goes to epoch 0"):
        SeenTable(tmp_path).check("query", Results(0))
