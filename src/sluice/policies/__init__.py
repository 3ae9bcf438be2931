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
    "static": Static,
    "tokens": Tokens,
}


NAMES = tuple(_BY_NAME)
"""Of all policies that can be asked for by name."""


def policy_class(name: str) -> type[Policy]:
    """The class of the policy with a name."""
    return _BY_NAME[name]


def policy(wanted: str | Policy, **settings: object) -> Policy:
    """A policy by its name, with its settings if they are to be others than usual; or the object itself.

    >>> policy("static").name, policy("lazy-disk", push=0.5)
    ('static', LazyDisk(push=0.5, order='less-productive', half_life=inf, theta=0.8))
    >>> policy("hybrid", share=False).share
    False
    """
    if not isinstance(wanted, str):
        _refuse_incomplete(wanted)
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
        return chosen(**settings)
    except FlowError as problem:
        raise FlowError(f"policy {wanted!r}: {problem}") from problem


def _refuse_incomplete(wanted: object) -> None:
    """Refuse what is no policy, or has no name."""
    kind = wanted.__name__ if isinstance(wanted, type) else type(wanted).__name__
    if isinstance(wanted, type) and issubclass(wanted, Policy):
        raise FlowError(f"a policy is an object: policy({kind}()), not the class {kind}")
    if hasattr(wanted, "decide") and not isinstance(wanted, Policy):
        raise FlowError(f"{kind} decides, but is no policy yet: derive it from sluice.Policy, class {kind}(Policy)")
    if not isinstance(wanted, Policy):
        raise FlowError(f"a policy is a name or an object whose class is derived from sluice.Policy, not {wanted!r}")
    if not (hasattr(wanted, "name") and isinstance(wanted.name, str)):
        raise FlowError(f'a policy has a name by which its decisions are known: give {kind} a line like name = "mine"')
