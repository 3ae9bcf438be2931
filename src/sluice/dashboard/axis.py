"""An axis of a chart: what it shows, where it begins and ends, and where a value lies on it."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sluice.dashboard.picture import TEXT, WIDTH, Spec, expression, text_width
from sluice.dashboard.quantity import COUNT, Quantity

_FAR = 1e3
"""How many times the range of an axis a value lies off at most, as far as can be told."""
_UPRIGHT: Spec = {"minExtent": 52, "tickCount": 5, "ticks": False}
_FORMAT = "format(datum.value, ',~r')"


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
    """An axis over values from `low` to `high`, which are drawn in a unit that suits them."""

    axis: Axis
    low: float
    high: float

    @classmethod
    def over(cls, axis: Axis, values: ArrayLike) -> Scale:
        """The axis over these values, as far as its ends are not given."""
        if axis.names:
            return cls(axis, -0.5, len(axis.names) - 0.5)
        numbers = np.asarray(values, dtype=np.float64)
        numbers = numbers[np.isfinite(numbers) & ((numbers > 0) | (not axis.log))]
        least, most = (float(numbers.min()), float(numbers.max())) if len(numbers) else (0.0, 0.0)
        return cls(axis, least if axis.low is None else axis.low, most if axis.high is None else axis.high)

    @property
    def unit(self) -> tuple[float, str]:
        """What a drawn value is a multiple of, and its name."""
        if self.axis.log or self.axis.names:
            return 1.0, ""
        return self.axis.quantity.unit(max(abs(self.low), abs(self.high)))

    def drawn(self, values: ArrayLike) -> NDArray[np.float64]:
        """Values in the unit; NaN for those that the axis cannot show."""
        numbers = np.asarray(values, dtype=np.float64)
        shown = np.isfinite(numbers) & ((numbers > 0) | (not self.axis.log))
        far = _FAR * max(self.high - self.low, abs(self.high))
        return np.where(shown, np.clip(np.where(shown, numbers, 1.0), -far, far), np.nan) / self.unit[0]

    def places(self, values: ArrayLike, length: float, upright: bool = False) -> NDArray[np.float64]:
        """About how many pixels values lie from the left, or from the top; ends may be rounded."""
        ends = np.array([min(0.0, self.low) if upright and not self.axis.log else self.low, self.high])
        numbers = self.drawn(values) * self.unit[0]
        if self.axis.log:
            ends, numbers = np.log10(np.maximum(ends, 1e-12)), np.log10(numbers)
        shares: NDArray[np.float64] = (numbers - ends[0]) / ((ends[1] - ends[0]) or 1.0)
        return length * (1 - shares if upright else shares)

    def encoding(self, field: str, upright: bool) -> Spec:
        """The axis in the words of Vega-Lite; zero is on one that stands upright, or where that costs little."""
        factor, _ = self.unit
        ends = {"domainMin": self.axis.low, "domainMax": self.axis.high}
        given = {name: end / factor for name, end in ends.items() if end is not None}
        kind: Spec = {"type": "log"} if self.axis.log else {"zero": upright or self.low <= self.high / 2}
        if self.axis.names:
            kind = {"domain": [self.low, self.high]}
        looks = _UPRIGHT if upright else {"grid": not self.axis.names, "tickCount": 8}
        return {
            "field": field,
            "type": "quantitative",
            "scale": {"nice": upright and not given, **kind, **given},
            "axis": {"title": textwrap.shorten(self.axis.name, 90) or None, **looks, **self._labels()},
        }

    def _labels(self) -> Spec:
        quantity = self.axis.quantity
        if self.axis.names:
            return _name_labels(self.axis.names)
        if self.axis.log:
            text = _FORMAT
            for factor, name in quantity.units:
                number = f"format(datum.value / {factor!r}, '~g')"
                text = f"datum.value >= {factor * 0.999!r} ? {_with_unit(number, name, quantity.each)} : ({text})"
            decades = math.ceil(math.log10(self.high)) - math.floor(math.log10(self.low)) if self.low > 0 else 0
            return {"labelExpr": f"datum.label === '' ? '' : {text}", "tickCount": decades if decades > 1 else 6}
        factor, name = self.unit
        text = f"datum.value === 0 ? '0' : {_with_unit(_FORMAT, name, quantity.each)}"
        if quantity.whole and factor == quantity.units[0][0]:  # there are no parts of a row
            return {"labelExpr": f"datum.value % 1 ? '' : {text}", "tickMinStep": 1}
        return {"labelExpr": text}


def _name_labels(names: Sequence[str]) -> Spec:
    """Names under their places, level in a few lines each, or tilted where one does not fit."""
    band = int(WIDTH / len(names) / text_width("n", TEXT))
    rows = [textwrap.wrap(name, max(4, band)) or [""] for name in names]
    looks: Spec = {"labelAngle": 0}
    if any(len(lines) > 3 or len(line) > band for lines in rows for line in lines):
        looks = {"labelAngle": -35, "labelAlign": "right", "labelOverlap": "parity"}
        rows = [[name] for name in names]
    return {"values": list(range(len(names))), "labelExpr": f"{expression(rows)}[datum.value]", "ticks": False, **looks}


def _with_unit(number: str, name: str, each: str) -> str:
    """An expression of Vega for a number and its unit."""
    after = (f" {name}" if name else "") + each
    return f"{number} + {expression(after)}" if after else number
