"""A site's state in one epoch: begin → turns → commit, and nothing else touches segments."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from sluice.kernels.probe import Run
from sluice.model.epoch import Attempt, Queues
from sluice.model.routing import Ranges, intersect, ranges, subtract, units_in
from sluice.model.state import ALL_HASHES, HashRange, Manifest, RunRef, SegmentRef, numbers, unit_bytes, unit_rows
from sluice.state import compaction
from sluice.state.compaction import Merge, choose_merges, choose_rewrites
from sluice.state.merging import cut_run, merge_runs
from sluice.state.paging import Residence, Spill, Task
from sluice.state.segment import Layout, counts, decode, encode, encode_blocks, joined_run, merged_run, parts
from sluice.state.tiers import DISK, MEMORY, Tiers

STATE = "state"
PAGE_BYTES = 2048
"""What a page has beside its rows, about."""


@dataclass(frozen=True)
class Retention:
    """What may leave the state of an input: rows below `keep_from`, and what `compacted` takes out of merged runs.

    `retention` is for how long rows are needed at most, in the state's time; None is for good. `shrinks` is whether
    merged runs are smaller than the runs were, because of what has been replaced.
    """

    keep_from: int | None
    retention: int | None
    compacted: Callable[[Run], Run]
    shrinks: bool


@dataclass(frozen=True)
class InputLayouts:
    """What the segments of an input hold: rows of its state, and rows as they come in, whose turn has not come."""

    state: Layout
    pending: Layout


class Transaction:
    """What an epoch does to a site's state. Until `commit` returns, the state of the epoch before is untouched.

    With a `residence` segments lie in pages, a unit's in memory or on disk as it says; without one they lie in one
    file each, and above the limit either that changes (`paging`) or the oldest go to disk.
    """

    def __init__(
        self,
        attempt: Attempt,
        tiers: Tiers,
        forms: Mapping[int, InputLayouts],
        keeping: Mapping[int, Retention],
        units: int,
        held: Ranges,
        paging: bool = False,
    ) -> None:
        self.attempt, self.tiers, self.forms, self.keeping = attempt, tiers, forms, keeping
        self.units, self.held, self.paging = units, held, paging
        self.residence: Residence | None = None
        self.merged_rows = 0
        self.events: list[tuple[str, int, str]] = []
        """What was spilled or fetched, and why."""
        self._turn = held
        self._fresh: dict[int, list[Run]] = {}
        self._staged: list[tuple[RunRef, list[pa.Buffer]]] = []
        self._opened: dict[str, Run] = {}
        self._turn_bytes = 0

    def begin(self, manifest: Manifest, arriving: Sequence[SegmentRef] = ()) -> None:
        """Start from the committed state; runs whose every row has expired are let go.

        Segments that are `arriving` belong to units on their way to this site, and are copied ahead of time.
        """
        needed = [run for run in manifest if not self._expired(run.segment)]
        self._arriving = [ref.id for ref in arriving]
        wanted = [*(run.segment.id for run in needed), *self._arriving]
        self.tiers.begin(wanted, sparing=Attempt.prefix(self.attempt.number))
        self._waiting = [run for run in needed if run.segment.pending]
        self._live = [run for run in needed if not run.segment.pending]
        self._held_runs = {run.segment.id: run for run in needed}
        for ref in arriving:
            self._read(RunRef(ref, ref.units))

    def pending_bytes(self) -> np.ndarray:
        """The bytes of each unit's pending rows."""
        return unit_bytes(self._waiting, self.units)

    def pending_rows(self) -> np.ndarray:
        """The pending rows of each unit."""
        return unit_rows(self._waiting, self.units)

    def turn(self, units: Ranges) -> None:
        """From here on it is about these units alone."""
        self._turn, self._turn_bytes = units, 0

    def reside(self, queues: Queues | None) -> None:
        """Take up the queues of the epoch before, or begin with them if the state does not fit into memory any more."""
        if queues is None:
            if self._too_large(self._live):
                self._begin_paging(self._live)
            return
        self.residence = Residence(self.tiers.limit, time.monotonic() + queues.rest)
        held = numbers(self.held).tolist()
        here = set(held)
        memory = [u for u in queues.memory if u in here]
        disk = [u for u in queues.disk if u in here]
        on_disk, known = set(disk), {*memory, *disk}
        sizes = self._local_bytes(self._live)
        for unit in [*memory, *(u for u in held if u not in known), *disk]:
            self.residence.arrive(unit, round(sizes[unit]), resident=unit not in on_disk)
        self._cut_all(self._live)
        for unit in sorted(self.tiers.units(MEMORY) & on_disk):  # an attempt that failed has fetched it
            self.tiers.shift(unit, DISK)

    def grow(self, unit: int) -> None:
        """A unit has had its turn: its state is larger by what that has added."""
        assert self.residence is not None
        if self._turn_bytes:
            self.residence.grow(unit, self.residence.size(unit) + self._turn_bytes)

    def spill(self, unit: int) -> None:
        """Write a unit's pages to disk and free their memory, as the residence asks."""
        assert self.residence is not None
        limit, used = self.residence.limit, self.residence.used
        reason = f"{used:,} bytes of state in memory, {limit:,} allowed"
        self.events.append(("spill", unit, reason if used > limit else "makes room for a unit whose turn it is"))
        self.tiers.shift(unit, DISK)
        self.residence.spilled(unit)

    def fetch(self, unit: int) -> None:
        """Read a unit's pages back, as the residence asks."""
        assert self.residence is not None
        started = time.perf_counter()
        self.tiers.shift(unit, MEMORY)
        seconds = time.perf_counter() - started
        self.events.append(("fetch", unit, f"its turn; read in {seconds:.3f} seconds"))
        self.residence.fetched(unit, time.monotonic(), seconds)

    def runs(self, input_: int, span: tuple[int, int] | None) -> list[Run]:
        """The runs of an input's state with rows inside a time span, opened where they lie."""
        if span is None:
            return []
        return [
            part
            for run in self._live
            if run.segment.input == input_ and run.segment.earliest <= span[1] and run.segment.latest >= span[0]
            for part in self._open(self._mine(run))
        ]

    def stage(self, input_: int, run: Run) -> None:
        """Add new rows of one input to the state, except those that can match nothing any more."""
        keep_from = self.keeping[input_].keep_from
        if keep_from is not None and len(run) and run.earliest < keep_from:
            run = merged_run([run], keep_from)
        if len(run):
            self._fresh.setdefault(input_, []).append(run)
            self._turn_bytes += run.rows.nbytes + 8 * len(run) + PAGE_BYTES

    def take_pending(self, input_: int) -> list[Run]:
        """The rows of one input that waited for this turn, the oldest epoch's first; they wait no longer."""
        mine = [r for r in self._waiting if r.segment.input == input_ and intersect(r.units, self._turn)]
        mine.sort(key=lambda r: r.segment.id)
        taken = [part for run in mine for part in self._open(self._mine(run))]
        ids = {run.segment.id for run in mine}
        cut = [_without(r, self._turn) if r.segment.id in ids else r for r in self._waiting]
        self._waiting = [run for run in cut if run.units]
        return taken

    def postpone(self, input_: int, run: Run) -> None:
        """Keep new rows for a later epoch: it was not their units' turn."""
        self._stage(input_, run, level=0, units=self._turn, pending=True)

    def commit(self, leaving: Sequence[int] = (), allowance: float = float("inf")) -> Manifest:
        """Merge what is due, make the new segments durable in one file, settle the tiers; the state from now on.

        Units that are about to leave get segments of their own, so that their next site reads nothing else: as many as
        `allowance` bytes, at least one, the others in later epochs.
        """
        for input_, fresh in sorted(self._fresh.items()):
            self._write(input_, fresh[0] if len(fresh) == 1 else merged_run(fresh, None), 0, self.held)
        self._merge(leaving)
        for unit in leaving:
            if allowance > 0 and intersect(self.held, ((unit, unit + 1),)):
                for input_ in self.forms:
                    allowance -= self._set_apart(input_, unit)
        file, offset = f"{STATE}/{self.attempt}.segments", 0
        new: list[RunRef] = []
        pieces: list[pa.Buffer] = []
        for run, blocks in self._staged:
            if run.units:
                new.append(replace(run, segment=replace(run.segment, file=file, offset=offset)))
                pieces += blocks
                offset += run.segment.length
        new = [replace(run, segment=replace(run.segment, file_length=offset)) for run in new]
        if pieces:
            self.tiers.durable.write(file, pieces)
        manifest = (*self._live, *self._waiting, *new)
        self._settle(manifest)
        return manifest

    def _settle(self, manifest: Manifest) -> None:
        """Bring the memory tier within its limit."""
        state = tuple(run for run in manifest if not run.segment.pending)
        if self.tiers.used > self.tiers.limit:
            waiting = [run.segment.id for run in manifest if run.segment.pending]
            self.tiers.clear(state, [*waiting, *self._arriving])
        if self.residence is not None:
            self._squeeze(state)
        elif self._too_large(state):
            self._begin_paging(state)
        else:
            self.tiers.settle(_newest_first(state))

    def _too_large(self, state: Sequence[RunRef]) -> bool:
        """Whether units have to go to disk; what is here is little for most, and then need not be looked at closely."""
        if not self.paging or self.tiers.here <= self.tiers.limit:
            return False
        return bool(self._local_bytes(state).sum() > self.tiers.limit)

    def _begin_paging(self, state: Sequence[RunRef]) -> None:
        """Not all state fits into memory any more: whole units go to disk."""
        self.residence = Residence(self.tiers.limit)
        sizes = self._local_bytes(state)
        for unit in numbers(self.held).tolist():
            self.residence.arrive(unit, round(sizes[unit]))
        while isinstance(task := self._relief(), Spill):
            self.spill(task.unit)
        self._opened.clear()
        self._cut_all(state)
        self._squeeze(state)

    def _cut_all(self, state: Sequence[RunRef]) -> None:
        """Lay all segments out in pages that lie here in one file."""
        for run in state:
            if self.tiers.whole(run.segment.id) is not None:
                self.tiers.spilled_bytes += self._cut(run)

    def _squeeze(self, state: Sequence[RunRef]) -> None:
        """Spill until what lies in memory is within the limit, however large the pages have become."""
        assert self.residence is not None
        sizes = self._local_bytes(state)
        for unit in numbers(self.held).tolist():
            self.residence.grow(unit, round(sizes[unit]))
        while isinstance(task := self._relief(), Spill):
            self.spill(task.unit)

    def _relief(self) -> Task | None:
        assert self.residence is not None
        return self.residence.step(time.monotonic()) if self.residence.used > self.residence.limit else None

    def _local_bytes(self, state: Sequence[RunRef]) -> np.ndarray:
        """The bytes of each unit, as they lie here, or as they would."""
        memory, disk = self.tiers.usage(state, self.units)
        sizes: np.ndarray = np.maximum(memory + disk, unit_bytes(state, self.units))
        return sizes

    def _merge(self, leaving: Sequence[int]) -> None:
        """Merges what is due, but no runs of a unit that is about to leave: they may be copied already.

        An input has one merge an epoch, however large, and more as long as they are in proportion to its new rows.
        """
        apart = {((unit, unit + 1),) for unit in leaving}
        runs = [run for run in self._live if run.units not in apart]
        again = choose_rewrites(runs, [*self._waiting, *(run for run in self._live if run.units in apart)])
        for input_, keeping in self.keeping.items():
            mine = [run for run in runs if run.segment.input == input_]
            new = sum(run.segment.length for run, _ in self._staged if run.segment.input == input_)
            room = compaction.NEW_SHARE * new
            due: list[Merge] = []
            for merge in choose_merges(mine, keeping.keep_from, keeping.retention, keeping.shrinks):
                due.append(merge)
                room -= round(merge.bytes)
                if room <= 0:
                    break
            merged = {run.segment.id for merge in due for run in merge.runs}
            due += [Merge([r], r.segment.hashes) for r in again if r in mine and r.segment.id not in merged]
            for merge in due:
                self._carry_out(merge, input_, keeping)

    def _carry_out(self, merge: Merge, input_: int, keeping: Retention) -> None:
        ids = {run.segment.id for run in merge.runs}
        pieces = [part for run in merge.runs for part in self._open(run)]
        self._live = [run for run in self._live if run.segment.id not in ids]
        self.merged_rows += sum(len(piece) for piece in pieces)
        merged = merge_runs(pieces, keeping.keep_from, keeping.compacted)
        pieces.clear()
        for id_ in ids:  # a mapped file would stay in memory as long as it is used
            self._opened.pop(id_, None)
            self.tiers.drop(id_)
        if merged is not None:
            level = max(run.segment.level for run in merge.runs) + 1
            self._write(input_, merged, level, self.held, merge.hashes, merge.narrower)

    def _set_apart(self, input_: int, unit: int) -> int:
        """Writes all rows of a unit as one segment, and takes them out of the others; returns its bytes."""
        mine: Ranges = ((unit, unit + 1),)
        keeping = self.keeping[input_]
        staged = (run for run, _ in self._staged if not run.segment.pending)
        runs = [run for run in (*self._live, *staged) if run.segment.input == input_]
        shared = [run for run in runs if intersect(run.units, mine) and run.units != mine]
        pieces = [part for run in shared for part in self._open(replace(run, units=mine))]
        if not pieces:
            return 0
        taken = {run.segment.id for run in shared}
        self._live = [_without(run, mine) if run.segment.id in taken else run for run in self._live]
        self._live = [run for run in self._live if run.units]
        self._staged = [(_without(r, mine) if r.segment.id in taken else r, data) for r, data in self._staged]
        merged = merge_runs(pieces, keeping.keep_from, keeping.compacted)
        level = max(run.segment.level for run in shared)
        return self._write(input_, merged, level, mine) if merged is not None else 0

    def _write(
        self,
        input_: int,
        run: Run,
        level: int,
        units: Ranges,
        hashes: HashRange = ALL_HASHES,
        narrower: Sequence[HashRange] = (),
    ) -> int:
        """Makes a run of a range of hashes segments, no larger than merges can take them; returns their bytes."""
        pieces = cut_run(run, hashes, compaction.PIECE_BYTES, narrower)
        return sum(self._stage(input_, piece, level, units, within) for within, piece in pieces)

    def _stage(
        self,
        input_: int,
        run: Run,
        level: int,
        units: Ranges,
        hashes: HashRange = ALL_HASHES,
        pending: bool = False,
    ) -> int:
        units = intersect(units, units_in(hashes, self.units))
        layout = self.forms[input_].pending if pending else self.forms[input_].state
        data = encode(layout, run)
        unit_counts = counts(run, units, self.units)
        blocks = encode_blocks(layout, run, unit_counts, data)
        name = f"{self.attempt}-{len(self._staged)}"
        sample = run.times[:: max(1, len(run) // 1000)]
        ref = SegmentRef(
            id=name,
            file="",
            offset=0,
            length=sum(block.length for block, _ in blocks),
            input=input_,
            rows=len(run),
            earliest=run.earliest,
            middle=int(np.median(sample)),
            latest=run.latest,
            base=run.scale.base,
            shift=run.scale.shift,
            level=level,
            units=units,
            counts=tuple(unit_counts.tolist()),
            blocks=tuple(block for block, _ in blocks),
            pending=pending,
            hashes=hashes,
        )
        self._opened[name] = run
        self._staged.append((RunRef(ref, units), [piece for _, piece in blocks]))
        known = ref.blocks[0].checksum if len(ref.blocks) == 1 else None
        if pending:
            self.tiers.add(name, len(run), data, room=0, known=known)
        elif self.residence is None:
            if self.tiers.used + len(data) > self.tiers.limit >= len(data):
                self.tiers.settle(_newest_first([*self._live, *(staged for staged, _ in self._staged)]), len(data))
            self.tiers.add(name, len(run), data, known=known)
        else:
            self._in_pages(RunRef(ref, units), run)
        return len(data)

    def _mine(self, run: RunRef) -> RunRef:
        """What of a run is of the units whose turn it is."""
        return run if self._turn == self.held else replace(run, units=intersect(run.units, self._turn))

    def _open(self, run: RunRef) -> list[Run]:
        ref = run.segment
        if not run.units:
            return []
        if ref.id not in self._opened and not ref.pending and self.residence is not None:
            return [page for unit in numbers(run.units).tolist() for page in self._page(run, unit)]
        if ref.id not in self._opened:
            held = self._held_runs[ref.id]
            if not held.rows:  # the units held have none in it
                return []
            self._opened[ref.id] = self._read(held)
        return parts(self._opened[ref.id], run.units, self.units)

    def _read(self, run: RunRef) -> Run:
        """What is held of a segment, from the nearest tier that has all of it; from now on it lies here in one file."""
        ref = run.segment
        local = self._local(run)
        if local is not None:
            return local
        rows = joined_run(self._pages(run) or self._fetched(run))
        count, data = len(rows), encode(self._layout(ref), rows)
        self.tiers.drop(ref.id)
        self.tiers.add(ref.id, count, data, room=self.tiers.limit - self.tiers.used)
        return self._decoded(ref, count, data)

    def _local(self, run: RunRef) -> Run | None:
        """What is held of a segment, if it all lies here in one file: that may be of when less was held."""
        ref, found = run.segment, self.tiers.whole(run.segment.id)
        if found is None:
            return None
        rows = self._decoded(ref, *found)
        all_here = len(rows) == ref.rows or np.array_equal(counts(rows, run.units, self.units), run.unit_rows[1])
        return rows if all_here else None

    def _pages(self, run: RunRef) -> list[Run]:
        """The pages of all that is held of a segment, none if one is missing."""
        found = []
        for unit, rows in zip(*(column.tolist() for column in run.unit_rows), strict=True):
            if rows:
                data = self.tiers.page(run.segment.id, unit)
                if data is None:
                    return []
                found.append(self._decoded(run.segment, rows, data))
        return found

    def _fetched(self, run: RunRef) -> list[Run]:
        """What is held of a segment, from durable storage, and what else is in the same blocks."""
        return [self._decoded(run.segment, rows, data) for rows, data in self.tiers.fetch(run)]

    def _decoded(self, ref: SegmentRef, rows: int, data: pa.Buffer) -> Run:
        return decode(self._layout(ref), replace(ref, rows=rows), data)

    def _layout(self, ref: SegmentRef) -> Layout:
        return self.forms[ref.input].pending if ref.pending else self.forms[ref.input].state

    def _page(self, run: RunRef, unit: int) -> list[Run]:
        ref, alone = run.segment, RunRef(run.segment, ((unit, unit + 1),))
        if not alone.rows:
            return []
        data = self.tiers.page(ref.id, unit)
        if data is None:
            self._cut(self._held_runs.get(ref.id, run))
            data = self.tiers.page(ref.id, unit)
        if data is None:  # another attempt at this epoch has moved it between the two steps
            return parts(joined_run(self._fetched(alone)), alone.units, self.units)
        return [self._decoded(ref, alone.rows, data)]

    def _cut(self, run: RunRef) -> int:
        """Lays out in pages what is held of a segment; returns the bytes of those on disk."""
        ref, found = run.segment, self._local(run)
        if found is not None:
            # as bytes of our own: a mapped file would stay in memory as long as it is used
            found = self._decoded(ref, len(found), encode(self._layout(ref), found))
        else:
            (held, rows), here = run.unit_rows, self.tiers.paged(ref.id)
            run = replace(run, units=ranges(unit for unit in held[rows > 0].tolist() if unit not in here))
            found = joined_run(self._fetched(run)) if run.units else None
        self.tiers.drop_whole(ref.id)
        return self._in_pages(run, found) if found is not None else 0

    def _in_pages(self, run: RunRef, rows: Run) -> int:
        assert self.residence is not None
        on_disk = 0
        held, count = run.unit_rows
        for unit in held[count > 0].tolist():
            for part in parts(rows, ((unit, unit + 1),), self.units):
                data = encode(self.forms[run.segment.input].state, part)
                tier = MEMORY if self.residence.is_resident(unit) else DISK
                self.tiers.put(run.segment.id, unit, len(part), data, tier)
                on_disk += len(data) if tier == DISK else 0
        return on_disk

    def _expired(self, segment: SegmentRef) -> bool:
        keep_from = self.keeping[segment.input].keep_from
        return not segment.pending and keep_from is not None and segment.latest < keep_from


def _newest_first(runs: Sequence[RunRef]) -> list[SegmentRef]:
    return sorted((run.segment for run in runs), key=lambda s: s.latest, reverse=True)


def _without(run: RunRef, units: Ranges) -> RunRef:
    return replace(run, units=subtract(run.units, units))
