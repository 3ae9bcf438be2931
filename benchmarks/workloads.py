"""What is joined and grouped: the streams, keys, windows and sizes of every workload.

Only the standard library is imported here, because Flink's own interpreter reads this file too.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

FIRST_EVENT = 1_704_067_200_000_000  # 2024-01-01: an event at zero would be late to Spark's first watermark
NARROW = (("key", "long"), ("ts", "timestamp"), ("v", "double"))
GROUPED = (*NARROW, ("q", "int"))
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
# Result columns of the group-bys: (column, function). `total` is whole numbers, so that its sum is the same whoever
# adds it up: with the number of results it is what every contender is checked by.
AGGREGATES = {
    "sliding": {
        "n": ("*", "count"),
        "total": ("q", "sum"),
        "mean": ("v", "avg"),
        "low": ("v", "min"),
        "high": ("v", "max"),
        "spread": ("v", "stddev"),
    },
    "last": {"mean": ("v", "avg"), "spread": ("v", "stddev"), "high": ("v", "max"), "total": ("q", "sum")},
    "joined-groups": {"total": ("*", "count"), "mean": ("A_v", "avg")},
}
BAND = 10  # how far apart keys of `band` may be
PRODUCT = 0.98  # what the product of two values of `theta` has to be above
BUCKETS = 1000  # groups of `joined-groups`: the key modulo this


@dataclass(frozen=True)
class Workload:
    """Streams of one benchmark, in event time and as the files they arrive in."""

    name: str
    about: str
    operation: str = "join"  # or `band`, `theta`, or a name of AGGREGATES
    streams: str = "AB"
    columns: tuple[tuple[str, str], ...] = NARROW
    keys: int = 1_000_000
    hot: bool = False  # 80 % of the rows on 20 % of the keys
    window_seconds: int = 30  # of the join; of `sliding`; of `joined-groups` for both its steps
    slide_seconds: int = 10
    last: int = 0  # rows of a group that `last` aggregates over
    rows_per_second: int = 20_000
    files: int = 100
    rows_per_file: int = 100_000
    files_per_trigger: int = 10

    @property
    def is_join(self) -> bool:
        """Whether the results are the pairs, with every column of both."""
        return self.operation not in AGGREGATES

    @property
    def rows_in(self) -> int:
        return len(self.streams) * self.files * self.rows_per_file

    @property
    def state_rows(self) -> int:
        """Rows that a full window holds, on one side; of `last`, all groups' newest rows."""
        if self.operation == "last":
            return self.keys * self.last
        return self.window_seconds * self.rows_per_second

    @property
    def fill_rows(self) -> int:
        """Rows of all streams together that must have been read before the state is full."""
        return len(self.streams) * self.state_rows

    @property
    def aggregates(self) -> dict[str, tuple[str, str]]:
        return AGGREGATES[self.operation]

    @property
    def newest(self) -> int:
        """Event time of the last row, in microseconds: every result up to it can be given."""
        return FIRST_EVENT + (self.files * self.rows_per_file - 1) * 1000 // self.rows_per_second * 1000

    def save(self, directory: Path) -> None:
        (directory / "workload.json").write_text(json.dumps(asdict(self)))

    @staticmethod
    def load(directory: Path) -> Workload:
        read = json.loads((directory / "workload.json").read_text())
        return Workload(**(read | {"columns": tuple((name, kind) for name, kind in read["columns"])}))


def grouped(name: str, about: str, operation: str, **fields: Any) -> Workload:
    """A group-by of one stream, which has as many rows in a trigger as the two of a join."""
    usual: dict[str, Any] = {"streams": "A", "columns": GROUPED, "window_seconds": 60, "rows_per_second": 40_000}
    return Workload(name, about, operation, **(usual | {"rows_per_file": 200_000} | fields))


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
        # A row is near in time to 1.2 M of the other stream, and of each key's 21 neighbours there is one in 25 M: as
        # many results as rows.
        Workload(
            "band",
            f"two streams, int64 keys that differ by at most {BAND}",
            operation="band",
            keys=25_000_000,
            files=50,
        ),
        # A row is compared with 4,000 of the other stream; 2 in 10,000 pairs are results.
        Workload(
            "theta",
            "two streams, a condition that no order of values narrows down",
            operation="theta",
            keys=1_000_000,
            window_seconds=2,
            rows_per_second=1_000,
            files=60,
            rows_per_file=4_000,
            files_per_trigger=5,
        ),
        # Four rows a group and slide, so one result for four rows.
        grouped("sliding", "one stream, 100 k groups, 60 s windows sliding by 10 s", "sliding", keys=100_000),
        grouped("last", "the same rows, over the newest 100 of each group", "last", keys=100_000, last=100),
        # One-sided, so that a result's event time is A's for everybody; as wide as `uniform` in all.
        Workload(
            "joined-groups",
            f"two streams joined, then windows of the result for {BUCKETS:,} groups",
            operation="joined-groups",
            window_seconds=60,
        ),
        # Two rows a group and slide in both, so one result for two rows, whatever the number of groups.
        grouped("sliding-10k", "sliding, 10 k groups", "sliding", keys=10_000, rows_per_second=2_000, files=120),
        grouped("sliding-1m", "sliding, 1 M groups", "sliding", keys=1_000_000, rows_per_second=200_000, files=120),
        grouped("last-10k", "the newest 10 rows of 10 k groups", "last", keys=10_000, last=10),
        grouped("last-1m", "the newest 10 rows of 1 M groups", "last", keys=1_000_000, last=10),
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
