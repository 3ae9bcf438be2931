"""Shared units on Spark: by hand and by policy, shown to the user, and exact."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from skewed_join import SkewedJoin

from sluice import QueryError
from sluice.cli.main import main
from sluice.experiments import slowDown

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("nothing_stays")]


def test_a_unit_shared_by_hand_and_released(spark: Any, tmp_path: Path, capsys: Any) -> None:
    join = SkewedJoin(spark, tmp_path)
    query = join.query
    rows = query._running.epochs.record.stats.units.rows
    unit = int(rows.argmax())
    first = query.routing()[unit]
    others = [site for site in range(3) if site != first]
    with pytest.raises(QueryError, match=f"cannot share unit {unit} with site {first}: site {first} holds unit"):
        query.share(unit, first)
    with pytest.raises(QueryError, match="there is no site 9"):
        query.share(unit, 9)
    with pytest.raises(QueryError, match=f"cannot release unit {unit} from site {first}: unit {unit} is not shared"):
        query.release(unit, first)
    for site in others:
        query.share(unit, site)
    join.next()
    assert set(query.holders(unit)) == {0, 1, 2}
    progress = query.lastProgress
    (shared,) = progress["sharedUnits"]
    assert shared["unit"] == unit and sorted(shared["gridShape"]) == [1, 3]
    assert progress["copiedRows"] > 0 and progress["copiedBytes"] > 0 and progress["remiss"] is False
    assert all(0 <= site["saturation"] < 1 for site in progress["sites"])
    query.explain()
    said = f"unit {unit} is shared by sites {first}, {others[0]}, {others[1]}: on a grid of 3 x 1"
    assert said in capsys.readouterr().out
    with pytest.raises(QueryError, match="is shared by sites"):
        query.move(unit, others[0])
    join.next()
    query.release(unit, first)
    join.next()
    assert query.holders(unit) == tuple(others)
    query.release(unit, others[0])
    join.next()
    assert query.holders(unit) == (others[1],)
    verbs = Counter(d.action for d in query.decisions() if d.refused is None)
    assert verbs == {"share": 2, "release": 2}
    join.check()
    assert main(["inspect", str(tmp_path / "ck")]) == 0


def test_a_hot_key_is_shared_by_the_policy(spark: Any, tmp_path: Path) -> None:
    join = SkewedJoin(spark, tmp_path, wanted="hybrid", collect="10 milliseconds")
    for site in range(3):
        slowDown(join.query, site, "1 microsecond", "10 microseconds")
    for _ in range(14):
        join.next()
        shared = join.query.lastProgress["sharedUnits"]
        if shared:
            break
    verbs = [d.action for d in join.query.decisions() if d.refused is None]
    assert verbs.index("split") < verbs.index("share"), "the key is set apart first"
    join.next()
    join.next()
    (shared,) = join.query.lastProgress["sharedUnits"]
    assert len(shared["holders"]) > 1 and join.query.lastProgress["imbalance"] < 1.8
    low, high = join.query._running.epochs.record.routing.hashes_of(shared["unit"])
    assert high - low < 2**32 / 6 / 8, "it is a small part of the unit that had the key"
    join.check()


def test_tokens_pass_from_sites_whose_memory_is_full(spark: Any, tmp_path: Path) -> None:
    """D-CAPE's policy: each site has memory for four files of each stream, and the third soon for all. State stays
    where it is, new rows are stored at one site after the other, and the last one keeps its tokens."""
    join = SkewedJoin(
        spark,
        tmp_path,
        where="a.v > b.v + 7 AND a.k <> b.k",
        within="1 hour",
        memory="115000",
        wanted="tokens",
        collect="1 millisecond",
    )
    query = join.query
    tokens, memory = [], []
    for _ in range(11):
        join.next()
        progress = query.lastProgress
        tokens.append(progress["sharedUnits"][0]["tokens"] if progress["sharedUnits"] else (0, 0))
        memory.append([site["memoryBytes"] for site in progress["sites"]])
        assert not progress["remiss"] and not progress["spills"]
        if list(tokens[-1]) == [1, 1]:
            query.setSiteMemory(2, "1g")
    assert [list(storing) for storing in dict.fromkeys(map(tuple, tokens))] == [[0, 0], [1, 1], [2, 2]]
    assert query.holders(0) == (0, 1, 2)
    taken = [d for d in query.decisions() if d.refused is None]
    verbs = [(d.action, d.site) for d in taken]
    assert verbs == [(verb, site) for site in (1, 2) for verb in ("share", "pass token", "pass token")]
    assert {d.policy for d in taken} == {"tokens"}
    assert [d.reason.startswith(f"site {full} has filled 9") for full, d in enumerate(taken[::3])] == [True, True]
    assert all(used <= 115_000 for sites in memory for used in sites[:2])
    before, last = memory[-2:]
    assert last[2] > before[2] > 0 and last[0] <= before[0] and last[1] <= before[1], "only the third stores new rows"
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
