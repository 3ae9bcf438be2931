"""XY charts as SVG files that stand alone: what was measured as lines or bars, and published values beside it."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sluice.dashboard.axis import Axis, Scale
from sluice.dashboard.picture import (
    INK,
    PAPER,
    PLACES,
    TEXT,
    WIDTH,
    Spec,
    by_series,
    draw,
    heading,
    legend,
    series_colours,
    text_width,
)

__all__ = ["Axis", "Line", "Mark", "chart"]

HEIGHT = 320
_SHAPES = ("circle", "square", "triangle-up", "triangle-down")
_DIAMOND: Spec = {"type": "point", "shape": "diamond", "size": 110, "strokeWidth": 1.8, "opacity": 1}
_DOTTED: Spec = {"type": "rule", "strokeDash": [1.5, 3.5], "strokeCap": "round", "strokeWidth": 1.2}
_LINE = 14
_MARK_COLUMNS = 34
_WIDEST_BAR = 56
_MOST_POINTS = 200
"""Values of a line that are points of their own; more would hide each other."""


@dataclass(frozen=True)
class Line:
    """Values `y` over `x`, under a name; NaN breaks the line, `points` marks every value."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    dashed: bool = False
    points: bool = False


@dataclass(frozen=True)
class Mark:
    """A published value: a diamond at `x` and `y`, or a dotted line where only one of them is given."""

    text: str
    x: float | None = None
    y: float | None = None

    def __post_init__(self) -> None:
        coordinates = [value for value in (self.x, self.y) if value is not None]
        if not coordinates or not all(map(math.isfinite, coordinates)):
            raise ValueError(f"mark {self.text!r} lies nowhere: x is {self.x}, y is {self.y}; give one of them or both")


