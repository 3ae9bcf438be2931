"""What differs between the experiments of now and those on file. The simulators are deterministic: nothing should."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sluice.figures.publish import ExperimentReading, as_text, document

IGNORED = frozenset({"sluice"})
"""Keys of a document that say nothing about what was measured: the version that measured it."""


def changes(readings: Sequence[ExperimentReading], directory: Path) -> list[str]:
    """A line for everything in which these experiments differ from their JSON files in a directory."""
    lines: list[str] = []
    for experiment, reading in readings:
        path = directory / f"{experiment.name}.json"
        if not path.exists():
            lines.append(f"{experiment.name}: there is no {path}")
            continue
        recorded = json.loads(path.read_text(encoding="utf-8"))
        lines += compare_documents(recorded, json.loads(as_text(document(experiment, reading))))
    return lines


def compare_documents(recorded: Mapping[str, Any], measured: Mapping[str, Any]) -> list[str]:
    """A line for everything in which two documents of one experiment differ, those on verdicts first.

    >>> verdict = {"claim": "felt", "measured": 6.0, "held": True}
    >>> recorded = {"experiment": "flux-7", "verdicts": [verdict], "data": {"rounds": [9, 9]}}
    >>> measured = {
    ...     "experiment": "flux-7",
    ...     "verdicts": [{**verdict, "measured": 7.0, "held": False}],
    ...     "data": {"rounds": [9, 8]},
    ... }
    >>> for line in compare_documents(recorded, measured):
    ...     print(line)
    flux-7, felt: held before and is missed now
    flux-7, felt, measured: was 6.0, is 7.0
    flux-7, data, rounds, 1: was 9, is 8
    """
    name = str(recorded["experiment"])
    before, after = ({v["claim"]: v for v in side["verdicts"]} for side in (recorded, measured))
    lines = [f"{name}, {claim}: {_turn(before[claim])}" for claim in before if _turned(before[claim], after.get(claim))]
    lines += [f"{name}, {line}" for line in _differences(_without_verdicts(before), _without_verdicts(after))]
    rest = [{k: v for k, v in side.items() if k not in IGNORED | {"verdicts"}} for side in (recorded, measured)]
    return lines + [f"{name}, {line}" for line in _differences(*rest)]


def _turned(before: Mapping[str, Any], after: Mapping[str, Any] | None) -> bool:
    return after is not None and before["held"] != after["held"]


def _turn(before: Mapping[str, Any]) -> str:
    return "held before and is missed now" if before["held"] else "was missed before and holds now"


def _without_verdicts(claims: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: {k: v for k, v in claim.items() if k not in ("claim", "held")} for name, claim in claims.items()}


def _differences(before: Any, after: Any) -> Iterator[str]:
    """Where two values of JSON differ, and in what."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in {**before, **after}:
            if key not in after:
                yield f"{key}: is gone"
            elif key not in before:
                yield f"{key}: is new"
            else:
                yield from _inside(key, before[key], after[key])
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for place, (was, now) in enumerate(zip(before, after, strict=True)):
            yield from _inside(place, was, now)
    elif before != after:
        yield f": was {json.dumps(before, ensure_ascii=False)}, is {json.dumps(after, ensure_ascii=False)}"


def _inside(key: object, before: Any, after: Any) -> Iterator[str]:
    for line in _differences(before, after):
        yield f"{key}{line}" if line.startswith(":") else f"{key}, {line}"
