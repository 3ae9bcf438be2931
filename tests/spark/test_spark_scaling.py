"""Another number of sites while a query runs on Spark, without a cluster: nothing is given back, sites just rest."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from arrivals import arrive
from trade_sums import TRADES, assert_exact, sums

from sluice import ClusterView, Policy, QueryError, Scale

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("nothing_stays")]


def until(query: Any, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert query.isActive and time.monotonic() < deadline, query.lastProgress["scaling"]
        time.sleep(0.05)


def until_there_are(query: Any, sites: int) -> None:
    until(query, lambda: len(query.lastProgress["sites"]) == sites)


def test_sites_leave_and_join_and_units_move_though_no_input_comes(spark: Any, tmp_path: Path, capsys: Any) -> None:
    arrive(tmp_path / "trades", *TRADES[:3])
    query = sums(spark, tmp_path).option("maxSites", 3).trigger(processingTime="0 seconds").start()
    query.processAllAvailable()
    assert query.lastProgress["scaling"] == {
        "sites": 2,
        "minSites": 1,
        "maxSites": 3,
        "wanted": 2,
        "leaving": [],
        "awaited": 0,
    }
    for sites, why in ((4, "there may be 1 to 3 sites"), (2, "there are 2 sites already")):
        with pytest.raises(QueryError, match=f"cannot scale to {sites} sites: {why}"):
            query.scale(sites)
    query.scale(1)
    until_there_are(query, 1)
    assert set(query.routing().values()) == {0}
    query.scale(3)
    until_there_are(query, 3)
    until(query, lambda: set(query.routing().values()) == {0, 1, 2})
    unit = next(unit for unit, site in query.routing().items() if site == 0)
    query.move(unit, 2)
    until(query, lambda: query.routing()[unit] == 2)
    arrive(tmp_path / "trades", *TRADES[3:])
    query.processAllAvailable()
    query.explain()
    assert "Sites: 3 of at most 3 sites, at least 1" in capsys.readouterr().out
    query.stop()
    assert_exact(tmp_path)
    assert [d.reason for d in query.decisions() if d.action in ("scale", "resize")] == [
        "asked for with scale(); sites: 2, wanted 1",
        "asked for with scale(); sites: 2, now 1; 0 units moved",
        "asked for with scale(); sites: 1, wanted 3",
        "asked for with scale(); sites: 1, now 3; 0 units moved",
    ]


class BackAndForth(Policy):
    """Has one site more, then one less, whatever it sees."""

    name, scales = "back and forth", True

    def decide(self, view: ClusterView) -> tuple[Scale, ...]:
        assert view.period.elapsed_seconds > 0 and view.sites.occupancy.shape == (len(view.sites),)
        sites = view.scaling.least_sites if len(view.sites) == view.scaling.most_sites else len(view.sites) + 1
        return (Scale(sites, "for the sake of it"),)


def test_a_policy_scales_and_the_answer_stays(spark: Any, tmp_path: Path) -> None:
    arrive(tmp_path / "trades", *TRADES)
    writer = sums(spark, tmp_path).options(minSites=1, maxSites=3, epochBudget="1 second").trigger(availableNow=True)
    query = writer.policy(BackAndForth(), collect="1 millisecond").start()
    query.awaitTermination()
    assert_exact(tmp_path)
    assert {r["scaling"]["sites"] for r in query.recentProgress} >= {2, 3}
    assert all(d.refused is None for d in query.decisions())


def test_a_query_without_bounds_does_not_scale(spark: Any, tmp_path: Path) -> None:
    arrive(tmp_path / "trades", *TRADES[:1])
    query = sums(spark, tmp_path).start()
    query.processAllAvailable()
    assert query.lastProgress["scaling"] is None
    with pytest.raises(QueryError, match="cannot scale to 3 sites: give option minSites or maxSites"):
        query.scale(3)
    query.stop()
