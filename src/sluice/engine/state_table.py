"""The state of a checkpoint as tables: read from its durable files alone, while its query runs or after it."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from sluice.control.journal import Journal
from sluice.engine.state_key import KeyFilter, key_columns, key_types, read_key
from sluice.model.clock import SystemClock
from sluice.model.epoch.segments import RunRef
from sluice.model.errors import CheckpointError, FlowError, StorageError
from sluice.model.ids import InputNumber, Site, Unit
from sluice.model.plan.recorded_plan import RecordedPlan, RecordedState
from sluice.model.routing.directory import Directory
from sluice.model.routing.unit_ranges import Ranges, intersect, numbers, single_unit, subtract, unite
from sluice.record.epoch import EpochRecord
from sluice.state.durable import DurableSegments
from sluice.state.files.storage import Storage
from sluice.state.segment import decode_rows, row_schema

MAX_ATTEMPTS = 10
"""How often state is read anew, if its query deletes files meanwhile that a newer epoch does not need."""
_ABOUT_ROWS = pa.schema(
    [
        ("_input", pa.string()),
        ("_unit", pa.int64()),
        ("_site", pa.int64()),
        ("_generation", pa.int64()),
        ("_waiting", pa.bool_()),
    ]
)
"""What a table tells of each row, before the row's own columns."""


@dataclass(frozen=True)
class StateSummary:
    """What there is of one input of an operator: rows that new ones meet, rows that are frozen, input that waits."""

    operator: int
    says: str
    input: str
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    units: int
    rows: int
    frozen_rows: int
    waiting_rows: int
    bytes: int


