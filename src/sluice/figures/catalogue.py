"""All experiments, by the name of their paper and their own."""

from __future__ import annotations

from collections.abc import Sequence

from sluice.figures.experiment import Experiment
from sluice.figures.flux_load import BASELINE, FIG_3, FIG_7, FIG_8, FIG_9
from sluice.figures.flux_memory import FIG_11, FIG_13, FIG_15
from sluice.model.errors import SluiceError

EXPERIMENTS: tuple[Experiment, ...] = (BASELINE, FIG_3, FIG_7, FIG_8, FIG_9, FIG_11, FIG_13, FIG_15)


class UnknownFigure(SluiceError):
    """There is no experiment of this name."""


def chosen(names: Sequence[str]) -> list[Experiment]:
    """The experiments of these names; `flux` is all of that paper.

    >>> [e.name for e in chosen(["flux-7", "flux-7"])]
    ['flux-7']
    """
    found = []
    for name in names:
        some = [e for e in EXPERIMENTS if e.name == name or e.name.startswith(f"{name}-")]
        if not some:
            known = ", ".join(("flux", *(e.name for e in EXPERIMENTS)))
            raise UnknownFigure(f"there is no figure {name!r}; known: {known}")
        found += [e for e in some if e not in found]
    return found
