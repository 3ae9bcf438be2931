"""What a terminal can show, and lines that keep to it: cut to its width, with colours and bars where it has them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

COLOURS = (33, 214, 36, 175, 117, 166, 185, 245, 140)  # of the terminal's 256, near those of the report
ALARM = 5  # of these, the one for what is nearly full
_SPARKS = "▁▂▃▄▅▆▇█"
_CODES = re.compile(r"(\x1b\[[0-9;]*m)")


@dataclass(frozen=True)
class Look:
    """What the terminal can show: its size, colours, and whether it has block characters."""

    columns: int = 80
    rows: int = 24
    colour: bool = False
    blocks: bool = True


def cut(line: str, look: Look) -> str:
    """The line within the terminal's width, so that it is one line there; colours take no room.

    >>> cut("a rather long line", Look(columns=10)), cut("a short one", Look(columns=12))
    ('a rather…', 'a short one')
    """
    room = max(0, look.columns - 1)
    if wide(line) <= room:
        return line
    more = ("…" if look.blocks else "...")[:room]
    room -= len(more)
    out = []
    for piece in _CODES.split(line):
        if _CODES.fullmatch(piece):
            out.append(piece)
            continue
        for character in piece:
            room -= _cells(character)
            if room < 0:
                break
            out.append(character)
        if room < 0:
            out.append(more)
            more, room = "", -1
    return "".join(out)


def wide(line: str) -> int:
    """How many columns of the terminal a line takes.

    >>> wide("\\x1b[1mdesk\\x1b[0m"), wide("注文")
    (4, 4)
    """
    return sum(map(_cells, _CODES.sub("", line)))


def paint(text: str, colour: int, look: Look) -> str:
    """The text in one of the colours, if there are any."""
    if not look.colour or not text:
        return text
    return f"\x1b[38;5;{COLOURS[colour % len(COLOURS)]}m{text}\x1b[0m"


def strong(text: str, look: Look) -> str:
    return f"\x1b[1m{text}\x1b[0m" if look.colour and text else text


def bar(share: float, width: int, look: Look, colour: int = 0) -> str:
    """A bar of so many columns, filled as far as the share of one says.

    >>> bar(0.5, 8, Look()), bar(2.0, 4, Look(blocks=False))
    ('████░░░░', '####')
    """
    full, empty = ("█", "░") if look.blocks else ("#", ".")
    part = round(width * min(1.0, max(0.0, share)))
    return paint(full * part, colour, look) + empty * (width - part)


def spark(values: Sequence[float], look: Look) -> str:
    """The values as a small curve of blocks, if there are any.

    >>> spark([0, 1, 4, 8], Look())
    '▁▂▅█'
    """
    if not look.blocks:
        return ""
    top = max(values, default=0.0) or 1.0
    return "".join(_SPARKS[min(7, int(8 * max(0.0, v) / top))] for v in values)


def _cells(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


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
