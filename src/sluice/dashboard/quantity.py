"""Numbers for people: rows, bytes and seconds with the unit that keeps them short, and round marks for an axis."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Quantity:
    """Something counted or measured, with its units from small to large; `each` is appended, as in "12 k/s"."""

    units: tuple[tuple[float, str], ...]
    each: str = ""

    def unit(self, value: float) -> tuple[float, str]:
        """The largest unit that the value fills."""
        fitting = [u for u in self.units if u[0] <= abs(value)]
        return fitting[-1] if fitting else self.units[0]

    def text(self, value: float) -> str:
        """A value with three digits and its unit.

        >>> ROWS.text(1_234_567), ROWS.text(950), BYTES.text(3 << 20), SECONDS.text(0.0123)
        ('1.23 M', '950', '3 MiB', '12.3 ms')
        """
        # 999.9 is written as the next unit's 1, not as 1000 of this one
        factor, name = self.unit(float(f"{value:.3g}"))
        return self._named(value / factor, name)

    def marks(self, top: float, about: int = 4) -> list[tuple[float, str]]:
        """Round marks from zero to at least `top`, each with its text; all in one unit.

        >>> [text for _, text in BYTES.marks(3.4 * 2**20)]
        ['0', '1 MiB', '2 MiB', '3 MiB', '4 MiB']
        """
        factor, name = self.unit(top * 1.25)  # the last mark may lie above `top`, in the next unit
        step = _round_step(top / factor / about) if top > 0 else 1.0
        if factor == self.units[0][0]:
            step = max(step, 1.0)  # nothing is smaller than one row, byte or millisecond
        last = max(1, math.ceil(top / factor / step - 1e-9))
        return [(i * step * factor, self._named(i * step, name) if i else "0") for i in range(last + 1)]

    def _named(self, number: float, name: str) -> str:
        digits = f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"
        return f"{digits} {name}".rstrip() + self.each


ROWS = Quantity(((1, ""), (1e3, "k"), (1e6, "M"), (1e9, "G")))
ROWS_PER_SECOND = Quantity(ROWS.units, "/s")
BYTES = Quantity(((1, "B"), (1 << 10, "KiB"), (1 << 20, "MiB"), (1 << 30, "GiB"), (1 << 40, "TiB")))
SECONDS = Quantity(((1e-3, "ms"), (1, "s")))


def _round_step(rough: float) -> float:
    """The first of 1, 2, 5, 10, … (and their tenths) that is not below."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(s * power for s in (1, 2, 5, 10) if s * power >= rough * (1 - 1e-9))
