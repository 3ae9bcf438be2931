"""Units that are split and merged on Spark: by hand, shown to the user, and exact."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from skewed_join import SkewedJoin

from sluice import FlowError, QueryError
from sluice.cli.main import main

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("nothing_stays")]


def test_units_split_and_merged_by_hand(spark: Any, tmp_path: Path, capsys: Any) -> None:
    join = SkewedJoin(spark, tmp_path)
    query = join.query
    with pytest.raises(QueryError, match="cannot split unit 6: there is no unit 6; ids go from 0 to 5"):
        query.split(6)
    with pytest.raises(QueryError, match="cannot merge unit 2: unit 2 has no buddy to be merged with"):
        query.merge(2)
    with pytest.raises(FlowError, match="a unit is given by its number, not by 'two'"):
        query.split("two")  # type: ignore[arg-type]
    with pytest.raises(FlowError, match="a number of bits is given by its number"):
        query.split(2, bits=1.5)  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="cannot split unit 2: a unit is split by 1 to 5 bits at a time, not by 0"):
        query.split(2, bits=0)
    hot = int(query._running.epochs.record.stats.units.rows.argmax())
    cold = next(unit for unit in range(6) if unit not in (hot, hot + 1))
    query.split(cold, bits=2)
    for _ in range(3):
        join.next()
    assert query.lastProgress["units"] == 9 and len(query.routing()) == 9
    query.explain()
    assert "9 units: of 6 that there were, 1 split up to 2 times" in capsys.readouterr().out
    (split,) = query.decisions()
    assert (split.unit, split.outcome, split.new_units) == (cold, "done", (6, 7, 8, 9))
    assert query.routing().keys() == {*range(10)} - {cold}
    with pytest.raises(
        QueryError, match=f"cannot merge unit {cold}: there is no unit {cold}; it was split into 6 to 9"
    ):
        query.merge(cold)
    query.merge(6)  # also while no input comes
    deadline = time.monotonic() + 60
    while len(query.routing()) != 8 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert 10 in query.routing()
    with pytest.raises(QueryError, match="the other half of what unit 10 is of is itself split"):
        query.merge(10)
    join.next()
    assert query.lastProgress["units"] == 8
    query.stop()
    join.start(sites=2)  # and goes on with the units as they are
    query = join.query
    join.next()
    assert query.lastProgress["units"] == 8
    query.split(hot)  # which is called what it was called
    for _ in range(3):
        join.next()
    record = query._running.epochs.record
    apart = record.routing.unit_at(record.stats.units.rows.argmax())
    query.split(apart)
    for _ in range(3):
        join.next()
    abandoned = [d.abandoned for d in query.decisions() if d.outcome != "done"]
    assert abandoned == [f"all rows of unit {apart} have one key"]
    join.check()
    assert main(["inspect", str(tmp_path / "ck")]) == 0
    assert "units: of 6 that there were, 2 split up to" in capsys.readouterr().out


def test_a_join_without_a_key_is_not_split(spark: Any, tmp_path: Path) -> None:
    join = SkewedJoin(spark, tmp_path, where="a.v > b.v + 5 AND a.k <> b.k")
    with pytest.raises(QueryError, match="units are split and merged by the hashes of their keys, and unit 0 has none"):
        join.query.split(0)
    join.check()
