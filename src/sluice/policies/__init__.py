"""Policies: pure functions from a view of the cluster to actions."""

from __future__ import annotations

from sluice.model.errors import FlowError
from sluice.policies.active_disk import ActiveDisk
from sluice.policies.base import Policy
from sluice.policies.elastic import Elastic
from sluice.policies.hybrid import Hybrid
from sluice.policies.lazy_disk import LazyDisk, NoRelocation
from sluice.policies.load import LoadBalancing
from sluice.policies.memory import MemoryBalancing
from sluice.policies.placement import Placement
from sluice.policies.planning.freezing import Freezing
from sluice.policies.settings import settings_of
from sluice.policies.static import Static
from sluice.policies.tokens import Tokens

__all__ = [
    "NAMES",
    "ActiveDisk",
    "Elastic",
    "Freezing",
    "Hybrid",
    "LazyDisk",
    "LoadBalancing",
    "MemoryBalancing",
    "NoRelocation",
    "Placement",
    "Policy",
    "Static",
    "Tokens",
    "policy",
    "policy_class",
]

_BY_NAME: dict[str, type[Policy]] = {
    "active-disk": ActiveDisk,
    "elastic": Elastic,
    "hybrid": Hybrid,
    "lazy-disk": LazyDisk,
    "load": LoadBalancing,
    "memory": MemoryBalancing,
    "no-relocation": NoRelocation,
    "placement": Placement,
    "static": Static,
    "tokens": Tokens,
}


NAMES = tuple(_BY_NAME)
"""Of all policies that can be asked for by name."""


def policy_class(name: str) -> type[Policy]:
    """The class of the policy with a name."""
    return _BY_NAME[name]


def policy(choice: str | Policy, /, **settings: object) -> Policy:
    """A policy by its name, with its settings if they are to be others than usual; or the object itself.

    >>> policy("static").name, policy("lazy-disk", push=0.5)
    ('static', LazyDisk(push=0.5, order='less-productive', half_life=inf, theta=0.8))
    >>> policy("hybrid", share=False).share
    False
    """
    if not isinstance(choice, str):
        _refuse_incomplete(choice)
        if settings:
            raise FlowError(f"settings ({', '.join(settings)}) go with the name of a policy; an object has its own")
        return choice
    if choice not in _BY_NAME:
        raise FlowError(f"there is no policy {choice!r}; known: {', '.join(sorted(_BY_NAME))}")
    kind = _BY_NAME[choice]
    names = list(settings_of(kind))
    for name in settings:
        if name not in names:
            which = f"has {', '.join(names)}" if names else "has none"
            raise FlowError(f"policy {choice!r} has no setting {name!r}; it {which}")
    try:
        return kind(**settings)
    except FlowError as problem:
        raise FlowError(f"policy {choice!r}: {problem}") from problem


def _refuse_incomplete(candidate: object) -> None:
    """Refuse what is no policy, or has no name."""
    kind = candidate.__name__ if isinstance(candidate, type) else type(candidate).__name__
    if isinstance(candidate, type) and issubclass(candidate, Policy):
        raise FlowError(f"a policy is an object: policy({kind}()), not the class {kind}")
    if hasattr(candidate, "decide") and not isinstance(candidate, Policy):
        raise FlowError(f"{kind} decides, but is no policy yet: derive it from sluice.Policy, class {kind}(Policy)")
    if not isinstance(candidate, Policy):
        raise FlowError(f"a policy is a name or an object whose class is derived from sluice.Policy, not {candidate!r}")
    if not (hasattr(candidate, "name") and isinstance(candidate.name, str)):
        raise FlowError(f'a policy has a name by which its decisions are known: give {kind} a line like name = "mine"')
