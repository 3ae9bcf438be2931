"""The join in Pathway, over files that arrive; prints one JSON line when it is told to stop.

    python -m benchmarks.latency.pathway_job DIRECTORY      # with the interpreter that has pathway

Pathway reads CSV: it has no Parquet reader for files that arrive. It writes Parquet into Delta Lake alone, which needs
a licence key, so results are taken by a callback and written, those of one of Pathway's times as one file.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

os.environ["PATHWAY_THREADS"] = "2"

import pathway as pw  # type: ignore[import-not-found]

from benchmarks.latency.job import RESULTS, await_stop, say_ready
from benchmarks.latency.result_file import SCHEMA, write_results
from benchmarks.measure import report
from benchmarks.workloads import Workload

COMMIT_MS = 100
KEEP_WINDOWS = 2
"""Windows after which a row is forgotten: one, and one for a stream that is behind the other."""


class Arriving(pw.Schema):
    key: int
    ts: int
    v: float


class ResultFiles:
    """Collects the results of one time, and writes them when it is over."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._written = directory, 0
        self._rows: list[dict[str, Any]] = []

    def on_change(self, key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        if not is_addition:
            raise ValueError(f"{row} was taken back")
        self._rows.append(row)

    def on_time_end(self, time: int) -> None:
        if self._rows:
            write_results(self._directory, self._written, [[row[name] for row in self._rows] for name in SCHEMA.names])
            self._written += 1
            self._rows = []


def build(work: Path, w: Workload) -> None:
    width = w.window_seconds * 1_000_000
    a, b = (
        pw.io.csv.read(work / "in" / stream, schema=Arriving, mode="streaming", autocommit_duration_ms=COMMIT_MS)
        for stream in w.streams
    )
    behavior = pw.temporal.common_behavior(cutoff=KEEP_WINDOWS * width)
    near = a.interval_join(b, a.ts, b.ts, pw.temporal.interval(-width, width), a.key == b.key, behavior=behavior)
    pairs = near.select(A_key=a.key, A_ts=a.ts, A_v=a.v, B_key=b.key, B_ts=b.ts, B_v=b.v)
    files = ResultFiles(work / RESULTS)
    pw.io.subscribe(pairs, on_change=files.on_change, on_time_end=files.on_time_end)


def main() -> None:
    work = Path(sys.argv[1])
    (work / RESULTS).mkdir()
    build(work, Workload.load(work / "in"))
    running = threading.Thread(target=pw.run, kwargs={"monitoring_level": pw.MonitoringLevel.NONE}, daemon=True)
    running.start()
    say_ready()
    await_stop(work)
    if running.is_alive():
        report(settings=f"2 threads, reads CSV, commits every {COMMIT_MS} ms, Parquet files written by pyarrow")
    os._exit(0)  # it has no other end while files may come


if __name__ == "__main__":
    main()
