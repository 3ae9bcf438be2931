"""XY charts as SVG files that stand alone: what was measured as lines or bars, with published values marked beside it.

A file carries its own style, for light and dark, and reads well opened by itself or embedded as an image. The same
values give the same text, to the byte.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from sluice.dashboard.axes import TEXT, WIDTH, axes, between, head
from sluice.dashboard.marks import Drawn, Line, draw_bars, draw_line, sampled
from sluice.dashboard.scale import Area, Axis, scale
from sluice.dashboard.text_layout import LINE, Box, along, around, broken, place, wide, written

__all__ = ["Axis", "Line", "Mark", "chart"]

_MARK_WIDE = 210.0
_DIAMOND = 6.0
_LEAD = 14.0  # a text farther than this from its diamond is tied to it by a thin line
_SLACK = 2.0  # a line along the very edge keeps its whole width


@dataclass(frozen=True)
class Mark:
    """A published value: a diamond at `x` and `y`, or a dotted line right through where only one of them is given."""

    text: str
    x: float | None = None
    y: float | None = None

    def __post_init__(self) -> None:
        given = [value for value in (self.x, self.y) if value is not None]
        if not given or not all(map(math.isfinite, given)):
            raise ValueError(f"mark {self.text!r} lies nowhere: x is {self.x}, y is {self.y}; give one of them or both")

    @property
    def is_point(self) -> bool:
        return self.x is not None and self.y is not None


def chart(
    title: str,
    x: Axis,
    y: Axis,
    lines: Sequence[Line],
    marks: Sequence[Mark] = (),
    note: str = "",
    bars: bool = False,
) -> str:
    """The text of an SVG file with these lines, or with their values as bars over the names of `x`.

    >>> svg = chart("Throughput", Axis("minutes"), Axis("rows"), [Line("ours", [0, 1, 2], [10, 30, 20])])
    >>> svg.startswith('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 ')
    True
    """
    if bars and not x.names:
        most = max((int(v) for line in lines for v in line.x if math.isfinite(v)), default=0)
        x = replace(x, names=[str(i) for i in range(max(0, most) + 1)], log=False)
    _check(x, y, lines, marks, bars)
    x_scale = scale(x, _all([line.x for line in lines], [mark.x for mark in marks]), upright=False)
    y_scale = scale(y, _all([line.y for line in lines], [mark.y for mark in marks]), upright=True)
    above, top = head(title, note, lines, y.name, bars)
    area = Area(between(top, x, x_scale, y_scale), x_scale, y_scale)
    around_it, tall = axes(area, x)
    drawn = [draw_bars(area, lines, x, y)] if bars else [draw_line(area, s, n, x, y) for n, s in enumerate(lines)]
    through, told = _marked(area, marks, drawn)
    said = written(title or f"{y.name} over {x.name}")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {tall:.0f}" width="{WIDTH:.0f}" '
        f'height="{tall:.0f}" role="img" aria-label="{said}">',
        f"<title>{said}</title>",
        f"<desc>{written(_told(x, y, lines, marks, note))}</desc>",
        f"<style>\n{files('sluice.dashboard').joinpath('chart.css').read_text(encoding='utf-8')}</style>",
        f'<rect class="paper" width="{WIDTH:.0f}" height="{tall:.0f}"/>',
        above,
        around_it,
        _cut(area.box, [shapes.inside for shapes in drawn]),
        through,
        *(shapes.over for shapes in drawn),
        told,
    ]
    if not marks and not any(len(shapes.dots) for shapes in drawn):
        middle = (area.box.left + area.box.right) / 2, (area.box.top + area.box.bottom) / 2
        parts.append(f'<text class="name middle" x="{middle[0]:.1f}" y="{middle[1]:.1f}">no values</text>')
    return "\n".join(part for part in [*parts, "</svg>"] if part) + "\n"


def _check(x: Axis, y: Axis, lines: Sequence[Line], marks: Sequence[Mark], bars: bool) -> None:
    for line in lines:
        if len(line.x) != len(line.y):
            raise ValueError(f"line {line.name!r} has {len(line.x)} values of x and {len(line.y)} of y")
        if bars and not all(v in range(len(x.names)) for v in line.x):
            raise ValueError(f"bars {line.name!r} stand over 0 to {len(x.names) - 1}, the places of the names, only")
    for mark in marks:
        for axis, value in ((x, mark.x), (y, mark.y)):
            if axis.log and value is not None and value <= 0:
                raise ValueError(f"mark {mark.text!r} is at {value}, which the log axis {axis.name!r} cannot show")


def _all(columns: Sequence[Sequence[float]], told: Sequence[float | None]) -> NDArray[np.float64]:
    known = [value for value in told if value is not None]
    return np.concatenate([np.asarray(column, dtype=np.float64) for column in [*columns, known]])


def _cut(box: Box, shapes: Sequence[str]) -> str:
    """The shapes without what lies outside the box: an inner picture needs no id, which could be another chart's."""
    left, top = f"{box.left - _SLACK:.1f}", f"{box.top - _SLACK:.1f}"
    across, down = f"{box.right - box.left + 2 * _SLACK:.1f}", f"{box.bottom - box.top + 2 * _SLACK:.1f}"
    open_tag = f'<svg x="{left}" y="{top}" width="{across}" height="{down}" viewBox="{left} {top} {across} {down}">'
    return "\n".join([open_tag, *filter(None, shapes), "</svg>"])


