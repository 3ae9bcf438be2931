"""A site's state in one epoch: begin → turns → commit, and nothing else touches segments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial

import numpy as np

from sluice.kernels.probe import Run
from sluice.model.clock import Clock
from sluice.model.epoch.attempt import Attempt
from sluice.model.epoch.segments import Manifest, PlacedBlock, RunRef, SegmentRef, unit_bytes, unit_rows
from sluice.model.epoch.times import Queues
from sluice.model.errors import ProtocolError
from sluice.model.ids import InputNumber, Unit, UnitIndex
from sluice.model.routing.unit_ranges import Ranges, intersect, numbers, single_unit, subtract
from sluice.state.dividing import UnitPiece, look_at_units
from sluice.state.durable import DurableSegments
from sluice.state.epoch_runs import EpochRuns
from sluice.state.generations import Generations
from sluice.state.inputs import Holdings, Retention
from sluice.state.opening import OpenRuns
from sluice.state.reading import SegmentReader
from sluice.state.rewriting import Rewriter
from sluice.state.segment import counts, merge_sorted, parts
from sluice.state.staging import NewSegment, SegmentWriter, make_room
from sluice.state.tiers import Tiers
from sluice.state.unit_pages import UnitPages
from sluice.verbs.split import CountBelow, HashProfile, RowsBelow

PAGE_BYTES = 2048
"""What a page has beside its rows, about."""


@dataclass(frozen=True)
class SiteStore:
    """Where and how a site keeps its state. With `paging`, whole units go to disk when memory is short, else the oldest
    segments do."""

    holdings: Holdings
    tiers: Tiers
    durable: DurableSegments
    clock: Clock
    paging: bool = False

    def begin(self, attempt: Attempt, before: StateBefore) -> Transaction:
        """Begin an epoch: what has expired is let go, what is arriving is copied ahead of time."""
        return Transaction(self, attempt, before)


@dataclass(frozen=True)
class StateBefore:
    """What an epoch begins with: the committed state, what may leave it, segments of units on their way to this site,
    and the queues of units in memory and on disk, if there were any."""

    manifest: Manifest
    retention: Mapping[InputNumber, Retention]
    arriving: tuple[SegmentRef, ...] = ()
    queues: Queues | None = None


@dataclass(frozen=True)
class StateStats:
    """What an epoch did to a site's state, and where it lies now."""

    memory_limit: int
    memory_bytes: int
    disk_bytes: int
    spilled_bytes: int
    spilled_units: int
    fetched_bytes: int
    fetch_seconds: float
    damaged_files: int
    merged_rows: int


class _Phase(Enum):
    BETWEEN_TURNS = "between two turns"
    IN_TURN = "in a turn"
    COMMITTED = "after the commit"


@dataclass(frozen=True)
class Preparations:
    """What is done to units with the commit, by their places. Those to `freeze` begin anew with the next epoch. Those
    to `set_apart` get segments of their own: as many as `bytes_apart` bytes, at least one, the others in later epochs.
    Of some the hashes are told, of others how many rows are below some hashes."""

    freeze: Ranges = ()
    set_apart: Sequence[UnitIndex] = ()
    bytes_apart: float = float("inf")
    profile: Mapping[UnitIndex, Unit] = field(default_factory=dict)
    count_below: Mapping[UnitIndex, CountBelow] = field(default_factory=dict)


