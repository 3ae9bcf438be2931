"""A site's state in one epoch: begin → stage → commit, and nothing else touches segments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from sluice.kernels.probe import Run
from sluice.model.epoch import Attempt
from sluice.model.routing import Ranges, intersect, subtract
from sluice.model.state import Manifest, RunRef, SegmentRef
from sluice.state.compaction import choose_merge
from sluice.state.segment import Layout, checksum, counts, decode, encode, merged_run, parts
from sluice.state.tiers import Tiers

STATE = "state"


@dataclass(frozen=True)
class Keeping:
    """What may leave the state of an input: rows below `keep_from`, and what `compacted` takes out of merged runs.

    `retention` is for how long rows are needed at most, in the state's time; None is for good.
    """

    keep_from: int | None
    retention: int | None
    compacted: Callable[[Run], Run]
    largest: int


class Transaction:
    """What an epoch does to a site's state. Until `commit` returns, the state of the epoch before is untouched."""

    def __init__(
        self,
        attempt: Attempt,
        tiers: Tiers,
        layouts: Mapping[int, Layout],
        keeping: Mapping[int, Keeping],
        units: int,
        held: Ranges,
    ) -> None:
        self.attempt, self.tiers, self.layouts, self.keeping = attempt, tiers, layouts, keeping
        self.units, self.held = units, held
        self.merged_rows = 0
        self._staged: list[tuple[RunRef, pa.Buffer]] = []
        self._opened: dict[str, Run] = {}

    def begin(self, manifest: Manifest) -> None:
        """Start from the committed state; runs whose every row has expired are let go."""
        self.tiers.begin((run.segment.id for run in manifest), sparing=f"{self.attempt.number:012d}-")
        self._live = [run for run in manifest if not self._expired(run.segment)]

    def runs(self, input_: int, span: tuple[int, int] | None) -> list[Run]:
        """The runs of an input's state with rows inside a time span, opened where they lie."""
        if span is None:
            return []
        return [
            part
            for run in self._live
            if run.segment.input == input_ and run.segment.earliest <= span[1] and run.segment.latest >= span[0]
            for part in self._open(run)
        ]

    def stage(self, input_: int, run: Run) -> None:
        """Add the epoch's new rows of one input to the state, except those that can match nothing any more."""
        keep_from = self.keeping[input_].keep_from
        if keep_from is not None and len(run) and run.earliest < keep_from:
            run = merged_run([run], keep_from)
        if len(run):
            self._stage(input_, run, level=0)

    def commit(self, leaving: Sequence[int] = ()) -> Manifest:
        """Merge what is due, make the new segments durable in one file, settle the tiers; the state from now on.

        Units that are about to leave get segments of their own, so that their next site reads nothing else.
        """
        for input_ in self.layouts:
            self._merge(input_)
        for unit in leaving:
            if intersect(self.held, ((unit, unit + 1),)):
                for input_ in self.layouts:
                    self._set_apart(input_, unit)
        file, offset, new, pieces = f"{STATE}/{self.attempt}.segments", 0, [], []
        for run, data in self._staged:
            if run.units:
                new.append(replace(run, segment=replace(run.segment, file=file, offset=offset)))
                pieces.append(data)
                offset += len(data)
        if pieces:
            self.tiers.durable.write(file, pieces)
        manifest = (*self._live, *new)
        self.tiers.settle(sorted((r.segment for r in manifest), key=lambda s: s.latest, reverse=True))
        return manifest

    def _merge(self, input_: int) -> None:
        mine = sorted((r for r in self._live if r.segment.input == input_), key=lambda r: r.segment.latest)
        keeping = self.keeping[input_]
        chosen = choose_merge([r.segment for r in mine], keeping.keep_from, keeping.retention, keeping.largest)
        if not chosen:
            return
        ids = {s.id for s in chosen}
        pieces = [part for run in mine if run.segment.id in ids for part in self._open(run)]
        self._live = [run for run in self._live if run.segment.id not in ids]
        if pieces:
            merged = merged_run(pieces, keeping.keep_from)
            self.merged_rows += len(merged)
            if len(merged):
                merged = keeping.compacted(merged)
            if len(merged):
                self._stage(input_, merged, level=max(s.level for s in chosen) + 1)

    def _set_apart(self, input_: int, unit: int) -> None:
        """Writes all rows of a unit as one segment, and takes them out of the others."""
        mine: Ranges = ((unit, unit + 1),)
        keeping = self.keeping[input_]
        runs = [run for run in (*self._live, *(run for run, _ in self._staged)) if run.segment.input == input_]
        shared = [run for run in runs if intersect(run.units, mine) and run.units != mine]
        pieces = [part for run in shared for part in self._open(replace(run, units=mine))]
        if not pieces:
            return
        taken = {run.segment.id for run in shared}
        self._live = [_without(run, unit) if run.segment.id in taken else run for run in self._live]
        self._live = [run for run in self._live if run.units]
        self._staged = [(_without(r, unit) if r.segment.id in taken else r, data) for r, data in self._staged]
        merged = merged_run(pieces, keeping.keep_from)
        if len(merged):
            merged = keeping.compacted(merged)
        if len(merged):
            self._stage(input_, merged, max(run.segment.level for run in shared), mine)

    def _stage(self, input_: int, run: Run, level: int, units: Ranges | None = None) -> None:
        units = self.held if units is None else units
        data = encode(self.layouts[input_], run)
        name = f"{self.attempt}-{len(self._staged)}"
        self.tiers.add(name, data)
        sample = run.times[:: max(1, len(run) // 1000)]
        ref = SegmentRef(
            id=name,
            file="",
            offset=0,
            length=len(data),
            input=input_,
            rows=len(run),
            earliest=run.earliest,
            middle=int(np.median(sample)),
            latest=run.latest,
            base=run.scale.base,
            shift=run.scale.shift,
            level=level,
            units=units,
            counts=tuple(counts(run, units, self.units).tolist()),
            checksum=checksum(data),
        )
        self._opened[name] = run
        self._staged.append((RunRef(ref, units), data))

    def _open(self, run: RunRef) -> list[Run]:
        ref = run.segment
        if ref.id not in self._opened:
            self._opened[ref.id] = decode(self.layouts[ref.input], ref, self.tiers.read(ref))
        return parts(self._opened[ref.id], run.units, self.units)

    def _expired(self, segment: SegmentRef) -> bool:
        keep_from = self.keeping[segment.input].keep_from
        return keep_from is not None and segment.latest < keep_from


def _without(run: RunRef, unit: int) -> RunRef:
    return replace(run, units=subtract(run.units, unit))
