"""How the record of an epoch is laid out: which fragments, states and outputs its numbers mean.

A plan numbers its fragments, states and outputs from 0 on, and so does the record of an epoch. In another plan of the
flow they have other numbers; what stays is a fragment's label, a state's key, an output's name with what it gets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from sluice.model.ids import Fragment, InputNumber, Level
from sluice.model.plan.assignment import Digest, Label, StateKey
from sluice.model.plan.data_flow import DataFlow
from sluice.model.plan.plan import Capabilities, Plan


class OutputKey(NamedTuple):
    """What an output is known by in every plan: the name of its query, and what that computes."""

    name: str
    structure: Digest


@dataclass(frozen=True)
class FragmentLayout:
    """A fragment: its label, the levels with operators of it, what can be done to its units, and the inputs of its join
    if they can be shared."""

    label: Label
    levels: tuple[Level, ...]
    is_divisible: bool = False
    is_freezable: bool = False
    shareable: tuple[InputNumber, ...] = ()


@dataclass(frozen=True)
class PlanLayout:
    """The fragments, states and outputs of a plan, in the order of their numbers."""

    fragments: tuple[FragmentLayout, ...] = ()
    states: tuple[StateKey, ...] = ()
    outputs: tuple[OutputKey, ...] = ()
    levels: int = 1
    data_flow: DataFlow = field(default_factory=DataFlow)

    @classmethod
    def of(cls, plan: Plan) -> PlanLayout:
        levels: list[dict[Level, None]] = [{} for _ in plan.labels]
        for node in plan.nodes:
            levels[node.fragment][node.level] = None
        fragments = (
            FragmentLayout(
                label,
                tuple(sorted(levels[number])),
                number in plan.keyed_fragments,
                number in plan.freezable,
                plan.shareable.get(Fragment(number), ()),
            )
            for number, label in enumerate(plan.labels)
        )
        outputs = (OutputKey(output.name, plan.structure_of(number)) for number, output in enumerate(plan.outputs))
        return cls(tuple(fragments), plan.states, tuple(outputs), plan.levels, plan.data_flow)

    @property
    def capabilities(self) -> Capabilities:
        """What can be done to units."""
        fragments = [(Fragment(number), fragment) for number, fragment in enumerate(self.fragments)]
        return Capabilities(
            frozenset(number for number, fragment in fragments if fragment.is_freezable),
            {number: fragment.shareable for number, fragment in fragments if fragment.shareable},
            frozenset(number for number, fragment in fragments if fragment.is_divisible),
            data_flow=self.data_flow,
        )

    def units_of_new(self, fragment: FragmentLayout, partitions: int) -> int:
        """How many units a fragment begins with, where all together are to have so many `partitions`."""
        divisible = sum(other.is_divisible for other in self.fragments)
        return max(1, partitions // divisible) if fragment.is_divisible else 1
