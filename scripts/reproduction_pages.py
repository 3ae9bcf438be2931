"""Judges what docs/figures has on file by the claims of now, and writes the tables of docs/reproduction anew.

Nothing is simulated. A claim for which nothing was measured yet needs `sluice figures NAME --out docs/figures` first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sluice.figures.catalogue import EXPERIMENTS, PAPERS
from sluice.figures.claim import Verdict
from sluice.figures.experiment import AnyExperiment
from sluice.figures.publish import as_text, summary, table

DOCS = Path(__file__).parents[1] / "docs"


def recorded_document(experiment: AnyExperiment) -> dict[str, Any]:
    """What is on file for an experiment."""
    document: dict[str, Any] = json.loads(file_of(experiment).read_text(encoding="utf-8"))
    return document


def file_of(experiment: AnyExperiment) -> Path:
    return DOCS / "figures" / f"{experiment.name}.json"


def recorded_verdicts(experiment: AnyExperiment) -> list[Verdict]:
    """A verdict on every claim, by what is on file for it."""
    measured = {verdict["claim"]: verdict["measured"] for verdict in recorded_document(experiment)["verdicts"]}
    values = {name: float("nan") if value is None else value for name, value in measured.items()}
    return [claim.verdict(values[claim.name]) for claim in experiment.claims]


def judge_again(experiment: AnyExperiment) -> str:
    """The JSON file of an experiment with the claims of now."""
    verdicts = [verdict.as_json() for verdict in recorded_verdicts(experiment)]
    return as_text({**recorded_document(experiment), "verdicts": verdicts})


def write_tables(page: str, experiments: Sequence[AnyExperiment]) -> str:
    """The page of a paper with the table under the heading of each experiment, and the sentence that counts them."""
    verdicts = {experiment.name: recorded_verdicts(experiment) for experiment in experiments}
    for name, of_experiment in verdicts.items():
        lines = "".join(f"{line}\n" for line in table(of_experiment))
        page = _replace_once(page, rf"(^## {name}: [^\n]*\n(?:(?!^## ).)*?^)\| the paper says \|.*?(?=^[^|]|\Z)", lines)
    counted = summary([verdict for some in verdicts.values() for verdict in some]).sentence
    return _replace_once(page, r"()\*\*\d+ of \d+ claims held, [^*]*\*\*", f"**{counted}**")


def write_counts(index: str, paper: str, experiments: Sequence[AnyExperiment]) -> str:
    """The list of papers with the counts of one of them."""
    counts = summary([verdict for experiment in experiments for verdict in recorded_verdicts(experiment)])
    return _replace_once(index, rf"(\]\(reproduction/{paper}\.md\)[^|]*)\|[^\n]*", counts.row)


def _replace_once(page: str, pattern: str, text: str) -> str:
    """What follows the first group, replaced."""
    found = re.search(pattern, page, re.MULTILINE | re.DOTALL)
    assert found is not None, f"there is no {pattern}"
    return page[: found.start()] + found[1] + text + page[found.end() :]


if __name__ == "__main__":
    index = DOCS / "reproduction.md"
    for experiment in EXPERIMENTS:
        file_of(experiment).write_text(judge_again(experiment), encoding="utf-8")
    for paper, experiments in PAPERS.items():
        path = DOCS / "reproduction" / f"{paper}.md"
        path.write_text(write_tables(path.read_text(encoding="utf-8"), experiments), encoding="utf-8")
        index.write_text(write_counts(index.read_text(encoding="utf-8"), paper, experiments), encoding="utf-8")
