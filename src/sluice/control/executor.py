"""Executors of instructions: what one has a handler for it can do, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from sluice.model.errors import ProtocolError
from sluice.model.routing.routing import Routing
from sluice.verbs.base import Instruction, VerbAction

Handler = TypeVar("Handler", bound=Callable[..., None])


def handles(*kinds: type[Instruction]) -> Callable[[Handler], Handler]:
    """Marks the method of an executor that carries out these instructions."""

    def mark(method: Handler) -> Handler:
        method.handled = kinds  # type: ignore[attr-defined]
        return method

    return mark


class InstructionExecutor:
    """Carries out what protocols ask for and reports to the loop, a `ControlLoop`, what has happened. A subclass has a
    method for each instruction, marked by `handles`."""

    producers: tuple[int, ...] = ()
    """Whoever sends rows and has to pause before a unit can move."""
    _handlers: ClassVar[dict[type[Instruction], str]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = {kind: name for name, method in vars(cls).items() for kind in getattr(method, "handled", ())}
        cls._handlers = {**cls._handlers, **own}

    def clock(self) -> float:
        """The time by which it is measured how long moves take."""
        raise NotImplementedError

    def why_not(self, action: VerbAction, routing: Routing) -> str | None:
        """Why it cannot do an action, or not just now; None if it can."""
        return None if all(kind in self._handlers for kind in action.needs) else action.impossible

    def finish(self, loop: Any, now: float) -> None:
        """All that was decided together has been begun."""

    def execute(self, loop: Any, instruction: Instruction, now: float) -> None:
        """Begin to carry out an instruction."""
        name = self._handlers.get(type(instruction))
        if name is None:
            raise ProtocolError(f"{type(self).__name__} has no handler for {instruction}")
        getattr(self, name)(loop, instruction, now)
