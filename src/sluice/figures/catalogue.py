"""All experiments, by the name of their paper and their own."""

from __future__ import annotations

from collections.abc import Sequence

from sluice.figures.d_cape_comparison import D_CAPE_3, D_CAPE_4
from sluice.figures.d_cape_thresholds import D_CAPE_1, D_CAPE_2
from sluice.figures.experiment import AnyExperiment
from sluice.figures.flux_load import BASELINE, FIG_3, FIG_7, FIG_8, FIG_9
from sluice.figures.flux_memory import FIG_11, FIG_13, FIG_13_DISK, FIG_15
from sluice.figures.lazy_disk_relocation import LAZY_9, LAZY_11
from sluice.figures.lazy_disk_spill import LAZY_5, LAZY_7
from sluice.figures.lazy_disk_strategies import LAZY_12, LAZY_13, LAZY_14
from sluice.figures.placement import PLACEMENT_4, PLACEMENT_5, PLACEMENT_6
from sluice.figures.window_joins_communication import WINDOW_11, WINDOW_12, WINDOW_13, WINDOW_GROUPS
from sluice.figures.window_joins_delay import WINDOW_5, WINDOW_7, WINDOW_9
from sluice.model.errors import SluiceError

PAPERS: dict[str, tuple[AnyExperiment, ...]] = {
    "flux": (BASELINE, FIG_3, FIG_7, FIG_8, FIG_9, FIG_11, FIG_13, FIG_13_DISK, FIG_15),
    "lazy-disk": (LAZY_5, LAZY_7, LAZY_9, LAZY_11, LAZY_12, LAZY_13, LAZY_14),
    "placement": (PLACEMENT_4, PLACEMENT_5, PLACEMENT_6),
    "d-cape": (D_CAPE_1, D_CAPE_2, D_CAPE_3, D_CAPE_4),
    "window-joins": (WINDOW_5, WINDOW_7, WINDOW_9, WINDOW_11, WINDOW_12, WINDOW_13, WINDOW_GROUPS),
}
EXPERIMENTS: tuple[AnyExperiment, ...] = tuple(experiment for paper in PAPERS.values() for experiment in paper)


ALL = "all"
"""The name that stands for every experiment."""


class UnknownFigure(SluiceError):
    """There is no experiment of this name."""


def find_experiments(names: Sequence[str]) -> list[AnyExperiment]:
    """The experiments of these names; that of a paper stands for all of its own, and `all` for those of every paper.

    >>> [e.name for e in find_experiments(["flux-7", "flux-7"])], len(find_experiments(["lazy-disk"]))
    (['flux-7'], 7)
    """
    experiments: list[AnyExperiment] = []
    for name in names:
        named = [e for e in EXPERIMENTS if name in (ALL, e.name) or e in PAPERS.get(name, ())]
        if not named:
            every_name = ", ".join((ALL, *PAPERS, *(e.name for e in EXPERIMENTS)))
            raise UnknownFigure(f"there is no figure {name!r}; known: {every_name}")
        experiments += [e for e in named if e not in experiments]
    return experiments
