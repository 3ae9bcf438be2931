"""What was frozen, and how far cleaning up has come, in words: the same in the terminal and in `sluice inspect`."""

from __future__ import annotations

from sluice.dashboard.quantity import BYTES, ROWS, ROWS_PER_SECOND


def frozen_text(units: int, rows: int, size: float, missing: int) -> str:
    """What lies outside of memory until it is cleaned up, and how many units miss results because of it.

    >>> frozen_text(1, 1200, 34 << 20, 0), frozen_text(12, 1_200_000, 34 << 20, 8)
    ('1 unit, 1.2 k rows, 34 MiB; no unit misses results', '12 units, 1.2 M rows, 34 MiB; 8 units miss results')
    """
    missed = {0: "no unit misses results", 1: "1 unit misses results"}.get(missing, f"{missing:,} units miss results")
    return f"{units:,} unit{'' if units == 1 else 's'}, {ROWS.text(rows)} rows, {BYTES.text(size)}; {missed}"


def clean_up_text(done: int, left: int, results: int, rate: float) -> str:
    """How far cleaning up has come.

    >>> clean_up_text(300_000, 100_000, 71_500, 4_000)
    '300 k rows done, 100 k left (75 %); 71.5 k results found; 4 k/s'
    """
    part = done / (done + left) if done + left else 1.0
    rows = f"{ROWS.text(done)} rows done, {ROWS.text(left)} left ({part:.0%})".replace("%", " %")
    return f"{rows}; {ROWS.text(results)} results found; {ROWS_PER_SECOND.text(rate)}"
