"""How the values of a scenario are written in a file, and which make sense: told by the types of its fields."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from sluice.model.durations import seconds
from sluice.model.errors import FlowError, ScenarioError

_BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BYTES |= {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_BITS = {"bit": 1, "kbit": 10**3, "Mbit": 10**6, "Gbit": 10**9}
_FACTORS = {unit.lower(): float(size) for unit, size in _BYTES.items()}
_FACTORS |= {unit.lower(): size / 8 for unit, size in _BITS.items()}
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*(/\s*s(?:ec(?:ond)?)?)?\s*")


def _count(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"this must be a whole number, not {value!r}")
    if value >= 1 << 62:
        raise ValueError("this is too large")
    return value


def read_number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"this must be a number, not {value!r}")
    return float(value)


def _duration(value: object) -> float:
    if not isinstance(value, str):
        hint = f'write for example "{value} seconds"' if isinstance(value, int | float) else 'write "1.5 seconds"'
        raise ValueError(f"{value!r} is a duration without its unit; {hint}")
    try:
        return seconds(value, "this")
    except FlowError as problem:
        raise ValueError(str(problem)) from None


def _run_seconds(value: object) -> float:
    """The one duration that is a number too: its key has the unit."""
    return _duration(value) if isinstance(value, str) else read_number(value)


def _size(value: object) -> float:
    """Bytes, written with their unit or as a whole number; KB are 1000 of them and KiB 1024."""
    size = value if isinstance(value, int) and not isinstance(value, bool) else _quantity(value, "")
    if size is None or size >= 1 << 62:
        raise ValueError(f"{value!r} is not a size; write for example '800 KB' or '1 GiB'")
    return int(size)


def _rate(value: object) -> float:
    rate = _quantity(value, "/s")
    if rate is None:
        raise ValueError(f"{value!r} is not a rate; write for example '20 MB/s' or '250 Mbit/s'")
    return rate


def _quantity(value: object, each: str) -> float | None:
    parts = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    factor = _FACTORS.get(parts[2].lower()) if parts else None
    if parts is None or factor is None or bool(parts[3]) != bool(each):
        return None
    if not each and parts[2].lower().endswith("bit"):
        return None  # sizes are in bytes
    return float(parts[1]) * factor


@dataclass(frozen=True)
class NumberKind:
    """A kind of number: how it is read, and its bounds, neither of which it may be. `nothing`: it may be 0, too."""

    read: Callable[[object], float]
    nothing: bool = False
    above: float = 0.0
    below: float = math.inf

    def parse(self, value: object) -> float:
        """The number that a value of a file is; `ValueError` if it is none, or out of bounds."""
        number = self.read(value)
        if not self.allows(number):
            raise ValueError(f"this must be {self._bounds}, not {value!r}")
        return number

    def allows(self, number: float) -> bool:
        return self.above < number < self.below or (self.nothing and number == 0)

    def check(self, name: str, number: float) -> None:
        """
        >>> NumberKind(_duration).check("window", -1.0)
        Traceback (most recent call last):
        sluice.model.errors.ScenarioError: window: this must be above 0, not -1.0
        """
        if not self.allows(number):
            raise ScenarioError(f"{name}: this must be {self._bounds}, not {number}")

    @property
    def _bounds(self) -> str:
        least = "at least 0" if self.nothing else f"above {self.above:g}"
        return least if self.below == math.inf else f"{least} and below {self.below:g}"


Seconds = Annotated[float, NumberKind(_duration)]
Delay = Annotated[float, NumberKind(_duration, nothing=True)]
RunSeconds = Annotated[float, NumberKind(_run_seconds, below=1e6)]
Bytes = Annotated[int, NumberKind(_size)]
ByteRate = Annotated[float, NumberKind(_rate)]
Count = Annotated[int, NumberKind(_count)]
Natural = Annotated[int, NumberKind(_count, nothing=True)]
Factor = Annotated[float, NumberKind(read_number)]
Exponent = Annotated[float, NumberKind(read_number, nothing=True)]
_ANY_NUMBER = NumberKind(read_number, above=-math.inf)


def in_bytes(size: int) -> str:
    """A size as a scenario file has it: in the largest unit of which it is a whole number, if there is one.

    >>> in_bytes(800_000), in_bytes(6 << 20), in_bytes(1_234_567)
    ('800 KB', '6 MiB', '1.235 MB')
    """
    units = (("GB", 10**9), ("GiB", 1 << 30), ("MB", 10**6), ("MiB", 1 << 20), ("KB", 10**3), ("KiB", 1 << 10))
    for unit, factor in units:
        if size and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size / 10**6:.4g} MB" if size >= 10**6 else f"{size} B"


def parse(value: object, hint: Any) -> Any:
    """What a value of a file means for a field of this type; `ValueError` says why it means nothing.

    >>> parse("45 us", Seconds), parse("none", Seconds | None), parse([1, 0.5], tuple[float, ...])
    (4.5e-05, None, (1.0, 0.5))
    """
    if get_origin(hint) is tuple:
        entries = value if isinstance(value, list) else [value]
        if not entries:
            raise ValueError("this must be one or several, not []")
        return tuple(parse(entry, get_args(hint)[0]) for entry in entries)
    kind = _ANY_NUMBER if hint is float else _kind_of(hint)
    if kind is not None:
        return kind.parse(value)
    if NoneType in get_args(hint):
        return None if value == "none" else parse(value, next(one for one in get_args(hint) if one is not NoneType))
    if hint is bool and not isinstance(value, bool):
        raise ValueError(f"this must be true or false, not {value!r}")
    if hint is str and (not isinstance(value, str) or not value.strip()):
        raise ValueError(f"this must be a text, not {value!r}")
    return value.strip() if isinstance(value, str) else value


def _kind_of(hint: Any) -> NumberKind | None:
    return next((kind for kind in getattr(hint, "__metadata__", ()) if isinstance(kind, NumberKind)), None)


def hints_of(described: type) -> Mapping[str, Any]:
    """The types of a dataclass's fields."""
    return get_type_hints(described, include_extras=True)


def check_numbers(described: Any, path: str = "") -> None:
    """Refuses a number that makes no sense, by the path of its field."""
    for name, hint in hints_of(type(described)).items():
        kind, value = _kind_of(hint), getattr(described, name)
        if kind is not None:
            kind.check(path + name, value)
        elif get_origin(hint) is tuple:
            for number, entry in enumerate(one for one in value if is_dataclass(one)):
                check_numbers(entry, f"{path}{name}[{number}].")
