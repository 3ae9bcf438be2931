"""One table of a scenario file, read key by key; what is not known or makes no sense is refused by its path."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import TypeVar

from sluice.model.durations import seconds
from sluice.model.errors import FlowError, ScenarioError

T = TypeVar("T")

_BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BYTES |= {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_BITS = {"bit": 1, "kbit": 10**3, "Mbit": 10**6, "Gbit": 10**9}
_FACTORS = {unit.lower(): float(size) for unit, size in _BYTES.items()}
_FACTORS |= {unit.lower(): size / 8 for unit, size in _BITS.items()}
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*(/\s*s(?:ec(?:ond)?)?)?\s*")


class Section:
    """A table by its path in the file, such as `cluster` or `load[2]`, and the keys it may have.

    >>> Section("cluster", {"sites": 4}, ["sites", "memory"]).count("sites", 32)
    4
    >>> Section("cluster", {"memroy": "1 GB"}, ["sites", "memory"])
    Traceback (most recent call last):
    sluice.model.errors.ScenarioError: cluster.memroy: there is no such key; did you mean memory?
    """

    def __init__(self, path: str, given: object, known: Sequence[str]) -> None:
        if not isinstance(given, Mapping):
            raise ScenarioError(f"{path}: this is a section, written [{path}], not {given!r}")
        self.path, self.given, self.known = path, given, known
        for key in given:
            if key not in known:
                raise ScenarioError(f"{self.of(key)}: there is no such key; {meant(key, known)}")

    def __contains__(self, key: str) -> bool:
        return key in self.given

    def of(self, key: str) -> str:
        """The key's path."""
        return f"{self.path}.{key}" if self.path else key

    def refuses(self, key: str, why: str) -> ScenarioError:
        """The error to raise about a key."""
        return ScenarioError(f"{self.of(key)}: {why}")

    def count(self, key: str, default: int, least: int = 1) -> int:
        def read(value: object) -> int:
            if isinstance(value, bool) or not isinstance(value, int):
                raise self.refuses(key, f"this must be a whole number, not {value!r}")
            if not least <= value < 1 << 62:
                raise self.refuses(key, f"this must be at least {least}" if value < least else "this is too large")
            return value

        return self._read(key, default, read)

    def flag(self, key: str, default: bool) -> bool:
        def read(value: object) -> bool:
            if not isinstance(value, bool):
                raise self.refuses(key, f"this must be true or false, not {value!r}")
            return value

        return self._read(key, default, read)

    def number(self, key: str, default: float, above: float, below: float) -> float:
        """A number between two, and neither of them."""

        def read(value: object) -> float:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise self.refuses(key, f"this must be a number, not {value!r}")
            if not above < value < below:
                raise self.refuses(key, f"this must be above {above:g} and below {below:g}, not {value}")
            return float(value)

        return self._read(key, default, read)

    def text(self, key: str, default: str) -> str:
        def read(value: object) -> str:
            if not isinstance(value, str) or not value.strip():
                raise self.refuses(key, f"this must be a text, not {value!r}")
            return value.strip()

        return self._read(key, default, read)

    def texts(self, key: str, default: Sequence[str]) -> tuple[str, ...]:
        """A list of texts, or one of them."""

        def read(value: object) -> tuple[str, ...]:
            found = value if isinstance(value, list) else [value]
            if not found or not all(isinstance(one, str) for one in found):
                raise self.refuses(key, f"this must be a text or a list of texts, not {value!r}")
            return tuple(found)

        return self._read(key, tuple(default), read)

    def duration(self, key: str, default: float, positive: bool = False) -> float:
        """Seconds, written with their unit."""
        return self._read(key, default, lambda value: duration(value, self.of(key), positive))

    def size(self, key: str, default: int, least: int = 1) -> int:
        """Bytes, written with their unit or as a whole number; KB are 1000 of them and KiB 1024."""

        def read(value: object) -> int:
            found = value if isinstance(value, int) and not isinstance(value, bool) else self._quantity(value, "")
            if found is None or found >= 1 << 62:
                raise self.refuses(key, f"{value!r} is not a size; write for example '800 KB' or '1 GiB'")
            if found < least:
                raise self.refuses(key, f"{value!r} is too small")
            return int(found)

        return self._read(key, default, read)

    def rate(self, key: str, default: float) -> float:
        """Bytes a second."""

        def read(value: object) -> float:
            found = self._quantity(value, "/s")
            if found is None:
                raise self.refuses(key, f"{value!r} is not a rate; write for example '20 MB/s' or '250 Mbit/s'")
            if not found > 0:
                raise self.refuses(key, f"{value!r} is no rate at which anything ever arrives")
            return found

        return self._read(key, default, read)

    def _read(self, key: str, default: T, read: Callable[[object], T]) -> T:
        return read(self.given[key]) if key in self.given else default

    @staticmethod
    def _quantity(value: object, each: str) -> float | None:
        found = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
        factor = _FACTORS.get(found[2].lower()) if found else None
        if found is None or factor is None or bool(found[3]) != bool(each):
            return None
        if not each and found[2].lower().endswith("bit"):
            return None  # sizes are in bytes
        return float(found[1]) * factor


def duration(value: object, path: str, positive: bool = False) -> float:
    """Seconds from a text with its unit, such as "45 us" or "1.5 seconds"."""
    if not isinstance(value, str):
        hint = f'write for example "{value} seconds"' if isinstance(value, int | float) else 'write "1.5 seconds"'
        raise ScenarioError(f"{path}: {value!r} is a duration without its unit; {hint}")
    try:
        found = seconds(value, f"{path}: this")
    except FlowError as problem:
        raise ScenarioError(str(problem)) from None
    if positive and not found > 0:
        raise ScenarioError(f"{path}: {value!r} is too short, it must be longer than nothing")
    return found


def meant(name: str, known: Sequence[str]) -> str:
    """What was probably meant by a name that does not exist, else all that do."""
    close = get_close_matches(name.lower().replace("_", "-"), known, n=2, cutoff=0.6)
    return f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(known)}"
