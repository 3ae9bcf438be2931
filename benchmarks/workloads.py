"""What is joined: the streams, keys, windows and sizes of every workload.

Only the standard library is imported here, because Flink's own interpreter reads this file too.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

NARROW = (("key", "long"), ("ts", "timestamp"), ("v", "double"))
WIDE = (
    ("key", "string"),
    ("ts", "timestamp"),
    ("v", "double"),
    ("id", "long"),
    ("quantity", "int"),
    ("score", "float"),
    ("active", "boolean"),
    ("day", "date"),
    ("city", "string"),
    ("session", "string"),
    ("note", "string"),
)


@dataclass(frozen=True)
class Workload:
    """Streams of one benchmark, in event time and as the files they arrive in."""

    name: str
    about: str
    streams: str = "AB"
    columns: tuple[tuple[str, str], ...] = NARROW
    keys: int = 1_000_000
    hot: bool = False  # 80 % of the rows on 20 % of the keys
    window_seconds: int = 30
    rows_per_second: int = 20_000
    files: int = 100
    rows_per_file: int = 100_000
    files_per_trigger: int = 10

    @property
    def rows_in(self) -> int:
        return len(self.streams) * self.files * self.rows_per_file

    @property
    def state_rows(self) -> int:
        """Rows that a full window holds, on one side."""
        return self.window_seconds * self.rows_per_second

    @property
    def fill_rows(self) -> int:
        """Rows of all streams together that must have been read before the state is full."""
        return len(self.streams) * self.state_rows

    def save(self, directory: Path) -> None:
        (directory / "workload.json").write_text(json.dumps(asdict(self)))

    @staticmethod
    def load(directory: Path) -> Workload:
        read = json.loads((directory / "workload.json").read_text())
        return Workload(**(read | {"columns": tuple((name, kind) for name, kind in read["columns"])}))


WORKLOADS = {
    w.name: w
    for w in (
        Workload("uniform", "two streams, uniform int64 keys"),
        Workload("skewed", "two streams, 80 % of the rows on 20 % of the keys", hot=True),
        Workload("wide", f"two streams, string keys, {len(WIDE)} columns of mixed types", columns=WIDE),
        # Over 1 M keys a row of A meets 3 * 600 k² / 1 M² = 1.08 pairs of B and C: results as many as the input.
        Workload("three", "three streams, every row within the window of the newest", streams="ABC"),
        # Ten times the window over ten times the keys: ten times the state, the same matches per row. The extra
        # files are needed to fill it: 6 M rows a side before the first epoch that counts.
        Workload("big", "uniform with ten times the state", keys=10_000_000, window_seconds=300, files=120),
        Workload(
            "trickle",
            "epochs of ten rows a stream",
            keys=100,
            window_seconds=5,
            rows_per_second=10,
            files=30,
            rows_per_file=10,
            files_per_trigger=1,
        ),
    )
}


def quick(w: Workload) -> Workload:
    """The same shape at a tenth of the rate, so matches per row stay and state shrinks tenfold."""
    if w.name == "trickle":
        return replace(w, files=12)
    fill = -(-w.state_rows // w.rows_per_file)
    return replace(
        w,
        keys=w.keys // 10,
        rows_per_second=w.rows_per_second // 10,
        rows_per_file=w.rows_per_file // 10,
        files=-(-fill // w.files_per_trigger) * w.files_per_trigger + 2 * w.files_per_trigger,
    )


def files_for(w: Workload, counted: int) -> int:
    """How many files a stream a slow contender gets: those that fill the state, then ``counted`` micro-batches."""
    filling = -(-w.state_rows // (w.rows_per_file * w.files_per_trigger))
    return min(w.files, (filling + counted) * w.files_per_trigger)
