"""Which columns operators keep of rows: those that queries need.

A join, top rows and a lookup keep rows as they are. Of these a query needs the columns that it shows, compares or goes
by; the others are left out before, as if it had a `select` there.

- Operators of several queries over the same rows keep the columns that any of these needs, and so can read one state.
- A query keeps what it did when it was added to the flow. One that is added later keeps what another one keeps, if that
  is enough for it.
- Where a checkpoint does not say what a query keeps, all keep all columns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from sluice.model.plan.assignment import ColumnsKept, Digest
from sluice.model.plan.join import JoinSpec
from sluice.model.plan.plan import OperatorSpec
from sluice.model.plan.relation import Applied, Relation, Union
from sluice.model.plan.steps import StaticTable, Step, TableJoin, columns_before
from sluice.model.plan.stream import TIME_COLUMN, PlainColumn, Project, Stream, plain_column
from sluice.model.plan.table_lookup import PASSING, TableLookup
from sluice.model.plan.top_rows import TopRows

NameRows = Callable[[Relation], Digest]
"""What tells the rows of a relation from others."""


def choose_columns(
    outputs: Mapping[str, Relation], settled: Mapping[str, ColumnsKept | None], name_rows: NameRows
) -> dict[str, ColumnsKept | None]:
    """What each query keeps, by its name. `settled` is what those of a checkpoint do, None where it does not say."""
    if None in settled.values():
        return dict.fromkeys(outputs)
    chosen = {}
    for name, relation in outputs.items():
        kept = settled.get(name)
        if kept is not None and _Choice(name_rows, [kept]).of([relation]) == kept:
            chosen[name] = kept
    new = [relation for name, relation in outputs.items() if name not in chosen]
    others = [*chosen.values(), *(kept for kept in settled.values() if kept is not None)]
    together = _Choice(name_rows, others).of(new)
    return {
        name: chosen[name] if name in chosen else _Choice(name_rows, [together]).of([relation])
        for name, relation in outputs.items()
    }


def narrow(relation: Relation, kept: ColumnsKept | None, name_rows: NameRows) -> Relation:
    """What a query writes, its operators without the columns that they do not keep."""
    return relation if kept is None else _Narrowing(kept, name_rows).relation(relation, _shown(relation))


def _shown(relation: Relation) -> frozenset[str]:
    return frozenset(field.name for field in relation.stream.shown)


class _Choice:
    """Chooses what is kept of which rows. What another query keeps is preferred, if it is enough."""

    def __init__(self, name_rows: NameRows, others: Sequence[ColumnsKept]) -> None:
        self._name_rows, self._others = name_rows, others
        self._columns: dict[Digest, frozenset[str]] = {}
        self._results: dict[Applied, set[str]] = {}
        """What operators were asked for in this pass: many ways may lead to one."""

    def of(self, relations: Sequence[Relation]) -> ColumnsKept:
        """What queries keep that write these relations."""
        while True:  # what is kept more of an operator's results, may be more than it was asked for before
            before = dict(self._columns)
            self._results.clear()
            for relation in relations:
                self._add(relation, _shown(relation))
            if self._columns == before:
                return {rows: tuple(sorted(columns)) for rows, columns in before.items()}

    def _add(self, relation: Relation, needed: Iterable[str]) -> None:
        """Of the relation's rows, these columns are needed."""
        before, origin = columns_before(relation.steps, needed), relation.origin
        if isinstance(origin, Union):
            for each in origin.relations:
                self._add(each, before)
        elif isinstance(origin, Applied):
            asked_for = self._results.get(origin)
            if asked_for is not None and before <= asked_for:
                return
            self._results[origin] = before if asked_for is None else before | asked_for
            for feed, columns in zip(origin.feeds, _columns_needed(origin.spec, before), strict=True):
                if _keeps_rows_of(origin.spec, feed):
                    columns = self._choose(self._name_rows(feed), columns)
                self._add(feed, columns)

    def _choose(self, rows: Digest, needed: frozenset[str]) -> frozenset[str]:
        needed |= self._columns.get(rows, frozenset())
        others = (frozenset(kept[rows]) for kept in self._others if rows in kept)
        self._columns[rows] = next((columns for columns in others if needed <= columns), needed)
        return self._columns[rows]


