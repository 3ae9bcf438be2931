"""What can be done to the units of a plan's fragments, beside moving them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from sluice.model.ids import Fragment, InputNumber


@dataclass(frozen=True)
class Abilities:
    """Units of the `freezable` fragments can be frozen; those of the `shareable` ones, each a join of these inputs,
    can have several holders. Those of the `divisible` ones can be split and merged. `scalable`: how many sites take
    part can be chosen, from `least_sites` to `most_sites`."""

    freezable: frozenset[Fragment] = frozenset()
    shareable: Mapping[Fragment, tuple[InputNumber, ...]] = field(default_factory=dict)
    divisible: frozenset[Fragment] = frozenset()
    scalable: bool = False
    least_sites: int = 1
    most_sites: int = sys.maxsize
