"""What the live page costs a query that runs: file operations and processor time of the query with and without a page
that a browser looks at, and what the page itself takes, for each epoch.

    python -m scripts.page_cost --epochs 40

The query runs in this process, by the engine that Spark's tasks and its driver run; the page and the browser are
processes of their own, as they are beside Spark.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from browser import chromium
from engine_harness import DirectQuery
from specs import SECOND, TIME, join, stream

from sluice.state.files.storage import watch

A, B = stream("a"), stream("b")
ROWS, UNITS, SITES = 200_000, 64, 4


@dataclass(frozen=True)
class Cost:
    """Of some epochs: processor seconds of the query, its file operations, processor seconds of the page, and the bytes
    that the page has read."""

    query_seconds: float = 0.0
    operations: int = 0
    page_seconds: float = 0.0
    page_bytes: int = 0


def epoch_rows(epoch: int) -> list[pa.Table]:
    rng = np.random.default_rng(epoch)
    tables = []
    for source in (A, B):
        times = epoch * SECOND + np.sort(rng.integers(0, SECOND, ROWS))
        columns = [rng.integers(0, 50_000, ROWS), pa.array(times, TIME), rng.integers(0, 9, ROWS)]
        tables.append(pa.table(columns, schema=source.schema))
    return tables


@contextmanager
def watched_page(checkpoint: str) -> Iterator[int]:
    """A page of the checkpoint and a browser on it, until the block ends; gives the page's process."""
    command = [sys.executable, "-m", "sluice.cli.main", "ui", checkpoint]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process, chromium() as browser:
        assert process.stdout is not None
        page = browser.new_page()
        page.goto(next(word for word in process.stdout.readline().split() if word.startswith("http")))
        page.wait_for_selector("canvas#units[data-epoch]")
        try:
            yield process.pid
        finally:
            process.terminate()


def run_epochs(query: DirectQuery, first: int, count: int, page: int | None, pause: float) -> Cost:
    """So many epochs, one after the other, with time for the page to look in between."""
    operations = 0

    def note(operation: str, path: str) -> None:
        nonlocal operations
        operations += 1

    page_before = _usage_of(page) if page else Cost()
    began = seconds = 0.0
    with watch(note):
        for epoch in range(first, first + count):
            tables = epoch_rows(epoch)
            began = time.process_time()
            query.run(tables)
            seconds += time.process_time() - began
            time.sleep(pause)
    page_after = _usage_of(page) if page else Cost()
    return Cost(
        seconds,
        operations,
        page_after.page_seconds - page_before.page_seconds,
        page_after.page_bytes - page_before.page_bytes,
    )


def _usage_of(process: int) -> Cost:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    read = Path(f"/proc/{process}/io").read_text().split("rchar: ")[1].split()[0]
    ticks = int(fields[11]) + int(fields[12])
    return replace(Cost(), page_seconds=ticks / os.sysconf("SC_CLK_TCK"), page_bytes=int(read))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--epochs", type=int, default=40, help="with the page, and as many without (%(default)s)")
    parser.add_argument("--pause", type=float, default=1.1, help="seconds between two epochs (%(default)s)")
    parser.add_argument("--turns", type=int, default=2, help="how often each has its turn (%(default)s)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        query = DirectQuery(join([A, B], 5 * SECOND), root, sites=SITES, partitions=UNITS)
        count, first = args.epochs // args.turns, 10
        run_epochs(query, 0, first, None, 0.0)
        alone, looked_at = [], []
        for _ in range(args.turns):
            alone.append(run_epochs(query, first, count, None, args.pause))
            with watched_page(query.place("checkpoint")) as page:
                looked_at.append(run_epochs(query, first + count, count, page, args.pause))
            first += 2 * count
        query.close()
    epochs = count * args.turns
    print(f"{epochs} epochs of {2 * ROWS:,} rows each way, {SITES} sites, {UNITS} units; for each epoch:")
    for name, costs in (("without a page", alone), ("with a page and a browser", looked_at)):
        seconds, operations = sum(cost.query_seconds for cost in costs), sum(cost.operations for cost in costs)
        each = f"{1e3 * seconds / epochs:.1f} ms of processor, {operations / epochs:.1f} file operations"
        print(f"  {name}: the query takes {each}")
    page_seconds, page_bytes = sum(c.page_seconds for c in looked_at), sum(c.page_bytes for c in looked_at)
    whole = sum(cost.query_seconds for cost in looked_at)
    print(
        f"  the page itself: {1e3 * page_seconds / epochs:.1f} ms of processor in its own process "
        f"({page_seconds / whole:.1%} of the query's), {page_bytes / epochs / 1e3:.1f} kB read"
    )


if __name__ == "__main__":
    main()
