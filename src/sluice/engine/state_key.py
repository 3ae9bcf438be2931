"""One key of an operator's state: the unit that has its rows, and which of that unit's they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property, reduce
from numbers import Integral, Real

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluice.expressions.types import spark_name
from sluice.kernels.aggregation import name_key
from sluice.kernels.hashing import hash_keys, keys_equal
from sluice.kernels.key_types import common_key_type
from sluice.model.errors import FlowError
from sluice.model.plan.recorded_plan import RecordedState
from sluice.model.routing.directory import Directory
from sluice.model.routing.unit_ranges import Ranges, single_unit
from sluice.state.segment import row_schema

_PYTHON_TYPES: tuple[tuple[Callable[[pa.DataType], bool], tuple[type, ...]], ...] = (
    (pa.types.is_boolean, (bool, np.bool_)),
    (pa.types.is_integer, (Integral,)),
    (pa.types.is_floating, (Real,)),
    (pa.types.is_decimal, (Decimal, Integral)),
    (pa.types.is_date, (date,)),
    (pa.types.is_timestamp, (datetime,)),
)
"""The types of values that a column takes. Arrow alone would take 3.5 for a 3, and a 3 for a time."""
_NARROWER = {bool: pa.types.is_boolean, datetime: pa.types.is_timestamp}
"""Python's types that are subtypes of others, and whose values they are not."""


@dataclass(frozen=True)
class KeyFilter:
    """A key that rows are chosen by; a null is equal to a null."""

    values: tuple[pa.Scalar, ...]

    @cached_property
    def hash(self) -> int | None:
        """The hash of its rows; None for one with a null: joins that keep such rows spread them over all units."""
        if not all(value.is_valid for value in self.values):
            return None
        return int(hash_keys([pa.repeat(value, 1) for value in self.values])[0])

    def units(self, directory: Directory) -> Ranges:
        """The units that may have rows of it."""
        if self.hash is None:
            return (directory.range,)
        return single_unit(directory.unit_of(np.array([self.hash], dtype=np.uint32))[0].item())

    def choose(self, rows: pa.RecordBatch, hashes: np.ndarray, columns: Sequence[str]) -> np.ndarray:
        """The places of its rows, whose key is in these columns."""
        places = np.arange(rows.num_rows) if self.hash is None else np.flatnonzero(hashes == self.hash)
        for name, value in zip(columns, self.values, strict=True):
            column = rows.column(name).take(pa.array(places))
            places = places[_find_equal(column, value)]
        return places


def key_columns(state: RecordedState, stored_schema: pa.Schema) -> tuple[str, ...]:
    """The columns of a state's rows that have the key: those of its input, or those of a group."""
    group = [name_key(place) for place in range(len(state.keys))]
    names = row_schema(stored_schema).names
    is_group = names[: len(group)] == group and names[len(group)].startswith("__")
    return tuple(group) if is_group else state.keys


def key_types(states: Sequence[RecordedState], schemas: Sequence[pa.Schema]) -> tuple[pa.DataType, ...]:
    """As which types an operator compares the keys of its states, whose stored schemas are these."""
    kinds = [
        [schema.field(name).type for name in key_columns(state, schema)]
        for state, schema in zip(states, schemas, strict=True)
    ]
    return tuple(reduce(lambda a, b: common_key_type(a, b) or a, column) for column in zip(*kinds, strict=True))


def read_key(key: object, operator: int, names: Sequence[tuple[str, ...]], types: Sequence[pa.DataType]) -> KeyFilter:
    """A key as users give it: the value of its one column, or values by columns. `names` has those of each input."""
    first = names[0]
    listed = " or ".join(dict.fromkeys(", ".join(one) for one in names))
    if not first:
        raise FlowError(f"operator {operator} has no key: all of its rows are together")
    if not isinstance(key, Mapping):
        if len(first) > 1:
            raise FlowError(
                f"the key of operator {operator} is {listed}: give key={{column: value, …}} with all of them"
            )
        key = {first[0]: key}
    known = {name for one in names for name in one}
    unknown = next((name for name in key if name not in known), None)
    if unknown is not None:
        raise FlowError(f"operator {operator} has no key column {unknown!r}; its key is {listed}")
    columns = next((one for one in names if set(one) == set(key)), None)
    if columns is None:
        raise FlowError(
            f"key= gives {', '.join(key) or 'nothing'}; the key of operator {operator} is {listed}, all of it"
        )
    return KeyFilter(tuple(_value(name, key[name], kind) for name, kind in zip(columns, types, strict=True)))


def _value(name: str, value: object, kind: pa.DataType) -> pa.Scalar:
    shown = value.as_py() if isinstance(value, pa.Scalar) else value
    try:
        if isinstance(value, pa.Scalar):  # a text of the command line, too
            return value.cast(kind)
        if value is None or _is_of(value, kind):
            return pa.scalar(value, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        pass
    raise FlowError(f"key column {name!r} is of type {spark_name(kind)}; {shown!r} is no value of it")


def _is_of(value: object, kind: pa.DataType) -> bool:
    if any(isinstance(value, narrower) and not is_its(kind) for narrower, is_its in _NARROWER.items()):
        return False
    return all(isinstance(value, accepted) for is_kind, accepted in _PYTHON_TYPES if is_kind(kind))


def _find_equal(column: pa.Array, value: pa.Scalar) -> np.ndarray:
    """Where a column has a value."""
    if not value.is_valid:
        equal = column.is_null()
    else:
        equal = pc.fill_null(keys_equal(column.cast(value.type), pa.repeat(value, len(column))), False)
    where: np.ndarray = equal.to_numpy(zero_copy_only=False)
    return where
