"""Durations and sizes as users write them: "30 seconds", "1 minute 30 seconds", "512m"."""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction

from sluice.model.errors import FlowError

MICROSECONDS = {
    "microsecond": 1,
    "us": 1,
    "millisecond": 1_000,
    "ms": 1_000,
    "second": 1_000_000,
    "sec": 1_000_000,
    "s": 1_000_000,
    "minute": 60_000_000,
    "min": 60_000_000,
    "m": 60_000_000,
    "hour": 3_600_000_000,
    "h": 3_600_000_000,
    "day": 86_400_000_000,
    "d": 86_400_000_000,
    "week": 604_800_000_000,
}
LONGEST = 10_000 * 366 * MICROSECONDS["day"]
"""No two event times are farther apart, and sums with any of them stay inside 64 bits: so it bounds nothing."""
UNBOUNDED = "unbounded"
BYTES = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}

_PART = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*(?:,|and\b)?\s*")
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([bkmgt]?)i?b?\s*", re.IGNORECASE)


_EXAMPLES = "'30 seconds' or '1 hour'"


def microseconds(value: object, what: str) -> int:
    """A duration in microseconds; `what` names it in the error.

    >>> microseconds("1 minute 30 seconds", "within")
    90000000
    >>> microseconds("-5 seconds", "delay of stream 'trades'")
    Traceback (most recent call last):
    sluice.model.errors.FlowError: delay of stream 'trades' must not be negative: '-5 seconds'
    """
    return round(_microseconds(value, what))


def bound_in_microseconds(value: object, what: str) -> int:
    """A duration in microseconds that may also be "unbounded", in any case.

    >>> bound_in_microseconds("1 second", "within"), bound_in_microseconds("UNBOUNDED", "within") == LONGEST
    (1000000, True)
    >>> bound_in_microseconds("forever", "within")
    Traceback (most recent call last):
    sluice.model.errors.FlowError: within is not a duration: 'forever'; write for example '30 seconds', '1 hour' or \
'unbounded'
    """
    if is_unbounded(value):
        return LONGEST
    return round(_microseconds(value, what, f"'30 seconds', '1 hour' or {UNBOUNDED!r}"))


def is_unbounded(value: object) -> bool:
    """Whether a bound is said to be none."""
    return isinstance(value, str) and value.strip().lower() == UNBOUNDED


def seconds(value: object, what: str) -> float:
    """A duration in seconds, for times that may be shorter than a microsecond.

    >>> seconds("0.5 us", "produce"), seconds("1 minute 30 seconds", "end")
    (5e-07, 90.0)
    """
    return float(_microseconds(value, what)) / MICROSECONDS["second"]


def _microseconds(value: object, what: str, examples: str = _EXAMPLES) -> Fraction:
    if isinstance(value, timedelta):
        total = Fraction(value // timedelta(microseconds=1))
    elif isinstance(value, str):
        total, at = Fraction(0), 0
        text = value.strip().removeprefix("INTERVAL ").removeprefix("interval ").replace("'", "")
        while at < len(text):
            part = _PART.match(text, at)
            unit = part and _unit(part[2])
            if not part or not unit:
                raise FlowError(f"{what} is not a duration: {value!r}; write for example {examples}")
            total += Fraction(part[1]) * unit
            at = part.end()
        if not text:
            raise FlowError(f"{what} is empty; write for example {examples}")
    else:
        raise FlowError(f"{what} must be a duration such as '30 seconds' or a timedelta, not {value!r}")
    if total < 0:
        raise FlowError(f"{what} must not be negative: {value!r}")
    if total > LONGEST:
        raise FlowError(f"{what} is longer than 10,000 years: {value!r}")
    return total


def _unit(word: str) -> int | None:
    word = word.lower()
    return MICROSECONDS.get(word) or MICROSECONDS.get(word.removesuffix("s"))


def size_in_bytes(value: object, what: str) -> int:
    """A size in bytes from a number or a text such as "512m".

    >>> size_in_bytes("1.5g", "siteMemory")
    1610612736
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if not match:
        raise FlowError(f"{what} is not a size: {value!r}; write for example '512m' or '2g'")
    return int(float(match[1]) * BYTES[match[2].lower()])


def in_words(micros: int | None) -> str:
    """A duration for people.

    >>> in_words(90_000_000), in_words(500), in_words(None)
    ('90 seconds', '500 microseconds', 'unbounded')
    """
    if micros is None or micros >= LONGEST:
        return UNBOUNDED
    for unit in ("day", "hour", "minute"):
        if micros and micros % MICROSECONDS[unit] == 0:
            return f"{micros // MICROSECONDS[unit]} {unit}{'s' if micros != MICROSECONDS[unit] else ''}"
    if micros % 1_000_000 == 0:
        return f"{micros // 1_000_000} seconds"
    if micros % 1_000 == 0:
        return f"{micros // 1_000} milliseconds"
    return f"{micros} microseconds"
