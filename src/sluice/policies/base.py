"""What every policy declares: its name, what it decides, and what it needs of the query that it runs in."""

from __future__ import annotations

from abc import ABC, abstractmethod

from sluice.model.view import ClusterView
from sluice.policies.planning.freezing import Freezing
from sluice.verbs import Action


class Policy(ABC):
    """A name and a `decide`; the rest has defaults.

    >>> from sluice import Move
    >>> class HottestToFirst(Policy):
    ...     name = "hottest to the first site"
    ...
    ...     def decide(self, view: ClusterView) -> tuple[Action, ...]:
    ...         return (Move(view.units.id[view.units.rows.argmax()], 0, "it has most rows"),)
    >>> HottestToFirst().scales
    False
    """

    name: str
    """By which its decisions are known."""
    scales: bool = False
    """Whether it chooses the number of sites, by the input that waits at them. Its query needs bounds for that number,
    and an `epochBudget`, without which no input waits."""

    begins_at_home: bool = False
    """Whether a fragment of one unit begins at the home of its stream; else sites take turns."""

    @property
    def freezing(self) -> Freezing | None:
        """How a site whose memory is full freezes units of joins; None if it pages units instead."""
        return None

    @abstractmethod
    def decide(self, view: ClusterView) -> tuple[Action, ...]:
        """What is to change, given the cluster as it was since the policy was asked last; each with its reason."""
