"""Judges what docs/figures has on file by the claims of now, and counts the verdicts in docs/research anew.

Nothing is simulated or run. A claim for which nothing was measured yet needs `sluice figures NAME --out docs/figures`
first; one on Spark, `python -m benchmarks.adapt --only SCENARIO --out DIR` and DIR/SCENARIO.json as
docs/figures/spark-SCENARIO.json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.adapt.papers import LIVE, LiveExperiment
from sluice.figures.catalogue import EXPERIMENTS, PAPERS
from sluice.figures.claim import Verdict
from sluice.figures.experiment import AnyExperiment
from sluice.figures.publish import Summary, as_text, summary

DOCS = Path(__file__).parents[1] / "docs"
ON_SPARK = "## On Spark executors, scaled down\n"
"""The heading of what of a paper was run on Spark, the last of its page."""
Judged: TypeAlias = AnyExperiment | LiveExperiment
ALL: tuple[Judged, ...] = (*EXPERIMENTS, *(live for experiments in LIVE.values() for live in experiments))


def recorded_document(experiment: Judged) -> dict[str, Any]:
    """What is on file for an experiment."""
    document: dict[str, Any] = json.loads(file_of(experiment).read_text(encoding="utf-8"))
    return document


def file_of(experiment: Judged) -> Path:
    return DOCS / "figures" / f"{experiment.name}.json"


def recorded_verdicts(experiment: Judged) -> list[Verdict]:
    """A verdict on every claim, by what is on file for it."""
    measured = {verdict["claim"]: verdict["measured"] for verdict in recorded_document(experiment)["verdicts"]}
    values = {name: float("nan") if value is None else value for name, value in measured.items()}
    return [claim.verdict(values[claim.name]) for claim in experiment.claims]


def judge_again(experiment: Judged) -> str:
    """The JSON file of an experiment with the claims of now."""
    verdicts = [verdict.as_json() for verdict in recorded_verdicts(experiment)]
    return as_text({**recorded_document(experiment), "verdicts": verdicts})


def write_page(page: str, paper: str) -> str:
    """The page of a paper with how many claims held, in all and by experiment, simulated and on Spark. Tables come in
    as the site is built."""
    simulated, heading, on_spark = page.partition(ON_SPARK)
    simulated = _write_section(simulated, PAPERS[paper])
    return simulated + heading + (_write_section(on_spark, LIVE[paper]) if paper in LIVE else on_spark)


def write_counts(index: str, paper: str) -> str:
    """The list of papers with the counts of one of them."""
    index = _replace_once(index, rf"(\]\(reproduction/{paper}\.md\)[^|]*)\|[^\n]*", _counts(PAPERS[paper]).row)
    if paper not in LIVE:
        return index
    place = ON_SPARK.strip("#\n ").lower().replace(",", "").replace(" ", "-")
    return _replace_once(index, rf"(\]\(reproduction/{paper}\.md#{place}\)[^|]*)\|[^\n]*", _counts(LIVE[paper]).row)


def _counts(experiments: Sequence[Judged]) -> Summary:
    return summary([verdict for experiment in experiments for verdict in recorded_verdicts(experiment)])


def _write_section(section: str, experiments: Sequence[Judged]) -> str:
    for experiment in experiments:
        link = rf"(^)\[verdicts[^\]]*\](?=\(\S*/{experiment.name}\.json\)$)"
        section = _replace_once(section, link, f"[verdicts: {_counts([experiment]).brief}]")
    return _replace_once(section, r"()\*\*\d+ of \d+ claims held, [^*]*\*\*", f"**{_counts(experiments).sentence}**")


def _replace_once(page: str, pattern: str, text: str) -> str:
    """What follows the first group, replaced."""
    found = re.search(pattern, page, re.MULTILINE | re.DOTALL)
    assert found is not None, f"there is no {pattern}"
    return page[: found.start()] + found[1] + text + page[found.end() :]


if __name__ == "__main__":
    index = DOCS / "research" / "reproduction.md"
    for experiment in ALL:
        file_of(experiment).write_text(judge_again(experiment), encoding="utf-8")
    for paper in PAPERS:
        path = DOCS / "research" / "reproduction" / f"{paper}.md"
        path.write_text(write_page(path.read_text(encoding="utf-8"), paper), encoding="utf-8")
        index.write_text(write_counts(index.read_text(encoding="utf-8"), paper), encoding="utf-8")
