"""`sluice figures`: runs the papers' experiments and says which of their claims hold here."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from sluice.model.errors import SluiceError


def listed() -> str:
    """The experiments there are."""
    from sluice.figures.catalogue import EXPERIMENTS

    wide = max(len(e.name) for e in EXPERIMENTS)
    lines = [f"{e.name:<{wide}}  {e.title} ({len(e.claims)} claims, {len(e.runs)} runs)" for e in EXPERIMENTS]
    return "\n".join(["flux, or one of:", *lines])


def figures(names: Sequence[str], out: Path, workers: int | None) -> int:
    """Runs them, writes charts and verdicts to `out`; 0 if every claim held, 1 if one was missed."""
    _require_numba()
    from sluice.figures.catalogue import chosen
    from sluice.figures.experiment import Run, run_all
    from sluice.figures.publish import number, publish

    experiments = chosen(names)
    if out.exists() and not out.is_dir():
        raise SluiceError(f"{out} is a file; --out names a directory")
    began = time.monotonic()

    def tell(done: int, of: int, run: Run) -> None:
        said = f"{done:>4} of {of} runs, {time.monotonic() - began:,.0f} s: {run.scenario.name}, {run.policy}"
        print(said, file=sys.stderr, flush=True)

    runs = [run for experiment in experiments for run in experiment.runs.values()]
    outcomes = run_all(runs, workers or os.cpu_count() or 1, tell)
    found = [(e, e.read({name: outcomes[run] for name, run in e.runs.items()})) for e in experiments]
    missed = 0
    for experiment, reading in found:
        print(f"\n{experiment.name}: {experiment.title}")
        for verdict in experiment.verdicts(reading):
            missed += not verdict.held
            published = "" if verdict.claim.published is None else f", published {number(verdict.claim.published)}"
            print(
                f"  {'held  ' if verdict.held else 'MISSED'} {verdict.claim.says}: "
                f"measured {number(verdict.measured)}{published}, accepted {verdict.claim.accepted}"
            )
    written = publish(found, out)
    claims = sum(len(e.claims) for e in experiments)
    print(f"\n{claims - missed} of {claims} claims held; {len(written)} files in {out}, see {written[-1]}")
    return 1 if missed else 0


def _require_numba() -> None:
    try:
        import numba  # noqa: F401
    except ImportError:
        raise SluiceError("the simulator needs Numba: pip install 'sluice-streaming[sim]'") from None
