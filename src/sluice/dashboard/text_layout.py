"""Text in a picture: how wide it will be, where it breaks, and a place for it where nothing else is.

An SVG file does not know the reader's fonts, so widths are those of a wide one: what fits here fits with any.
"""

from __future__ import annotations

import math
import re
import textwrap
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

LINE = 1.25  # from one line to the next, in font sizes
_NARROW, _BROAD = set(" fijlrtI.,:;|!'()[]/"), set("mwMW%@—…")
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def written(text: str) -> str:
    """Text that may stand in XML, within quotes too; the characters XML has no way to write are replaced.

    >>> written("a < b"), written("bell \\x07")
    ('a &lt; b', 'bell �')
    """
    return escape(_NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text))


def wide(text: str, size: float) -> float:
    """About how wide a text is in a font of this size."""
    return size * sum(_width(character) for character in text)


def broken(text: str, size: float, room: float, most: int = 0) -> list[str]:
    """The text in lines that fit into `room`, and not more than `most` where that is given.

    >>> broken("ours, with four sites and a spill", 10, 120)
    ['ours, with four sites', 'and a spill']
    """
    columns = max(4, int(room / max(wide(text, size) / max(1, len(text)), 1e-6)))
    return textwrap.wrap(text, columns, max_lines=most or None, placeholder="…")


@dataclass(frozen=True)
class Box:
    """A part of the picture, with y growing downward as in SVG."""

    left: float
    top: float
    right: float
    bottom: float

    def shared(self, other: Box) -> float:
        """The area that both cover."""
        across = min(self.right, other.right) - max(self.left, other.left)
        down = min(self.bottom, other.bottom) - max(self.top, other.top)
        return max(0.0, across) * max(0.0, down)

    def area(self) -> float:
        return (self.right - self.left) * (self.bottom - self.top)

    def count(self, dots: NDArray[np.float64]) -> int:
        """How many of these places lie inside."""
        x, y = dots[:, 0], dots[:, 1]
        return int(np.count_nonzero((x > self.left) & (x < self.right) & (y > self.top) & (y < self.bottom)))

    def nearest(self, x: float, y: float) -> tuple[float, float]:
        """The place in the box that is nearest to (x, y)."""
        return min(max(x, self.left), self.right), min(max(y, self.top), self.bottom)


def place(
    candidates: Sequence[Box],
    taken: Sequence[Box],
    dots: NDArray[np.float64],
    within: Box,
    point: tuple[float, float] | None = None,
) -> Box:
    """The candidate that lies inside, covers no other text and the fewest dots; the earlier one of equals.

    `dots` are places on what was drawn, one (x, y) a row: text over a line can be read, but is better beside it.
    `point` is what the text belongs to: it should be near, and no other text between.
    """

    others = taken if point is None else [box for box in taken if not box.count(np.array([point]))]

    def cost(box: Box) -> float:
        outside = box.area() - box.shared(within)
        covered = sum(box.shared(other) for other in taken)
        way = np.empty((0, 2)) if point is None else np.linspace(box.nearest(*point), point, 12)
        crossed = sum(other.count(way) for other in others)
        far = math.dist(way[0], way[-1]) if len(way) else 0.0
        return 100 * outside + 20 * covered + 60 * crossed + 10 * box.count(dots) + 0.4 * far

    return min(candidates, key=cost)


def around(x: float, y: float, width: float, height: float) -> list[Box]:
    """Boxes of this size beside a point, the nearest first."""
    out = []
    for gap in (9.0, 20.0, 34.0, 52.0, 76.0, 110.0, 150.0):
        for right, down in ((1, 0), (-1, 0), (0, -1), (0, 1), (1, -1), (-1, -1), (1, 1), (-1, 1)):
            middle_x, middle_y = x + right * (gap + width / 2), y + down * (gap + height / 2)
            out.append(Box(middle_x - width / 2, middle_y - height / 2, middle_x + width / 2, middle_y + height / 2))
    return out


def along(x: float | None, y: float | None, width: float, height: float, within: Box) -> list[Box]:
    """Boxes of this size along a line right through the picture: an upright one at `x`, else a level one at `y`."""
    out = []
    if x is not None:
        for top in np.arange(within.top + 3, max(within.top + 4, within.bottom - height), height / 2 + 1).tolist():
            out += [Box(left, top, left + width, top + height) for left in (x + 5, x - 5 - width)]
    elif y is not None:
        for left in np.linspace(within.right - 4 - width, within.left + 4, 9).tolist():
            out += [Box(left, top, left + width, top + height) for top in (y - 3 - height, y + 3)]
    return out


def _width(character: str) -> float:
    if unicodedata.combining(character):
        return 0.0
    if unicodedata.east_asian_width(character) in "WF" or character in _BROAD:
        return 1.0
    if character in _NARROW:
        return 0.38
    return 0.73 if character.isupper() else 0.62
