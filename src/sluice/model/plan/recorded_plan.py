"""What a flow computes, as its checkpoint has it: a file for each of the plans that it went by.

Queries are added and dropped while a flow runs. The record of an epoch names the plan that the epoch went by.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from sluice.model.ids import Fragment, InputNumber, Level
from sluice.model.plan.assignment import Assignment, Digest, Label
from sluice.model.plan.layout import PlanLayout

_FIRST_LABEL = Label(0)


@dataclass(frozen=True)
class RecordedQuery:
    """One of a flow's queries: its name, a digest of what it computes and words for it, the kind of its sink, and where
    that shows results, if they stay. `origins` is where its rows come from: the sources are numbered first, then the
    operators. `late` are those of the sources of which it has the late rows. `kept` are the columns that it keeps;
    plans that do not say keep all."""

    name: str
    structure: Digest
    says: str = ""
    sink: str = ""
    shown: str | None = None
    origins: tuple[int, ...] = ()
    late: tuple[int, ...] = ()
    kept: dict[Digest, tuple[str, ...]] | None = None


@dataclass(frozen=True)
class RecordedOperator:
    """An operator: what it is known by in every plan, words for it, where its rows come from, the states that it reads,
    and where it stands."""

    structure: Digest
    says: str
    origins: tuple[int, ...]
    states: tuple[InputNumber, ...]
    level: Level
    fragment: Fragment


@dataclass(frozen=True)
class RecordedState:
    """What operators keep of some rows: where these come from, the columns that they are partitioned by, and which of
    `RecordedPlan.schemas` segments have of it, and of input that waits. Rows of a `table` come from no origin."""

    origins: tuple[int, ...]
    keys: tuple[str, ...]
    stored: int
    pending: int
    table: str = ""


@dataclass(frozen=True)
class RecordedPlan:
    """The queries of a flow, in the order of its outputs, and what they compute in words; its sources by name, its
    operators, the label that the next new fragment gets, and the layout of the records of epochs that went by it. Its
    states are there for those who read them without the flow; `schemas` are Arrow's own bytes, as base64."""

    queries: tuple[RecordedQuery, ...] = ()
    says: str = ""
    timeZone: str = ""
    sources: tuple[str, ...] = ()
    operators: tuple[RecordedOperator, ...] = ()
    nextLabel: Label = _FIRST_LABEL
    layout: PlanLayout = field(default_factory=PlanLayout)
    states: tuple[RecordedState, ...] = ()
    schemas: tuple[str, ...] = ()

    @property
    def assignment(self) -> Assignment:
        """Where its operators are: for the next plan, which has them in the same fragments."""
        labels = {one.structure: self.layout.fragments[one.fragment].label for one in self.operators}
        kept = {query.name: query.kept for query in self.queries}
        return Assignment(labels, frozenset(self.layout.states), self.nextLabel, kept=kept)

    def operators_of(self, query: int) -> tuple[int, ...]:
        """The operators that lead to a query, by their places, each before those above it."""
        seen: set[int] = set()
        waiting = [*self.queries[query].origins]
        while waiting:
            operator = waiting.pop() - len(self.sources)
            if operator >= 0 and operator not in seen:
                seen.add(operator)
                waiting += self.operators[operator].origins
        return tuple(sorted(seen))

    @cached_property
    def users(self) -> tuple[tuple[int, ...], ...]:
        """The queries that each operator leads to, by their places."""
        users: list[list[int]] = [[] for _ in self.operators]
        for query in range(len(self.queries)):
            for operator in self.operators_of(query):
                users[operator].append(query)
        return tuple(map(tuple, users))

    @cached_property
    def readers(self) -> dict[InputNumber, tuple[int, ...]]:
        """The queries that read each state, by their places."""
        readers: dict[InputNumber, set[int]] = {}
        for operator, queries in zip(self.operators, self.users, strict=True):
            for state in operator.states:
                readers.setdefault(state, set()).update(queries)
        return {state: tuple(sorted(queries)) for state, queries in readers.items()}


@dataclass(frozen=True)
class FormerPlan:
    """The file of a plan that epochs before `until` went by, and none since."""

    file: str
    until: int
