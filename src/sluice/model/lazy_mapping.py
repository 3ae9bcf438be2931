"""A mapping whose values are worked out when somebody asks for them: of many entries, few are needed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class LazyMapping(Mapping[Key, Value]):
    """The values of a function, each computed once. It is a mapping of these keys; others can be asked for, too.

    >>> squares = LazyMapping((2, 3), lambda number: number * number)
    >>> list(squares.items()), squares[9], len(squares)
    ([(2, 4), (3, 9)], 81, 2)
    """

    def __init__(self, keys: Collection[Key], compute: Callable[[Key], Value]) -> None:
        self._keys, self._compute = keys, compute
        self._known: dict[Key, Value] = {}

    def __getitem__(self, key: Key) -> Value:
        if key not in self._known:
            self._known[key] = self._compute(key)
        return self._known[key]

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __iter__(self) -> Iterator[Key]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)