class _Narrowing:
    """Leaves out what a query does not keep."""

    def __init__(self, kept: ColumnsKept, name_rows: NameRows) -> None:
        self._kept, self._name_rows = kept, name_rows
        self._narrowed: dict[Applied, Applied] = {}

    def relation(self, relation: Relation, needed: Iterable[str]) -> Relation:
        """A relation of whose rows these columns are needed."""
        steps, before = _narrow_steps(relation.steps, needed), columns_before(relation.steps, needed)
        origin: Applied | Union
        match relation.origin:
            case Union(relations):
                origin = Union(tuple(self.relation(each, before) for each in relations))
            case Applied():
                if relation.origin not in self._narrowed:
                    self._narrowed[relation.origin] = self._operator(relation.origin)
                origin = self._narrowed[relation.origin]
            case _:
                return relation
        return replace(relation, origin=origin, steps=steps)

    def _operator(self, applied: Applied) -> Applied:
        spec, feeds, streams = applied.spec, [], []
        for feed, stream, columns in zip(applied.feeds, spec.streams, _columns_needed(spec, ()), strict=True):
            keeps_rows = _keeps_rows_of(spec, feed)
            if keeps_rows:
                columns = frozenset(self._kept[self._name_rows(feed)])
            feed = self.relation(feed, columns)
            if keeps_rows and not columns.issuperset(stream.schema.names):
                stream = replace(stream, schema=pa.schema([field for field in stream.schema if field.name in columns]))
                plain = tuple((field.name, PlainColumn(field.name, field.type)) for field in stream.shown)
                feed = replace(feed, steps=(*feed.steps, Project(plain)))
            feeds.append(feed)
            streams.append(stream)
        return Applied(_with_streams(spec, streams), tuple(feeds))


def _keeps_rows_of(spec: OperatorSpec, feed: Relation) -> bool:
    """Whether an operator keeps rows that it takes in as they are, with whatever columns these have."""
    return isinstance(spec, JoinSpec | TopRows | TableLookup) and not isinstance(feed.origin, StaticTable)


def _columns_needed(spec: OperatorSpec, results: Collection[str]) -> list[frozenset[str]]:
    """Of each stream of an operator, the columns without which it cannot make these columns of results."""
    match spec:
        case JoinSpec():
            return _columns_joined(spec, results)
        case TableLookup():
            return _columns_joined(spec.join, results)
        case TopRows():
            own = {*spec.keys, spec.event_time, *(by.column for by in spec.order), *results}
            return [frozenset(own.intersection(spec.stream.schema.names))]
        case _:
            needed: list[set[str]] = [set() for _ in spec.streams]
            for number, input_ in enumerate(spec.inputs):
                needed[input_.stream].update(spec.columns_read(number))
            return list(map(frozenset, needed))


def _columns_joined(spec: JoinSpec, results: Collection[str]) -> list[frozenset[str]]:
    pairs = {*results, *(() if spec.where is None else spec.where.columns)}
    needed: list[set[str]] = [{stream.event_time} for stream in spec.streams]
    for leg in spec.legs:
        input_ = spec.inputs[leg.input]
        own = needed[input_.stream]
        own.update(input_.keys, () if leg.until is None else (leg.until,))
        own.update(name for name in spec.streams[input_.stream].schema.names if f"{leg.name}_{name}" in pairs)
    return list(map(frozenset, needed))


def _with_streams(spec: OperatorSpec, streams: Sequence[Stream]) -> OperatorSpec:
    match spec:
        case JoinSpec():
            return replace(spec, streams=tuple(streams))
        case TableLookup():
            return replace(spec, stream=streams[PASSING])
        case TopRows():
            return replace(spec, stream=streams[0])
        case _:
            return spec


def _narrow_steps(steps: Sequence[Step], needed: Iterable[str]) -> tuple[Step, ...]:
    """Steps without the columns that they only pass on, where these are not needed behind them."""
    narrowed: list[Step] = []
    for step in reversed(steps):
        behind = set(needed)
        match step:
            case Project():
                made = tuple((n, e) for n, e in step.columns if n in behind or plain_column(e) is None)
                if not made and TIME_COLUMN not in behind:
                    continue  # a batch without columns has no rows
                step = replace(step, columns=made)
            case TableJoin():
                behind |= set(() if step.where is None else step.where.columns)
                columns, table_columns = (
                    tuple((n, was) for n, was in names if n in behind) for names in (step.columns, step.table_columns)
                )
                a_key = tuple((n, was) for n, was in step.columns if was in step.keys)[:1]
                step = replace(step, columns=columns or a_key, table_columns=table_columns)
        narrowed.append(step)
        needed = columns_before((step,), needed)
    return tuple(reversed(narrowed))
