"""Plots over epochs for a page: stacked bars, lines, and a heat map for more sites than lines can tell apart."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sluice.dashboard.axis import Axis, Scale
from sluice.dashboard.picture import INK, PLACES, Spec, by_series, draw, legend, series_colours, written
from sluice.dashboard.quantity import Quantity
from sluice.dashboard.series import Series

_WIDTH, _HEIGHT = 480, 190
_HEAT = ("#440154", "#443983", "#31688e", "#21918c", "#35b779", "#90d743", "#fde725")
"""The colours of a heat map, the least first, as in viridis."""
_MOST_LINES = 8
_MOST_DOTTED = 40
"""Epochs whose values are points of their own."""
_LISTED = 12
"""Values that are named when pointing at an epoch."""


def stack(title: str, epochs: Sequence[int], series: Sequence[Series], quantity: Quantity, note: str = "") -> str:
    """One bar an epoch, its parts on top of each other."""
    values = np.nan_to_num(_table(series, epochs))
    tops = np.cumsum(values, axis=0)
    up = Scale.over(Axis("", quantity), tops)
    rows = [
        {"x": epochs[epoch] + side, "y": up.drawn(tops[place]).item(), "y2": up.drawn(tops[place] - value).item()}
        | {"series": place[0]}
        for place, value in np.ndenumerate(values)
        for epoch in place[1:]
        for side in (-0.5, 0.5)
    ]
    encoding = {**PLACES, "y2": {"field": "y2"}, "color": _colours(series)}
    parts = {"data": {"values": rows}, "mark": {"type": "area", "opacity": 1}, "encoding": encoding}
    return _figure(title, note, epochs, series, quantity, up.encoding("y", upright=True), [parts])


def lines(title: str, epochs: Sequence[int], series: Sequence[Series], quantity: Quantity, note: str = "") -> str:
    """A line a series; it breaks where there is no value."""
    values = _table(series, epochs)
    up = Scale.over(Axis("", quantity), values)
    rows = [
        {"x": epochs[place[1]], "y": None if np.isnan(value) else value, "series": place[0]}
        for place, value in np.ndenumerate(up.drawn(values))
    ]
    points = {"size": 24, "opacity": 1} if len(epochs) <= _MOST_DOTTED else False
    mark = {"type": "line", "strokeWidth": 1.8, "point": points, "invalid": "break-paths-show-path-domains"}
    layer = {"data": {"values": rows}, "mark": mark, "encoding": {**PLACES, "color": _colours(series)}}
    return _figure(title, note, epochs, series, quantity, up.encoding("y", upright=True), [layer])


def heat(title: str, epochs: Sequence[int], series: Sequence[Series], quantity: Quantity, note: str = "") -> str:
    """A row a series, a column an epoch; the more, the brighter. For many sites."""
    values = _table(series, epochs)
    top = float(np.nanmax(values, initial=0.0)) or 1.0
    mark = {"type": "image", "width": _WIDTH, "height": _HEIGHT, "aspect": False, "align": "left", "baseline": "top"}
    place = {"x": {"value": 0}, "y": {"value": 0}, "url": {"value": heat_image(values / top)}}
    texts = ["0", *[""] * (len(_HEAT) - 2), quantity.text(top)]
    key = {**legend(texts, _WIDTH), "columns": len(_HEAT), "columnPadding": 0, "symbolType": "square"}
    colours = by_series({**key, "symbolOpacity": 1}, _HEAT)
    layers: list[Spec] = [
        {"data": {"values": [{}]}, "mark": {**mark, "smooth": False}, "encoding": place},
        {"data": {"values": [{}]}, "mark": "square", "encoding": {"color": colours}},
    ]
    ends = {"domain": [-0.5, len(series) - 0.5], "reverse": True, "nice": False, "zero": False}
    rows = {"title": "site", "grid": False, "tickMinStep": 1, "tickCount": 10, "minExtent": 52}
    up: Spec = {"field": "y", "type": "quantitative", "scale": ends, "axis": rows}
    return _figure(title, note, epochs, series, quantity, up, layers)


def by_site(title: str, epochs: Sequence[int], series: Sequence[Series], quantity: Quantity, note: str = "") -> str:
    """Lines while their colours can be told apart, else a heat map."""
    return (lines if len(series) <= _MOST_LINES else heat)(title, epochs, series, quantity, note)


def heat_image(shares: NDArray[np.float64]) -> str:
    """A picture of shares of one, a pixel each, as the address of an image; of pixels too small the greatest counts.

    >>> len(heat_image(np.random.default_rng(1).random((1_000, 10_000)))) < 200_000
    True
    """
    for axis, most in ((0, _HEIGHT), (1, _WIDTH)):
        if shares.shape[axis] > most:
            starts = np.arange(most) * shares.shape[axis] // most
            shares = np.fmax.reduceat(shares, starts, axis=axis)
    levels = np.clip(np.nan_to_num(shares) * len(_HEAT), 0, len(_HEAT) - 1).astype(np.uint8) + 1
    levels[np.isnan(shares)] = 0  # transparent
    rows = np.pad(levels, ((0, 0), (1, 0)))  # each begins with its filter: none
    palette = bytes.fromhex("000000" + "".join(colour[1:] for colour in _HEAT))
    head = struct.pack(">IIBBBBB", levels.shape[1], levels.shape[0], 8, 3, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"PLTE", palette), (b"tRNS", b"\0"), (b"IDAT", zlib.compress(rows.tobytes(), 9)))
    png = b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, content) for kind, content in (*chunks, (b"IEND", b"")))
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _table(series: Sequence[Series], epochs: Sequence[int]) -> NDArray[np.float64]:
    """The values, a row a series; NaN where there is none."""
    return np.array([one.values for one in series], dtype=np.float64).reshape(len(series), len(epochs))


def _colours(series: Sequence[Series]) -> Spec:
    return by_series(legend([one.name for one in series], _WIDTH), series_colours(len(series)))


def _figure(
    title: str,
    note: str,
    epochs: Sequence[int],
    series: Sequence[Series],
    quantity: Quantity,
    up: Spec,
    layers: Sequence[Spec],
) -> str:
    """The layers between their axes, with the values of an epoch shown when it is pointed at."""
    first, last = (epochs[0], epochs[-1]) if epochs else (0, 0)
    across = Scale.over(Axis("epoch", low=first - 0.5, high=last + 0.5), [])
    frame = {"x": across.encoding("x", upright=False), "y": up}
    pointed = [
        {"x": epoch - 0.5, "x2": epoch + 0.5, "tip": _values_at(index, epoch, series, quantity)}
        for index, epoch in enumerate(epochs)
    ]
    whole = {"x2": {"field": "x2"}, "y": {"value": 0}, "y2": {"value": _HEIGHT}, "description": {"field": "tip"}}
    area = {"type": "rect", "color": INK, "fillOpacity": 0, "aria": True}
    spec = {
        "width": _WIDTH,
        "height": _HEIGHT,
        "layer": [
            {"data": {"values": [{"x": None, "y": None}]}, "mark": "point", "encoding": frame},
            *layers,
            {"data": {"values": pointed}, "mark": area, "encoding": {"x": PLACES["x"], **whole}},
        ],
    }
    picture = draw(spec, title, f"{title} of {len(epochs):,} epochs. {note}", alone=False)
    small = f"<p>{written(note)}</p>" if note else ""
    return f"<figure><figcaption><h3>{written(title)}</h3>{small}</figcaption>{picture}</figure>"


def _values_at(index: int, epoch: int, series: Sequence[Series], quantity: Quantity) -> str:
    values = [(one.name, value) for one in series if (value := one.values[index]) is not None]
    listed = sorted(values, key=lambda pair: -pair[1])[:_LISTED] if len(values) > _LISTED else values
    more = [f"… and {len(series) - len(listed)} more"] if len(series) > len(listed) else []
    return "\n".join([f"epoch {epoch}", *(f"{name}: {quantity.text(value)}" for name, value in listed), *more])
