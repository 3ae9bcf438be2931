"""Joins with tables: a stream, or what streams were joined to, meets a table by equal columns.

A table has no event time, so nothing bounds a join with it but its keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from sluice.expressions.parsing import Syntax
from sluice.model.plan.join_kind import JoinKind
from sluice.sql.joins import Join, Partial, write_all, write_parenthesised
from sluice.sql.keys import Equality
from sluice.sql.scope import Scope
from sluice.sql.sides import Reference, Side
from sluice.sql.text import Text


def join_inner_tables(
    text: Text, sides: Sequence[Side], conjuncts: Iterable[Syntax], unbounded: bool, join_many: Callable[..., Any]
) -> tuple[Any, Scope]:
    """The relation that inner joins of streams and tables give, and what the names of the query mean on it: the streams
    are joined first, and then, one after the other, the tables."""
    joins = Join(text, sides, [], unbounded)
    conditions = [(joins.scope.sides_of(at), at) for at in conjuncts]
    for _, at in conditions:
        joins.scope.vet(at)
    streams = [number for number, side in enumerate(sides) if not side.table.is_static]
    if not streams:
        refuse_alone(text, sides[0])
    of_streams = [at for of, at in conditions if of and of <= set(streams)]
    others = [(of, at) for of, at in conditions if of and not of <= set(streams)]
    result, newest = _join_streams(text, sides, streams, of_streams, unbounded, join_many)
    left = [number for number, side in enumerate(sides) if side.table.is_static]
    while left:
        following = next((n for n in left if _keys(joins, result, n, [at for _, at in others])), None)
        if following is None:
            _refuse_without_key(text, sides[left[0]])
        ready = [at for of, at in others if following in of and of <= {*result.sides, following}]
        result = join_table(joins, result, following, JoinKind.INNER, ready)
        left.remove(following)
    handle = result.handle
    for at in (at for of, at in conditions if not of):
        with text.blame_on(at):
            handle = handle.filter(text.write(at))
    tables = frozenset(range(len(sides))) - set(streams)
    covered = tuple(newest.get(number, frozenset([number])) | tables for number in range(len(sides)))
    return handle, Scope(text, tuple(sides), result.columns, covered)


def _join_streams(
    text: Text,
    sides: Sequence[Side],
    streams: Sequence[int],
    conjuncts: Sequence[Syntax],
    unbounded: bool,
    join_many: Callable[..., Any],
) -> tuple[Partial, dict[int, frozenset[int]]]:
    """The streams among some sides, joined, and of each those whose rows are never later than its own."""
    joins = Join(text, [sides[number] for number in streams], conjuncts, unbounded)
    if len(streams) == 1:
        one, number = joins.take_side(0), streams[0]
        columns = {(number, column): name for (_, column), name in one.columns.items()}
        return Partial(one.handle, one.name, (number,), columns), {number: frozenset([number])}
    handle, scope = joins.run(join_many)
    columns = {(streams[side], column): name for (side, column), name in scope.columns.items()}
    newest = {number: frozenset(streams[s] for s in of) for number, of in zip(streams, scope.newest, strict=True)}
    return Partial(handle, "", tuple(streams), columns), newest


def join_table(joins: Join, before: Partial, table: int, kind: JoinKind, conjuncts: Sequence[Syntax]) -> Partial:
    """The sides that were joined so far with a table, under these conditions. A semi or anti join has no columns of
    it."""
    text, side = joins.text, joins.sides[table]
    if kind in (JoinKind.RIGHT, JoinKind.FULL):
        text.refuse(side.at, f"rows of table {side.name!r} never appear by themselves; write LEFT JOIN")
    keys = _keys(joins, before, table, conjuncts)
    if not keys:
        _refuse_without_key(text, side)
    before, other = joins.name_result(before), joins.take_side(table)

    def naming(reference: Reference) -> Sequence[str]:
        part = other if reference.side == table else before
        return (part.name, part.columns[reference.side, reference.column], *reference.fields)

    checked = [write_parenthesised(joins.scope, at, naming) for at in conjuncts if at not in keys.values()]
    pairs = [_own_first(joins, at, table) for at in keys.values()]
    on = {
        before.name: [before.columns[own.side, own.column] for own, _ in pairs],
        other.name: [theirs.column for _, theirs in pairs],
    }
    where = {"where": write_all(checked)} if checked else {}
    with text.blame_on(side.at):
        handle = before.handle.join(other.handle, on=on, how=kind.value, **where)
    if kind.shows_pairs:
        return Partial(handle, "", (*before.sides, table), joins.name_columns([before, other]))
    return Partial(handle, "", before.sides, joins.name_columns([before]))


def _keys(joins: Join, before: Partial, table: int, conjuncts: Sequence[Syntax]) -> dict[str, Syntax]:
    """The conditions that become the key, by the columns of the table, one for each."""
    keys: dict[str, Syntax] = {}
    for at in conjuncts:
        equality = Equality.read(joins.scope, at)
        if equality is not None and table in equality.sides and equality.sides <= {*before.sides, table}:
            keys.setdefault(_own_first(joins, at, table)[1].column, at)
    return keys


def _own_first(joins: Join, at: Syntax, table: int) -> tuple[Reference, Reference]:
    """The two columns of an equality, that of the table last."""
    equality = Equality.read(joins.scope, at)
    assert equality is not None, "only equalities become keys"
    return (equality.left, equality.right) if equality.right.side == table else (equality.right, equality.left)


def refuse_alone(text: Text, side: Side) -> NoReturn:
    """Refuses a table where a stream has to stand."""
    text.refuse(
        side.at,
        f"{side.name!r} is a table, of which no rows come; begin FROM with a stream, and join the table",
    )


def _refuse_without_key(text: Text, side: Side) -> NoReturn:
    text.refuse(side.at, f"a join with table {side.name!r} needs a column of it that equals one of the others")
