"""What users ask for by hand, from any thread, until the loop takes it."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from sluice.verbs import Action
from sluice.verbs.scale import Scale


class Requests:
    """In the order in which they were made."""

    def __init__(self) -> None:
        self._actions: list[Action] = []
        self._lock = threading.Lock()

    def add(self, action: Action) -> None:
        with self._lock:
            self._actions.append(action)

    def put_back(self, actions: Iterable[Action]) -> None:
        """These were answered for nothing: they are the first again."""
        with self._lock:
            self._actions = [*actions, *self._actions]

    def take(self) -> tuple[Action, ...]:
        """All that nobody has looked at yet, which is answered now."""
        with self._lock:
            actions, self._actions = tuple(self._actions), []
        return actions

    def waiting(self) -> tuple[Action, ...]:
        """The same, and it goes on waiting."""
        with self._lock:
            return tuple(self._actions)

    @property
    def sites(self) -> int | None:
        """How many sites were asked for, where nobody has looked at that yet."""
        return next((action.sites for action in self.waiting() if isinstance(action, Scale)), None)
