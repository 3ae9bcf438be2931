"""Policies: pure functions from a view of the cluster to actions."""

from __future__ import annotations

from typing import Any, Protocol

from sluice.model.actions import Action
from sluice.model.errors import FlowError
from sluice.model.view import ClusterView
from sluice.policies.active_disk import ActiveDisk
from sluice.policies.elastic import Elastic
from sluice.policies.hybrid import Hybrid
from sluice.policies.lazy_disk import LazyDisk, NoRelocation
from sluice.policies.load import LoadBalancing
from sluice.policies.memory import MemoryBalancing
from sluice.policies.settings import settings_of
from sluice.policies.static import Static
from sluice.policies.tokens import Tokens


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


_BY_NAME: dict[str, Any] = {
    "active-disk": ActiveDisk,
    "elastic": Elastic,
    "hybrid": Hybrid,
    "lazy-disk": LazyDisk,
    "load": LoadBalancing,
    "memory": MemoryBalancing,
    "no-relocation": NoRelocation,
    "static": Static,
    "tokens": Tokens,
}


NAMES = tuple(_BY_NAME)
"""Of all policies that can be asked for by name."""


def policy_class(name: str) -> type[Any]:
    """The class of the policy with a name."""
    chosen: type[Any] = _BY_NAME[name]
    return chosen


def policy(wanted: str | Policy, **settings: object) -> Policy:
    """A policy by its name, with its settings if they are to be others than usual; or the object itself.

    >>> policy("static").name, policy("lazy-disk", push=0.5)
    ('static', LazyDisk(push=0.5, order='less-productive', half_life=inf, theta=0.8))
    >>> policy("hybrid", share=False).share
    False
    """
    if not isinstance(wanted, str):
        if not callable(getattr(wanted, "decide", None)):
            raise FlowError(f"a policy is a name or an object with a decide(view) method, not {wanted!r}")
        if not isinstance(getattr(wanted, "name", None), str):
            raise FlowError(f"a policy has a name, a text by which its decisions are told: {wanted!r} has none")
        if settings:
            raise FlowError(f"settings ({', '.join(settings)}) go with the name of a policy; an object has its own")
        return wanted
    if wanted not in _BY_NAME:
        raise FlowError(f"there is no policy {wanted!r}; known: {', '.join(sorted(_BY_NAME))}")
    chosen = _BY_NAME[wanted]
    known = list(settings_of(chosen))
    for name in settings:
        if name not in known:
            which = f"has {', '.join(known)}" if known else "has none"
            raise FlowError(f"policy {wanted!r} has no setting {name!r}; it {which}")
    try:
        made: Policy = chosen(**settings)
        return made
    except FlowError as problem:
        raise FlowError(f"policy {wanted!r}: {problem}") from problem
