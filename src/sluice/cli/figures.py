"""`sluice figures`: runs the papers' experiments and says which of their claims hold here."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from sluice.model.errors import SluiceError
from sluice.model.extras import Extra, require


def list_files() -> str:
    """The experiments there are."""
    from sluice.figures.catalogue import EXPERIMENTS, PAPERS

    wide = max(len(e.name) for e in EXPERIMENTS)
    lines = [f"{e.name:<{wide}}  {e.title} ({len(e.claims)} claims, {len(e.runs)} runs)" for e in EXPERIMENTS]
    return "\n".join([f"{' or '.join(PAPERS)}, or one of:", *lines])


def figures(names: Sequence[str], out: Path, workers: int | None, against: Path | None = None) -> int:
    """Runs them, writes charts and verdicts to `out`; 0 if every claim held, 1 if one was missed.

    With `against`, a directory of JSON files: 0 if all is as it is there, misses included, 1 if anything differs.
    """
    require(Extra.SIM, "sluice figures")
    from sluice.figures.catalogue import find_experiments
    from sluice.figures.comparison import changes
    from sluice.figures.experiment import Trial, run_all
    from sluice.figures.publish import cells, publish, summary

    experiments = find_experiments(names)
    if against is not None and not against.is_dir():
        raise SluiceError(f"there is no directory {against}; --against names one with the JSON files of figures")
    if out.exists() and not out.is_dir():
        raise SluiceError(f"{out} is a file; --out names a directory")
    began = time.monotonic()

    def tell(done: int, of: int, run: Trial) -> None:
        said = f"{done:>4} of {of} runs, {time.monotonic() - began:,.0f} s: {run.label}"
        print(said, file=sys.stderr, flush=True)

    runs = [run for experiment in experiments for run in experiment.runs.values()]
    outcomes = run_all(runs, workers or os.cpu_count() or 1, tell)
    readings = []
    changed: list[str] = []
    for experiment in experiments:
        readings.append((experiment, experiment.judge(outcomes)))
        if against is not None:
            changed += changes(readings[-1:], against)  # before anything is written: it may be the same directory
        written = publish(readings, out)  # at once: should the next one fail, this one is not lost
    for experiment, reading in readings:
        print(f"\n{experiment.name}: {experiment.title}")
        for verdict in experiment.verdicts(reading):
            says, value, measured, accepted, _ = cells(verdict)
            published = f", published {value}" if value else ""
            print(f"  {verdict.word:<6} {says}: measured {measured}{published}, accepted {accepted}")
    counts = summary([verdict for experiment, reading in readings for verdict in experiment.verdicts(reading)])
    print(f"\n{counts.sentence} {len(written)} files in {out}, see {written[-1]}")
    if against is None:
        return 1 if counts.missed else 0
    print("\n".join([f"{len(changed)} changes against {against}{':' if changed else ''}", *changed]))
    return 1 if changed else 0
