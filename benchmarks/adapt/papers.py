"""The scenarios that are a paper's experiments on Spark, scaled down; what they measured last is in docs/figures."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.adapt import alternate, elastic, push, scarce, tokens, tuning, uneven
from sluice.figures.claim import Claim


@dataclass(frozen=True)
class LiveExperiment:
    """A scenario with the claims that it is held against."""

    scenario: str
    claims: tuple[Claim, ...]

    @property
    def name(self) -> str:
        """That of its file."""
        return f"spark-{self.scenario}"


LIVE: dict[str, tuple[LiveExperiment, ...]] = {
    "lazy-disk": (
        LiveExperiment("push", push.CLAIMS),
        LiveExperiment("alternate", alternate.CLAIMS),
        LiveExperiment("uneven", uneven.CLAIMS),
        LiveExperiment("scarce", scarce.CLAIMS),
    ),
    "d-cape": (LiveExperiment("tokens", tokens.CLAIMS),),
    "window-joins": (LiveExperiment("tuning", tuning.CLAIMS), LiveExperiment("elastic", elastic.CLAIMS)),
}
"""By paper, as `PAPERS` has the simulated ones."""
