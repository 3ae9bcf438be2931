"""The policy that never moves anything: the baseline of every comparison."""

from __future__ import annotations

from dataclasses import dataclass

from sluice.model.view import ClusterView
from sluice.policies.base import Policy
from sluice.verbs import Action


@dataclass(frozen=True)
class Static(Policy):
    """Units stay where the first routing puts them.

    >>> Static().decide(ClusterView.at_rest(unit_site=[0, 0, 1], site_memory=[1 << 20, 1 << 20]))
    ()
    """

    name = "static"

    def decide(self, view: ClusterView) -> tuple[Action, ...]:
        return ()
