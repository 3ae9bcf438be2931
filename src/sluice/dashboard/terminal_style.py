"""Texts for a terminal: somebody else's without what would move the cursor, and values as a small curve."""

from __future__ import annotations

from collections.abc import Sequence

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


def align_columns(rows: Sequence[Sequence[str]], words: int = 0) -> list[str]:
    """Rows of a table as lines: numbers held right, the first so many columns left.

    >>> align_columns([("site", "rows"), ("0", "1,000")])
    ['  site   rows', '     0  1,000']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  " + "  ".join(f"{cell:{'<' if n < words else '>'}{widths[n]}}" for n, cell in enumerate(row)) for row in rows
    ]
