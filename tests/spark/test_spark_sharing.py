"""Shared units on Spark: by hand and by policy, shown to the user, and exact."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from arrivals import arrive
from oracle import batch_join, multiset
from specs import TIME

from sluice import Flow, FlowError
from sluice.cli.main import main
from sluice.experiments import slowDown

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("nothing_stays")]
HOT = 7


def skewed(seed: int, second: int, rows: int = 300) -> pa.Table:
    """Rows of one second, half of them of one key."""
    rng = np.random.default_rng([seed, second])
    keys = np.where(rng.random(rows) < 0.5, HOT, rng.integers(100, 400, rows))
    times = second * 1_000_000 + rng.integers(0, 1_000_000, rows)
    return pa.table({"k": keys, "ts": pa.array(times, TIME), "v": rng.integers(0, 9, rows)})


class SkewedJoin:
    """A running join of two streams with a hot key, whose files come when a test says so."""

    def __init__(self, spark: Any, root: Path, where: str | None = None, **policy: Any) -> None:
        self.root, self.seen, self.spark = root, [[], []], spark
        self.next()
        flow = Flow(spark, "skewed")
        a, b = (flow.readFiles(n, str(root / n), eventTime="ts", maxFilesPerTrigger=1) for n in "ab")
        self.joined = a.join(b, where=where, within="1 second") if where else a.join(b, on="k", within="1 second")
        self.where = where
        self.start(sites=3, **policy)

    def start(self, sites: int, **policy: Any) -> None:
        writer = self.joined.writeStream.format("parquet").option("path", str(self.root / "out"))
        writer = writer.option("checkpointLocation", str(self.root / "ck")).options(sites=sites, partitions=6)
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


def test_a_unit_shared_by_hand_and_released(spark: Any, tmp_path: Path, capsys: Any) -> None:
    join = SkewedJoin(spark, tmp_path)
    query = join.query
    rows = query._running.epochs.record.stats.units.rows
    unit = int(rows.argmax())
    first = query.routing()[unit]
    others = [site for site in range(3) if site != first]
    with pytest.raises(FlowError, match=f"cannot share unit {unit} with site {first}: site {first} holds unit"):
        query.share(unit, first)
    with pytest.raises(FlowError, match="there is no site 9"):
        query.share(unit, 9)
    with pytest.raises(FlowError, match=f"cannot release unit {unit} from site {first}: unit {unit} is not shared"):
        query.release(unit, first)
    for site in others:
        query.share(unit, site)
    join.next()
    assert set(query.holders(unit)) == {0, 1, 2}
    progress = query.lastProgress
    (shared,) = progress["sharedUnits"]
    assert shared["unit"] == unit and sorted(shared["lines"]) == [1, 3]
    assert progress["copiedRows"] > 0 and progress["copiedBytes"] > 0 and progress["remiss"] is False
    assert all(0 <= site["saturation"] < 1 for site in progress["sites"])
    query.explain()
    said = f"unit {unit} is shared by sites {first}, {others[0]}, {others[1]}: on a grid of 3 x 1"
    assert said in capsys.readouterr().out
    with pytest.raises(FlowError, match="is shared by sites"):
        query.move(unit, others[0])
    join.next()
    query.release(unit, first)
    join.next()
    assert query.holders(unit) == tuple(others)
    query.release(unit, others[0])
    join.next()
    assert query.holders(unit) == (others[1],)
    verbs = Counter(d["action"] for d in query.decisions() if d["refused"] is None)
    assert verbs == {"share": 2, "release": 2}
    join.check()
    assert main(["inspect", str(tmp_path / "ck")]) == 0


def test_a_hot_key_is_shared_by_the_policy(spark: Any, tmp_path: Path) -> None:
    join = SkewedJoin(spark, tmp_path, wanted="hybrid", collect="10 milliseconds")
    for site in range(3):
        slowDown(join.query, site, "1 microsecond", "10 microseconds")
    for _ in range(5):
        join.next()
    shared = join.query.lastProgress["sharedUnits"]
    assert len(shared) == 1 and len(shared[0]["holders"]) > 1
    assert join.query.lastProgress["imbalance"] < 1.8
    join.check()


def test_a_join_without_an_equality_on_all_sites(spark: Any, tmp_path: Path) -> None:
    """Its one unit is shared, the query is started again on another number of sites, and goes on."""
    join = SkewedJoin(spark, tmp_path, where="a.v > b.v + 5 AND a.k <> b.k")
    join.query.share(0, 1)
    join.query.share(0, 2)
    join.next()
    assert join.query.holders(0) == (0, 1, 2)
    join.next()
    join.query.stop()
    join.start(sites=2)
    join.next()
    assert join.query.holders(0) == (0, 1)
    join.check()