@dataclass(frozen=True)
class _Run:
    """A part of a line without a gap: its values in `x` and `y`."""

    series: int
    values: NDArray[np.float64]


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
    >>> svg.startswith("<svg "), "<title>Throughput</title>" in svg
    (True, True)
    """
    if bars and not x.names:
        most = max((int(v) for line in lines for v in line.x if math.isfinite(v)), default=0)
        x = replace(x, names=[str(i) for i in range(max(0, most) + 1)], log=False)
    _check(x, y, lines, marks, bars)
    across = Scale.over(x, _all([line.x for line in lines], [mark.x for mark in marks]))
    up = Scale.over(y, _all([line.y for line in lines], [mark.y for mark in marks]))
    runs = [run for number, line in enumerate(lines) for run in _runs(number, line, across, up)]
    above = 10 + _LINE * len(set(_rows_above(marks, across).values()))
    layers = (_bars if bars else _lines)(runs, lines, across, up, above)
    layers += _marks(marks, across, up, runs)
    if not runs and not marks:
        layers += _texts([{"text": "no values"}], {"x": {"value": WIDTH / 2}, "y": {"value": HEIGHT / 2}}, {})
    axes = {"x": across.encoding("x", upright=False), "y": up.encoding("y", upright=True)}
    frame = {"data": {"values": [{"x": None, "y": None}]}, "mark": "point", "encoding": axes}
    spec = {**heading(title, note), "width": WIDTH, "height": HEIGHT, "layer": [frame, *layers]}
    return draw(spec, title or f"{y.name} over {x.name}", _describe(x, y, lines, marks, note))


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


def _all(columns: Sequence[Sequence[float]], marked: Sequence[float | None]) -> NDArray[np.float64]:
    return np.concatenate([np.asarray(c, dtype=np.float64) for c in [*columns, [v for v in marked if v is not None]]])


def _runs(series: int, line: Line, across: Scale, up: Scale) -> list[_Run]:
    """The parts of a line, without values that others hide."""
    values = np.column_stack([np.asarray(line.x, dtype=np.float64), np.asarray(line.y, dtype=np.float64)])
    gaps = np.atleast_1d(np.isnan(across.drawn(values[:, 0]) + up.drawn(values[:, 1])))
    parts = np.split(np.arange(len(gaps)), np.flatnonzero(np.diff(gaps)) + 1)
    pixel = (across.high - across.low) / WIDTH
    return [_Run(series, thin(values[part], pixel)) for part in parts if len(part) and not gaps[part[0]]]


def thin(part: NDArray[np.float64], pixel: float) -> NDArray[np.float64]:
    """Of each column of pixels the first, lowest, highest and last value: all that a long line shows.

    >>> x = np.arange(10_000) / 5_000
    >>> thin(np.column_stack([x, np.sin(9 * x)]), pixel=1.0).shape
    (8, 2)
    """
    if len(part) <= _MOST_POINTS or not pixel:
        return part
    columns = np.split(part, np.flatnonzero(np.diff(np.floor(part[:, 0] / pixel))) + 1)
    kept = [sorted({0, int(c[:, 1].argmin()), int(c[:, 1].argmax()), len(c) - 1}) for c in columns]
    return np.concatenate([column[places] for column, places in zip(columns, kept, strict=True)])


def _lines(runs: Sequence[_Run], lines: Sequence[Line], across: Scale, up: Scale, above: int) -> list[Spec]:
    rows, points = list[Spec](), list[Spec]()
    for number, run in enumerate(runs):
        line, places = lines[run.series], np.column_stack([across.drawn(run.values[:, 0]), up.drawn(run.values[:, 1])])
        rows += [{"x": a, "y": b, "series": run.series, "run": number} for a, b in places.tolist()]
        if len(run.values) == 1 or (line.points and len(line.x) <= _MOST_POINTS):
            texts = [f"{line.name}: {across.axis.text(a)}, {up.axis.text(b)}" for a, b in run.values.tolist()]
            points += [{**row, "tip": text} for row, text in zip(rows[-len(texts) :], texts, strict=True)]
    drawn, dotted = {run.series for run in runs}, {point["series"] for point in points}
    names = [line.name + ("" if number in drawn else " (no values)") for number, line in enumerate(lines)]
    key = legend(names, WIDTH, above) | {"symbolSize": 80 if dotted else 300}
    dashes = [[7, 5] if line.dashed else [1, 0] for line in lines]
    shapes = [_SHAPES[n % len(_SHAPES)] if n in dotted else "stroke" for n in range(len(lines))]
    coded = {**PLACES, "color": by_series(key, series_colours(len(lines)))}
    return [
        {
            "data": {"values": rows},
            "mark": {"type": "line", "strokeWidth": 2, "strokeJoin": "round", "strokeCap": "round", "clip": True},
            "encoding": {**coded, "detail": {"field": "run"}, "strokeDash": by_series(key, dashes)},
        },
        {
            "data": {"values": points},
            "mark": {"type": "point", "filled": True, "opacity": 1, "size": 36, "aria": True, "clip": True},
            "encoding": {**coded, "shape": by_series(key, shapes), "description": {"field": "tip"}},
        },
    ]


def _bars(runs: Sequence[_Run], lines: Sequence[Line], across: Scale, up: Scale, above: int) -> list[Spec]:
    """The lines' values as bars side by side, with their values on top where there is room."""
    thick = min(0.8 / max(1, len(lines)), _WIDEST_BAR * len(across.axis.names) / WIDTH)
    base = up.low if up.axis.log else max(0.0, up.axis.low or 0.0)
    rows = []
    for run in runs:
        for at, value in run.values.tolist():
            left, text = at + (run.series - len(lines) / 2) * thick, up.axis.text(value)
            tip = f"{lines[run.series].name}: {across.axis.text(at)}, {text}"
            drawn = {"y": float(up.drawn(value)), "y2": float(up.drawn(base)), "text": text, "tip": tip}
            rows.append({"x": left, "x2": left + thick, "middle": left + thick / 2, "series": run.series, **drawn})
    key = legend([line.name for line in lines], WIDTH, above)
    coded = {
        **PLACES,
        "x2": {"field": "x2"},
        "y2": {"field": "y2"},
        "color": by_series(key, series_colours(len(lines))),
    }
    shape = {"type": "rect", "aria": True, "clip": True, "stroke": PAPER, "strokeWidth": 1}
    layers: list[Spec] = [
        {"data": {"values": rows}, "mark": shape, "encoding": {**coded, "description": {"field": "tip"}}}
    ]
    if all(text_width(row["text"], TEXT) <= thick * WIDTH / len(across.axis.names) for row in rows):
        middles = {"x": {"field": "middle", "type": "quantitative"}, "y": PLACES["y"]}
        layers += _texts(rows, middles, {"dy": {"expr": "datum.y < datum.y2 ? 10 : -8"}})
    return layers


