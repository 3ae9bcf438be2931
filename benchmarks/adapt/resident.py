"""What sites really have in memory at any moment: the sizes of their files in the tmpfs, looked at while they work."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.adapt.sampling import sampling
from benchmarks.session import scratch

PERIOD = 0.1
SHARED = Path("/dev/shm")


@dataclass
class Samples:
    """Bytes by site, and when."""

    directory: Path
    sites: int
    samples: list[tuple[float, tuple[int, ...]]] = field(default_factory=list)

    def look(self) -> None:
        self.samples.append((time.time(), tuple(held(self.directory, site) for site in range(self.sites))))


def held(directory: Path, site: int) -> int:
    """Bytes of a site's files; what goes while it is looked at counts for nothing."""
    total = 0
    with suppress(FileNotFoundError):  # of a directory that has just been listed
        for path in directory.glob(f"*/site-{site:04d}-*/*"):
            with suppress(FileNotFoundError):
                total += path.stat().st_size
    return total


@contextmanager
def sampled(sites: int) -> Iterator[Samples]:
    """A directory for the memory tier that is watched meanwhile."""
    with scratch(SHARED) as directory:
        samples = Samples(directory, sites)
        with sampling(samples.look, PERIOD):
            yield samples
