"""Into which fragment each operator goes, and which states it shares with others there.

- One that was in a fragment before stays there.
- One that is chained on the key of an operator below goes into that one's fragment: what the one finds for a key, the
  other needs at the same place.
- Any other goes into the fragment that keeps most of its states already, the oldest of several.
- Else it gets a new one.

A state that is kept in another fragment is kept again in this one, so that the two can move apart. A join without a key
shares all its states or none: it has one unit, which cannot be divided among sites.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sluice.model.epoch.times import Times, least_time, watermarks
from sluice.model.ids import Fragment, InputNumber, Level
from sluice.model.plan.assignment import Assignment, Digest, Label, StateKey, digest
from sluice.model.plan.join import JoinSpec
from sluice.model.plan.plan import Inflow, OperatorNode, OperatorSpec
from sluice.model.plan.steps import Step, TableJoin
from sluice.model.plan.stream import Project, Stream


@dataclass(frozen=True)
class UnplacedOperator:
    """An operator on its way into a plan. `rows` has, for each of its streams, what tells those rows from others."""

    spec: OperatorSpec
    inflows: tuple[Inflow, ...]
    rows: tuple[object, ...]
    structure: Digest


@dataclass(frozen=True)
class Placement:
    """The operators in their places, the label of each fragment, what each state is known by, and the next label."""

    nodes: tuple[OperatorNode, ...]
    labels: tuple[Label, ...]
    states: tuple[StateKey, ...]
    next_label: Label


def place_operators(
    sources: Sequence[Stream], operators: Sequence[UnplacedOperator], assigned: Assignment
) -> Placement:
    """Puts operators into fragments, each after those it takes rows from."""
    placing = _Placing(sources, operators, assigned)
    labels = [placing.place(number) for number in range(len(operators))]
    in_order = sorted(set(labels))
    fragment_of = {label: Fragment(place) for place, label in enumerate(in_order)}
    numbers: dict[StateKey, InputNumber] = {}
    nodes = []
    for operator, level, label, states in zip(operators, placing.levels, labels, placing.states, strict=True):
        keys = [StateKey(label, state) for state in states]
        inputs = tuple(numbers.setdefault(key, InputNumber(len(numbers))) for key in keys)
        fragment = fragment_of[label]
        nodes.append(OperatorNode(operator.spec, operator.inflows, level, fragment, inputs, operator.structure))
    return Placement(tuple(nodes), tuple(in_order), tuple(numbers), placing.next_label)


class _Placing:
    """Which labels operators get, one after the other."""

    def __init__(self, sources: Sequence[Stream], operators: Sequence[UnplacedOperator], assigned: Assignment) -> None:
        self._sources, self._operators, self._assigned = len(sources), operators, assigned
        self.next_label = assigned.next_label
        self.levels: list[Level] = []
        for operator in operators:
            below = [self.levels[origin - self._sources] for origin in self._operators_below(operator)]
            self.levels.append(Level(1 + max(below, default=-1)))
        self.states = [
            [_digest_state(operator, input_, level) for input_ in range(len(operator.spec.inputs))]
            for operator, level in zip(operators, self.levels, strict=True)
        ]
        self._watermarks = self._watermarks_by_operator(sources)
        self._labels: list[Label] = []
        self._kept_in: dict[Digest, list[Label]] = {}
        """The labels of the fragments that keep each state, those of before and those that came to it."""
        self._readers: dict[StateKey, list[tuple[int, int]]] = {}
        """Who has read each state before: the operator's number, and that of its input."""
        for number, operator in enumerate(operators):
            label = assigned.labels.get(operator.structure)
            if label is not None:
                for input_, state in enumerate(self.states[number]):
                    self._note_state(state, label)
                    self._readers.setdefault(StateKey(label, state), []).append((number, input_))

    def place(self, number: int) -> Label:
        """The label of the next operator's fragment."""
        label = self._assigned.labels.get(self._operators[number].structure)
        if label is None:
            label = next((label for label in self._candidates(number) if self._can_join(number, label)), None)
        if label is None:
            label, self.next_label = self.next_label, Label(self.next_label + 1)
        for state in self.states[number]:
            self._note_state(state, label)
        self._labels.append(label)
        return label

    def _note_state(self, state: Digest, label: Label) -> None:
        labels = self._kept_in.setdefault(state, [])
        if label not in labels:
            labels.append(label)

    def _operators_below(self, operator: UnplacedOperator) -> Iterator[int]:
        feeds = (feed for inflow in operator.inflows for feed in inflow)
        return (feed.origin for feed in feeds if feed.origin >= self._sources)

    def _watermarks_by_operator(self, sources: Sequence[Stream]) -> list[list[Times]]:
        """The watermarks of each operator's streams, for each of the times that units have come to."""
        delays = tuple(stream.delay for stream in sources)
        by_operator: list[list[Times]] = [[] for _ in self._operators]
        for newest in self._assigned.begun:
            by_origin = list(watermarks(newest, delays))
            for operator, own in zip(self._operators, by_operator, strict=True):
                own.append(tuple(least_time(by_origin[feed.origin] for feed in inflow) for inflow in operator.inflows))
                by_origin.append(operator.spec.watermark(own[-1]))
        return by_operator

    def _candidates(self, number: int) -> Iterator[Label]:
        """The fragments that an operator belongs to, the first one most."""
        operator, states = self._operators[number], set(self.states[number])
        chained_to = self._find_operator_below(operator)
        if chained_to is not None:
            yield self._labels[chained_to]
        kept = Counter(label for state in states for label in self._kept_in.get(state, ()))
        least = len(states) if _is_theta(operator.spec) else 1
        yield from sorted((label for label in kept if kept[label] >= least), key=lambda label: (-kept[label], label))

    def _find_operator_below(self, operator: UnplacedOperator) -> int | None:
        """The operator that passes its own key on to this one as the key, if any does. A join without a key is not
        chained to any."""
        if _is_theta(operator.spec):
            return None
        for stream, feed in ((stream, feed) for stream, inflow in enumerate(operator.inflows) for feed in inflow):
            if feed.origin >= self._sources:
                number = feed.origin - self._sources
                keys = [_rename_columns(key, feed.steps) for key in self._operators[number].spec.output_keys]
                if any(input_.stream == stream and input_.keys in keys for input_ in operator.spec.inputs):
                    return number
        return None

    def _can_join(self, number: int, label: Label) -> bool:
        """Whether an operator that is new can go into a fragment, and finds all rows there that it can need."""
        if label in self._assigned.closed:
            return False
        keys = [StateKey(label, state) for state in self.states[number]]
        return all(
            self._keeps_enough(key, number, input_) and self._keeps_partners(keys, number, input_)
            for input_, key in enumerate(keys)
            if key in self._assigned.states and self._assigned.begun
        )

    def _keeps_enough(self, key: StateKey, number: int, input_: int) -> bool:
        """Whether those who read a state so far need all rows of it that another one can need now."""
        readers = self._readers.get(key, [])
        bounds = [[self._keep_from(*reader, place) for reader in readers] for place in range(len(self._assigned.begun))]
        needed = [self._keep_from(number, input_, place) for place in range(len(self._assigned.begun))]
        return all(
            any(_is_no_later(bound, least) for bound in each) for each, least in zip(bounds, needed, strict=True)
        )

    def _keeps_partners(self, keys: Sequence[StateKey], number: int, input_: int) -> bool:
        """Whether rows of a state that appear without a partner have theirs in the state of the other input: another
        join reads both. Else partners that came before would be missed."""
        spec = self._operators[number].spec
        if not isinstance(spec, JoinSpec) or not spec.is_judged(input_):
            return True
        readers = [{reader for reader, _ in self._readers.get(key, [])} for key in keys]
        return bool(set.intersection(*readers))

    def _keep_from(self, number: int, input_: int, place: int) -> int | None:
        return self._operators[number].spec.keep_from(input_, self._watermarks[number][place])


def _is_no_later(bound: int | None, other: int | None) -> bool:
    return bound is None or (other is not None and bound <= other)


def _is_theta(spec: OperatorSpec) -> bool:
    return isinstance(spec, JoinSpec) and spec.is_theta


def _digest_state(operator: UnplacedOperator, input_: int, level: Level) -> Digest:
    """What the state of an input is known by: which rows come in, when they are late, and what is kept of them."""
    spec = operator.spec
    number = spec.inputs[input_].stream
    stream = spec.streams[number]
    rows = operator.rows[number], stream.event_time, stream.delay
    return digest((level, *rows, spec.inputs[input_].keys, spec.state_structure(input_)))


def _rename_columns(columns: tuple[str, ...], steps: Sequence[Step]) -> tuple[str | None, ...]:
    """What columns are called after stateless steps, None for one that is gone."""
    names: tuple[str | None, ...] = columns
    for step in steps:
        if isinstance(step, Project):
            made = {expression.text.strip("`"): name for name, expression in step.columns}
            names = tuple(None if name is None else made.get(name) for name in names)
        elif isinstance(step, TableJoin):
            renamed = {before: name for name, before in step.columns}
            names = tuple(None if name is None else renamed.get(name) for name in names)
    return names