class CheckpointState:
    """The state after the newest epoch of a checkpoint."""

    def __init__(self, storage: Storage, record: EpochRecord, plan: RecordedPlan) -> None:
        self._storage, self.record, self.plan = storage, record, plan
        self._durable = DurableSegments(storage, SystemClock())
        self._schemas = [pa.ipc.read_schema(pa.py_buffer(b64decode(text))) for text in plan.schemas]

    @classmethod
    def open(cls, journal: Journal) -> CheckpointState:
        """The newest one of a checkpoint, whose query may go on meanwhile."""
        journal.recognised()
        where = journal.storage.uri
        newest = journal.newest_with_plan()
        if newest is None or newest[0].record.number < 0:
            raise CheckpointError(f"checkpoint {where} has no state yet: no epoch has committed")
        entry, plan = newest
        if len(plan.states) != len(plan.layout.states):
            raise CheckpointError(
                f"checkpoint {where} does not say which columns its state has: an earlier version of Sluice wrote its "
                "newest epoch. Run the query for one more epoch, then read it"
            )
        return cls(journal.storage, entry.record, plan)

    def summarize(self) -> list[StateSummary]:
        """What there is, by operator and input."""
        return [
            self._summary(operator, number)
            for operator, recorded in enumerate(self.plan.operators)
            for number in recorded.states
        ]

    def read(
        self, operator: int | str | None, input_: str | None = None, unit: int | None = None, key: object = None
    ) -> pa.Table:
        """The rows of an operator's state, of one of its inputs, one unit and one key if these are given."""
        place = self._find_operator(operator)
        states = self.plan.operators[place].states
        names = [self.name_of(self.plan.states[number]) for number in states]
        if input_ is not None and input_ not in names:
            raise FlowError(f"operator {place} keeps nothing of {input_!r}; it keeps rows of {', '.join(names)}")
        directory = self.record.routing.directories[self.plan.operators[place].fragment]
        units = (directory.range,) if unit is None else self._place_of(unit, place, directory)
        chosen = [(number, name) for number, name in zip(states, names, strict=True) if input_ in (None, name)]
        wanted = None
        if key is not None:
            wanted = read_key(
                key, place, [self.plan.states[number].keys for number, _ in chosen], self._key_types(place)
            )
            units = intersect(units, wanted.units(directory))
        tables = [self._read_state(number, name, directory, units, wanted) for number, name in chosen]
        try:
            return pa.concat_tables(tables, promote_options="default")
        except (pa.ArrowInvalid, pa.ArrowTypeError) as problem:
            raise FlowError(
                f"the inputs of operator {place} have columns of one name and different types ({problem}); read one at "
                f"a time: input={names[0]!r}"
            ) from problem

    def name_of(self, state: RecordedState) -> str:
        """Whose rows a state is of: the name of a stream or a table, or the operator that they are results of, or those
        of all that a union has."""
        if state.table:
            return state.table
        sources = self.plan.sources
        names = [sources[o] if o < len(sources) else f"operator {o - len(sources)}" for o in state.origins]
        return names[0] if len(names) == 1 else f"union of {', '.join(names)}"

    def _find_operator(self, operator: int | str | None) -> int:
        """The place of the operator of a number, or of that which makes the results of a query."""
        operators, queries = self.plan.operators, self.plan.queries
        if not operators:
            raise FlowError(f"checkpoint {self._storage.uri} has no state: none of its queries has an operator")
        listed = "; ".join(f"{number}: {one.says}" for number, one in enumerate(operators))
        if operator is None:
            if len(operators) > 1:
                raise FlowError(f"say whose state: operator=, a number or the name of a query. There are {listed}")
            return 0
        if isinstance(operator, str) and not operator.isdecimal():
            query = next((one for one in queries if one.name == operator), None)
            if query is None:
                names = ", ".join(one.name for one in queries)
                raise FlowError(f"there is no query {operator!r}; there are {names}")
            makers = [origin - len(self.plan.sources) for origin in query.origins if origin >= len(self.plan.sources)]
            if not makers:
                raise FlowError(f"query {operator!r} has no state: it filters and projects the rows of a stream")
            if len(set(makers)) > 1:
                raise FlowError(f"query {operator!r} is a union of several results; say whose state: {listed}")
            return makers[0]
        if not 0 <= int(operator) < len(operators):
            raise FlowError(f"there is no operator {operator}; there are {listed}")
        return int(operator)

    def _key_types(self, operator: int) -> tuple[pa.DataType, ...]:
        states = [self.plan.states[number] for number in self.plan.operators[operator].states]
        return key_types(states, [self._schemas[state.stored] for state in states])

    def _place_of(self, unit: int, operator: int, directory: Directory) -> Ranges:
        routing = self.record.routing
        if unit not in routing.ids.array:
            raise FlowError(f"there is no unit {unit} now: units that were split or merged have other ids")
        own = intersect(single_unit(routing.index_of(Unit(unit))), (directory.range,))
        if not own:
            raise FlowError(f"unit {unit} is of another operator than {operator}")
        return own

    def _runs_of(self, number: InputNumber, units: Ranges) -> Iterator[tuple[int, RunRef]]:
        """The runs of a state with their sites, each row once."""
        copies = self._copies_of(number)
        for site, manifest in enumerate(self.record.manifests):
            own = subtract(units, copies.get(Site(site), ()))
            for run in manifest:
                read = intersect(run.units, own) if run.segment.input == number else ()
                if read:
                    yield site, replace(run, units=read)

    def _copies_of(self, number: InputNumber) -> dict[Site, Ranges]:
        """The units of which each site has what another one has too: on a grid all of a line have the same rows."""
        copies: dict[Site, Ranges] = {}
        for shared in self.record.routing.shared:
            if shared.grid_shape and number in shared.inputs:
                place = single_unit(self.record.routing.index_of(shared.unit))
                for line in range(shared.line_count(number)):
                    for site in shared.storing(number, line)[1:]:
                        copies[site] = unite(copies.get(site, ()), place)
        return copies

    def _read_state(
        self, number: InputNumber, name: str, directory: Directory, units: Ranges, key: KeyFilter | None
    ) -> pa.Table:
        state, ids = self.plan.states[number], self.record.routing.ids.array
        tables = [self._empty_table(state)]
        for site, run in self._runs_of(number, units):
            segment = run.segment
            schema = self._schemas[state.pending if segment.pending else state.stored]
            for count, data in self._durable.fetch(run):
                hashes, rows = decode_rows(schema, replace(segment, rows=count), data)
                places = directory.unit_of(hashes)
                of_run = np.flatnonzero(np.isin(places, numbers(run.units)))
                rows, places, hashes = rows.take(pa.array(of_run)), places[of_run], hashes[of_run]
                if key is not None:
                    of_key = key.choose(rows, hashes, key_columns(state, schema))
                    rows, places = rows.take(pa.array(of_key)), places[of_key]
                about = (name, ids[places], site, run.generation, segment.pending)
                columns = [_column(value, field, len(places)) for value, field in zip(about, _ABOUT_ROWS, strict=True)]
                names = [*_ABOUT_ROWS.names, *rows.schema.names]
                tables.append(pa.Table.from_arrays([*columns, *rows.columns], names=names))
        return pa.concat_tables(tables, promote_options="default")

    def _empty_table(self, state: RecordedState) -> pa.Table:
        return pa.schema([*_ABOUT_ROWS, *row_schema(self._schemas[state.stored])]).empty_table()

    def _summary(self, operator: int, number: InputNumber) -> StateSummary:
        recorded, state = self.plan.operators[operator], self.plan.states[number]
        runs = [run for _, run in self._runs_of(number, (self.record.routing.directories[recorded.fragment].range,))]
        return StateSummary(
            operator=operator,
            says=recorded.says,
            input=self.name_of(state),
            keys=state.keys,
            columns=tuple(row_schema(self._schemas[state.stored]).names),
            units=len({unit for run in runs for unit in run.unit_rows[0][run.unit_rows[1] > 0].tolist()}),
            rows=sum(run.rows for run in runs if run.is_active),
            frozen_rows=sum(run.rows for run in runs if run.generation),
            waiting_rows=sum(run.rows for run in runs if run.segment.pending and not run.generation),
            bytes=round(sum(run.bytes for run in runs)),
        )


def read_state(
    uri: str,
    operator: int | str | None = None,
    input_: str | None = None,
    unit: int | None = None,
    key: object = None,
) -> pa.Table:
    """The rows of an operator's state. What its query deletes meanwhile is read from a newer epoch."""
    journal = Journal(Storage(uri))
    for _ in range(MAX_ATTEMPTS):
        index = journal.indexes()[-1:]
        try:
            return CheckpointState.open(journal).read(operator, input_, unit, key)
        except StorageError:
            if journal.indexes()[-1:] == index:
                raise
    raise StorageError(
        f"the state of checkpoint {uri} changed {MAX_ATTEMPTS} times while it was read: read one unit at a time, with "
        "unit=NUMBER, or a copy of the checkpoint"
    )


def _column(value: object, field: pa.Field, rows: int) -> pa.Array:
    if isinstance(value, np.ndarray):
        return pa.array(value, field.type)
    return pa.repeat(pa.scalar(value, field.type), rows)
