"""Heat maps as SVG files that stand alone: several panels side by side, over the same two settings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

import numpy as np

from sluice.dashboard.axes import EDGE, TEXT, WIDTH, heading
from sluice.dashboard.text_layout import wide, written

_GAP, _CELL_TALL, _PALE, _DARK = 22.0, 30.0, 0.05, 0.6

_CELL_TEXT = f"font-size: {TEXT}px; font-weight: 400"
"""The colour of titles, which is read on every shade, in the size of the axes' texts."""


@dataclass(frozen=True)
class Panel:
    """One map: a row of values for each of the settings that go upward, a value in it for each that go to the right."""

    name: str
    values: Sequence[Sequence[float]]


@dataclass(frozen=True)
class Settings:
    """What is varied along a side, and its values in words."""

    name: str
    values: Sequence[str]


def heat_map(title: str, across: Settings, up: Settings, panels: Sequence[Panel], note: str = "") -> str:
    """The text of an SVG file. Values are written as percents of the panel's greatest, which is framed; the darker, the
    greater, by one scale for all panels.

    >>> map = heat_map("Output", Settings("low", ["1", "2"]), Settings("high", ["8"]), [Panel("two joins", [[3, 6]])])
    >>> '>50<' in map and '>100<' in map
    True
    """
    for panel in panels:
        if np.shape(panel.values) != (len(up.values), len(across.values)):
            raise ValueError(f"panel {panel.name!r} needs {len(up.values)} rows of {len(across.values)} values")
    shares = [_shares(panel) for panel in panels]
    least = min((float(share.min()) for share in shares), default=0.0)
    above, top = _head(title, note)
    left = EDGE + 10 + max(wide(text, TEXT) for text in up.values)
    broad = (WIDTH - EDGE - left - _GAP * (len(panels) - 1)) / max(1, len(panels))
    bottom = top + 22 + _CELL_TALL * len(up.values)
    drawn = [
        _panel(panel.name, share, least, left + number * (broad + _GAP), top + 22, broad, across)
        for number, (panel, share) in enumerate(zip(panels, shares, strict=True))
    ]
    names = [
        f'<text class="end" x="{left - 7:.1f}" y="{bottom - _CELL_TALL * (row + 0.5) + 4:.1f}">{written(text)}</text>'
        for row, text in enumerate(up.values)
    ]
    tall, said = math.ceil(bottom + 40 + EDGE), written(title)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {tall}" width="{WIDTH:.0f}" '
        f'height="{tall}" role="img" aria-label="{said}">',
        f"<title>{said}</title>",
        f"<desc>{written(_told(across, up, panels, note))}</desc>",
        f"<style>\n{files('sluice.dashboard').joinpath('chart.css').read_text(encoding='utf-8')}</style>",
        f'<rect class="paper" width="{WIDTH:.0f}" height="{tall}"/>',
        above,
        f'<text class="name" x="{EDGE:.0f}" y="{top + 12:.1f}">{written(up.name)}</text>',
        *names,
        *drawn,
        f'<text class="name middle" x="{(left + WIDTH - EDGE) / 2:.1f}" y="{bottom + 40:.1f}">'
        f"{written(across.name)}</text>",
    ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _shares(panel: Panel) -> np.ndarray:
    values = np.asarray(panel.values, dtype=np.float64)
    greatest = float(values.max())
    return values / greatest if greatest > 0 else np.zeros_like(values)


def _head(title: str, note: str) -> tuple[str, float]:
    out, down = heading(title, note)
    return "\n".join(out), down + 12


def _panel(name: str, shares: np.ndarray, least: float, left: float, top: float, broad: float, across: Settings) -> str:
    rows, columns = shares.shape
    cell, reach = broad / columns, max(1.0 - least, 1e-9)
    out = [f'<text class="name middle" x="{left + broad / 2:.1f}" y="{top - 10:.1f}">{written(name)}</text>']
    for row, column in np.ndindex(rows, columns):
        share = float(shares[row, column])
        x, y = left + column * cell, top + (rows - 1 - row) * _CELL_TALL
        dark = _PALE + (_DARK - _PALE) * (share - least) / reach
        box = f'x="{x + 1:.1f}" y="{y + 1:.1f}" width="{cell - 2:.1f}" height="{_CELL_TALL - 2:.1f}"'
        out.append(f'<rect class="fill c0" fill-opacity="{dark:.2f}" {box}/>')
        if share >= 1.0 - 1e-9:
            out.append(f'<rect class="diamond" {box}/>')
        middle = f'x="{x + cell / 2:.1f}" y="{y + _CELL_TALL / 2 + 4:.1f}"'
        out.append(f'<text class="title middle" style="{_CELL_TEXT}" {middle}>{100 * share:.0f}</text>')
    below = top + rows * _CELL_TALL + 16
    out += [
        f'<text class="middle" x="{left + (column + 0.5) * cell:.1f}" y="{below:.1f}">{written(text)}</text>'
        for column, text in enumerate(across.values)
    ]
    return "\n".join(out)


def _told(across: Settings, up: Settings, panels: Sequence[Panel], note: str) -> str:
    """The maps in words, for readers who do not see them."""
    out = [f"{across.name} to the right, {up.name} upward."] + ([note] if note else [])
    for panel in panels:
        shares = _shares(panel)
        row, column = np.unravel_index(int(shares.argmax()), shares.shape)
        best = f"greatest at {across.values[int(column)]} and {up.values[int(row)]}"
        out.append(f"{panel.name}: {best}, least {100 * shares.min():.0f} % of it.")
    return " ".join(out)
