"""Kernels on dates and timestamps that need a calendar or a time zone.

Spark reads the calendar of a timestamp in the session's time zone with Java's rules. A local time that a clock
change skips is read with the offset before the change, one that occurs twice with the earlier offset, unless a
computation started from the later one.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluice.expressions.kernels.arrow_numpy import align, demand, numbers, rebuilt, valid
from sluice.expressions.nodes import Datum
from sluice.expressions.types import DATE, INTERVAL, LOCAL_TIME

SECOND = 1_000_000
DAY = 86_400 * SECOND
_CYCLE = 146_097 * DAY  # the Gregorian calendar, weekdays included, repeats every 400 years
_KNOWN_CYCLES = 20  # Arrow's calendar ends with the year 32767
_TABLE_START = datetime(2037, 1, 1, tzinfo=timezone.utc)
_TABLE_YEARS = 463


def _micros(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(microseconds=1)


def fixed_offset(zone: str) -> int | None:
    """The zone's distance from UTC in microseconds, if it never changes."""
    if zone in ("UTC", "GMT", "Etc/UTC", "Etc/GMT"):
        return 0
    match = re.fullmatch(r"([+-])(\d\d):(\d\d)", zone)
    if match is None:
        return None
    size = (int(match[2]) * 3600 + int(match[3]) * 60) * SECOND
    return -size if match[1] == "-" else size


