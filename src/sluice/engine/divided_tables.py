"""Tables that are divided among units, as the driver has them: which epoch reads which of them into state.

The driver lists files and holds no rows. A state that is new gets the whole table in the epoch that begins it. Where a
table is read again, for a state that is new or because it is time, an epoch brings all its rows anew, to every state of
it; those of before expire with that epoch. Rows of streams that wait are to meet what their epoch had: so no table is
read again while any do. The record names the states that have rows, and since when. A table that cannot be read again
stays as it was: the epoch is run without it. One that cannot be read for a state that is new is named: the epoch is run
without the queries that were added with it, if there are any.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from sluice.engine.failed_refreshes import FailedRefreshes
from sluice.engine.static_tables import TableSource
from sluice.engine.table_loading import TableLoad
from sluice.model.clock import Clock
from sluice.model.codec import checksum
from sluice.model.epoch.table_version import TableVersion
from sluice.model.errors import QueryError, SluiceError, StorageError
from sluice.model.ids import InputNumber
from sluice.model.plan.plan import Plan
from sluice.record.epoch import EpochRecord
from sluice.record.reports import LoadedRows, SiteReport
from sluice.sources.table_files import StagingArea, TableListing
from sluice.state.files.storage import Storage

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EpochLoads:
    """What an epoch has of tables that are divided among units, and what it reads of them."""

    versions: tuple[TableVersion, ...] = ()
    loads: tuple[TableLoad, ...] = ()

    def problems(self, reports: Sequence[SiteReport]) -> dict[str, str]:
        """What is wrong with files of tables that were to be read again, by their names."""
        return {one.table: one.problem for one in _loaded(reports) if one.problem}

    def with_rows(self, reports: Sequence[SiteReport]) -> EpochLoads:
        """The same, now that it is known how many rows were read. All files have to have been."""
        loaded = _loaded(reports)
        rows = {load.table: sum(one.rows for one in loaded if one.table == load.table) for load in self.loads}
        for load in self.loads:
            files, read = len(load.listing.files), sum(one.files for one in loaded if one.table == load.table)
            if read != files:
                raise QueryError(f"{read} of {files} files of table {load.table!r} were read")
        new = {name for load in self.loads for name in load.names}
        versions = (replace(one, rows=rows[one.name]) if one.state in new else one for one in self.versions)
        return replace(self, versions=tuple(versions))


def _loaded(reports: Sequence[SiteReport]) -> list[LoadedRows]:
    return [one for report in reports for split in report.splits for one in split.loaded]


class UnreadableTables(StorageError):
    """Tables that cannot be read into states that are new: an epoch cannot do without them."""


class DividedTables:
    """The tables of a running flow that are divided among units."""

    def __init__(self, sources: Mapping[str, TableSource], storage: Storage, run: str, clock: Clock) -> None:
        self._sources, self._storage, self._run, self._clock = sources, storage, run, clock
        self._staged: dict[str, TableListing] = {}
        """What waits in the checkpoint to be read, until the epoch that reads it is committed."""
        self._fingerprints: dict[str, Hashable | None] = {}
        """What tables looked like when they were listed."""
        self._looked_at: dict[str, float] = {}
        """When this run has looked whether a table is another one."""
        self._refreshed: set[str] = set()
        """The tables that the next epoch reads again."""
        self._put_off: set[str] = set()
        """The tables that it does not read again after all, as they cannot be read."""
        self._unreadable: dict[str, str] = {}
        """The tables that the next epoch cannot read for states that are new, and why."""
        self._failed = FailedRefreshes()

    def list_new(self, plan: Plan, recorded: Sequence[TableVersion], epoch: int) -> None:
        """List the tables that the epoch is to read first, and stage what are no files: one that cannot be is refused
        before anything depends on it."""
        for name in _states_without_rows(plan, recorded):
            if name in self._unreadable:
                raise StorageError(self._unreadable[name])
            self._list(name, epoch)

    def needs_new(self, plan: Plan, recorded: Sequence[TableVersion]) -> bool:
        """Whether the next epoch is to read tables into states that are new."""
        return bool(_states_without_rows(plan, recorded))

    def plan(self, plan: Plan, before: EpochRecord, epoch: int, is_required: bool = True) -> EpochLoads:
        """What an epoch has of these tables, given the record of the one before, and what it has to read. Whether those
        are required that are read into states that are new."""
        to_load = _states_without_rows(plan, before.tables)
        by_table = _states_by_table(plan)
        listings = {}
        for name in to_load:
            try:
                listings[name] = self._list(name, epoch)
            except SluiceError as problem:
                self._refuse({name: str(problem)}, epoch)
        new_states = set(to_load)
        for name in new_states if not before.lagging else ():
            to_load[name] = self._stale_states(name, by_table[name], plan, before.tables)
        for name in by_table.keys() - to_load.keys() - self._put_off if not before.lagging else ():
            listing = self._list_again(name, before.tables, epoch)
            if listing is not None:
                to_load[name], listings[name] = by_table[name], listing
        names = {number: plan.name_state(number) for number in plan.divided_tables}
        loads = [
            TableLoad(
                name,
                self._sources[name].table.schema,
                states,
                tuple(names[state] for state in states),
                epoch,
                listings[name],
                is_refresh=name not in new_states,
                is_required=is_required and name in new_states,
            )
            for name, states in sorted(to_load.items())
        ]
        new = [
            TableVersion(load.table, "", _digest(self._fingerprints[load.table]), 0, epoch, name)
            for load in loads
            for name in load.names
        ]
        replaced = {version.state for version in new}
        kept = [one for one in before.tables if one.state in names.values() and one.state not in replaced]
        return EpochLoads((*kept, *new), tuple(loads))

    def _stale_states(
        self, name: str, states: Sequence[InputNumber], plan: Plan, recorded: Sequence[TableVersion]
    ) -> tuple[InputNumber, ...]:
        """Which states of a table that was just listed do not have what it is now; if it is never read again, those
        that have nothing."""
        contents = {version.state: version.checksum for version in recorded}
        fingerprint, is_read_again = self._fingerprints[name], self._sources[name].refresh is not None

        def is_stale(state: str) -> bool:
            has_changed = fingerprint is None or contents.get(state) != _digest(fingerprint)
            return state not in contents or (is_read_again and has_changed)

        return tuple(state for state in states if is_stale(plan.name_state(state)))

    def find_changed(self, loads: Sequence[TableLoad]) -> list[TableLoad]:
        """Those whose files are others than an epoch has just read."""
        return [load for load in loads if not load.listing.is_staged and self._has_changed(load.table)]

    def _has_changed(self, name: str) -> bool:
        try:
            return self._sources[name].content.fingerprint() != self._fingerprints[name]
        except SluiceError:  # the files are gone
            return True

    def leave_out(self, loads: Sequence[TableLoad], problems: Mapping[str, str], epoch: int) -> None:
        """Have the epoch do without tables that cannot be read, for the reasons given by name. Those that were to be
        read again stay as they are; others are refused."""
        for load in loads:
            if load.is_refresh and load.table in problems:
                self._put_off_refresh(load.table, problems[load.table], epoch)
        new = {load.table: problems[load.table] for load in loads if not load.is_refresh and load.table in problems}
        if new:
            self._refuse(new, epoch)

    def _refuse(self, problems: Mapping[str, str], epoch: int) -> NoReturn:
        for name, problem in problems.items():
            self._unreadable[name] = f"table {name!r} cannot be read: {problem}"
            self._remove_staged(name)
        raise UnreadableTables(f"epoch {epoch}: {'; '.join(self._unreadable[name] for name in problems)}")

    def _remove_staged(self, name: str) -> None:
        staged = self._staged.pop(name, None)
        if staged is not None:
            self._storage.delete_all(file.path for file in staged.files)

    def _put_off_refresh(self, name: str, problem: str, epoch: int) -> None:
        """Leave a table as it is in this epoch, since it cannot be read again."""
        self._put_off.add(name)
        self._refreshed.discard(name)
        self._remove_staged(name)
        self._looked_at[name] = now = self._clock.time()
        self._failed.note(name, self._fingerprints.get(name), problem, epoch, now)

    def note_commit(self, loads: EpochLoads) -> None:
        """The epoch is committed: what it read is state."""
        now = self._clock.time()
        for load in loads.loads:
            rows = next(version.rows for version in loads.versions if version.state in load.names)
            _log.info("epoch %d: table %r has %s rows, divided among units", load.since, load.table, f"{rows:,}")
            if all(version.state in load.names for version in loads.versions if version.name == load.table):
                self._looked_at[load.table] = now  # else other states may have what it was before
            self._failed.forget(load.table)
        self._refreshed.clear()
        self._put_off.clear()
        self._unreadable.clear()
        staged, self._staged = self._staged, {}
        self._storage.delete_all(file.path for listing in staged.values() for file in listing.files)

    def _list(self, name: str, epoch: int) -> TableListing:
        """The files of a table. What was staged for an epoch that came to nothing is read by the next try."""
        if name not in self._staged:
            source = self._sources[name]
            self._fingerprints[name] = source.content.fingerprint()
            listing = source.content.list_files(source.table.schema, StagingArea(self._storage.uri, epoch, self._run))
            if not listing.is_staged:
                return listing
            self._staged[name] = listing
        return self._staged[name]

    def _list_again(self, name: str, recorded: Sequence[TableVersion], epoch: int) -> TableListing | None:
        """The files of a table for which it is time, None if it is as it was. One that cannot be read again stays as it
        is."""
        if name not in self._refreshed and not self._is_due(name):
            return None
        fingerprint = None
        try:
            fingerprint = self._sources[name].content.fingerprint()
            digests = {version.checksum for version in recorded if version.name == name}
            if fingerprint is not None and digests == {_digest(fingerprint)}:
                self._looked_at[name] = self._clock.time()
                self._failed.forget(name)
                return None
            if self._failed.is_waiting(name, fingerprint, self._clock.time()):
                self._looked_at[name] = self._clock.time()
                return None
            listing = self._list(name, epoch)
        except SluiceError as problem:
            self._fingerprints[name] = fingerprint
            self._put_off_refresh(name, str(problem), epoch)
            return None
        self._refreshed.add(name)
        return listing

    def _is_due(self, name: str) -> bool:
        """Whether it is time to look at a table again: with the first epoch of a run, and every so often."""
        refresh, looked_at = self._sources[name].refresh, self._looked_at.get(name)
        return refresh is not None and (looked_at is None or self._clock.time() >= looked_at + refresh)


def _states_by_table(plan: Plan) -> dict[str, tuple[InputNumber, ...]]:
    by_table: dict[str, tuple[InputNumber, ...]] = {}
    for number, table in sorted(plan.divided_tables.items()):
        by_table[table.name] = (*by_table.get(table.name, ()), number)
    return by_table


def _states_without_rows(plan: Plan, recorded: Sequence[TableVersion]) -> dict[str, tuple[InputNumber, ...]]:
    """The states that have no rows of their table yet, by its name."""
    filled = {version.state for version in recorded}
    lacking = {
        name: tuple(number for number in states if plan.name_state(number) not in filled)
        for name, states in _states_by_table(plan).items()
    }
    return {name: states for name, states in lacking.items() if states}


def _digest(fingerprint: Hashable | None) -> int:
    """The same for the same fingerprint, in every process; 0 for none."""
    return 0 if fingerprint is None else checksum(repr(fingerprint).encode())
