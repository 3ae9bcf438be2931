"""Where a value lies in a chart: an axis's range and its round marks, and places in the area between two axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sluice.dashboard.quantity import COUNT, Quantity
from sluice.dashboard.text_layout import Box

Marks = Sequence[tuple[float, str]]
_NEAR = 1e-9
_FEW_DECADES = 7
_FAR = 1e6  # pixels: what lies farther off is drawn here, or the file would carry numbers of hundreds of digits


@dataclass(frozen=True)
class Axis:
    """What an axis shows; `low` and `high` fix its ends, `names` makes its values 0, 1, 2, … the places of these."""

    name: str
    quantity: Quantity = COUNT
    log: bool = False
    low: float | None = None
    high: float | None = None
    names: Sequence[str] = ()

    def __post_init__(self) -> None:
        ends = [end for end in (self.low, self.high) if end is not None]
        if not all(map(math.isfinite, ends)) or (len(ends) == 2 and ends[0] >= ends[1]):
            raise ValueError(f"axis {self.name!r} cannot go from {self.low} to {self.high}: give low below high")
        if self.log and any(end <= 0 for end in ends):
            raise ValueError(f"axis {self.name!r} is logarithmic and cannot reach {min(ends)}: give an end above zero")
        if self.log and self.names:
            raise ValueError(f"axis {self.name!r} has names and cannot be logarithmic")

    def text(self, value: float) -> str:
        """A value of this axis for people."""
        if self.names:
            return self.names[int(value)] if value in range(len(self.names)) else f"{value:.3g}"
        return self.quantity.text(value)


@dataclass(frozen=True)
class Scale:
    """An axis with both ends known; `minor` are places between the marks that have no text."""

    low: float
    high: float
    log: bool
    marks: Marks
    minor: Sequence[float] = ()

    def share(self, values: ArrayLike) -> NDArray[np.float64]:
        """How far along the axis values lie, 0 to 1 between its ends; NaN for what it cannot show.

        >>> Scale(1, 100, True, []).share([1, 10, 100, 0]).tolist()
        [0.0, 0.5, 1.0, nan]
        """
        wanted, ends = np.asarray(values, dtype=np.float64), np.array([self.low, self.high], dtype=np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.log:
                wanted, ends = np.log10(wanted), np.log10(ends)
            shares = (wanted - ends[0]) / (ends[1] - ends[0])
        return np.where(np.isfinite(shares), shares, np.nan)

    def holds(self, value: float) -> bool:
        """Whether a value lies between the ends.

        >>> Scale(0, 1, False, []).holds(0.1 + 0.9), Scale(0, 1, False, []).holds(1.1)
        (True, False)
        """
        return bool(-_NEAR <= self.share(value) <= 1 + _NEAR)


@dataclass(frozen=True)
class Area:
    """The part of the picture between the axes."""

    box: Box
    x: Scale
    y: Scale

    def places(self, x: ArrayLike, y: ArrayLike) -> NDArray[np.float64]:
        """Values as (x, y) in the picture, one a row; both NaN where an axis cannot show one of them."""
        across = self.box.left + self.x.share(x) * (self.box.right - self.box.left)
        down = self.box.bottom - self.y.share(y) * (self.box.bottom - self.box.top)
        found = np.column_stack([np.atleast_1d(across), np.atleast_1d(down)])
        found[np.isnan(found).any(axis=1)] = np.nan
        return np.clip(found, -_FAR, _FAR)


def scale(axis: Axis, values: ArrayLike, upright: bool) -> Scale:
    """The axis over these values: with round ends, and zero, where it stands `upright`; else as wide as they are.

    >>> scale(Axis("rows"), [3, 17], upright=True).marks
    [(0.0, '0'), (5.0, '5'), (10.0, '10'), (15.0, '15'), (20.0, '20')]
    """
    if axis.names:
        return Scale(-0.5, len(axis.names) - 0.5, False, list(enumerate(axis.names)))
    found = np.asarray(values, dtype=np.float64)
    found = found[np.isfinite(found) & ((found > 0) | (not axis.log))]
    return _log(axis, found, upright) if axis.log else _linear(axis, found, upright)


def _linear(axis: Axis, found: NDArray[np.float64], upright: bool) -> Scale:
    least, most = (float(found.min()), float(found.max())) if len(found) else (0.0, 0.0)
    if upright or least <= most / 2:  # zero is shown where it costs at most half of the length
        least, most = min(0.0, least), max(0.0, most)
    low, high = _apart(axis, least, most, abs(most) / 2 or axis.quantity.units[0][0])
    about = 5 if upright else 8
    marks = axis.quantity.marks(high, about, low)
    if upright or not len(found):
        low = marks[0][0] if axis.low is None else low
        high = marks[-1][0] if axis.high is None else high
    return _within(Scale(low, high, False, marks))


def _log(axis: Axis, found: NDArray[np.float64], upright: bool) -> Scale:
    least, most = (float(found.min()), float(found.max())) if len(found) else (axis.low or 1.0, axis.high or 1.0)
    low, high = _apart(axis, least, most, most / 100)
    marks = axis.quantity.decades(low, high)
    if upright or not len(found):
        low = marks[0][0] if axis.low is None else low
        high = marks[-1][0] if axis.high is None else high
    between = [value * n for value, _ in marks for n in range(2, 10)] if len(marks) <= _FEW_DECADES else []
    shown = _within(Scale(low, high, True, marks, between))
    if len(shown.marks) < 3:  # decades alone would leave most of the axis without a number
        finer = [(value * n, axis.quantity.text(value * n)) for value, _ in marks for n in (1, 2, 5)]
        shown = _within(Scale(low, high, True, finer, between))
    if len(shown.marks) < 3:
        return _within(Scale(low, high, True, axis.quantity.marks(high, 5, low)))
    return shown


def _apart(axis: Axis, least: float, most: float, room: float) -> tuple[float, float]:
    """The ends: those given, else these; the ones not given make room where nothing lies between them."""
    low = least if axis.low is None else axis.low
    high = most if axis.high is None else axis.high
    given = axis.low is not None and axis.high is not None
    if given or high - low > 10 * _NEAR * max(abs(low), abs(high)):  # values that differ by rounding only are one
        return low, high
    if axis.high is not None:
        return (high / 10 if axis.log else high - room), high
    if axis.low is not None:
        return low, (low * 10 if axis.log else low + room)
    return (low - room if low else 0.0), high + room


def _within(whole: Scale) -> Scale:
    marks = [mark for mark in whole.marks if whole.holds(mark[0])]
    minor = [value for value in whole.minor if whole.holds(value)]
    return Scale(whole.low, whole.high, whole.log, marks, minor)
