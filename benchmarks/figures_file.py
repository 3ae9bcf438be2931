"""A file of figures: what was measured of one state of the code, in one call of the benchmark or in several.

A call adds its runs to those that are there, and replaces what it measured again. Figures of other code, of another
machine or with other packages are never mixed: such a file is refused before anything runs.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.bars import verdicts
from benchmarks.contenders import ROOT, Result
from benchmarks.footprint import Sample

CODE = ("src", "benchmarks")
SAME = ("code", "versions")
"""What all figures of a file have in common, beside the machine's cores and processor."""


def code() -> str:
    """What the figures are of: git's names for the directories with code, or that they have changes."""
    if _git("status", "--porcelain", "--", *CODE):
        return "changed"
    return " ".join(_git("rev-parse", *(f"HEAD:{directory}" for directory in CODE)).split())


def refusal(path: Path, head: dict[str, Any]) -> str:
    """Why figures cannot be added to a file, in words; empty when they can."""
    if not path.exists():
        return ""
    there = json.loads(path.read_text(encoding="utf-8"))
    differing = [part for part in SAME if there.get(part) != head[part]]
    if any(there["machine"].get(part) != head["machine"][part] for part in ("cores", "processor")):
        differing.append("machine")
    if head["code"] == "changed":
        differing.append("code, which has changes that are not committed")
    if not differing:
        return ""
    return f"{path} has figures taken with other {', '.join(differing)}: name another file, or remove it"


def read(path: Path | None) -> dict[str, Any]:
    """What a file has; nothing if it is not there."""
    return json.loads(path.read_text(encoding="utf-8")) if path and path.exists() else {}


def add_figures(path: Path, head: dict[str, Any], results: list[Result]) -> None:
    """Writes what was measured, with what the file has of other runs."""
    there = read(path)
    by_name = {(r.workload, r.contender): r for r in [*map(restore_result, there.get("results", ())), *results]}
    bars = [asdict(v) | {"ratio": v.ratio, "met": v.met} for v in verdicts(by_name)]
    rows = [asdict(r) | {"check": r.check} for r in by_name.values()]
    path.write_text(json.dumps(there | head | {"results": rows, "bars": bars}, indent=1), encoding="utf-8")


def restore_result(values: dict[str, Any]) -> Result:
    """A result as it was measured."""
    fields = {name: value for name, value in values.items() if name != "check"}
    expected = tuple(fields["expected"]) if fields["expected"] else None
    return replace(Result(**fields), peak=Sample(**fields["peak"]), expected=expected)


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout.strip()
