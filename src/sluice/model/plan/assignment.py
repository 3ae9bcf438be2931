"""Into which fragments operators were put, so that the next plan puts the same ones there again.

A fragment's *label* is a number that is given once in a flow's checkpoint, whatever is added to the flow and dropped
from it. A state is named across plans by the label of its fragment and a digest of what it holds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, NewType

from sluice.model.epoch.times import Times

Label = NewType("Label", int)
"""The number of a fragment in all plans of a checkpoint; one that is gone is not given again."""
Digest = NewType("Digest", str)
"""A short name for a structure: the same in every process."""

ColumnsKept = Mapping[Digest, tuple[str, ...]]
"""The columns that a query keeps of rows, by what tells these from others."""


class StateKey(NamedTuple):
    """What a state is known by in every plan: the label of its fragment, and what it holds."""

    label: Label
    digest: Digest


@dataclass(frozen=True)
class Assignment:
    """Where a plan has its operators: the label of each one's fragment, by the operator's structure. It also has the
    states that there are, and the label that a new fragment gets.

    An operator that is not in it joins no fragment that is `closed` to others, and shares no state of which rows are
    gone that it can need: `begun` says how far units have come, as the newest event times of all sources. It is empty
    as long as nothing was taken in.

    `kept` are the columns that each query keeps; None where a checkpoint does not say: all.
    """

    labels: Mapping[Digest, Label] = field(default_factory=dict)
    states: frozenset[StateKey] = frozenset()
    next_label: Label = Label(0)
    closed: frozenset[Label] = frozenset()
    begun: tuple[Times, ...] = ()
    kept: Mapping[str, ColumnsKept | None] = field(default_factory=dict)


def digest(structure: object) -> Digest:
    """A short name for a structure, a value that JSON can hold: the same wherever it is computed.

    >>> digest(["join", ("k",)]) == digest(("join", ["k"])) != digest(("join", ["j"]))
    True
    """
    text = json.dumps(structure, sort_keys=True, separators=(",", ":"))
    return Digest(hashlib.blake2b(text.encode(), digest_size=12).hexdigest())