def _marked(area: Area, marks: Sequence[Mark], drawn: Sequence[Drawn]) -> tuple[str, str]:
    """The published values: dotted lines, and the diamonds and texts, which keep clear of all that is drawn."""
    box, r = area.box, _DIAMOND
    spots = [_spot(area, mark) for mark in marks]
    clear = [np.empty((0, 2)), *(shapes.dots for shapes in drawn)]
    taken = [other for shapes in drawn for other in shapes.taken]
    through, over = [], []
    for mark, (px, py, _) in zip(marks, spots, strict=True):
        if mark.is_point:
            taken.append(Box(px - r, py - r, px + r, py + r))
            corners = f"l{r:.0f} {r:.0f}l-{r:.0f} {r:.0f}l-{r:.0f}-{r:.0f}z"
            over.append(f'<path class="diamond" d="M{px:.1f} {py - r:.1f}{corners}"/>')
        else:
            (x0, y0), (x1, y1) = ends = (
                [(px, box.top), (px, box.bottom)] if mark.y is None else [(box.left, py), (box.right, py)]
            )
            clear.append(sampled(np.array(ends)))
            through.append(f'<path class="told" d="M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}"/>')
    for mark, (px, py, arrow) in zip(marks, spots, strict=True):
        lines = broken(arrow + mark.text, TEXT, _MARK_WIDE)
        size = max((wide(line, TEXT) for line in lines), default=0.0), TEXT * LINE * len(lines)
        boxes = around(px, py, *size) if mark.is_point else along(None if mark.x is None else px, py, *size, box)
        found = place(boxes, taken, np.concatenate(clear), box, (px, py) if mark.is_point else None)
        near = found.nearest(px, py)
        if mark.is_point and (far := math.dist(near, (px, py))) > _LEAD:
            start = px + (near[0] - px) * r / far, py + (near[1] - py) * r / far
            clear.append(sampled(np.array([start, near])))
            over.append(f'<path class="lead" d="M{start[0]:.1f} {start[1]:.1f}L{near[0]:.1f} {near[1]:.1f}"/>')
        taken.append(found)
        over += _beside(px, found, lines)
    return "\n".join(through), "\n".join(over)


def _beside(px: float, found: Box, lines: Sequence[str]) -> list[str]:
    """Text in its box, held at the side of the place it belongs to: the reader's font may be narrower than the box."""
    side, at = ("", found.left) if found.left >= px else (" end", found.right)
    if found.left < px < found.right:
        side, at = " middle", (found.left + found.right) / 2
    return [
        f'<text class="halo{side}" x="{at:.1f}" y="{found.top + TEXT * (LINE * row + 0.95):.1f}">{written(line)}</text>'
        for row, line in enumerate(lines)
    ]


def _spot(area: Area, mark: Mark) -> tuple[float, float, str]:
    """Where a mark is drawn; at the edge, with an arrow for its text, where the ends given to an axis exclude it."""
    box = area.box
    x = area.x.low if mark.x is None else mark.x
    y = area.y.low if mark.y is None else mark.y
    px, py = area.places(x, y)[0].tolist()
    arrow = "← " if px < box.left - 0.5 else "→ " if px > box.right + 0.5 else ""
    arrow += "↑ " if py < box.top - 0.5 else "↓ " if py > box.bottom + 0.5 else ""
    return *box.nearest(px, py), arrow


def _told(x: Axis, y: Axis, lines: Sequence[Line], marks: Sequence[Mark], note: str) -> str:
    """The chart in words, for readers who do not see it."""
    out = [f"{y.name} over {x.name}."] + ([note] if note else [])
    for line in lines:
        values = np.asarray(line.y, dtype=np.float64)
        values = values[np.isfinite(values)]
        reach = f"{y.text(float(values.min()))} to {y.text(float(values.max()))}" if len(values) else "no values"
        out.append(f"{line.name}: {reach}.")
    for mark in marks:
        at = [f"{axis.name} {axis.text(v)}" for axis, v in ((x, mark.x), (y, mark.y)) if v is not None]
        out.append(f"{mark.text}: {', '.join(at)}.")
    return " ".join(out)