def _marks(marks: Sequence[Mark], across: Scale, up: Scale, runs: Sequence[_Run]) -> list[Spec]:
    """The published values: dotted lines with texts above the chart or at its right end, and diamonds."""
    layers: list[Spec] = []
    rows = _rows_above(marks, across)
    for number, mark in enumerate(marks):
        spot: Spec = {name: {"datum": float(along.drawn(at))} for name, along, at in _given(mark, across, up)}
        shape = _DIAMOND if len(spot) == 2 else _DOTTED
        layers.append({"data": {"values": [{}]}, "mark": {**shape, "color": INK}, "encoding": spot})
        to_left = mark.x is None or _share(mark.x, across) > 0.6
        looks: Spec = {"align": "right" if to_left else "left", "lineHeight": _LINE}
        if mark.y is None:
            lines = [_text_above(mark)]
            spot, looks = spot | {"y": {"value": 0}}, looks | {"dy": -9 - _LINE * rows[number]}
        else:
            lines = textwrap.wrap(mark.text, _MARK_COLUMNS, max_lines=4, placeholder="…") or [""]
            aside, start = (4.0, float(WIDTH)) if mark.x is None else (10.0, WIDTH * _share(mark.x, across))
            ends = sorted([start, start + (-1 if to_left else 1) * max(text_width(line, TEXT) for line in lines)])
            way = _clearest(runs, across, up, ends, mark, _LINE * len(lines))
            spot = {"x": {"value": WIDTH}, **spot}
            looks |= {"dx": -aside if to_left else aside, "dy": way - _LINE * (len(lines) - 1) / 2}
        layers += _texts([{"text": lines}], spot, looks)
    return layers


def _clearest(
    runs: Sequence[_Run], across: Scale, up: Scale, ends: Sequence[float], mark: Mark, height: float
) -> float:
    """How far below its mark a text between these ends covers least of the lines; level with it, if that is as well."""
    at, level = np.linspace(ends[0], ends[1], 40), up.places([mark.y or 0.0], HEIGHT, upright=True)
    drawn = [
        (across.places(run.values[:, 0], WIDTH), up.places(run.values[:, 1], HEIGHT, upright=True)) for run in runs
    ]

    def covered(way: float) -> int:
        heights = [np.interp(at, x, y, np.nan, np.nan) for x, y in drawn]
        return int(np.count_nonzero(np.abs(np.array(heights) - level - way) < height / 2))

    aside = height / 2 + (9 if mark.x is not None else 2)
    return min((-aside, aside) if mark.x is None else (0.0, -aside, aside), key=covered)


def _rows_above(marks: Sequence[Mark], across: Scale) -> dict[int, int]:
    """In which row above the chart the text of each mark that is a time stands, so that none covers another."""
    rows: dict[int, int] = {}
    ends = [-math.inf] * len(marks)
    for number, mark in sorted(enumerate(marks), key=lambda one: one[1].x or 0.0):
        if mark.x is not None and mark.y is None:
            width, share = text_width(_text_above(mark), TEXT), _share(mark.x, across)
            left = share * WIDTH - (width if share > 0.6 else 0)
            rows[number] = next(row for row, end in enumerate(ends) if end <= left)
            ends[rows[number]] = left + width + 12
    return rows


def _text_above(mark: Mark) -> str:
    return mark.text[: 2 * _MARK_COLUMNS]


def _share(x: float, across: Scale) -> float:
    """How far to the right a value lies."""
    return (x - across.low) / ((across.high - across.low) or 1.0)


def _given(mark: Mark, across: Scale, up: Scale) -> list[tuple[str, Scale, float]]:
    return [(name, along, at) for name, along, at in (("x", across, mark.x), ("y", up, mark.y)) if at is not None]


def _texts(rows: Sequence[Spec], places: Spec, looks: Spec) -> list[Spec]:
    """Texts that are read over lines."""
    around = {"stroke": PAPER, "strokeWidth": 3.5, "strokeJoin": "round", "color": PAPER}
    encoding = {**places, "text": {"field": "text"}}
    return [
        {"data": {"values": rows}, "mark": {"type": "text", "fontSize": TEXT, **looks, **ink}, "encoding": encoding}
        for ink in (around, {"color": INK})
    ]


def _describe(x: Axis, y: Axis, lines: Sequence[Line], marks: Sequence[Mark], note: str) -> str:
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
