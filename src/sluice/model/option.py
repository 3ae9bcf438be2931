"""A table of options: each row says what an option is called, what it takes, where it holds and what it is for.

What reads options, refuses wrong ones or documents them goes by such rows, so that a new option is one row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Generic, TypeVar

from sluice.model.durations import seconds, size_in_bytes
from sluice.model.errors import FlowError

T = TypeVar("T")


@dataclass(frozen=True)
class Kind(Generic[T]):
    """What an option takes: in words, and how it is read from what a user gives."""

    words: str
    read: Callable[[str, object], T]


@dataclass(frozen=True)
class Option(Generic[T]):
    """One option. `default` is written as a user would give it; where there is none, `unless_given` says what holds.

    >>> memory = Option("siteMemory", SIZE, "query", "state a site keeps in memory", default="1g")
    >>> memory.value({}), memory.value({"siteMemory": "512m"})
    (1073741824, 536870912)
    """

    name: str
    kind: Kind[T]
    scope: str
    """What it holds for: a query as a whole, a sink, a format of files."""
    help: str
    default: str | int | None = None
    unless_given: str = ""

    def value(self, options: Mapping[str, Any]) -> T:
        """What is given under the option's name, else its default; only for options that have one."""
        assert self.default is not None, f"option {self.name!r} has no default"
        return self.kind.read(self.name, options.get(self.name, self.default))

    def value_if_given(self, options: Mapping[str, Any]) -> T | None:
        """What is given under the option's name; None if nothing is."""
        value = options.get(self.name)
        return None if value is None else self.kind.read(self.name, value)

    @property
    def default_text(self) -> str:
        """What holds unless it is given, in words."""
        return self.unless_given or (f"`{self.default}`" if self.default is not None else "none")


def find_option(table: Iterable[Option[Any]], name: str) -> Option[Any]:
    """The row of this name, in any case; an unknown name is refused with the one that was probably meant.

    >>> rows = [Option("sites", WHOLE_NUMBER, "query", "how many sites hold state", default=2)]
    >>> find_option(rows, "SITES").name
    'sites'
    >>> find_option(rows, "site")
    Traceback (most recent call last):
    sluice.model.errors.FlowError: there is no option 'site', perhaps 'sites' is meant; known: sites
    """
    rows = {row.name.lower(): row for row in table}
    row = rows.get(str(name).lower())
    if row is None:
        names = [each.name for each in rows.values()]
        raise FlowError(f"there is no option {name!r}{suggest_name(name, names)}; known: {', '.join(names)}")
    return row


def suggest_name(name: str, names: Iterable[str]) -> str:
    """Which of the known names was probably meant, as a part of a message; empty if none is like it.

    >>> suggest_name("heder", ["header", "sep"])
    ", perhaps 'header' is meant"
    """
    spelled = {each.lower(): each for each in names}
    near = get_close_matches(str(name).lower(), spelled, n=1)
    return f", perhaps {spelled[near[0]]!r} is meant" if near else ""


def one_of(*choices: str) -> Kind[str]:
    """One of a few words, in any case."""

    def read(name: str, value: object) -> str:
        if str(value).lower() not in choices:
            raise FlowError(f"option {name!r} must be one of {', '.join(choices)}, not {value!r}")
        return str(value).lower()

    return Kind(", ".join(f"`{choice}`" for choice in choices), read)


def _read_whole_number(name: str, value: object) -> int:
    try:
        number = int(str(value))
    except ValueError:
        number = 0
    if number < 1 or isinstance(value, bool):
        raise FlowError(f"option {name!r} must be a whole number of at least 1, not {value!r}")
    return number


def _read_duration(name: str, value: object) -> float:
    duration = seconds(value, name)
    if duration <= 0:
        raise FlowError(f"option {name!r} must be longer than no time, not {value!r}")
    return duration


def _read_size_above_zero(name: str, value: object) -> int:
    size = size_in_bytes(value, name)
    if size < 1:
        raise FlowError(f"option {name!r} must be at least one byte, not {value!r}")
    return size


def _read_flag(name: str, value: object) -> bool:
    if str(value).lower() not in ("true", "false"):
        raise FlowError(f"option {name!r} must be true or false, not {value!r}")
    return str(value).lower() == "true"


def _read_character(name: str, value: object) -> str:
    if len(str(value)) > 1:
        raise FlowError(f"option {name!r} must be one character, not {value!r}")
    return str(value)


WHOLE_NUMBER = Kind("whole number", _read_whole_number)
SIZE = Kind("size, such as `512m` or `2g`", lambda name, value: size_in_bytes(value, name))
SIZE_ABOVE_ZERO = Kind(SIZE.words, _read_size_above_zero)
DURATION = Kind("duration, such as `2 seconds`", _read_duration)
FLAG = Kind("`true` or `false`", _read_flag)
CHARACTER = Kind("one character", _read_character)
DIRECTORY = Kind("directory", lambda name, value: str(value))
TEXT = Kind("text", lambda name, value: str(value))
