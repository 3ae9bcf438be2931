"""Numbers for people: rows, bytes and seconds with the unit that keeps them short."""

from __future__ import annotations

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
        >>> BYTES.text(1 << 30), BYTES.text((1 << 30) - 1), ROWS.text(999.9), SECONDS.text(0.9996)
        ('1 GiB', '1 GiB', '1 k', '1 s')
        >>> PRODUCTIVITY.text(0.05), PRODUCTIVITY.text(3)
        ('51.2/KiB', '3.07 k/KiB')
        >>> LATENCY.text(1e-5), MINUTES.text(90), COUNT.text(12_000), SHARE.text(0.123)
        ('10 µs', '1.5 min', '12,000', '12.3 %')
        """
        # 999.9 is written as the next unit's 1, not as 1000 of this one, and so are 1023.9 MiB
        near, _ = self.unit(value)
        factor, name = self.unit(max(abs(value), float(f"{abs(value):.3g}"), near * round(abs(value) / near)))
        return self._named(value / factor, name)

    def _named(self, number: float, name: str) -> str:
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
