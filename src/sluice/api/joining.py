"""From the arguments of `join` to a checked JoinSpec, or an error in the user's own words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sluice.expressions import compile_condition
from sluice.kernels.hashing import is_hashable
from sluice.model.durations import microseconds
from sluice.model.errors import FlowError
from sluice.model.join import JoinSpec, Leg
from sluice.model.plan import Relation
from sluice.model.stream import Input, Stream

if TYPE_CHECKING:
    from sluice.api.stream import StreamHandle

Keys = str | Sequence[str] | Mapping[str, str | Sequence[str]]
Within = Any


def build_join(
    handles: Sequence[StreamHandle], on: Keys | None, within: Within | None, where: str | None
) -> tuple[JoinSpec, tuple[Relation, ...]]:
    """The join of these streams, checked, and the relations it takes in."""
    if len(handles) < 2:
        raise FlowError("a join needs at least two streams")
    for handle in handles:
        if not isinstance(getattr(handle, "relation", None), Relation):
            raise FlowError(f"only streams of a flow can be joined, not {type(handle).__name__}")
        if not handle.name:
            raise FlowError("a result needs a name before it can be joined: result.alias('name')")
        if handle.flow is not handles[0].flow:
            raise FlowError(f"stream {handle.name!r} belongs to another Flow; register it in this one")
    names = [h.name for h in handles]
    for name in names:
        if names.count(name) > 1:
            raise FlowError(f"{name!r} stands twice in this join; name one side: {name}.alias('other')")
    if on is None:
        raise FlowError("a join needs on=, the key column or columns with equal values on every side")
    if within is None:
        raise FlowError("a join of streams needs within=, for example within='30 seconds'")
    keys = {h.name: _keys_of(h, on, names) for h in handles}
    kinds = _key_types(handles, keys)
    _check_event_times(handles)
    relations = list(dict.fromkeys(h.relation for h in handles))
    streams = [_named(r, handles) for r in relations]
    inputs: list[Input] = []
    legs = []
    for handle in handles:
        wanted = Input(relations.index(handle.relation), keys[handle.name])
        if wanted not in inputs:
            inputs.append(wanted)
        legs.append(Leg(handle.name, inputs.index(wanted)))
    reach = _reach(within, names)
    spec = JoinSpec(tuple(streams), tuple(inputs), tuple(legs), kinds, reach)
    output = spec.output_schema()
    if len(set(output.names)) < len(output.names):
        twice = next(n for n in output.names if output.names.count(n) > 1)
        raise FlowError(f"two result columns would be named {twice!r}; rename a stream or a column")
    if where is not None:
        zone = str(handles[0].flow.spark.conf.get("spark.sql.session.timeZone"))
        condition = compile_condition(where, _resolver(handles), output, time_zone=zone)
        spec = replace(spec, where=condition)
    return spec, tuple(relations)


def _named(relation: Relation, handles: Sequence[StreamHandle]) -> Stream:
    """A result is called by its alias, a registered stream by its own name."""
    if isinstance(relation.origin, Stream):
        return relation.stream
    return replace(relation.stream, name=next(h.name for h in handles if h.relation is relation))


def _keys_of(handle: StreamHandle, on: Keys, names: list[str]) -> tuple[str, ...]:
    if isinstance(on, Mapping):
        unknown = [n for n in on if n not in names]
        if unknown:
            raise FlowError(f"on= names {unknown[0]!r}, which is not in this join; it joins {', '.join(names)}")
        if handle.name not in on:
            raise FlowError(f"on= says nothing of stream {handle.name!r}; give its key column too")
        mine: Any = on[handle.name]
    else:
        mine = on
    named = [mine] if isinstance(mine, str) else list(mine) if isinstance(mine, (list, tuple)) else None
    if named is None or not all(isinstance(k, str) for k in named):
        raise FlowError(f"on= takes names of columns, one or a list, for stream {handle.name!r}; not {mine!r}")
    keys = tuple(named)
    if not keys:
        raise FlowError("on= is empty; give at least one key column")
    for key in keys:
        if key not in handle.columns:
            raise FlowError(
                f"stream {handle.name!r} has no column {key!r} to join on; it has {', '.join(handle.columns)}"
            )
    return keys


def _key_types(handles: Sequence[StreamHandle], keys: Mapping[str, tuple[str, ...]]) -> tuple[pa.DataType, ...]:
    first = handles[0]
    for handle in handles:
        if len(keys[handle.name]) != len(keys[first.name]):
            raise FlowError(
                f"on= gives {len(keys[first.name])} key columns for {first.name!r} and {len(keys[handle.name])} for "
                f"{handle.name!r}"
            )
    kinds = []
    for position, key in enumerate(keys[first.name]):
        common = first.stream.schema.field(key).type
        for handle in handles:
            column = keys[handle.name][position]
            kind = handle.stream.schema.field(column).type
            if not is_hashable(kind):
                raise FlowError(
                    f"column {column!r} of stream {handle.name!r} has type {kind}, which cannot be a key; use its "
                    "fields as several key columns"
                )
            merged = common_type(common, kind)
            if merged is None:
                raise FlowError(
                    f"{first.name}.{key} ({common}) and {handle.name}.{column} ({kind}) cannot be compared; cast one"
                )
            common = merged
        kinds.append(common)
    return tuple(kinds)


def common_type(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """The type in which two key columns are compared without loss, None if there is none.

    >>> common_type(pa.int32(), pa.int64()), common_type(pa.string(), pa.int64())
    (DataType(int64), None)
    """
    if a == b:
        return a
    if pa.types.is_integer(a) and pa.types.is_integer(b):
        return pa.decimal128(38, 0) if pa.uint64() in (a, b) else pa.int64()
    if pa.types.is_floating(a) and pa.types.is_floating(b):
        return pa.float64()
    if _is_exact(a) and _is_exact(b):
        x, y = _as_decimal(a), _as_decimal(b)
        scale = max(x.scale, y.scale)
        digits = max(x.precision - x.scale, y.precision - y.scale) + scale
        return pa.decimal128(digits, scale) if digits <= 38 else None
    if _is_text(a) and _is_text(b):
        return pa.large_string()
    if pa.types.is_date(a) and pa.types.is_date(b):
        return pa.date32()
    return None


def _is_exact(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind))


def _as_decimal(kind: pa.DataType) -> pa.DataType:
    return kind if pa.types.is_decimal(kind) else pa.decimal128(20, 0)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _check_event_times(handles: Sequence[StreamHandle]) -> None:
    def zoned(s: Stream) -> bool:
        return s.schema.field(s.event_time).type.tz is not None

    first = handles[0]
    for handle in handles:
        if zoned(handle.stream) != zoned(first.stream):
            raise FlowError(
                f"event times {first.name}.{first.event_time} and {handle.name}.{handle.event_time} "
                "cannot be compared: one is TIMESTAMP, the other TIMESTAMP_NTZ; cast one"
            )


def _reach(within: Within, names: list[str]) -> tuple[tuple[int, ...], ...]:
    if isinstance(within, (tuple, list)):
        if len(within) != 2:
            raise FlowError("within= takes one duration or a pair (how much earlier, how much later)")
        if len(names) != 2:
            raise FlowError("within= as a pair is for a join of two streams; give one duration")
        before, after = (microseconds(w, "within") for w in within)
        return ((0, after), (before, 0))
    bound = microseconds(within, "within")
    return tuple(tuple(0 if i == j else bound for j in range(len(names))) for i in range(len(names)))


def _resolver(handles: Sequence[StreamHandle]) -> Any:
    """Names in `where` → result columns."""

    def resolve(stream: str | None, column: str) -> str:
        if stream is not None:
            for handle in handles:
                if handle.name.lower() == stream.lower():
                    return f"{handle.name}_{_column(handle, column)}"
            known = ", ".join(h.name for h in handles)
            raise FlowError(f"where= names {stream}.{column}, but this join has no stream {stream!r}; it joins {known}")
        having = [h for h in handles if column.lower() in (n.lower() for n in h.columns)]
        if not having:
            raise FlowError(f"where= names {column!r}, which is a column of none of the joined streams")
        if len(having) > 1:
            choices = " or ".join(f"{h.name}.{column}" for h in having)
            raise FlowError(f"where= names {column!r}, which is ambiguous; write {choices}")
        return f"{having[0].name}_{_column(having[0], column)}"

    return resolve


def _column(handle: StreamHandle, column: str) -> str:
    names = handle.columns
    if column in names:
        return column
    for name in names:
        if name.lower() == column.lower():
            return str(name)
    raise FlowError(f"where= names {handle.name}.{column}, but stream {handle.name!r} has only {', '.join(names)}")