class Transaction:
    """What an epoch does to a site's state. Until `commit` returns, the state of the epoch before is untouched.

    State is read and added to in turns, each of some units. A call at another time than its own is refused.
    """

    def __init__(self, store: SiteStore, attempt: Attempt, before: StateBefore) -> None:
        self.holdings, self._tiers, self._durable = store.holdings, store.tiers, store.durable
        self._retention = before.retention
        self._arriving = tuple(ref.id for ref in before.arriving)
        parts_needed = (self._retention[run.segment.input].needed_part(run) for run in before.manifest)
        needed = [run for run in parts_needed if run is not None]
        here = [*(run.segment for run in needed if not run.generation), *before.arriving]
        directories = {segment.id: self.holdings.directories[segment.input] for segment in here}
        self._tiers.begin(directories, sparing=Attempt.prefix(attempt.number))
        self._reader = reader = SegmentReader(store.holdings, store.tiers, store.durable)
        self.pages = UnitPages(reader, store.clock, store.paging)
        self._runs = EpochRuns(needed)
        self._open_runs = OpenRuns((run for run in needed if not run.generation), reader, self.pages)
        self._writer = SegmentWriter(attempt, self._runs, self._open_runs, reader, self.pages)
        self.generations = Generations(self._runs, self._open_runs, reader, self._writer)
        self._rewriter = Rewriter(store.holdings, self._runs, self._open_runs, self._writer, store.tiers)
        for ref in before.arriving:
            reader.read(RunRef(ref, ref.units))
        if before.queues is not None:
            self.pages.resume(before.queues, self._runs.state)
        elif self.pages.is_needed(self._runs.state):
            self.pages.begin(self._runs.state)
        self._phase = _Phase.BETWEEN_TURNS
        self._turn: Ranges = ()
        self._turn_bytes = 0
        self._added: dict[InputNumber, list[Run]] = {}
        self._passed_over: Mapping[InputNumber, Retention] | None = None
        """By which retention it was let go last of what nobody needs; None after a turn."""
        self.findings: tuple[HashProfile | RowsBelow, ...] = ()

    @property
    def limit(self) -> int:
        """The bytes that state may have in memory."""
        return self._tiers.limit

    def pending_bytes(self) -> np.ndarray:
        """The bytes of each unit's pending rows."""
        return unit_bytes(self._runs.waiting, self.holdings.unit_numbers)

    def pending_rows(self) -> np.ndarray:
        """The pending rows of each unit."""
        return unit_rows(self._runs.waiting, self.holdings.unit_numbers)

    def active_bytes(self, inputs: Iterable[InputNumber] | None = None) -> np.ndarray:
        """The bytes of each unit's state that new rows meet, with what this epoch adds to it, of some inputs or all."""
        chosen = set(self.holdings.layouts if inputs is None else inputs)
        state = (run for run in self._runs.state if run.segment.input in chosen)
        sizes = unit_bytes(state, self.holdings.unit_numbers)
        for input_, runs in self._added.items():
            if input_ not in chosen:
                continue
            directory = self.holdings.directories[input_]
            units = self.holdings.units_of(input_)
            for run in runs:
                each = (run.rows.nbytes + 8 * len(run)) / max(1, len(run))
                sizes[numbers(units)] += counts(run, units, directory) * each
        return sizes

    def expired_bytes(
        self, retention: Mapping[InputNumber, Retention], inputs: Iterable[InputNumber]
    ) -> tuple[np.ndarray, np.ndarray]:
        """The bytes of each unit's state of some inputs, frozen or not, that it does not need by this retention, and
        those that it needs."""
        expired, needed = np.zeros((2, self.holdings.unit_numbers))
        chosen = set(inputs)
        for run in (*self._runs.state, *self._runs.frozen):
            if run.segment.input in chosen:
                units, rows = run.unit_rows
                sizes = rows * (run.segment.length / max(1, run.segment.rows))
                part = retention[run.segment.input].expired_part(run)
                expired[units] += sizes * part
                needed[units] += sizes * (1 - part)
        return expired, needed

    def active_rows(self) -> np.ndarray:
        """The rows of each unit's state that can be frozen and is not."""
        runs = (run for run in (*self._runs.state, *self._runs.new) if run.is_active)
        return unit_rows((r for r in runs if r.segment.input in self.holdings.freezable), self.holdings.unit_numbers)

    def begin_turn(self, units: Ranges) -> None:
        """From here on, until `end_turn`, it is about these units alone."""
        self._expect(_Phase.BETWEEN_TURNS, "a turn begins")
        self._phase, self._turn, self._turn_bytes, self._passed_over = _Phase.IN_TURN, units, 0, None

    def runs(self, input_: InputNumber, span: tuple[int, int] | None) -> list[Run]:
        """The runs of an input's state with rows inside a time span, opened where they lie."""
        self._expect(_Phase.IN_TURN, "state is read")
        if span is None:
            return []
        return [
            part
            for run in self._runs.state_of(input_)
            if run.segment.earliest <= span[1] and run.segment.latest >= span[0]
            for part in self._open_runs.open(self._in_turn(run))
        ]

    @property
    def waiting_inputs(self) -> set[InputNumber]:
        """The inputs with rows that wait for their turn."""
        return self._runs.waiting_inputs

    def has_rows(self, input_: InputNumber, span: tuple[int, int]) -> bool:
        """Whether an input's state may have rows inside a time span; nothing is opened for that."""
        runs = self._runs.state_of(input_)
        return any(run.segment.earliest <= span[1] and run.segment.latest >= span[0] for run in runs)

    def take_pending(self, input_: InputNumber) -> list[Run]:
        """The rows of one input that waited for this turn, the oldest epoch's first; they wait no longer."""
        self._expect(_Phase.IN_TURN, "input that waits is taken")
        taken = self._runs.take_waiting(input_, self._turn)
        return [part for run in taken for part in self._open_runs.open(run)]

    def stage(self, input_: InputNumber, run: Run) -> None:
        """Add new rows of one input to the state, except those that can match nothing any more."""
        self._expect(_Phase.IN_TURN, "state is added")
        run = merge_sorted([run], self._retention[input_].bounds_of([run]))
        if len(run):
            self._added.setdefault(input_, []).append(run)
            self._turn_bytes += run.rows.nbytes + 8 * len(run) + PAGE_BYTES

    def all_runs(self, input_: InputNumber) -> Iterator[list[Run]]:
        """All of an input's state with what this epoch has added, the oldest first: of all units at once, or of one
        after the other where memory is short."""
        self._expect(_Phase.BETWEEN_TURNS, "all of a state is read")
        held, directory = self.holdings.units_of(input_), self.holdings.directories[input_]
        each = [single_unit(UnitIndex(unit)) for unit in numbers(held).tolist()] if self.pages.active else [held]
        for units in each:
            state = (replace(run, units=intersect(run.units, units)) for run in self._runs.state_of(input_))
            old = [part for run in state for part in self._open_runs.open(run)]
            yield [*old, *(part for run in self._added.get(input_, ()) for part in parts(run, units, directory))]

    def end_turn(self) -> None:
        """The units have had their turn: their state is larger by what that has added."""
        self._expect(_Phase.IN_TURN, "a turn ends")
        self._phase = _Phase.BETWEEN_TURNS
        if self.pages.active and self._turn_bytes:
            units = numbers(self._turn).tolist()
            for unit in units:  # one, where units are paged
                self.pages.grow(unit, self._turn_bytes // len(units))

    def postpone(self, units: Ranges, input_: InputNumber, run: Run) -> None:
        """Keep new rows of some units for a later epoch: it was not their turn."""
        self._expect(_Phase.BETWEEN_TURNS, "input is postponed")
        self._writer.write(NewSegment(input_, run, units, pending=True))

    def pass_over(self, retention: Mapping[InputNumber, Retention]) -> None:
        """Let go of what nobody needs now that the units have come so far: of the rows that the epoch has added (in one
        longer than its window most have met all their partners), and of runs of before as wholes, which are not read
        for that."""
        self._expect(_Phase.BETWEEN_TURNS, "rows are passed over")
        if retention is self._passed_over:
            return
        self._passed_over = retention
        for run in self._runs.let_go(lambda run: retention[run.segment.input].needed_part(run) is not None):
            self._open_runs.close(run.segment.id)
            self._tiers.drop(run.segment.id)
        needed = {i: merge_sorted(added, retention[i].bounds_of(added)) for i, added in self._added.items()}
        self._added = {input_: [run] for input_, run in needed.items() if len(run)}

    def commit(
        self,
        retention: Mapping[InputNumber, Retention],
        preparations: Preparations | None = None,
    ) -> Manifest:
        """Merge what is due, make the new segments durable in one file, settle the tiers; the state from now on.

        `retention` is what may leave now that the units have come so far. What is found out about units is in
        `findings` then.
        """
        to_do = preparations or Preparations()
        self._expect(_Phase.BETWEEN_TURNS, "the epoch is committed")
        self.pass_over(retention)
        self._phase = _Phase.COMMITTED
        if to_do.freeze:
            self._freeze(to_do.freeze, retention)
        for input_, added in sorted(self._added.items()):
            self._writer.write_pieces(NewSegment(input_, merge_sorted(added, None), self.holdings.units))
        self.generations.merge(retention)
        self._rewriter.merge(retention, to_do.set_apart)
        self._rewriter.set_apart(to_do.set_apart, retention, to_do.bytes_apart)
        new = self._writer.write_durable()
        manifest = (*self._runs.state, *self._runs.frozen, *self._runs.waiting, *new)
        self.findings = look_at_units(manifest, to_do.profile, to_do.count_below, self._pieces)
        self._settle(manifest)
        return manifest

    def stats(self) -> StateStats:
        """What the epoch did, as far as it has come."""
        tiers, durable = self._tiers, self._durable
        return StateStats(
            memory_limit=tiers.limit,
            memory_bytes=tiers.used,
            disk_bytes=tiers.here - tiers.used,
            spilled_bytes=tiers.spilled_bytes,
            spilled_units=len(self.pages.spilled_units),
            fetched_bytes=durable.fetched_bytes,
            fetch_seconds=durable.fetch_seconds,
            damaged_files=tiers.damaged_files,
            merged_rows=self._rewriter.merged_rows,
        )

    def unit_usage(self, state: Sequence[RunRef]) -> tuple[np.ndarray, np.ndarray]:
        """Bytes in memory and on disk of each unit."""
        return self._tiers.usage(state, self.holdings.unit_numbers)

    def _freeze(self, units: Ranges, retention: Mapping[InputNumber, Retention]) -> None:
        """Freezes units with their state and what was added to it, which is not written as state then."""
        frozen: dict[InputNumber, list[Run]] = {}
        for input_ in self.holdings.freezable:
            directory, units_held = self.holdings.directories[input_], self.holdings.units_of(input_)
            added = self._added.pop(input_, [])
            frozen[input_] = [part for run in added for part in parts(run, intersect(units, units_held), directory)]
            staying = [part for run in added for part in parts(run, subtract(units_held, units), directory)]
            if staying:
                self._added[input_] = staying
        self.generations.freeze(units, frozen, retention)

    def _pieces(self, run: RunRef) -> list[UnitPiece]:
        """The pieces that the rows of a run of one unit lie in: what is frozen, by blocks."""
        if not run.generation:
            return [UnitPiece.of(part) for part in self._open_runs.open(run)]
        return [UnitPiece(rows, partial(self._read_block, run, block), far=True) for block, rows in run.rows_by_block]

    def _read_block(self, run: RunRef, block: PlacedBlock) -> Run:
        """The rows that a run of one unit has in a block."""
        directory = self.holdings.directories[run.segment.input]
        (rows,) = parts(self._reader.fetch_block(run.segment, block), run.units, directory)
        return rows

    def _settle(self, manifest: Manifest) -> None:
        """Brings the memory tier within its limit."""
        state = tuple(run for run in manifest if run.is_active)
        self._open_runs.close_all()
        if self._tiers.used > self._tiers.limit or self.pages.is_needed(state):
            waiting = [run.segment.id for run in manifest if run.segment.pending]
            self._tiers.clear(state, [*waiting, *self._arriving])
        if self.pages.active:
            self.pages.settle(state)
        elif self.pages.is_needed(state):
            self.pages.begin(state)
        else:
            make_room(self._tiers, state)

    def _in_turn(self, run: RunRef) -> RunRef:
        """What of a run is of the units whose turn it is."""
        return run if self._turn == self.holdings.units else replace(run, units=intersect(run.units, self._turn))

    def _expect(self, phase: _Phase, event: str) -> None:
        if self._phase is not phase:
            raise ProtocolError(f"{event} {self._phase.value}; its time is {phase.value}")
