"""Instructions by epochs: how a query on Spark carries out what protocols ask for.

At an epoch boundary everybody is at rest, so pausing and draining have nothing to wait for. What remains goes beside
the epochs' ordinary work. The source of a move brings the unit's state into segments of its own. The target copies
those ahead of time. When little is missing the routing changes. The time it takes bounds how much is done in one epoch.
The next epoch's instructions tell what sites are to do, its record tells what they did.
"""

from __future__ import annotations

from collections.abc import Sequence

from sluice.control.copying import EpochCopies, fetched_bytes, is_all_new, length, missing_runs, not_in, separate
from sluice.control.executor import InstructionExecutor, handles
from sluice.control.loop import ControlLoop
from sluice.control.site_changes import plan_arrivals
from sluice.model.epoch.stats import EpochStats
from sluice.model.ids import Site, Unit
from sluice.model.routing.routing import Routing
from sluice.model.routing.unit_ranges import single_unit
from sluice.policies.planning.scale_out import fill
from sluice.record.epoch import EpochRecord
from sluice.record.repartition import repartition_record, rows_of_units, successors, why_unmergeable
from sluice.verbs import SiteInstruction
from sluice.verbs.freeze import CleanUpProtocol, CleanUpUnits, FreezeProtocol, FreezeUnit
from sluice.verbs.move import (
    CopyAhead,
    Extract,
    Extracted,
    Install,
    Installed,
    LetGo,
    MoveProtocol,
    Phase,
    Released,
    Restart,
    SetApart,
    Transfer,
    Transferred,
)
from sluice.verbs.scale import ChangeSites, ScaleProtocol
from sluice.verbs.share import (
    AnySharing,
    ApplyGrid,
    ApplySharing,
    PrepareSharing,
    SharingPhase,
    SharingPrepared,
    SharingProtocol,
)
from sluice.verbs.split import (
    CountBelow,
    Counted,
    Divide,
    HashProfile,
    MergeProtocol,
    Profiled,
    ProfileHashes,
    RowsBelow,
    SplitProtocol,
    Unite,
    Unmergeable,
)

REMEMBERED_EPOCHS = 100
"""Epochs for which it counts that a unit had one key, or could not be merged: then other keys may have come, or what
was in the way may be gone."""
SUPERSEDED = "another number of sites was asked for"


