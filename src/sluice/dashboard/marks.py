"""What stands inside a chart: lines that break at gaps and hold no more points than can be seen, and grouped bars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sluice.dashboard.scale import Area, Axis
from sluice.dashboard.text_layout import Box, wide, written

Places = NDArray[np.float64]

COLOURS = 9
POINTS = (  # drawn from the point's own place
    "m-3.2 0a3.2 3.2 0 1 0 6.4 0a3.2 3.2 0 1 0-6.4 0z",
    "m-2.9-2.9h5.8v5.8h-5.8z",
    "m0-3.9l3.7 6.4h-7.4z",
    "m0 3.9l3.7-6.4h-7.4z",
)
_APART = 3.0  # pixels between two points of a line; closer ones hide each other
_MOST_TOLD = 200  # points of a line that show their values when pointed at
_VALUE_SIZE = 10.5
_WIDEST_BAR = 56.0


@dataclass(frozen=True)
class Line:
    """Values `y` over `x`, under a name; NaN breaks the line, `points` marks every value."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    dashed: bool = False
    points: bool = False


@dataclass(frozen=True)
class Drawn:
    """Shapes to be cut at the area's edges, shapes that may stand over them, and what texts should keep clear of."""

    inside: str
    over: str
    dots: Places
    taken: Sequence[Box] = ()


def draw_line(area: Area, line: Line, number: int, x: Axis, y: Axis) -> Drawn:
    """One line; a value alone between gaps is a point in any case."""
    places = area.places(line.x, line.y)
    whole = _runs(places)
    runs = [thinned(run) for run in whole]
    shape = "".join(_path(run) for run in runs if len(run) > 1)
    hull = f'<path class="line{" dashed" if line.dashed else ""} c{number % COLOURS}" d="{shape}"/>' if shape else ""
    pointed = (whole if len(places) <= _MOST_TOLD else runs) if line.points else [r for r in whole if len(r) == 1]
    shown = _apart(area, pointed)
    told = {(px, py): i for i, (px, py) in enumerate(places.tolist())} if len(shown) <= _MOST_TOLD else {}
    points = []
    for px, py in shown:
        i = told.get((px, py))
        title = "" if i is None else f"{line.name}: {x.text(line.x[i])}, {y.text(line.y[i])}"
        points.append(
            f'<path d="M{px:.1f} {py:.1f}{POINTS[number % len(POINTS)]}">'
            f"{f'<title>{written(title)}</title>' if title else ''}</path>"
        )
    over = f'<g class="points c{number % COLOURS}">{"".join(points)}</g>' if points else ""
    dots = np.concatenate([np.empty((0, 2)), *(sampled(run) for run in runs)])
    return Drawn(hull, over, dots)


def draw_bars(area: Area, lines: Sequence[Line], x: Axis, y: Axis) -> Drawn:
    """The lines' values as bars side by side, with their values on top where there is room."""
    band = (area.box.right - area.box.left) / (area.x.high - area.x.low)
    thick = min(_WIDEST_BAR, 0.8 * band / max(1, len(lines)))
    base = float(area.places(area.x.low, area.y.low if area.y.log else min(max(0.0, area.y.low), area.y.high))[0, 1])
    shapes, texts, dots, taken = [], [], [np.empty((0, 2))], []
    for number, line in enumerate(lines):
        for at, value, (middle, end) in zip(line.x, line.y, area.places(line.x, line.y).tolist(), strict=True):
            if np.isnan(end):
                continue
            left = middle + (number - len(lines) / 2) * thick
            end = min(max(end, area.box.top), area.box.bottom)
            text = y.text(value)
            shapes.append(
                f'<path class="fill c{number % COLOURS}" d="M{left + 0.5:.1f} {base:.1f}V{end:.1f}h{thick - 1:.1f}'
                f'V{base:.1f}z"><title>{written(f"{line.name}: {x.text(at)}, {text}")}</title></path>'
            )
            dots.append(sampled(np.array([[left, base], [left, end], [left + thick, end], [left + thick, base]])))
            under = end > base
            high, half = (end + 2 if under else end - 14), wide(text, _VALUE_SIZE) / 2
            taken.append(Box(left + thick / 2 - half, high, left + thick / 2 + half, high + 12))
            texts.append(
                f'<text class="halo middle" font-size="{_VALUE_SIZE}" x="{left + thick / 2:.1f}" y="{high + 10:.1f}">'
                f"{written(text)}</text>"
            )
    if any(box.right - box.left > thick for box in taken):
        texts, taken = [], []
    return Drawn("".join(shapes), "".join(texts), np.concatenate(dots), taken)


def thinned(run: Places) -> Places:
    """The first, lowest, highest and last place in every pixel column: all that a long line shows.

    >>> x = np.arange(10_000) / 5_000
    >>> thinned(np.column_stack([x, np.sin(9 * x)])).shape
    (8, 2)
    """
    columns = np.floor(run[:, 0])
    starts = np.concatenate([[0], np.flatnonzero(np.diff(columns)) + 1, [len(run)]])
    kept: list[int] = []
    for start, stop in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        down = run[start:stop, 1]
        kept += sorted({start, start + int(down.argmin()), start + int(down.argmax()), stop - 1})
    return run[kept]


def _runs(places: Places) -> list[Places]:
    """The parts without a gap."""
    gaps = np.isnan(places[:, 0])
    parts = np.split(places, np.flatnonzero(np.diff(gaps)) + 1)
    return [part for part in parts if len(part) and not np.isnan(part[0, 0])]


def _apart(area: Area, runs: Sequence[Places]) -> list[tuple[float, float]]:
    """Places inside the area, without those that the one before hides."""
    box, out = area.box, list[tuple[float, float]]()
    for px, py in (place for run in runs for place in run.tolist()):
        inside = box.left - 0.5 <= px <= box.right + 0.5 and box.top - 0.5 <= py <= box.bottom + 0.5
        if inside and not (out and abs(px - out[-1][0]) < _APART and abs(py - out[-1][1]) < _APART):
            out.append((px, py))
    return out


def sampled(run: Places) -> Places:
    """Places every few pixels along a line, its corners too."""
    lengths = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(run, axis=0).T))])
    at = np.union1d(lengths, np.linspace(0, lengths[-1], min(4_000, int(lengths[-1] / 5) + 1)))
    return np.column_stack([np.interp(at, lengths, run[:, 0]), np.interp(at, lengths, run[:, 1])])


def _path(run: Places) -> str:
    return "M" + "L".join(f"{px:.1f} {py:.1f}" for px, py in run.tolist())
