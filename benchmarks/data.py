"""Makes the rows once: streams of Parquet files that arrive in order, and the same rows as CSV for Flink.

    python -m benchmarks.data uniform --quick     # prints the directory

Event times have microsecond type and UTC, and lie on whole milliseconds: Flink's row time holds no more, and so
every contender joins exactly the same rows. In a stream to be grouped no group has two rows at one time, so that
which rows are its newest does not depend on how contenders order equal times.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

from benchmarks.workloads import FIRST_EVENT, WORKLOADS, Workload, quick

CACHE = Path(__file__).resolve().parent.parent / ".bench"
FIRST_ARRIVAL = 1_700_000_000  # modification time of the first file; each later file arrives a second later
CSV_PARTS = 2  # one per Flink reader, so that each reader sees its rows in event-time order


def open_cache(cache: Path) -> Path:
    """The directory for rows and logs, made if it is not there yet."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as problem:
        sys.exit(
            f"{problem.filename} is in the way: rows are kept there, and it is no directory. Remove it, or name "
            "another place with --cache"
        )
    ignoring = cache / ".gitignore"
    if not ignoring.exists():  # a directory with one is not ours alone
        ignoring.write_text("*\n")
    return cache


def prepare(w: Workload, cache: Path = CACHE) -> Path:
    """Directory with ``<stream>/<number>.parquet`` of the workload, made if it is not there yet."""
    home = cache / f"{w.name}-{w.files}x{w.rows_per_file}"
    if (home / "workload.json").exists() and Workload.load(home) == w:
        return home
    shutil.rmtree(home, ignore_errors=True)
    for stream in range(len(w.streams)):
        folder = home / w.streams[stream]
        folder.mkdir(parents=True)
        for number in range(w.files):
            path = folder / f"{number:04d}.parquet"
            pq.write_table(rows(w, stream, number), path)
            os.utime(path, (FIRST_ARRIVAL + number,) * 2)
    w.save(home)
    return home


def first(home: Path, files: int) -> Path:
    """The first files of each stream as a directory of their own (hard links, same arrival times)."""
    w = Workload.load(home)
    if files >= w.files:
        return home
    part = home / f"first-{files}"
    if not (part / "workload.json").exists():
        shutil.rmtree(part, ignore_errors=True)
        for stream in w.streams:
            (part / stream).mkdir(parents=True)
            for path in sorted((home / stream).glob("*.parquet"))[:files]:
                os.link(path, part / stream / path.name)
        replace(w, files=files).save(part)
    return part


def as_csv(home: Path) -> Path:
    """The rows of a prepared directory as CSV, each stream dealt row by row onto ``CSV_PARTS`` files."""
    w = Workload.load(home)
    target = home / "csv"
    if (target / "workload.json").exists():
        return target
    shutil.rmtree(target, ignore_errors=True)
    plain = pcsv.WriteOptions(include_header=False, quoting_style="none")
    for stream in w.streams:
        (target / stream).mkdir(parents=True)
        with ExitStack() as opened:
            parts = [opened.enter_context(open(target / stream / f"{i}.csv", "wb")) for i in range(CSV_PARTS)]
            for path in sorted((home / stream).glob("*.parquet")):
                table = pq.read_table(path).combine_chunks()
                table = table.set_column(table.column_names.index("ts"), "ts", clock(table["ts"].chunk(0)))
                for i, out in enumerate(parts):
                    pcsv.write_csv(table.take(np.arange(i, len(table), CSV_PARTS)), out, plain)
    w.save(target)
    return target


def clock(times: pa.Array) -> pa.Array:
    """Event times as text; formatted once per distinct millisecond, which many rows share."""
    distinct = times.cast(pa.timestamp("ms", tz="UTC")).dictionary_encode()
    return pc.strftime(distinct.dictionary, format="%Y-%m-%d %H:%M:%S").take(distinct.indices)


def rows(w: Workload, stream: int, number: int) -> pa.Table:
    """One file of one stream; the same rows for the same workload whenever it is asked for."""
    rng = np.random.default_rng([7, stream, number])
    n = w.rows_per_file
    at = FIRST_EVENT + np.arange(number * n, (number + 1) * n) * 1000 // w.rows_per_second * 1000
    columns = {"key": keys(w, rng, at), "ts": pa.array(at, pa.timestamp("us", tz="UTC"))}
    for name, _ in w.columns[2:]:
        columns[name] = payload(name, rng, at)
    return pa.table(columns)


def keys(w: Workload, rng: np.random.Generator, at: np.ndarray) -> pa.Array:
    n = w.rows_per_file
    drawn = rng.integers(0, w.keys, n)
    if w.operation in ("sliding", "last"):
        drawn = apart(w, rng, at, drawn)
    if w.hot:
        border = w.keys // 5
        drawn = np.where(rng.random(n) < 0.8, drawn % border, border + drawn % (w.keys - border))
    return pa.array(drawn) if w.columns[0][1] == "long" else text("user-", drawn, 9)


def apart(w: Workload, rng: np.random.Generator, at: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Keys drawn again until none occurs twice at one time. Files end on whole milliseconds."""
    moment = (at - at[0]) // 1000
    while True:
        _, first_seen = np.unique(moment * w.keys + drawn, return_index=True)
        again = np.setdiff1d(np.arange(len(drawn)), first_seen)
        if not len(again):
            return drawn
        drawn[again] = rng.integers(0, w.keys, len(again))


def payload(name: str, rng: np.random.Generator, at: np.ndarray) -> pa.Array:
    n = len(at)
    match name:
        case "v":
            return pa.array(rng.random(n).round(6))
        case "q":
            return pa.array(rng.integers(1, 1000, n), pa.int32())
        case "id":
            return pa.array(rng.integers(0, 1 << 62, n))
        case "quantity":
            return pa.array(rng.integers(1, 1000, n), pa.int32())
        case "score":
            return pa.array((rng.integers(0, 1 << 10, n) / 8).astype(np.float32))
        case "active":
            return pa.array(rng.random(n) < 0.9)
        case "day":
            return pa.array(rng.integers(19_000, 20_500, n).astype(np.int32)).cast(pa.date32())
        case "city":
            return text("city-", rng.integers(0, 500, n), 3)
        case "session":
            return text("s-", rng.integers(0, 1 << 48, n), 16)
        case "note":
            return text("ordered at the counter; batch ", rng.integers(0, 100_000, n), 6)
    raise ValueError(f"no generator for payload column {name!r}: add one to benchmarks/data.py")


def text(prefix: str, numbers: np.ndarray, width: int) -> pa.Array:
    padded = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), width, padding="0")
    return pc.binary_join_element_wise(prefix, padded, "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--csv", action="store_true")
    args = parser.parse_args()
    w = WORKLOADS[args.workload]
    home = prepare(quick(w) if args.quick else w, open_cache(args.cache))
    print(as_csv(home) if args.csv else home)


if __name__ == "__main__":
    main()
