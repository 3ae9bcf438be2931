"""The flow whose checkpoints of older formats are in tests/data: a join, newest rows and windows.

A new format's is made by the code before it, in an empty directory, once with `tests/support` on the path:
`python -c "import migrated_flow; migrated_flow.write(4)"`.
"""

from __future__ import annotations

from pathlib import Path

from crash_flow import PAIRS, A, B, epoch_rows
from engine_harness import DirectQuery
from specs import handle

BARS = handle(A).groupBy("k").window("4 seconds", "2 seconds").agg(n=("*", "count"), high=("v", "max"))
NEWEST = handle(A).groupBy("k").last(3).agg(total=("v", "sum"))
FLOW = {"pairs": PAIRS, "newest": NEWEST, "bars": BARS}


def open_flow() -> DirectQuery:
    """The flow in the working directory."""
    return DirectQuery({name: query.relation for name, query in FLOW.items()}, Path("."), partitions=4, streams=(A, B))


def write(end: int, begin: int = 0) -> DirectQuery:
    """Run it on some epochs."""
    query = open_flow()
    for epoch in range(begin, end):
        query.run(epoch_rows(epoch))
    return query
