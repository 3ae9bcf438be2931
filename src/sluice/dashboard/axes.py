"""What surrounds a chart: title, note and legend above it, its axes with their marks, and the names below it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from sluice.dashboard.marks import COLOURS, POINTS, Line
from sluice.dashboard.scale import Area, Axis, Scale
from sluice.dashboard.text_layout import LINE, Box, broken, wide, written

WIDTH, TALL, EDGE = 720.0, 320.0, 16.0
TITLE, NOTE, TEXT = 16.0, 12.0, 11.5  # font sizes, as in chart.css
_SAMPLE, _SWATCH = 26.0, 12.0  # a line's piece in the legend, a bar's
_GAP = 20.0
_TILT = math.radians(35)  # of names too wide to stand level under their place
_LONGEST_TILTED = 28
_MOST_UNDER = 3  # lines of a name that stands level


def heading(title: str, note: str) -> tuple[list[str], float]:
    """A picture's title and what is said below it, and how far down they reach."""
    out, down = [], EDGE - 4
    for text, size, kind in ((title, TITLE, "title"), (note, NOTE, "note")):
        for line in broken(text, size, WIDTH - 2 * EDGE):
            down += size * LINE
            out.append(f'<text class="{kind}" x="{EDGE:.0f}" y="{down:.1f}">{written(line)}</text>')
        down += 4 if text else 0
    return out, down


def head(title: str, note: str, lines: Sequence[Line], y_name: str, bars: bool) -> tuple[str, float]:
    """Everything above the area, and how far down it reaches."""
    out, down = heading(title, note)
    entries, right, sample = [], WIDTH, _SWATCH if bars else _SAMPLE
    for number, one in enumerate(lines):
        name = " ".join(broken(one.name, NOTE, WIDTH - 2 * EDGE - sample - 100, most=1))
        name += "" if np.isfinite(np.asarray(one.y, dtype=np.float64)).any() else " (no values)"
        needed = sample + 7 + wide(name, NOTE)
        if right + needed > WIDTH - EDGE:
            right, down = EDGE, down + 20
        entries.append(_entry(right, down, number, one, name, bars))
        right += needed + _GAP
    out.append(f'<g class="key">{"".join(entries)}</g>')
    down += 24
    out.append(f'<text class="name" x="{EDGE:.0f}" y="{down:.1f}">{written(_short(y_name))}</text>')
    return "\n".join(out), down + 14


def between(top: float, x: Axis, x_scale: Scale, y_scale: Scale) -> Box:
    """The area: what the texts of the marks leave of the width."""
    left = EDGE + 8 + max((wide(text, TEXT) for _, text in y_scale.marks), default=0.0)
    right = WIDTH - EDGE
    if not x.names:
        right -= max((wide(text, TEXT) for _, text in x_scale.marks[-1:]), default=0.0) / 2
    elif _level(x.names, (right - left) / len(x.names)) is None:
        band = (right - left) / len(x.names)
        hangs = [wide(_cut(name), TEXT) * math.cos(_TILT) - (i + 0.5) * band for i, name in enumerate(x.names)]
        left = max(left, EDGE + max(hangs))
    return Box(left, top, right, top + TALL)


def axes(area: Area, x: Axis) -> tuple[str, float]:
    """The grid, the marks' texts and the name of `x`, and how tall the picture is with them."""
    box, out = area.box, []
    level = [(float(area.places(area.x.low, value)[0, 1]), text) for value, text in area.y.marks]
    upright = [(float(area.places(value, area.y.low)[0, 0]), text) for value, text in area.x.marks]
    grid = [f"M{box.left:.1f} {at:.1f}H{box.right:.1f}" for at, _ in level]
    grid += [] if x.names else [f"M{at:.1f} {box.top:.1f}V{box.bottom:.1f}" for at, _ in upright]
    out.append(f'<path class="grid" d="{"".join(grid)}"/>')
    ticks = [f"M{box.left:.1f} {float(area.places(area.x.low, v)[0, 1]):.1f}h4" for v in area.y.minor]
    ticks += [f"M{float(area.places(v, area.y.low)[0, 0]):.1f} {box.bottom:.1f}v-4" for v in area.x.minor]
    out.append(
        f'<path class="axis" d="M{box.left:.1f} {box.top:.1f}V{box.bottom:.1f}H{box.right:.1f}{"".join(ticks)}"/>'
    )
    for at, text in level[:: _stride([(at, TEXT) for at, _ in level])]:
        out.append(f'<text class="end" x="{box.left - 7:.1f}" y="{at + 4:.1f}">{written(text)}</text>')
    if x.names:
        names, down = _names(x.names, [at for at, _ in upright], box)
    else:
        texts = upright[:: _stride([(at, wide(text, TEXT) + 8) for at, text in upright])]
        names = [_text("middle", at, box.bottom + 18, text) for at, text in texts]
        down = box.bottom + 18
    out += names
    out.append(_text("name middle", (box.left + box.right) / 2, down + 22, _short(x.name)))
    return "\n".join(out), math.ceil(down + 22 + EDGE)


