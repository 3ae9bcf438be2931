"""Which rows of a join appear by themselves: inner, outer, semi and anti joins."""

from __future__ import annotations

from enum import Enum


class JoinKind(Enum):
    """What becomes of rows with a partner and of those without one."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"
    SEMI = "semi"
    ANTI = "anti"

    @property
    def kept_legs(self) -> tuple[int, ...]:
        """The legs whose rows appear by themselves: without a partner or, in a semi join, because they have one."""
        return _KEPT_LEGS[self]

    @property
    def shows_pairs(self) -> bool:
        """Whether rows appear together with each of their partners."""
        return self not in (JoinKind.SEMI, JoinKind.ANTI)

    @property
    def waits(self) -> bool:
        """Whether rows without a partner appear, which have to wait until none can come any more."""
        return self not in (JoinKind.INNER, JoinKind.SEMI)

    @property
    def words(self) -> str:
        """For sentences: `left outer`, `semi`; nothing for inner."""
        if self is JoinKind.INNER:
            return ""
        return f"{self.value} outer" if self.shows_pairs else self.value


_KEPT_LEGS = {
    JoinKind.INNER: (),
    JoinKind.LEFT: (0,),
    JoinKind.RIGHT: (1,),
    JoinKind.FULL: (0, 1),
    JoinKind.SEMI: (0,),
    JoinKind.ANTI: (0,),
}
