"""Settings of policies: each says beside its type what it means and which values it takes, and is checked by that.

    th_imb: Annotated[float, Number("how many times as busy a donor is as its receiver", least=1)] = 1.2

A policy that has settings calls `check_settings(self)` when it is made.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import inf
from numbers import Integral, Real
from typing import Annotated, Any, Protocol, get_type_hints

from sluice.model.errors import FlowError


class Setting(Protocol):
    """What a setting means, and which values it takes."""

    meaning: str

    @property
    def values(self) -> str:
        """The values that it takes, in words."""
        ...

    def takes(self, value: object) -> bool: ...


@dataclass(frozen=True)
class Number:
    """Numbers from `least`, or `above` a number, to `most`.

    >>> Number("a part of the state", above=0, most=1).values
    'a number above 0 and at most 1'
    """

    meaning: str
    least: float = -inf
    above: float = -inf
    most: float = inf

    @property
    def values(self) -> str:
        lower = f"above {self.above:g}" if self.above > -inf else f"of at least {self.least:g}"
        return f"a number {lower}" + (f" and at most {self.most:g}" if self.most < inf else "")

    def takes(self, value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, Real):
            return False
        number = float(value)
        return self.above < number and self.least <= number <= self.most


@dataclass(frozen=True)
class Count:
    """Whole numbers of at least one."""

    meaning: str
    values = "a whole number of at least 1"

    def takes(self, value: object) -> bool:
        return not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= 1


@dataclass(frozen=True)
class Flag:
    """True or False."""

    meaning: str
    values = "True or False"

    def takes(self, value: object) -> bool:
        return isinstance(value, bool)


@dataclass(frozen=True)
class Choice:
    """One of a few words."""

    meaning: str
    words: tuple[str, ...]

    @property
    def values(self) -> str:
        return f"one of {', '.join(self.words)}"

    def takes(self, value: object) -> bool:
        return isinstance(value, str) and value in self.words


Imbalance = Annotated[float, Number("how many times the load of others a site has to have", least=1)]
HotPart = Annotated[float, Number("the part of the mean site's load from which a unit is hot", above=0)]
MostActions = Annotated[int, Count("how many actions there are in a round")]


def settings_of(policy: type[Any]) -> dict[str, Setting]:
    """The settings of a class of policies by name, in the order in which they stand there.

    >>> from sluice.policies.load import LoadBalancing
    >>> list(settings_of(LoadBalancing))
    ['th_imb', 'th_util', 'as_printed']
    """
    hints = get_type_hints(policy, include_extras=True)
    marks = {field.name: getattr(hints[field.name], "__metadata__", ()) for field in fields(policy)}
    return {name: mark[0] for name, mark in marks.items() if mark}


def check_settings(policy: Any) -> None:
    """Refuse a policy one of whose settings has a value that it does not take.

    >>> from sluice.policies.load import LoadBalancing
    >>> LoadBalancing(th_imb=-1)
    Traceback (most recent call last):
    sluice.model.errors.FlowError: th_imb=-1: it is how many times the load of others a site has to have, \
a number of at least 1
    """
    for name, setting in settings_of(type(policy)).items():
        value = getattr(policy, name)
        if not setting.takes(value):
            raise FlowError(f"{name}={value!r}: it is {setting.meaning}, {setting.values}")
