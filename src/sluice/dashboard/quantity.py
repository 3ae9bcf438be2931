"""Numbers for people: rows, bytes and seconds with the unit that keeps them short, and round marks for an axis."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Quantity:
    """Something counted or measured, with its units from small to large; `each` is appended, as in "12 k/s".

    `whole`: an axis is not divided finer than one of the smallest unit, such as a row or a byte.
    """

    units: tuple[tuple[float, str], ...]
    each: str = ""
    whole: bool = True

    def unit(self, value: float) -> tuple[float, str]:
        """The largest unit that the value fills."""
        fitting = [u for u in self.units if u[0] <= abs(value)]
        return fitting[-1] if fitting else self.units[0]

    def text(self, value: float) -> str:
        """A value with three digits and its unit.

        >>> ROWS.text(1_234_567), ROWS.text(950), BYTES.text(3 << 20), SECONDS.text(0.0123)
        ('1.23 M', '950', '3 MiB', '12.3 ms')
        >>> PRODUCTIVITY.text(0.05), PRODUCTIVITY.text(3)
        ('51.2/KiB', '3.07 k/KiB')
        >>> LATENCY.text(1e-5), MINUTES.text(90), COUNT.text(12_000), SHARE.text(0.123)
        ('10 µs', '1.5 min', '12,000', '12.3 %')
        """
        # 999.9 is written as the next unit's 1, not as 1000 of this one
        factor, name = self.unit(max(abs(value), float(f"{abs(value):.3g}")))
        return self._named(value / factor, name)

    def marks(self, top: float, about: int = 4, low: float = 0.0) -> list[tuple[float, str]]:
        """Round marks from zero, or from below `low`, to at least `top`, each with its text; all in one unit.

        >>> [text for _, text in BYTES.marks(3.4 * 2**20)]
        ['0', '1 MiB', '2 MiB', '3 MiB', '4 MiB']
        >>> [text for _, text in SHARE.marks(0.995, low=0.981)]
        ['98 %', '98.5 %', '99 %', '99.5 %']
        """
        factor, name = self.unit(max(top * 1.25, -low))  # the last mark may lie above `top`, in the next unit
        step = _round_step((top - low) / factor / about) if top > low else 1.0
        if self.whole and factor == self.units[0][0]:
            step = max(step, 1.0)
        first = math.floor(low / factor / step + 1e-9)
        last = max(first + 1, math.ceil(top / factor / step - 1e-9))
        finer = max(0, -math.floor(math.log10(step) + 1e-9))
        return [(i * step * factor, self._named(i * step, name, finer) if i else "0") for i in range(first, last + 1)]

    def decades(self, low: float, high: float) -> list[tuple[float, str]]:
        """Marks for a log axis at 1, 10, 100, … of every unit, from not above `low` to not below `high`.

        >>> [text for _, text in LATENCY.decades(2e-5, 0.04)]
        ['10 µs', '100 µs', '1 ms', '10 ms', '100 ms']
        >>> [text for _, text in BYTES.decades(200, 20_000)]
        ['100 B', '1 KiB', '10 KiB', '100 KiB']
        """
        low, high = low * (1 + 1e-9), high * (1 - 1e-9)
        smallest = self.units[0][0]
        rungs = [smallest * 10.0**power for power in range(math.floor(math.log10(low / smallest)), 0)]
        for (factor, _), (after, _) in zip(self.units, (*self.units[1:], (math.inf, "")), strict=True):
            value = float(factor)
            while 2 * value < after:  # a rung close below the next unit, such as 1,000 B, would crowd it
                rungs.append(value)
                if value >= high:
                    break
                value *= 10
        start = max(rung for rung in rungs if rung <= low)
        end = min(rung for rung in rungs if rung >= high)
        return [(rung, self.text(rung)) for rung in rungs if start <= rung <= end]

    def _named(self, number: float, name: str, finer: int | None = None) -> str:
        """With three digits, or where `finer` is given with so many behind the point."""
        if finer is not None:
            digits = f"{number:,.{finer}f}"
            digits = digits.rstrip("0").rstrip(".") if finer else digits
        else:
            digits = f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"
        return f"{digits} {name}".rstrip() + self.each


ROWS = Quantity(((1, ""), (1e3, "k"), (1e6, "M"), (1e9, "G")))
ROWS_PER_SECOND = Quantity(ROWS.units, "/s")
BYTES = Quantity(((1, "B"), (1 << 10, "KiB"), (1 << 20, "MiB"), (1 << 30, "GiB"), (1 << 40, "TiB")))
PRODUCTIVITY = Quantity(tuple((rows / 1024, name) for rows, name in ROWS.units), "/KiB", whole=False)
"""Results by byte of state."""
SECONDS = Quantity(((1e-3, "ms"), (1, "s")))
MINUTES = Quantity(((60, "min"),))
LATENCY = Quantity(((1e-6, "µs"), (1e-3, "ms"), (1, "s")), whole=False)
COUNT = Quantity(((1, ""),))
SHARE = Quantity(((0.01, "%"),), whole=False)
RATIO = Quantity(((1, ""),), whole=False)


def _round_step(rough: float) -> float:
    """The first of 1, 2, 5, 10, … (and their tenths) that is not below."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(s * power for s in (1, 2, 5, 10) if s * power >= rough * (1 - 1e-9))
