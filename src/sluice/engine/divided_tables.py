"""Tables that are divided among units, as the driver has them: which epoch reads which of them into state.

The driver lists files and holds no rows. A state that is new gets the whole table in the epoch that begins it, and
keeps it: the record names the states that have theirs.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from sluice.engine.static_tables import TableSource
from sluice.engine.table_loading import TableLoad
from sluice.model.epoch.table_version import TableVersion
from sluice.model.ids import InputNumber
from sluice.model.plan.plan import Plan
from sluice.record.reports import SiteReport
from sluice.sources.table_files import StagingArea, TableListing
from sluice.state.files.storage import Storage

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EpochLoads:
    """What an epoch has of tables that are divided among units, and what it reads of them."""

    versions: tuple[TableVersion, ...] = ()
    loads: tuple[TableLoad, ...] = ()

    def with_rows(self, reports: Sequence[SiteReport]) -> tuple[TableVersion, ...]:
        """What the epoch has, now that it is known how many rows were read."""
        rows = dict.fromkeys((load.table for load in self.loads), 0)
        for loaded in (one for report in reports for split in report.splits for one in split.loaded):
            rows[loaded.table] += loaded.rows
        new = {state for load in self.loads for state in load.names}
        return tuple(
            replace(version, rows=rows[version.name]) if version.state in new else version for version in self.versions
        )


class DividedTables:
    """The tables of a running flow that are divided among units."""

    def __init__(self, sources: Mapping[str, TableSource], storage: Storage, run: str) -> None:
        self._sources, self._storage, self._run = sources, storage, run
        self._staged: dict[str, TableListing] = {}
        """What waits in the checkpoint to be read, until the epoch that reads it is committed."""
        self._fingerprints: dict[str, Hashable | None] = {}
        """What tables looked like when they were listed."""

    def check(self, plan: Plan, recorded: Sequence[TableVersion]) -> None:
        """Refuse a table that is to be read and of which nothing is there."""
        for name in self._states_to_load(plan, recorded):
            self._sources[name].content.fingerprint()

    def plan(self, plan: Plan, recorded: Sequence[TableVersion], epoch: int) -> EpochLoads:
        """What an epoch has of these tables, given what the one before had, and what it has to read."""
        names = {number: _name_state(plan, number) for number in plan.divided_tables}
        in_use = set(names.values())
        versions = [version for version in recorded if version.state in in_use]
        loads = []
        for table, states in self._states_to_load(plan, recorded).items():
            listing = self._list(table, epoch)
            own = tuple(names[state] for state in states)
            loads.append(TableLoad(table, self._sources[table].table.schema, states, own, epoch, listing))
            versions += [TableVersion(table, "", 0, 0, epoch, name) for name in own]
        return EpochLoads(tuple(versions), tuple(loads))

    def have_changed(self, loads: Sequence[TableLoad]) -> bool:
        """Whether files are others than those that an epoch has just read."""
        read = [load for load in loads if not load.listing.is_staged]
        return any(self._sources[one.table].content.fingerprint() != self._fingerprints[one.table] for one in read)

    def note_commit(self, loads: Sequence[TableLoad], versions: Sequence[TableVersion]) -> None:
        """The epoch is committed: what it read is state."""
        for version in versions:
            if any(version.state in load.names for load in loads):
                rows = f"{version.rows:,}"
                _log.info("epoch %d: table %r has %s rows, divided among units", version.since, version.name, rows)
        staged, self._staged = self._staged, {}
        self._storage.delete_all(file.path for listing in staged.values() for file in listing.files)

    def _states_to_load(self, plan: Plan, recorded: Sequence[TableVersion]) -> dict[str, tuple[InputNumber, ...]]:
        """The states that lack the rows of a table, by its name."""
        filled = {version.state for version in recorded}
        lacking: dict[str, tuple[InputNumber, ...]] = {}
        for number, table in sorted(plan.divided_tables.items()):
            if _name_state(plan, number) not in filled:
                lacking[table.name] = (*lacking.get(table.name, ()), number)
        return lacking

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


def _name_state(plan: Plan, number: InputNumber) -> str:
    """What a state goes by in every plan of the checkpoint."""
    key = plan.state_key(number)
    return f"{key.label}-{key.digest}"
