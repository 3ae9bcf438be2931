"""The control part of a run, replayed from its journal: the same records in, the same routing and decisions out.

A record tells what its epoch was planned by, and what came of it: the routing, the instructions, the decisions. So a
controller with the same policy and settings, shown the records one after the other, has to decide the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sluice.control.controller import Controller, NextEpoch
from sluice.control.journal import Journal
from sluice.model.epoch.decision import FREEZING, ROTATION
from sluice.model.errors import CheckpointError
from sluice.model.ids import Site
from sluice.model.plan.layout import PlanLayout
from sluice.record.epoch import EpochRecord, site_work
from sluice.record.replan import PlanChange


@dataclass(frozen=True)
class Difference:
    """Something that was decided otherwise than it is on record."""

    epoch: int
    what: str
    recorded: object
    replayed: object

    def __str__(self) -> str:
        return f"epoch {self.epoch}: {self.what} on record: {self.recorded}; replayed: {self.replayed}"


def records_of_newest_run(journal: Journal) -> list[EpochRecord]:
    """The record that the newest owner of a checkpoint went on from, and its own. An epoch whose commit failed after
    its entry was there was run again: its newest entry counts."""
    entries = list(journal.entries(journal.indexes()))
    own = [entry for entry in entries if entry.owner == entries[-1].owner]
    if own[0].index != own[0].owner.term:
        raise CheckpointError(f"{journal.storage.uri} does not go back to where its newest run began")
    return list({entry.record.number: entry.record for entry in own}.values())


def layouts_of(journal: Journal, records: Sequence[EpochRecord]) -> dict[str, PlanLayout]:
    """How records are laid out, by the files of the plans that their epochs went by."""
    return {plan: journal.read_plan(plan).layout for plan in {record.plan for record in records}}


def replay(
    records: Sequence[EpochRecord], controller: Controller, layouts: Mapping[str, PlanLayout], partitions: int
) -> Iterator[Difference]:
    """Have a new controller plan the epochs of a run anew, which went on from the first record; what it decides
    otherwise. Records are laid out by plans, whose `layouts` are given by file; new fragments were to have so many
    `partitions`."""
    before = records[0]
    for record in records[1:]:
        if record.plan != before.plan and layouts[record.plan] != layouts[before.plan]:
            change = PlanChange(layouts[before.plan], layouts[record.plan], partitions)
            before = controller.change_plan(before, change)
        step = NextEpoch(before.routing)
        for turn in record.turns:
            for request in turn.requests:
                controller.ask(request)
            for site, size in enumerate(turn.memory):
                controller.memory.set(Site(site), size)
            if turn.after_idle:
                controller.note_idle_epoch(before.number)
            step = controller.plan(replace(before, stats=replace(before.stats, seconds=turn.seconds)), turn)
            before = before if step.before is None else step.before
        yield from _differences(record, before, step, controller)
        controller.commit(record)
        before = record


def _differences(
    record: EpochRecord, before: EpochRecord, step: NextEpoch, controller: Controller
) -> Iterator[Difference]:
    decisions = tuple(one for one in record.decisions if one.policy not in (ROTATION, FREEZING))
    settled = controller.settle(record.number, step.routing, site_work(before, record.events), step.ended)
    for what, recorded, replayed in (
        ("routing", record.routing, step.routing),
        ("instructions", record.instructions, step.instructions),
        ("decisions", decisions, step.decisions),
        ("decisions that ended", record.ended, settled.ended),
        ("decisions under way", record.under_way, settled.under_way),
    ):
        if recorded != replayed:
            yield Difference(record.number, what, recorded, replayed)
