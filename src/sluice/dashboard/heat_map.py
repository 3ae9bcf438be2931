"""Heat maps as SVG files that stand alone: several panels side by side, over the same two settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sluice.dashboard.picture import COLOURS, INK, TEXT, Spec, draw, expression, heading

_WIDTH, _CELL_HEIGHT = 620, 30


@dataclass(frozen=True)
class Panel:
    """One map: a row of values for each setting that goes upward, a value in it for each to the right."""

    name: str
    values: Sequence[Sequence[float]]


@dataclass(frozen=True)
class Settings:
    """What is varied along a side, and its values in words."""

    name: str
    values: Sequence[str]


def heat_map(title: str, across: Settings, up: Settings, panels: Sequence[Panel], note: str = "") -> str:
    """The text of an SVG file. Values are percents of the panel's greatest, which is framed; darker is greater.

    >>> map = heat_map("Output", Settings("low", ["1", "2"]), Settings("high", ["8"]), [Panel("two joins", [[3, 6]])])
    >>> '>50<' in map and '>100<' in map
    True
    """
    for panel in panels:
        if np.shape(panel.values) != (len(up.values), len(across.values)):
            raise ValueError(f"panel {panel.name!r} needs {len(up.values)} rows of {len(across.values)} values")
    cells = [
        {"panel": number, "row": row, "column": column, "share": float(share), "text": f"{100 * share:.0f}"}
        for number, panel in enumerate(panels)
        for (row, column), share in np.ndenumerate(_shares(panel))
    ]
    shades = {"domain": [min((cell["share"] for cell in cells), default=0.0) - 1e-9, 1], "range": [0.05, 0.6]}
    places = {"x": _side("column", across), "y": {**_side("row", up), "sort": "descending"}}
    shade = {"field": "share", "type": "quantitative", "scale": shades, "legend": None}
    names = {"title": None, "labelExpr": _lookup([panel.name for panel in panels])}
    spec = {
        **heading(title, note),
        "data": {"values": cells},
        "facet": {"column": {"field": "panel", "type": "nominal", "header": names}},
        "spacing": 22,
        "spec": {
            "width": (_WIDTH - 22 * (len(panels) - 1)) / max(1, len(panels)),
            "height": {"step": _CELL_HEIGHT},
            "encoding": places,
            "layer": [
                {"mark": {"type": "rect", "color": COLOURS[0]}, "encoding": {"fillOpacity": shade}},
                {
                    "transform": [{"filter": f"datum.share >= {1 - 1e-9!r}"}],
                    "mark": {"type": "rect", "filled": False, "stroke": INK, "strokeWidth": 1.8},
                },
                {"mark": {"type": "text", "color": INK, "fontSize": TEXT}, "encoding": {"text": {"field": "text"}}},
            ],
        },
    }
    return draw(spec, title, _describe(across, up, panels, note))


def _side(field: str, settings: Settings) -> Spec:
    labels = {"labelExpr": _lookup(settings.values), "labelAngle": 0, "domain": False, "ticks": False}
    gaps = {"paddingInner": 0.05, "paddingOuter": 0.02}
    return {"field": field, "type": "ordinal", "title": settings.name, "axis": labels, "scale": gaps}


def _lookup(texts: Sequence[str]) -> str:
    return f"{expression(texts)}[datum.value]"


def _shares(panel: Panel) -> np.ndarray:
    values = np.asarray(panel.values, dtype=np.float64)
    greatest = float(values.max())
    return values / greatest if greatest > 0 else np.zeros_like(values)


def _describe(across: Settings, up: Settings, panels: Sequence[Panel], note: str) -> str:
    """The maps in words, for readers who do not see them."""
    out = [f"{across.name} to the right, {up.name} upward."] + ([note] if note else [])
    for panel in panels:
        shares = _shares(panel)
        row, column = np.unravel_index(int(shares.argmax()), shares.shape)
        best = f"greatest at {across.values[int(column)]} and {up.values[int(row)]}"
        out.append(f"{panel.name}: {best}, least {100 * shares.min():.0f} % of it.")
    return " ".join(out)
