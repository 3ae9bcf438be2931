"""What can go wrong around a query: processes that die in the midst of what they do, files that vanish or change."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from sluice.state.files import storage
from sluice.state.files.workspace import Places

EXECUTORS = 2


class Death(Exception):
    """Whoever was at work is no more."""


class JobLost(Death):
    """Spark gives an epoch's job up, and it is run again as a whole."""


@contextmanager
def interrupted(
    operation: int, then: Callable[[], object], besides: tuple[str, ...] = (), since: str = ""
) -> Iterator[None]:
    """Have something happen just before a file operation, counted from 0; what it raises, happens too.

    Operations on paths that begin with one of `besides` do not count, nor those before the first one that puts a file
    to a path with `since` in it.
    """
    count, counting = -1, not since

    def watcher(name: str, path: str) -> None:
        nonlocal count, counting
        counting = counting or (name == "put" and since in path)
        count += counting and not path.startswith(besides)
        if count == operation:
            count += 1  # once: what happens has operations of its own
            then()

    with storage.watch(watcher):
        yield


class Executors:
    """Machines with local tiers, and which of them each site is at."""

    def __init__(self, root: Path, sites: int) -> None:
        """There may be at most so many sites."""
        self.places = [Places(str(root / f"memory{i}"), str(root / f"disk{i}")) for i in range(EXECUTORS)]
        self.at = [0] * sites

    @property
    def paths(self) -> tuple[str, ...]:
        """Where the local tiers lie."""
        return tuple(str(root) for places in self.places for root in places.roots())

    def of(self, site: int) -> Places:
        """The local tiers that a site has."""
        return self.places[self.at[site]]

    def reassign(self, site: int) -> None:
        """A site goes to the other executor."""
        self.at[site] = 1 - self.at[site]

    def kill(self, executor: int) -> None:
        """An executor dies, and what it had with it."""
        for root in self.places[executor].roots():
            shutil.rmtree(root, ignore_errors=True)

    def files(self) -> list[Path]:
        """All files of the local tiers; every one of them is a copy."""
        return sorted(file for places in self.places for root in places.roots() for file in root.rglob("*.arrow"))

    def is_in_memory(self, path: str) -> bool:
        """Whether a path is one of the memory tiers."""
        return path.startswith(tuple(str(places.memory) for places in self.places))


def flip_a_bit(file: Path, rng: np.random.Generator) -> None:
    """A file is not what was written any more."""
    data = bytearray(file.read_bytes())
    data[int(rng.integers(0, len(data)))] ^= 1 << int(rng.integers(0, 8))
    file.write_bytes(data)
