"""QUERY 1 of the lazy-disk paper, as in examples/query_one.py: with too little memory, from Python and from SQL."""

from __future__ import annotations

import importlib.util
import logging
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "query_one.py"


@pytest.fixture(scope="module")
def example() -> Any:
    """The example as a module."""
    spec = importlib.util.spec_from_file_location("query_one", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.mark.spark
@pytest.mark.usefixtures("nothing_stays")
@pytest.mark.parametrize(
    "from_sql", [pytest.param(False, marks=pytest.mark.slow, id="python"), pytest.param(True, id="sql")]
)
def test_query_one(
    spark: Any,
    example: Any,
    tmp_path: Path,
    from_sql: bool,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="sluice.engine")
    size = example.Size(files=6, rows=300, memory="25k")
    example.generate(tmp_path, size)
    query = example.run(spark, tmp_path, size, from_sql)
    seen = example.tell(query)
    assert example.is_exact(spark, tmp_path)
    assert seen.frozen and seen.cleaned and seen.late_results

    *_, last = query.recentProgress
    done = last["cleanUp"]
    assert done["rowsLeft"] == last["missingUnits"] == sum(site["missingUnits"] for site in last["sites"]) == 0
    asked = [epoch for epoch in query.recentProgress if epoch["cleanUp"]]  # before that sites clean up by themselves
    assert done["results"] == sum(site["lateResults"] for epoch in asked for site in epoch["sites"])
    assert done["rowsDone"] > 0 and done["rowsPerSecond"] > 0
    assert any(site["frozenUnits"] for epoch in query.recentProgress for site in epoch["sites"])
    assert any(site["resultsPerUnit"] and site["productivity"] for e in query.recentProgress for site in e["sites"])
    told = [message for message in caplog.messages if "cleaning up" in message]
    assert re.search(r"cleaning up [\d,]+ units begins, of [\d,]+ rows", told[0])
    assert re.search(rf": cleaning up: {done['rowsDone']:,} rows done, 0 left; {done['results']:,} results", told[-1])

    shown = capsys.readouterr().out
    assert "EXACT" in shown and "Ames" in shown and "cleaning up: " in shown


@pytest.mark.spark
def test_another_answer_is_told(spark: Any, example: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The check of the example can fail."""
    example.generate(tmp_path, example.Size(files=2, rows=60, memory="1m"))
    spark.createDataFrame([("Ames", 1.0)], "brokerName string, price double").write.parquet(str(tmp_path / "out"))
    assert not example.is_exact(spark, tmp_path)
    assert "WRONG" in capsys.readouterr().out
