"""Policies: pure functions from a view of the cluster to actions."""

from __future__ import annotations

from typing import Protocol

from sluice.model.actions import Action
from sluice.model.errors import FlowError
from sluice.model.view import ClusterView
from sluice.policies.hybrid import Hybrid
from sluice.policies.load import LoadBalancing
from sluice.policies.memory import MemoryBalancing
from sluice.policies.static import Static


class Policy(Protocol):
    """Anything with a name and a `decide`.

    >>> from sluice import Move
    >>> class HottestToFirst:
    ...     name = "hottest to the first site"
    ...
    ...     def decide(self, view: ClusterView) -> tuple[Action, ...]:
    ...         return (Move(view.unit_rows.argmax(), 0, "it has most rows"),)
    >>> policy(HottestToFirst()).name
    'hottest to the first site'
    """

    name: str

    def decide(self, view: ClusterView) -> tuple[Action, ...]:
        """What is to change, given the cluster as it was since the policy was asked last; each with its reason."""
        ...


_BY_NAME: dict[str, type[Policy]] = {
    "hybrid": Hybrid,
    "load": LoadBalancing,
    "memory": MemoryBalancing,
    "static": Static,
}


def policy(wanted: str | Policy) -> Policy:
    """A policy by its name, or the object itself.

    >>> policy("static").name
    'static'
    >>> policy("hybrid")
    Hybrid(load=LoadBalancing(th_imb=1.2, th_util=0.9), memory=MemoryBalancing())
    """
    if not isinstance(wanted, str):
        if not callable(getattr(wanted, "decide", None)):
            raise FlowError(f"a policy is a name or an object with a decide(view) method, not {wanted!r}")
        if not isinstance(getattr(wanted, "name", None), str):
            raise FlowError(f"a policy has a name, a text by which its decisions are told: {wanted!r} has none")
        return wanted
    if wanted not in _BY_NAME:
        raise FlowError(f"there is no policy {wanted!r}; known: {', '.join(sorted(_BY_NAME))}")
    return _BY_NAME[wanted]()
