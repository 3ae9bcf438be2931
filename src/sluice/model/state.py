"""References to state: which segments a site holds, of which units, and where they are durable."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from sluice.model.routing import HASH_SPACE, Ranges, Routing, intersect, unite

HashRange = tuple[int, int]
"""Hashes from the first up to the second, which is not one of them."""
ALL_HASHES: HashRange = (0, HASH_SPACE)


@dataclass(frozen=True)
class SegmentRef:
    """An immutable columnar piece of state: `length` bytes at `offset` of one durable file.

    `base` and `shift` give the time part of its order: (time - base) >> shift fits 32 bits. `units` is of which units
    it was written, `counts` how many rows each of them has in it, `level` how often its rows were merged. What is
    `pending` is no state yet: rows of an epoch whose turn has not come. `hashes` is the range of hashes that its rows
    were cut to: all of them, or what halving that range again and again leads to. `file_length` is how many bytes stay
    in durable storage as long as this segment is used.
    """

    id: str
    file: str
    offset: int
    length: int
    input: int
    rows: int
    earliest: int
    middle: int
    latest: int
    base: int
    shift: int
    level: int
    units: Ranges
    counts: tuple[int, ...]
    checksum: int
    pending: bool = False
    hashes: HashRange = ALL_HASHES
    file_length: int = 0


@dataclass(frozen=True)
class RunRef:
    """The part of a segment that one site holds: the rows of these units."""

    segment: SegmentRef
    units: Ranges

    @cached_property
    def unit_rows(self) -> tuple[np.ndarray, np.ndarray]:
        """The units held and the rows of each.

        >>> ref = SegmentRef("s", "f", 0, 100, 0, 9, 0, 0, 0, 0, 0, 0, ((2, 5),), (4, 3, 2), 0)
        >>> RunRef(ref, ((3, 5),)).unit_rows, RunRef(ref, ((3, 5),)).rows
        ((array([3, 4]), array([3, 2])), 5)
        """
        written, held = numbers(self.segment.units), numbers(self.units)
        return held, np.array(self.segment.counts, dtype=np.int64)[np.searchsorted(written, held)]

    @property
    def rows(self) -> int:
        return int(self.unit_rows[1].sum())

    @property
    def bytes(self) -> float:
        """What these units have of the segment's length, by rows."""
        if self.units == self.segment.units:
            return self.segment.length
        return self.segment.length * self.rows / max(1, self.segment.rows)

    def as_json(self) -> dict[str, Any]:
        segment = {f.name: getattr(self.segment, f.name) for f in fields(SegmentRef)}
        counts = base64.b64encode(np.array(self.segment.counts, dtype="<u4").tobytes()).decode()
        return {**segment, "counts": counts, "held": [list(r) for r in self.units]}

    @classmethod
    def from_json(cls, doc: dict[str, Any]) -> RunRef:
        known = {**doc, "units": _ranges(doc["units"])}
        known["counts"] = tuple(np.frombuffer(base64.b64decode(doc["counts"]), dtype="<u4").tolist())
        known["hashes"] = (doc["hashes"][0], doc["hashes"][1])
        held = _ranges(known.pop("held"))
        return cls(SegmentRef(**known), held)


def numbers(units: Ranges) -> np.ndarray:
    """The units of some ranges, one by one."""
    return np.concatenate([np.arange(low, high) for low, high in units]) if units else np.arange(0)


def _ranges(doc: list[list[int]]) -> Ranges:
    return tuple((low, high) for low, high in doc)


Manifest = tuple[RunRef, ...]
"""All state of one site."""


def unit_rows(runs: Iterable[RunRef], units: int) -> np.ndarray:
    """The rows that each unit has in these runs."""
    found = np.zeros(units, dtype=np.int64)
    for run in runs:
        held, rows = run.unit_rows
        found[held] += rows
    return found


def unit_bytes(runs: Iterable[RunRef], units: int) -> np.ndarray:
    """The bytes that each unit has of these runs, by rows."""
    found = np.zeros(units)
    for run in runs:
        held, rows = run.unit_rows
        found[held] += rows * (run.segment.length / max(1, run.segment.rows))
    return found


def reassign(manifests: tuple[Manifest, ...], routing: Routing) -> tuple[Manifest, ...]:
    """The manifests under another routing: every run is split along the units' new sites; no data moves yet."""
    out: list[tuple[RunRef, ...]] = []
    for site in range(routing.sites):
        mine = routing.ranges_of(site)
        held: dict[str, RunRef] = {}
        for manifest in manifests:
            for run in manifest:
                units = intersect(run.units, mine)
                if units and run.segment.id in held:
                    held[run.segment.id] = replace(run, units=unite(held[run.segment.id].units, units))
                elif units:
                    held[run.segment.id] = replace(run, units=units)
        out.append(tuple(sorted(held.values(), key=lambda r: (r.segment.input, r.segment.latest, r.segment.id))))
    return tuple(out)
