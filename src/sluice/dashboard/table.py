"""A table for a terminal: bars take what room the texts leave, and the least useful columns go where there is none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sluice.dashboard.terminal_style import ALARM, Look, bar, cut, strong, wide

MARGIN, GAP = 2, 2
_LEAST_BAR, _MOST_BAR = 5, 20
_LEAST_WORDS = 24


@dataclass(frozen=True)
class Column:
    """A name and a text a row, at least `size` wide. With `shares`, a bar of the share of one stands behind each text.

    `spare`: the columns with the greatest go first where the terminal is narrow; those with zero stay. `words` are held
    left; in the last column they are also cut, if need be. Shares from `alarm` on have a colour of their own.
    """

    name: str
    cells: Sequence[str]
    size: int = 0
    spare: int = 0
    shares: Sequence[float] = ()
    alarm: float = math.inf
    words: bool = False

    @property
    def widest(self) -> int:
        return max(self.size, *(wide(cell) for cell in (self.name, *self.cells)))

    def least(self, last: bool) -> int:
        """The room that it needs."""
        if self.words and last:
            return min(_LEAST_WORDS, self.widest)
        return self.widest + (1 + _LEAST_BAR if self.shares else 0)


def table(columns: Sequence[Column], look: Look) -> list[str]:
    """The names and the rows, as lines.

    >>> columns = [Column("site", ["0", "1"]), Column("busy", ["1 s", "2 s"], shares=[0.5, 1])]
    >>> print("\\n".join(table(columns, Look(columns=24))))
      site  busy
         0   1 s █████░░░░░
         1   2 s ██████████
    """
    kept = list(columns)
    while _room(kept, look) < 0 and any(column.spare for column in kept):
        kept.remove(max(kept, key=lambda column: column.spare))
    bars = sum(1 for column in kept if column.shares)
    long = min(_MOST_BAR, _LEAST_BAR + max(0, _room(kept, look)) // max(1, bars))
    rows = [_joined([_held(c, c.name, strong(c.name, look)) + " " * ((1 + long) * bool(c.shares)) for c in kept])]
    rows += [_joined([_cell(c, i, long, look) for c in kept]) for i in range(len(kept[0].cells))]
    return [cut(row.rstrip(), look) for row in rows]


def _room(columns: Sequence[Column], look: Look) -> int:
    """Columns of the terminal that are left over."""
    return (
        look.columns
        - 1
        - MARGIN
        - GAP * (len(columns) - 1)
        - sum(column.least(column is columns[-1]) for column in columns)
    )


def _cell(column: Column, row: int, long: int, look: Look) -> str:
    text = _held(column, column.cells[row], column.cells[row])
    if not column.shares:
        return text
    share = column.shares[row]
    return f"{text} {bar(share, long, look, ALARM if share >= column.alarm else 0)}"


def _held(column: Column, text: str, painted: str) -> str:
    space = " " * (column.widest - wide(text))
    return painted + space if column.words else space + painted


def _joined(cells: Sequence[str]) -> str:
    return " " * MARGIN + (" " * GAP).join(cells)
