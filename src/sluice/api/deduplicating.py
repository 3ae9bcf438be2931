"""The arguments of `dropDuplicates` and `distinct`, checked, or an error in the user's own words."""

from __future__ import annotations

from sluice.api.grouping import KeyWords, check_order, read_keys
from sluice.api.relation import NamedRelation
from sluice.model.durations import microseconds
from sluice.model.errors import FlowError
from sluice.model.plan.deduplication import Deduplication

_ADVICE = "an expression comes before it: withColumn('day', 'date(ts)').dropDuplicates(['day'])"


def drop_duplicates(rows: NamedRelation, subset: object, within: object, method: str) -> Deduplication:
    """The first rows by these columns, by all of them if there is no subset."""
    columns = _read_columns(rows, subset, method)
    keys = read_keys(rows, columns, KeyWords(method, "tell duplicates"), _ADVICE)
    check_order(rows, method)
    return Deduplication(rows.stream, keys, None if within is None else microseconds(within, f"{method}'s within"))


def _read_columns(rows: NamedRelation, subset: object, method: str) -> tuple[object, ...]:
    if subset is None:
        return tuple(rows.columns)
    if not isinstance(subset, list | tuple) or not subset:
        raise FlowError(f"{method} takes a list of columns, such as ['id'], or none for all columns, not {subset!r}")
    return tuple(subset)
