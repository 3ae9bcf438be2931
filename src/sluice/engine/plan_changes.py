"""Queries that are to be added to a running flow, or dropped from it: asked for from any thread, carried out between
two epochs."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from sluice.engine.flow_plan import FlowPlan, FlowQuery
from sluice.model.errors import FlowError, QueryError
from sluice.model.plan.assignment import Assignment

LAST_QUERY = "it is the last query of the flow; stop the flow instead"
"""Why a query is not dropped."""


@dataclass(eq=False)
class ChangeRequest:
    """Queries that are to be added, and dropped by name, all or none. `done` is set when an epoch without them, or with
    them, is committed; with a `refusal` it came to nothing."""

    added: tuple[FlowQuery, ...] = ()
    dropped: tuple[str, ...] = ()
    done: threading.Event = field(default_factory=threading.Event)
    refusal: Exception | None = None

    def refuse(self, problem: Exception) -> None:
        self.refusal = problem
        self.done.set()

    def apply(self, flow: FlowPlan, assigned: Assignment) -> FlowPlan:
        """The flow as it is wanted; what cannot be is refused in words."""
        refuse_change(flow, self)
        return flow.with_changes(self.added, self.dropped, assigned)


def refuse_change(flow: FlowPlan, change: ChangeRequest) -> None:
    """Refuse what does not fit the queries that a flow has."""
    names = [output.name for output in flow.plan.outputs]
    for name in change.dropped:
        if name not in names:
            raise QueryError(f"there is no query {name!r}; they are {', '.join(names)}")
    left = {name for name in names if name not in change.dropped}
    if not left and not change.added:
        raise QueryError(f"cannot drop {', '.join(map(repr, change.dropped))}: {LAST_QUERY}")
    taken = {name.lower() for name in left}
    for query in change.added:
        if query.name.lower() in taken:
            raise FlowError(f"the running query has the queryName {query.name!r}; give each writer its own")


class ChangeRequests:
    """What was asked for, in that order, until somebody takes it."""

    def __init__(self) -> None:
        self._waiting: list[ChangeRequest] = []
        self._lock = threading.Lock()

    def add(self, request: ChangeRequest) -> None:
        with self._lock:
            self._waiting.append(request)

    def put_back(self, requests: Sequence[ChangeRequest]) -> None:
        """Somebody took these and came to nothing with them: they are the first again."""
        with self._lock:
            self._waiting = [*requests, *self._waiting]

    def take(self) -> Sequence[ChangeRequest]:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        return waiting

    @property
    def any(self) -> bool:
        """Whether somebody waits for something."""
        return bool(self._waiting)
