"""A table for a terminal: bars take what room the texts leave, and the least useful columns go where there is none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

_LEAST_BAR, _MOST_BAR = 5, 20
_MARGIN = 2
_NO_END = 100_000  # columns that nothing is cut to


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


def table(columns: Sequence[Column], console: Console) -> RenderableType:
    """The names and the rows, a line each.

    >>> columns = [Column("site", ["0", "1"]), Column("busy", ["1 s", "2 s"], shares=[0.5, 1])]
    >>> console = Console(width=24, color_system=None)
    >>> console.print(table(columns, console))
      site  busy
         0   1 s  ━━━━━
         1   2 s  ━━━━━━━━━━
    """
    kept = list(columns)
    while (room := _room(kept, console)) < 0 and any(column.spare for column in kept):
        kept.remove(max(kept, key=lambda column: column.spare))
    bars = sum(1 for column in kept if column.shares)
    length = min(_MOST_BAR, _LEAST_BAR + max(0, room) // max(1, bars))
    drawn = _draw(kept, length, console)
    _cut_last(drawn, kept[-1], console)
    return Padding(drawn, (0, 0, 0, _MARGIN))


def _room(columns: Sequence[Column], console: Console) -> int:
    """Columns of the terminal that are left over."""
    drawn = _draw(columns, _LEAST_BAR, console)
    return console.width - _MARGIN - Measurement.get(console, console.options, drawn).minimum


def _draw(columns: Sequence[Column], length: int, console: Console) -> Table:
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    overflow = "crop" if console.options.ascii_only else "ellipsis"
    cells: list[Sequence[RenderableType]] = []
    for column in columns:
        last_words = column.words and column is columns[-1]
        grid.add_column(
            Text(column.name, style="bold"),
            justify="left" if column.words else "right",
            no_wrap=True,
            overflow=overflow,  # type: ignore[arg-type]
            min_width=max(column.size, 0 if last_words else max(map(cell_len, (column.name, *column.cells)))),
        )
        cells.append([Text(cell) for cell in column.cells])
        if column.shares:
            grid.add_column("", width=length)
            cells.append([_bar(share, length, share >= column.alarm) for share in column.shares])
    for row in zip(*cells, strict=True):
        grid.add_row(*row)
    return grid


def _cut_last(grid: Table, column: Column, console: Console) -> None:
    """Have the last column's words end with the terminal. Rich would take as much from each column, and all of some."""
    whole = Measurement.get(console, console.options.update(max_width=_NO_END), grid).maximum
    excess = whole - (console.width - _MARGIN)
    if column.words and excess > 0:
        grid.columns[-1].max_width = max(1, max(map(cell_len, (column.name, *column.cells))) - excess)


def _bar(share: float, length: int, alarming: bool) -> ProgressBar:
    style = "red" if alarming else "blue"
    return ProgressBar(1.0, min(1.0, max(0.0, share)), length, complete_style=style, finished_style=style)
