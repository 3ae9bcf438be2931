"""SQL text as a flow: `translate` turns a SELECT into the calls a user of the Python face would write.

Nothing here runs a query or knows its engine. What the calls cannot express exactly is refused, with its place in the
text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar, cast

from sluice.model.durations import UNBOUNDED, is_unbounded
from sluice.model.errors import FlowError
from sluice.sql.queries import Queries
from sluice.sql.text import Text

__all__ = ["translate"]

S = TypeVar("S")
"""The streams of whoever calls: what is asked of them is `columns`, `column_types`, `event_time` and the calls of a
user."""


def translate(
    text: str,
    relations: Mapping[str, S],
    join_many: Callable[..., S],
    within: str | None = None,
    tables: Mapping[str, object] | None = None,
) -> S:
    """The relation that a SELECT over registered streams stands for.

    `relations` are the streams by name, of any case; `join_many` joins more than two at once, as `Flow.join` does.
    With `within="unbounded"` joins need no bounds on event times. `tables` are what streams can be joined with besides,
    by name.
    """
    if not isinstance(text, str) or not text.strip():
        raise FlowError('sql takes the text of a query, for example "SELECT symbol, price FROM trades"')
    if within is not None and not is_unbounded(within):
        raise FlowError(
            f"within= of sql can only say {UNBOUNDED!r}, not {within!r}; any other bound is a condition of the query, "
            "like q.ts BETWEEN t.ts - INTERVAL 30 SECONDS AND t.ts"
        )
    source = Text(text)
    try:
        return cast(S, Queries(source, relations, join_many, is_unbounded(within), tables or {}).result(source.parse()))
    except RecursionError:
        raise FlowError("the query is nested too deeply; split it up into several calls of sql") from None