class EpochExecutor(InstructionExecutor):
    """Takes protocols on from epoch to epoch. Its clock goes while epochs run in which units move: the time in which no
    input comes is no part of it."""

    def __init__(self) -> None:
        self._clock = 0.0
        self._record: EpochRecord | None = None
        """The newest committed epoch."""
        self._copies: EpochCopies | None = None
        """What sites copy in the next epoch, as far as it is known."""
        self._copied: dict[Unit, dict[Site, set[str]]] = {}
        """The segments that sites have copied ahead of time, of each unit that is on its way to them."""
        self._site_steps: dict[Unit, ProfileHashes | CountBelow] = {}
        """What the sites are to find out about units."""
        self._divisions: dict[Unit, Divide] = {}
        self._unions: dict[Unit, Unite] = {}
        self.single_key_units: dict[Unit, int] = {}
        """Units all rows of which had one hash, with the epoch when that was seen. A policy that asked again in every
        round would get to nothing else."""
        self.unmergeable_units: dict[Unit, int] = {}
        """Units that could not be merged because of their segments, with the epoch when that was seen."""

    def clock(self) -> float:
        return self._clock

    def pass_epoch(self, stats: EpochStats) -> None:
        """Let the time of an epoch pass."""
        self._clock += stats.seconds.elapsed

    def finish_moves(self, loop: ControlLoop, record: EpochRecord, now: float) -> None:
        """End the moves whose units are where they were to go, now that another epoch has committed."""
        for move in loop.moves:
            if record.routing.holder(move.unit) == move.target:
                loop.report(Installed(move.unit), now)

    def advance(self, loop: ControlLoop, record: EpochRecord, allowance: float, now: float) -> None:
        """Take moves and shared units one step on, now that another epoch has committed. Each site may copy so many
        bytes in the next one."""
        self._record, self._copies = record, EpochCopies(allowance, record.routing.sites, record.number)
        self._copied = {unit: copied for unit, copied in self._copied.items() if loop.in_flight.at(unit)}
        for move in loop.moves:
            if move.phase is Phase.INSTALLING:  # the epoch that was to install it came to nothing
                self.execute(loop, Install(move.unit, move.target), now)
            else:
                self._prepare_move(loop, move, now)
        for unit in dict.fromkeys(sharing.unit for sharing in loop.in_flight.of(SharingProtocol)):
            self._advance_sharing(loop, unit, now)

    @handles(FreezeUnit, CleanUpUnits)
    def _tell_sites(self, loop: ControlLoop, instruction: FreezeUnit | CleanUpUnits, now: float) -> None:
        """The sites learn it with the next epochs, as long as the protocol is in flight."""

    def freezing_instructions(self, loop: ControlLoop) -> list[SiteInstruction]:
        """Which units the sites freeze and clean up in the next epoch."""
        freezes: list[SiteInstruction] = [
            FreezeUnit(unit) for protocol in loop.in_flight.of(FreezeProtocol) for unit in protocol.units
        ]
        units = dict.fromkeys(unit for protocol in loop.in_flight.of(CleanUpProtocol) for unit in protocol.units)
        return [*freezes, CleanUpUnits(tuple(units))] if units else freezes

    def copying_instructions(self, loop: ControlLoop, to_set_apart: tuple[Unit, ...]) -> list[SiteInstruction]:
        """What else the sites do in the next epoch, beside their ordinary work: bring units into segments of their own,
        copy segments, find out about units that are to be split."""
        assert self._copies is not None, "an epoch has committed"
        self._forget_site_steps(loop)
        copies = [
            CopyAhead(Site(site), tuple(segment.id for segment in segments))
            for site, segments in enumerate(self._copies.by_site())
            if segments
        ]
        apart = [SetApart(to_set_apart, self._copies.allowance)] if to_set_apart else []
        return [*apart, *copies, *self._site_steps.values()]

    # --- moves ---

    @handles(Extract, Transfer)
    def _begin_step(self, loop: ControlLoop, instruction: Extract | Transfer, now: float) -> None:
        """Goes on beside the next epochs' work, until `advance` sees that it is done."""

    @handles(Install)
    def _install(self, loop: ControlLoop, instruction: Install, now: float) -> None:
        """The target reads the unit's state in the first epoch of the new routing."""
        self._route(loop, instruction.unit, instruction.site, now)

    @handles(Restart)
    def _restart(self, loop: ControlLoop, instruction: Restart, now: float) -> None:
        self._route(loop, instruction.unit, instruction.site, now)

    @handles(LetGo)
    def _let_go(self, loop: ControlLoop, instruction: LetGo, now: float) -> None:
        """The manifests of the next record are what a site has."""
        loop.report(Released(instruction.unit), now)

    def _route(self, loop: ControlLoop, unit: Unit, site: Site, now: float) -> None:
        there = loop.routing.holder(unit) == site
        loop.route(loop.routing if there else loop.routing.with_move(unit, site, loop.epoch), now)

    def _prepare_move(self, loop: ControlLoop, move: MoveProtocol, now: float) -> None:
        """Switch to the target if what is missing there is little enough, else have it copy some of it."""
        assert self._record is not None and self._copies is not None, "an epoch has committed"
        own, shared = separate(self._record, move.unit, move.source)
        if move.phase is Phase.EXTRACTING and not shared:
            loop.report(Extracted(move.unit), now)
        copied = self._copied_at(move.unit, move.target)
        missing = not_in(copied, own)
        fits = self._copies.fits(move.target, length(missing)) or is_all_new(copied, missing, self._record.number)
        if move.phase is Phase.TRANSFERRING and fits:
            self._copies.spend(move.target, length(missing))
            loop.report(Transferred(move.unit), now)
        else:
            self._copies.copy_ahead(move.target, copied, own)

    def _copied_at(self, unit: Unit, site: Site) -> set[str]:
        return self._copied.setdefault(unit, {}).setdefault(site, set())

    # --- shared units ---

    @handles(PrepareSharing)
    def _prepare_sharing(self, loop: ControlLoop, instruction: PrepareSharing, now: float) -> None:
        """Everybody learns it with the next epoch's tasks, or later, if there is much to copy before, or another change
        of the unit comes first."""
        wishes = [wish for wish in self._wishes(loop, instruction.unit) if wish.phase is SharingPhase.PREPARING]
        if len(wishes) == 1 and self._can_apply(loop, instruction.change):
            loop.report(SharingPrepared(instruction.unit), now)

    @handles(ApplySharing, ApplyGrid)
    def _apply_sharing(self, loop: ControlLoop, instruction: ApplySharing, now: float) -> None:
        """The routing of the next epoch is split, command and stream at once: it is done when that is committed."""
        loop.routing = self._routing_with(loop, instruction.change)

    def _routing_with(self, loop: ControlLoop, change: AnySharing) -> Routing:
        inputs = loop.capabilities.shareable[loop.routing.fragment_of(change.unit)]
        return change.apply(loop.routing, inputs, loop.epoch)

    def _wishes(self, loop: ControlLoop, unit: Unit) -> list[SharingProtocol]:
        return [wish for wish in loop.in_flight.at(unit) if isinstance(wish, SharingProtocol)]

    def _advance_sharing(self, loop: ControlLoop, unit: Unit, now: float) -> None:
        """Take what is to become of a unit's holders one step on, one wish after the other."""
        assert self._record is not None and self._copies is not None, "an epoch has committed"
        for wish in self._wishes(loop, unit):
            if wish.phase is SharingPhase.APPLYING:  # the epoch that was to have this routing came to nothing
                self.execute(loop, wish.application, now)
            elif self._can_apply(loop, wish.action):
                loop.report(SharingPrepared(unit), now)
            else:
                alone = single_unit(self._record.routing.index_of(unit))
                for site, runs in enumerate(missing_runs(self._record, self._routing_with(loop, wish.action), unit)):
                    own = [run.segment for run in runs if run.segment.units == alone]
                    self._copies.copy_ahead(Site(site), self._copied_at(unit, Site(site)), own)
                return

    def _can_apply(self, loop: ControlLoop, change: AnySharing) -> bool:
        """Whether the routing can change: what each site has not copied of what it will hold is little enough. If so
        they read it in the next epoch."""
        record, copies, unit = self._record, self._copies, change.unit
        if record is None or copies is None:
            return True
        if loop.conditions.why_unready(unit) is not None:
            return False
        left: list[int] = []
        for site, runs in enumerate(missing_runs(record, self._routing_with(loop, change), unit)):
            copied = self._copied_at(unit, Site(site))
            to_read = [run for run in runs if run.segment.id not in copied]
            left.append(fetched_bytes(to_read))
            is_new = is_all_new(copied, [run.segment for run in to_read], record.number)
            if left[-1] and not (copies.fits(Site(site), left[-1]) or is_new):
                return False
        for site, size in enumerate(left):
            copies.spend(Site(site), size)
        return True

    # --- units that are split or merged ---

    @handles(ProfileHashes, CountBelow)
    def _ask_sites(self, loop: ControlLoop, instruction: ProfileHashes | CountBelow, now: float) -> None:
        self._site_steps[instruction.unit] = instruction

    @handles(Divide)
    def _divide(self, loop: ControlLoop, instruction: Divide, now: float) -> None:
        self._divisions[instruction.unit] = instruction

    @handles(Unite)
    def _unite(self, loop: ControlLoop, instruction: Unite, now: float) -> None:
        self._unions[instruction.unit] = instruction

    def repartition(self, loop: ControlLoop, record: EpochRecord, now: float) -> EpochRecord:
        """Take units that are to be split or merged one step on: the record, with the units as they are from now on."""
        self._forget_units(record.number)
        self._report_findings(loop, record, now)
        merges = {protocol.unit for protocol in loop.in_flight.of(MergeProtocol)}
        self._unions = {unit: union for unit, union in self._unions.items() if unit in merges}
        self._refuse_unions(loop, record, now)
        splits = {protocol.unit: protocol for protocol in loop.in_flight.of(SplitProtocol)}
        further = {unit: divide.further for unit, divide in self._divisions.items() if unit in splits}
        merged = [protocol.unit for protocol in loop.in_flight.of(MergeProtocol) if protocol.unit in self._unions]
        self._divisions, self._unions = {}, {}
        if not further and not merged:
            return record
        cuts = [event for event in record.events if isinstance(event, RowsBelow) and event.unit in further]
        after = repartition_record(record, record.routing.repartitioned(further, merged, loop.epoch), cuts)
        replaced = successors(record.routing, after.routing)
        alike = loop.routing is record.routing
        routing = after.routing if alike else loop.routing.repartitioned(further, merged, loop.epoch)
        loop.replace_units(routing, replaced, now)
        for unit in further:
            self._note_single_keys(splits[unit], after, replaced[unit], loop.epoch)
        self._record = loop.conditions = after
        return after

    def _report_findings(self, loop: ControlLoop, record: EpochRecord, now: float) -> None:
        """Report what the sites have found out about units in an epoch, if that had the instruction to."""
        self._forget_site_steps(loop)
        if not self._site_steps:
            return
        profiles: dict[Unit, list[HashProfile]] = {}
        below: dict[Unit, dict[int, int]] = {}
        for event in record.events:
            if isinstance(event, HashProfile):
                profiles.setdefault(event.unit, []).append(event)
            elif isinstance(event, RowsBelow):
                counts = below.setdefault(event.unit, {})
                counts[event.hash] = counts.get(event.hash, 0) + event.below
        instructions = set(record.instructions)
        steps = [step for step in self._site_steps.values() if step in instructions]
        rows = rows_of_units(record.manifests, record.routing.units) if below else None
        for step in steps:
            unit = step.unit
            del self._site_steps[unit]
            if isinstance(step, ProfileHashes):
                profile = HashProfile.total(profiles[unit]) if unit in profiles else None
                if profile is not None and profile.least == profile.greatest:
                    self.single_key_units[unit] = loop.epoch
                loop.report(Profiled(unit, profile), now)
            else:
                unit_rows = 0 if rows is None else int(rows[record.routing.index_of(unit)])
                loop.report(Counted(unit, unit_rows, below.get(unit, {})), now)

    def _forget_site_steps(self, loop: ControlLoop) -> None:
        """Forget what was to be found out about units that are not to be split any more."""
        splits = {protocol.unit for protocol in loop.in_flight.of(SplitProtocol)}
        self._site_steps = {unit: step for unit, step in self._site_steps.items() if unit in splits}

    def _refuse_unions(self, loop: ControlLoop, record: EpochRecord, now: float) -> None:
        """Report which units cannot be merged after all."""
        for unit, buddy in [(union.unit, union.buddy) for union in self._unions.values()]:
            unready = next((f"unit {u} {why}" for u in (unit, buddy) if (why := record.why_unready(u))), None)
            unmergeable = None if unready else why_unmergeable(record, unit, buddy)
            if unready or unmergeable:
                del self._unions[unit]
                loop.report(Unmergeable(unit, unready or str(unmergeable)), now)
            if unmergeable:
                self.unmergeable_units |= dict.fromkeys((unit, buddy), loop.epoch)

    def _note_single_keys(self, split: SplitProtocol, after: EpochRecord, parts: Sequence[Unit], epoch: int) -> None:
        for unit in parts:
            if after.routing.hashes_of(unit) == split.single_key:
                self.single_key_units[unit] = epoch

    def _forget_units(self, epoch: int) -> None:
        """Forget what was seen too long ago."""
        self.single_key_units, self.unmergeable_units = (
            {unit: at for unit, at in seen.items() if epoch - at < REMEMBERED_EPOCHS}
            for seen in (self.single_key_units, self.unmergeable_units)
        )

    # --- another number of sites ---

    @handles(ChangeSites)
    def _change_sites(self, loop: ControlLoop, instruction: ChangeSites, now: float) -> None:
        """Whoever runs the sites has some join. What those will hold is planned now, so that it can be set apart as
        soon as there are executors for them. Sites that leave hand over what they hold from epoch to epoch."""
        *others, newest = loop.in_flight.of(ScaleProtocol)
        for other in others:
            loop.abandon(other, SUPERSEDED, now)
        moves = () if newest.leaving else fill(loop.collector.view(), instruction.sites, instruction.reason)
        plan_arrivals(loop, moves, now)
