"""Judges what docs/figures has on file by the claims of now, and writes the tables of docs/research/reproduction anew.

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

from benchmarks.adapt import tell
from benchmarks.adapt.papers import LIVE, LiveExperiment
from sluice.figures.catalogue import EXPERIMENTS, PAPERS
from sluice.figures.claim import Verdict
from sluice.figures.experiment import AnyExperiment
from sluice.figures.publish import Summary, as_text, summary, table

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
    """The page of a paper with the tables of its experiments, simulated and on Spark."""
    simulated, heading, on_spark = page.partition(ON_SPARK)
    simulated = write_tables(simulated, PAPERS[paper])
    return simulated + heading + (write_tables(on_spark, LIVE[paper]) if paper in LIVE else on_spark)


def write_tables(section: str, experiments: Sequence[Judged]) -> str:
    """A part of a page with the tables under the heading of each experiment, and the sentence that counts verdicts."""
    for experiment in experiments:
        section = _write_table(section, experiment, "the paper says", table(recorded_verdicts(experiment)))
        if isinstance(experiment, LiveExperiment):
            document = recorded_document(experiment)
            contenders = tell.piped(document["head"], document["rows"]).split("\n")
            section = _write_table(section, experiment, document["head"][0], contenders)
    return _replace_once(section, r"()\*\*\d+ of \d+ claims held, [^*]*\*\*", f"**{_counts(experiments).sentence}**")


def write_counts(index: str, paper: str) -> str:
    """The list of papers with the counts of one of them."""
    index = _replace_once(index, rf"(\]\(reproduction/{paper}\.md\)[^|]*)\|[^\n]*", _counts(PAPERS[paper]).row)
    if paper not in LIVE:
        return index
    place = ON_SPARK.strip("#\n ").lower().replace(",", "").replace(" ", "-")
    return _replace_once(index, rf"(\]\(reproduction/{paper}\.md#{place}\)[^|]*)\|[^\n]*", _counts(LIVE[paper]).row)


def _counts(experiments: Sequence[Judged]) -> Summary:
    return summary([verdict for experiment in experiments for verdict in recorded_verdicts(experiment)])


def _write_table(section: str, experiment: Judged, first_cell: str, lines: Sequence[str]) -> str:
    """The first table under the heading of an experiment that begins with this cell, replaced."""
    heading = f"### {experiment.scenario} " if isinstance(experiment, LiveExperiment) else f"## {experiment.name}: "
    pattern = rf"(^{heading}[^\n]*\n(?:(?!^##).)*?^)\| {first_cell} \|.*?(?=^[^|]|\Z)"
    return _replace_once(section, pattern, "".join(f"{line}\n" for line in lines))


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
