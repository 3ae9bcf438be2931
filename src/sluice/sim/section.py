"""One table of a scenario file, read key by key; what is not known or makes no sense is refused by its path."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from difflib import get_close_matches
from typing import Any

from sluice.model.errors import ScenarioError
from sluice.sim.notation import hints_of, parse


class Section:
    """A table by its path in the file, such as `cluster` or `load[2]`, and the keys it may have.

    >>> Section("cluster", {"sites": 4}, ["sites", "memory"]).get("sites", int, 32)
    4
    >>> Section("cluster", {"memroy": "1 GB"}, ["sites", "memory"])
    Traceback (most recent call last):
    sluice.model.errors.ScenarioError: cluster.memroy: there is no such key; did you mean memory?
    """

    def __init__(self, path: str, table: object, keys: Iterable[str]) -> None:
        if not isinstance(table, Mapping):
            raise ScenarioError(f"{path}: this is a section, written [{path}], not {table!r}")
        self.path, self.table, self.keys = path, table, tuple(key.replace("_", "-") for key in keys)
        for key in table:
            if key not in self.keys:
                raise self.refuses(key, f"there is no such key; {meant(key, self.keys)}")

    def __contains__(self, key: str) -> bool:
        return key in self.table

    def refuses(self, key: str, why: str) -> ScenarioError:
        """The error to raise about a key."""
        return ScenarioError(f"{self.path}.{key}: {why}" if self.path else f"{key}: {why}")

    def get(self, key: str, hint: Any, default: Any) -> Any:
        """The value of a key, as one of this type."""
        if key not in self.table:
            if default is MISSING:
                raise self.refuses(key, "this has to be given")
            return default
        try:
            return parse(self.table[key], hint)
        except ValueError as problem:
            raise self.refuses(key, str(problem)) from None

    def read(self, described: type, names: Iterable[str]) -> dict[str, Any]:
        """The values of these fields of a dataclass; what is not given is left out, unless it has to be."""
        hints, defaults = hints_of(described), {field.name: field for field in fields(described)}
        keys = {name: name.replace("_", "-") for name in names}
        needed = [n for n in keys if defaults[n].default is MISSING and defaults[n].default_factory is MISSING]
        return {n: self.get(key, hints[n], MISSING) for n, key in keys.items() if key in self or n in needed}


def sections(title: str, entries: object, keys: Sequence[str]) -> list[Section]:
    """What there can be several of."""
    if not isinstance(entries, list):
        raise ScenarioError(f"{title}: there can be several, so it is written [[{title}]], in double brackets")
    return [Section(f"{title}[{number}]", entry, keys) for number, entry in enumerate(entries)]


def meant(name: str, names: Sequence[str]) -> str:
    """What was probably meant by a name that does not exist, else all that do."""
    close = get_close_matches(name.lower().replace("_", "-"), names, n=2, cutoff=0.6)
    return f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(names)}"