def _names(names: Sequence[str], places: Sequence[float], box: Box) -> tuple[list[str], float]:
    """The names under their places, level in a few lines each, or tilted where one does not fit."""
    level = _level(names, (box.right - box.left) / len(names))
    if level is not None:
        out = [
            _text("middle", at, box.bottom + 18 + row * TEXT * LINE, line)
            for at, rows in zip(places, level, strict=True)
            for row, line in enumerate(rows)
        ]
        return out, box.bottom + 18 + (max(map(len, level), default=1) - 1) * TEXT * LINE
    stride = _stride([(at, TEXT * 1.4) for at in places])
    out = []
    for at, name in list(zip(places, names, strict=True))[::stride]:
        spot = f"{at + 4:.1f} {box.bottom + 14:.1f}"
        turned = f'transform="translate({spot}) rotate(-{math.degrees(_TILT):.0f})"'
        out.append(f'<text class="end" {turned}>{written(_cut(name))}</text>')
    return out, box.bottom + 14 + max(wide(_cut(name), TEXT) for name in names) * math.sin(_TILT)


def _level(names: Sequence[str], band: float) -> list[list[str]] | None:
    """Every name in lines that fit into the band; None when one does not."""
    out = [broken(name, TEXT, band - 6) for name in names]
    fits = all(len(rows) <= _MOST_UNDER for rows in out) and all(
        wide(word, TEXT) <= band - 4 for name in names for word in name.split()
    )
    return out if fits else None


def _entry(left: float, down: float, number: int, line: Line, name: str, bars: bool) -> str:
    colour = f"c{number % COLOURS}"
    if bars:
        text, side = left + _SWATCH + 7, f"{_SWATCH:.0f}"
        sample = f'<path class="fill {colour}" d="M{left:.1f} {down - 10:.1f}h{side}v{side}h-{side}z"/>'
    else:
        text, dashed = left + _SAMPLE + 7, " dashed" if line.dashed else ""
        sample = f'<path class="line{dashed} {colour}" d="M{left:.1f} {down - 4:.1f}h{_SAMPLE:.0f}"/>'
        if line.points:
            shape = POINTS[number % len(POINTS)]
            sample += f'<path class="points {colour}" d="M{left + _SAMPLE / 2:.1f} {down - 4:.1f}{shape}"/>'
    return f'{sample}<text x="{text:.1f}" y="{down:.1f}">{written(name)}</text>'


def _stride(needed: Sequence[tuple[float, float]]) -> int:
    """Every how many-th text is shown so that none touches the next; each is given as its middle and its length."""
    for stride in range(1, len(needed)):
        kept = needed[::stride]
        if all(abs(b[0] - a[0]) >= (a[1] + b[1]) / 2 for a, b in pairwise(kept)):
            return stride
    return max(1, len(needed))


def _text(kind: str, across: float, down: float, text: str) -> str:
    return f'<text class="{kind}" x="{across:.1f}" y="{down:.1f}">{written(text)}</text>'


def _short(name: str) -> str:
    return " ".join(broken(name, NOTE * 1.1, WIDTH - 2 * EDGE, most=1))


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST_TILTED else name[: _LONGEST_TILTED - 1] + "…"
