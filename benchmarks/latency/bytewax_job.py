"""The join in Bytewax, over files that arrive; prints one JSON line when it is told to stop.

    python -m benchmarks.latency.bytewax_job DIRECTORY      # with the interpreter that has bytewax

Bytewax has no join by time alone: its windows are fixed beforehand. A stateful operator keeps the rows of a key and
finds the partners of each new one. A stream's rows come in the order of their times, so a row can go when the other
stream is past its window. What the operator finds for one batch of rows is written as one Parquet file.
"""

from __future__ import annotations

import os
import sys
from bisect import bisect_left
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import bytewax.operators as op  # type: ignore[import-not-found]
import pyarrow as pa
import pyarrow.parquet as pq
from bytewax.dataflow import Dataflow  # type: ignore[import-not-found]
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition  # type: ignore[import-not-found]
from bytewax.operators import StatefulBatchLogic
from bytewax.outputs import DynamicSink, StatelessSinkPartition  # type: ignore[import-not-found]
from bytewax.testing import run_main  # type: ignore[import-not-found]

from benchmarks.latency.job import RESULTS, is_stopped, say_ready
from benchmarks.latency.result_file import write_results
from benchmarks.measure import report
from benchmarks.workloads import Workload

LOOK = timedelta(milliseconds=10)

Row = tuple[int, int, float]  # key, time, value


class ArrivingFiles(StatefulSourcePartition):
    """The rows of one stream, file by file."""

    def __init__(self, work: Path, side: int, stream: str) -> None:
        self._work, self._side, self._directory = work, side, work / "in" / stream
        self._read: set[str] = set()

    def next_batch(self) -> list[Any]:
        new = sorted(set(os.listdir(self._directory)) - self._read)
        if not new and is_stopped(self._work):
            raise StopIteration
        items: list[Any] = []
        for name in new:
            table = pq.read_table(self._directory / name)
            keys, values = table["key"].to_pylist(), table["v"].to_pylist()
            times = table["ts"].cast(pa.int64()).to_pylist()
            items += [(str(key), (self._side, (key, at, v))) for key, at, v in zip(keys, times, values, strict=True)]
        self._read.update(new)
        return items

    def next_awake(self) -> datetime:
        return datetime.now(timezone.utc) + LOOK

    def snapshot(self) -> None:
        return None


class Arriving(FixedPartitionedSource):
    def __init__(self, work: Path, streams: str) -> None:
        self._work, self._streams = work, streams

    def list_parts(self) -> list[str]:
        return list(self._streams)

    def build_part(self, step_id: str, for_part: str, resume_state: None) -> ArrivingFiles:
        return ArrivingFiles(self._work, self._streams.index(for_part), for_part)


class NearRows(StatefulBatchLogic):
    """The rows of one key that can still have partners, those of each stream in the order of time."""

    def __init__(self, within: int) -> None:
        self._within = within
        self._rows: tuple[list[Row], list[Row]] = ([], [])

    def on_batch(self, values: list[tuple[int, Row]]) -> tuple[list[tuple[Row, Row]], bool]:
        pairs: list[tuple[Row, Row]] = []
        for side, row in values:
            others = self._rows[1 - side]
            gone = bisect_left(others, row[1] - self._within, key=_time)
            del others[:gone]
            for other in others:
                if other[1] > row[1] + self._within:
                    break
                pairs.append((row, other) if side == 0 else (other, row))
            self._rows[side].append(row)
        return pairs, StatefulBatchLogic.RETAIN

    def snapshot(self) -> Any:
        return self._rows


def _time(row: Row) -> int:
    return row[1]


class ResultFiles(StatelessSinkPartition):
    def __init__(self, directory: Path) -> None:
        self._directory, self._written = directory, 0

    def write_batch(self, items: list[tuple[str, tuple[Row, Row]]]) -> None:
        columns = [*zip(*(a for _, (a, _) in items), strict=True), *zip(*(b for _, (_, b) in items), strict=True)]
        write_results(self._directory, self._written, columns)
        self._written += 1


class Results(DynamicSink):
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def build(self, step_id: str, worker_index: int, worker_count: int) -> ResultFiles:
        return ResultFiles(self._directory)


def dataflow(work: Path, w: Workload) -> Dataflow:
    within = w.window_seconds * 1_000_000
    flow = Dataflow("latency")
    rows = op.input("rows", flow, Arriving(work, w.streams))
    pairs = op.stateful_batch("join", rows, lambda resumed: NearRows(within))
    op.output("write", pairs, Results(work / RESULTS))
    return flow


def main() -> None:
    work = Path(sys.argv[1])
    (work / RESULTS).mkdir()
    flow = dataflow(work, Workload.load(work / "in"))
    say_ready()
    run_main(flow)
    report(settings="one worker, Parquet files read and written by pyarrow, no recovery")


if __name__ == "__main__":
    main()
