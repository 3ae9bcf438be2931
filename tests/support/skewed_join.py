"""A running join on Spark of two streams with a hot key, whose files come when a test says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from arrivals import arrive
from oracle import batch_join, multiset
from specs import TIME

from sluice import Flow

HOT = 7


def skewed(seed: int, second: int, rows: int = 300) -> pa.Table:
    """Rows of one second, half of them of one key."""
    rng = np.random.default_rng([seed, second])
    keys = np.where(rng.random(rows) < 0.5, HOT, rng.integers(100, 400, rows))
    times = second * 1_000_000 + rng.integers(0, 1_000_000, rows)
    return pa.table({"k": keys, "ts": pa.array(times, TIME), "v": rng.integers(0, 9, rows)})


class SkewedJoin:
    """A running join of two streams with a hot key, whose files come when a test says so."""

    def __init__(
        self,
        spark: Any,
        root: Path,
        where: str | None = None,
        within: str = "1 second",
        memory: str = "1g",
        **policy: Any,
    ) -> None:
        self.root, self.seen, self.spark, self.memory = root, [[], []], spark, memory
        self.next()
        flow = Flow(spark, "skewed")
        a, b = (flow.readFiles(n, str(root / n), eventTime="ts", maxFilesPerTrigger=1) for n in "ab")
        self.joined = a.join(b, where=where, within=within) if where else a.join(b, on="k", within=within)
        self.where = where
        self.start(sites=3, **policy)

    def start(self, sites: int, **policy: Any) -> None:
        writer = self.joined.writeStream.format("parquet").option("path", str(self.root / "out"))
        writer = writer.option("checkpointLocation", str(self.root / "ck")).options(sites=sites, partitions=6)
        writer = writer.option("siteMemory", self.memory)
        self.query = (writer.policy(**policy) if policy else writer).start()
        self.query.processAllAvailable()

    def next(self) -> None:
        second = len(self.seen[0])
        for seed, name in enumerate("ab"):
            table = skewed(seed, second)
            self.seen[seed].append(table)
            arrive(self.root / name, table)
        if second:
            self.query.processAllAvailable()

    def check(self) -> None:
        self.query.stop()
        found = multiset(self.spark.read.parquet(str(self.root / "out")).toArrow())
        tables = [pa.concat_tables(side) for side in self.seen]
        assert found == multiset(batch_join(self.joined.relation.origin.spec, tables, self.where))