@lru_cache(maxsize=8)
def _late_offsets(zone: str) -> tuple[Any, Any]:
    """Changes of offset from 2037 on, where Arrow stops following daylight saving time."""
    region, week, second = ZoneInfo(zone), timedelta(days=7), timedelta(seconds=1)
    moment, times, offsets = _TABLE_START, [_TABLE_START], [_TABLE_START.astimezone(region).utcoffset()]
    for _ in range(_TABLE_YEARS * 52):
        later = moment + week
        if later.astimezone(region).utcoffset() != offsets[-1]:
            low, high = moment, later
            while high - low > second:
                middle = low + (high - low) // 2 // second * second
                same = middle.astimezone(region).utcoffset() == offsets[-1]
                low, high = (middle, high) if same else (low, middle)
            times.append(high)
            offsets.append(high.astimezone(region).utcoffset())
        moment = later
    steps = [offset // timedelta(microseconds=1) for offset in offsets if offset is not None]
    return np.array([_micros(time) for time in times]), np.array(steps)


def _offset_at(instants: Any, zone: str) -> Any:
    fixed = fixed_offset(zone)
    if fixed is not None:
        return np.full(len(instants), fixed)
    array = pa.array(instants).view(pa.timestamp("us", zone))
    offsets = numbers(pc.local_timestamp(array)) - instants
    late = instants >= _micros(_TABLE_START)
    if late.any():
        times, steps = _late_offsets(zone)
        last = times[0] + (_TABLE_YEARS - 1) * 364 * DAY
        beyond = np.maximum(0, -((last - instants[late]) // _CYCLE))
        offsets = offsets.copy()
        offsets[late] = steps[np.searchsorted(times, instants[late] - beyond * _CYCLE, side="right") - 1]
    return offsets


def _instant_of(local: Any, zone: str, preferred: Any = None) -> Any:
    """The instants at which clocks in the zone show the local times."""
    fixed = fixed_offset(zone)
    if fixed is not None:
        return local - fixed
    before, after = _offset_at(local - DAY, zone), _offset_at(local + DAY, zone)
    early, late = local - before, local - after
    early_holds, late_holds = _offset_at(early, zone) == before, _offset_at(late, zone) == after
    take_late = late_holds & ~early_holds
    if preferred is not None:
        take_late |= late_holds & (preferred == after)
    return np.where(take_late, late, early)


def local_time(instants: pa.Array) -> pa.Array:
    """What clocks in the array's time zone show."""
    values = numbers(instants)
    return rebuilt(values + _offset_at(values, instants.type.tz), valid(instants), LOCAL_TIME)


def instant(local: pa.Array, *, zone: str) -> pa.Array:
    return rebuilt(_instant_of(numbers(local), zone), valid(local), pa.timestamp("us", zone))


def midnight(dates: pa.Array, *, zone: str | None) -> pa.Array:
    """The first instant of each day in the zone, which a clock change at midnight puts later than 00:00."""
    local = _midnight(dates)
    if zone is None:
        return local
    if fixed_offset(zone) is not None:
        return instant(local, zone=zone)
    starts = numbers(instant(local, zone=zone))
    skipped = starts + _offset_at(starts, zone) != numbers(local)
    if (skipped & valid(dates)).any():
        first = pc.assume_timezone(local, zone, ambiguous="earliest", nonexistent="latest")
        starts = np.where(skipped, numbers(first), starts)
    return rebuilt(starts, valid(dates), pa.timestamp("us", zone))


def _midnight(dates: pa.Array) -> pa.Array:
    days = numbers(dates).astype(np.int64)
    present = valid(dates)
    demand(np.abs(days) < 2**63 // DAY, present, "a date is too far from today to be a timestamp")
    return rebuilt(np.where(present, days, 0) * DAY, present, LOCAL_TIME)


def date_of(moments: pa.Array) -> pa.Array:
    """The calendar day of timestamps, in their zone if they have one."""
    local = local_time(moments) if moments.type.tz else moments
    return rebuilt((numbers(local) // DAY).astype(np.int32), valid(local), DATE)


def calendar_field(moments: pa.Array, *, field: str, **options: Any) -> pa.Array:
    """A part of the calendar or the clock, as an int."""
    local = local_time(moments) if getattr(moments.type, "tz", None) else moments
    near, cycles = _in_known_years(local)
    field_values = getattr(pc, field)(near, **options).cast(pa.int32())
    if field != "year" or not cycles.any():
        return field_values
    return rebuilt((numbers(field_values) + 400 * cycles).astype(np.int32), valid(field_values), field_values.type)


def _in_known_years(local: pa.Array) -> tuple[pa.Array, Any]:
    """The same place in the calendar in a year that Arrow knows, and how many cycles of the calendar it is away."""
    values, cycle = numbers(local), _CYCLE // DAY if local.type == DATE else _CYCLE
    far = (values > _KNOWN_CYCLES * cycle) | (values < -_KNOWN_CYCLES * cycle)
    cycles = np.where(far, values // cycle, 0)
    if not far.any():
        return local, cycles
    return rebuilt((values - cycles * cycle).astype(values.dtype), valid(local), local.type), cycles


def truncate(moments: pa.Array, *, unit: str) -> pa.Array:
    """Instants cut down to the start of their year, ..., second, ... in their time zone."""
    zone, instants = moments.type.tz, numbers(moments)
    if unit in ("second", "millisecond", "microsecond"):
        size = {"second": SECOND, "millisecond": 1000, "microsecond": 1}[unit]
        return _not_after(moments, instants // size * size)
    local = local_time(moments)
    near, cycles = _in_known_years(local)
    floor = _not_after(local, numbers(pc.floor_temporal(near, unit=unit)) + cycles * _CYCLE)
    if unit in ("day", "hour", "minute"):
        return rebuilt(_instant_of(numbers(floor), zone, _offset_at(instants, zone)), valid(moments), moments.type)
    return midnight(date_of(floor), zone=zone)


def _not_after(moments: pa.Array, floor: Any) -> pa.Array:
    """What moments were cut down to; one that comes out later has gone beyond the end of all times."""
    demand(floor <= numbers(moments), valid(moments), "overflow")
    return rebuilt(floor, valid(moments), moments.type)


def add_interval(moments: Datum, interval: Datum) -> pa.Array:
    """Timestamps moved by day-time intervals; in a zone, whole days keep the clock's time across clock changes."""
    moments, interval = align(moments, interval)
    zone, present = moments.type.tz, valid(moments, interval)
    if zone is None or fixed_offset(zone) is not None:
        return pc.add_checked(moments, interval)
    instants, span = numbers(moments), numbers(interval)
    demand(np.abs(instants.astype(float) + span) < 2.0**62, present, "overflow")
    rest = np.fmod(span, DAY)
    offsets = _offset_at(instants, zone)
    moved = _instant_of(instants + offsets + (span - rest), zone, offsets)
    return rebuilt(np.where(span == rest, instants, moved) + rest, present, moments.type)


def difference(left: Datum, right: Datum) -> pa.Array:
    """The interval between two timestamps as clocks in their zone show it."""
    left, right = align(left, right)
    if left.type.tz is not None and fixed_offset(left.type.tz) is None:
        left, right = local_time(left), local_time(right)
    return pc.subtract_checked(left, right)


def days_between(left: Datum, right: Datum, *, type_: pa.DataType) -> pa.Array:
    """The days from the right date to the left, as an interval or an int."""
    left, right = align(left, right)
    days, present = numbers(left).astype(np.int64) - numbers(right), valid(left, right)
    if type_ == INTERVAL:
        demand(np.abs(days) <= (2**63 - 1) // DAY, present, "overflow")
        return rebuilt(np.where(present, days, 0) * DAY, present, INTERVAL)
    return rebuilt(days.astype(np.int32), present, type_)  # which goes round at the ends, as in Spark


def add_days(dates: Datum, days: Datum, *, sign: int = 1) -> pa.Array:
    dates, days = align(dates, days)
    result, present = numbers(dates).astype(np.int64) + sign * numbers(days).astype(np.int64), valid(dates, days)
    demand(np.abs(result) < 2**31, present, "overflow")
    return rebuilt(result.astype(np.int32), present, DATE)


def add_months(moments: Datum, months: Datum) -> pa.Array:
    """Dates or timestamps moved by months, to the month's last day where the day does not exist."""
    moments, months = align(moments, months)
    present = valid(moments, months)
    if moments.type == DATE:
        days = _months_later(numbers(moments).astype(np.int64), numbers(months))
        demand(np.abs(days) < 2**31, present, "overflow")
        return rebuilt(days.astype(np.int32), present, DATE)
    zone, instants = moments.type.tz, numbers(moments)
    offsets = _offset_at(instants, zone) if zone else np.int64(0)
    local = instants + offsets
    days = local // DAY
    moved = _months_later(days, numbers(months)) * DAY + (local - days * DAY)
    return rebuilt(_instant_of(moved, zone, offsets) if zone else moved, present, moments.type)


def _months_later(days: Any, months: Any) -> Any:
    month = days.astype("M8[D]").astype("M8[M]")
    day = days - month.astype("M8[D]").astype(np.int64)
    target = month + months.astype("m8[M]")
    length = ((target + 1).astype("M8[D]") - target.astype("M8[D]")).astype(np.int64)
    return target.astype("M8[D]").astype(np.int64) + np.minimum(day, length - 1)


def epoch(moments: pa.Array, *, micros: int, towards_zero: bool = False) -> pa.Array:
    """Instants as a count of units since 1970 in UTC."""
    values = numbers(moments)
    counts = values // micros
    if towards_zero:
        counts = counts + ((values < 0) & (values % micros != 0))
    return rebuilt(counts, valid(moments), pa.int64())


def from_seconds(counts: pa.Array, *, zone: str) -> pa.Array:
    """Seconds since 1970 as instants, beyond the ends of all times the first and the last of them."""
    values, most = numbers(counts).astype(np.int64), (2**63 - 1) // SECOND
    instants = np.clip(values, -most, most) * SECOND
    instants = np.where(values > most, 2**63 - 1, np.where(values < -most, -(2**63), instants))
    return rebuilt(instants, valid(counts), pa.timestamp("us", zone))


def from_epoch(counts: pa.Array, *, micros: int, zone: str) -> pa.Array:
    values, present = numbers(counts).astype(np.int64), valid(counts)
    demand((values <= (2**63 - 1) // micros) & (values >= -(2**63 // micros)), present, "overflow")
    return rebuilt(values * micros, present, pa.timestamp("us", zone))
