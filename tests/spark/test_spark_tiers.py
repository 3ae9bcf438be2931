"""The local tiers of a query on Spark: damaged under its hands, and left behind by tasks that ran elsewhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from arrivals import arrive
from trade_sums import TRADES, assert_exact, sums

from sluice.spark import exchange
from sluice.spark.exchange import Sites
from sluice.state.files.workspace import Places, Workspace

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("nothing_stays")]


@pytest.mark.parametrize("spill", ["unit", pytest.param("probe", marks=pytest.mark.slow)])
def test_bits_that_flip_while_a_query_runs_change_no_answer(spark: Any, tmp_path: Path, spill: str) -> None:
    arrive(tmp_path / "trades", TRADES[0])
    writer = sums(spark, tmp_path).trigger(processingTime="0 seconds")
    writer.options(siteMemory="8k", spill=spill, memoryDir=tmp_path / "memory", diskDir=tmp_path / "disk")
    query = writer.start()
    damaged = 0
    for table in TRADES[1:]:
        query.processAllAvailable()
        damaged += sum(site["damagedFiles"] for site in query.lastProgress["sites"])
        files = [f for tier in ("memory", "disk") for f in (tmp_path / tier).rglob("*.arrow")]
        assert files
        for file in files:
            assert file.stat().st_mode & 0o777 == 0o600
            with open(file, "r+b") as content:
                size = content.seek(0, os.SEEK_END)
                content.seek(size // 2)
                byte = content.read(1)[0]
                content.seek(size // 2)
                content.write(bytes([byte ^ 4]))
        arrive(tmp_path / "trades", table)
    query.processAllAvailable()
    query.stop()
    assert damaged
    assert_exact(tmp_path)


def test_what_an_executor_has_of_a_site_that_is_elsewhere_goes(spark: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """Also when Spark has run its task here just once, and when nobody tells of an attempt that came to nothing."""
    monkeypatch.setattr(exchange, "LET_GO_EVERY", 4)
    workspace = Workspace(Places(str(tmp_path / "memory"), str(tmp_path / "disk")), "abc", "12")
    sites = Sites(spark, 2)
    here = sites.anchors.processes[0]
    roots = spark.sparkContext.parallelize([0], 1).flatMap(lambda _: workspace.open()).collect()

    def copies() -> list[str]:
        return sorted({p.name for root in roots for p in Path(root).iterdir()})

    def run_both_here() -> None:
        for root in roots:
            for site in range(2):
                (Path(root) / f"site-{site:04d}-0").mkdir(exist_ok=True)

    try:
        run_both_here()
        assert sites.follow(workspace, (here, here)) == ""
        assert copies() == ["site-0000-0", "site-0001-0"]
        sites.follow(workspace, (here, "elsewhere/1"))
        assert copies() == ["site-0000-0"]
        run_both_here()  # an attempt that Spark gave up
        for _ in range(4):
            sites.follow(workspace, (here, "elsewhere/1"))
        assert copies() == ["site-0000-0"]
    finally:
        sites.close(workspace)
    assert not any(Path(root).exists() for root in roots)
