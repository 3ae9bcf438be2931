"""The rows of Nexmark as files: made once, Parquet for all but Flink, which gets CSV of the same rows."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

from benchmarks.data import CSV_PARTS, FIRST_ARRIVAL, clock
from benchmarks.nexmark.generator import SIDE_TABLE, STREAMS, Events, make_side_table

_MARK = "events.json"


def prepare(events: Events, cache: Path) -> Path:
    """The directory with `<stream>/<number>.parquet`, made if it is not there yet."""
    home = cache / f"nexmark-{events.files}x{events.count}"
    if (home / _MARK).exists() and load(home) == events:
        return home
    shutil.rmtree(home, ignore_errors=True)
    for stream in STREAMS:
        (home / stream).mkdir(parents=True)
    for file in range(events.files):
        for stream, table in events.tables(file).items():
            path = home / stream / f"{file:04d}.parquet"
            pq.write_table(table, path)
            os.utime(path, (FIRST_ARRIVAL + file,) * 2)
    (home / _MARK).write_text(json.dumps(asdict(events)))
    return home


def load(home: Path) -> Events:
    """What a directory has the rows of."""
    return Events(**json.loads((home / _MARK).read_text()))


def first(home: Path, files: int) -> Path:
    """The first files of each stream as a directory of their own (hard links, same arrival times)."""
    events = load(home)
    if files >= events.files:
        return home
    part = home / f"first-{files}"
    if not (part / _MARK).exists():
        shutil.rmtree(part, ignore_errors=True)
        for stream in STREAMS:
            (part / stream).mkdir(parents=True)
            for path in sorted((home / stream).glob("*.parquet"))[:files]:
                os.link(path, part / stream / path.name)
        (part / _MARK).write_text(json.dumps(asdict(events.first(files))))
    return part


def prepare_csv(home: Path) -> Path:
    """The same rows as CSV, each stream dealt row by row onto the files of Flink's readers, and the table."""
    target = home / "csv"
    if (target / _MARK).exists():
        return target
    shutil.rmtree(target, ignore_errors=True)
    plain = pcsv.WriteOptions(include_header=False, quoting_style="none")
    for stream in STREAMS:
        (target / stream).mkdir(parents=True)
        with ExitStack() as opened:
            parts = [opened.enter_context(open(target / stream / f"{i}.csv", "wb")) for i in range(CSV_PARTS)]
            for path in sorted((home / stream).glob("*.parquet")):
                table = _times_as_text(pq.read_table(path).combine_chunks())
                for i, out in enumerate(parts):
                    pcsv.write_csv(table.take(np.arange(i, len(table), CSV_PARTS)), out, plain)
    (target / SIDE_TABLE).mkdir()
    pcsv.write_csv(make_side_table(), target / SIDE_TABLE / "0.csv", plain)
    shutil.copy(home / _MARK, target / _MARK)
    return target


def _times_as_text(table: pa.Table) -> pa.Table:
    for place, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type) and table.num_rows:
            milliseconds = pc.floor_temporal(table.column(place).chunk(0), unit="millisecond")  # Flink's row time
            table = table.set_column(place, field.name, clock(milliseconds))
    return table
