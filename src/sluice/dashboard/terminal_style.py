"""Texts for a terminal: somebody else's without what would move the cursor, and values as a small curve."""

from __future__ import annotations

from collections.abc import Container, Sequence

_SPARKS = "▁▂▃▄▅▆▇█"


def one_line(text: str) -> str:
    """Somebody else's text (a name, an error that quotes one) without what would move the cursor.

    >>> one_line("first\\nthen\\x1b[2J")
    'first then [2J'
    """
    return "".join(c if c.isprintable() else " " for c in text)


def printable(text: str) -> str:
    """The same for a text of several lines, which it keeps.

    >>> printable("first\\nthen\\x1b[2J")
    'first\\nthen [2J'
    """
    return "\n".join(one_line(line) for line in text.split("\n"))


def spark(values: Sequence[float]) -> str:
    """The values as a small curve of blocks.

    >>> spark([0, 1, 4, 8])
    '▁▂▅█'
    """
    top = max(values, default=0.0) or 1.0
    return "".join(_SPARKS[min(7, int(8 * max(0.0, v) / top))] for v in values)


def align_columns(rows: Sequence[Sequence[str]], words: Container[int] = ()) -> list[str]:
    """Rows of a table as lines: numbers held right, the columns at these places left.

    >>> align_columns([("site", "rows"), ("0", "1,000")])
    ['  site   rows', '     0  1,000']
    >>> align_columns([("rows", "columns"), ("1,000", "ts, price"), ("7", "k")], words={1})
    ['   rows  columns', '  1,000  ts, price', '      7  k']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = [[f"{cell:{'<' if n in words else '>'}{widths[n]}}" for n, cell in enumerate(row)] for row in rows]
    return [f"  {'  '.join(row)}".rstrip() for row in cells]
