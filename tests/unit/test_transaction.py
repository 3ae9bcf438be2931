"""The pieces of a site's state, each alone: calls at the wrong time are refused, and each changes only what is its."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from paged_site import ALL, ALWAYS, LAYOUT, UNITS, Site, crowded_site, rows
from segment_refs import segment

from sluice.engine.stopwatch import Stopwatch
from sluice.kernels.probe import Run
from sluice.model.clock import SystemClock
from sluice.model.epoch.segments import RunRef
from sluice.model.errors import ProtocolError
from sluice.model.routing.directory import Directory
from sluice.state.durable import DurableSegments
from sluice.state.epoch_runs import EpochRuns
from sluice.state.files.local_files import LocalFiles
from sluice.state.files.storage import Storage
from sluice.state.inputs import Holdings, InputLayouts
from sluice.state.reading import SegmentReader
from sluice.state.tiers import Tiers
from sluice.state.transaction import Transaction
from sluice.state.unit_pages import UnitPages

IN_TURN: dict[str, Callable[[Transaction], object]] = {
    "state is read": lambda t: t.runs(0, ALWAYS),
    "state is added": lambda t: t.stage(0, rows(1, 0)),
    "input that waits is taken": lambda t: t.take_pending(0),
    "a turn ends": lambda t: t.end_turn(),
}
BETWEEN: dict[str, Callable[[Transaction], object]] = {
    "a turn begins": lambda t: t.begin_turn(ALL),
    "input is postponed": lambda t: t.postpone(ALL, 0, rows(1, 0)),
    "rows are passed over": lambda t: t.pass_over({}),
    "the epoch is committed": lambda t: t.commit({}),
}


@pytest.fixture
def crowded(tmp_path: Path) -> Site:
    return crowded_site(tmp_path)


@pytest.mark.parametrize("event", IN_TURN)
def test_what_belongs_to_a_turn_is_refused_outside_one(tmp_path, event):
    site = Site(tmp_path, 1 << 20)
    transaction = site.begin()
    with pytest.raises(ProtocolError, match=f"{event} between two turns; its time is in a turn"):
        IN_TURN[event](transaction)
    site.commit(transaction)
    with pytest.raises(ProtocolError, match=f"{event} after the commit"):
        IN_TURN[event](transaction)


@pytest.mark.parametrize("event", BETWEEN)
def test_what_belongs_between_turns_is_refused_in_one_and_after_the_commit(tmp_path, event):
    site = Site(tmp_path, 1 << 20)
    transaction = site.begin()
    transaction.begin_turn(ALL)
    with pytest.raises(ProtocolError, match=f"{event} in a turn; its time is between two turns"):
        BETWEEN[event](transaction)
    transaction.end_turn()
    site.commit(transaction)
    with pytest.raises(ProtocolError, match=f"{event} after the commit"):
        BETWEEN[event](transaction)


def test_what_was_refused_changes_nothing(tmp_path):
    site = Site(tmp_path, 1 << 20)
    transaction = site.begin()
    with pytest.raises(ProtocolError):
        transaction.stage(0, rows(1, 0))
    site.commit(transaction)
    assert site.manifest == () and not list((tmp_path / "durable" / "state").iterdir())


def pages_of(root: Path, limit: int = 100) -> UnitPages:
    tiers = Tiers(LocalFiles(str(root / "memory")), LocalFiles(str(root / "disk")), limit)
    tiers.begin({})
    holdings = Holdings({0: InputLayouts(LAYOUT, LAYOUT)}, ALL, {0: Directory(UNITS)})
    durable = DurableSegments(Storage(str(root / "durable")), SystemClock())
    return UnitPages(SegmentReader(holdings, tiers, durable), SystemClock(), allowed=True)


@pytest.mark.parametrize(
    "call",
    [
        lambda pages: pages.step(),
        lambda pages: pages.wait(),
        lambda pages: pages.grow(0, 1),
        lambda pages: pages.settle(()),
        lambda pages: pages.is_resident(0),
        lambda pages: pages.is_over_limit,
    ],
)
def test_units_that_are_not_paged_cannot_be_asked_to_page(tmp_path, call):
    pages = pages_of(tmp_path)
    assert not pages.active and pages.spilled_units == () and pages.queues(0, 0) is None
    with pytest.raises(ProtocolError, match="not paged"):
        call(pages)


def test_paging_begins_once_and_waits_for_nothing_where_nothing_is_on_disk(tmp_path):
    pages = pages_of(tmp_path)
    pages.begin(())
    assert pages.active and pages.resident_units == tuple(range(UNITS))
    with pytest.raises(ProtocolError, match="paged already"):
        pages.begin(())
    with pytest.raises(ProtocolError, match="no rotation to wait for"):
        pages.wait()


def test_tiers_are_looked_at_before_they_are_used(tmp_path):
    tiers = Tiers(LocalFiles(str(tmp_path / "memory")), LocalFiles(str(tmp_path / "disk")), 100)
    with pytest.raises(ProtocolError, match="looked"):
        tiers.read_whole_file("a")


def test_the_growth_of_a_turn_is_that_of_its_unit(crowded):
    """Units that are paged have their turns one by one; a turn that adds nothing changes nothing."""
    transaction = crowded.begin()
    unit = transaction.pages.resident_units[0]
    transaction.begin_turn(((unit, unit + 1),))
    transaction.end_turn()
    assert not transaction.pages.is_over_limit
    transaction.begin_turn(((unit, unit + 1),))
    transaction.stage(0, rows(5, unit, each=1000))
    assert not transaction.pages.is_over_limit
    transaction.end_turn()
    assert transaction.pages.is_over_limit


def run_of(name: str, input_: int = 0, pending: bool = False) -> RunRef:
    return RunRef(replace(segment(name, input=input_), pending=pending), ((0, 8),))


def test_rows_that_waited_are_taken_once_and_those_of_others_still_wait():
    runs = EpochRuns([run_of("b", pending=True), run_of("a", pending=True), run_of("c", 1, pending=True), run_of("s")])
    assert [run.segment.id for run in runs.state] == ["s"]
    taken = runs.take_waiting(0, ((2, 5),))
    assert [(run.segment.id, run.units) for run in taken] == [("a", ((2, 5),)), ("b", ((2, 5),))]
    assert [(r.segment.id, r.units) for r in runs.waiting] == [
        ("b", ((0, 2), (5, 8))),
        ("a", ((0, 2), (5, 8))),
        ("c", ((0, 8),)),
    ]
    assert runs.take_waiting(0, ((2, 5),)) == []
    assert len(runs.take_waiting(0, ((0, 8),))) == 2
    assert [run.segment.id for run in runs.waiting] == ["c"]


def test_units_are_taken_out_of_old_and_new_runs_alike():
    runs = EpochRuns([run_of("a"), run_of("b")])
    runs.add(run_of("c"))
    runs.add(RunRef(segment("d"), ((3, 4),)))
    runs.take_out({"a", "c", "d"}, ((3, 4),))
    assert [run.units for run in runs.state] == [((0, 3), (4, 8)), ((0, 8),)]
    assert [run.units for run in runs.new] == [((0, 3), (4, 8)), ()]
    runs.remove({"a"})
    assert [run.segment.id for run in runs.state] == ["b"]


class Ticking(SystemClock):
    """A second passes with every look."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 1
        return self.now


def test_every_second_is_in_one_phase_also_when_one_fails():
    clock = Ticking()
    stopwatch = Stopwatch(clock)
    with pytest.raises(KeyError), stopwatch.measure("kernel"):
        for _ in range(3):
            with stopwatch.measure("open"):
                pass
        with stopwatch.measure("durable"), stopwatch.measure("open"):
            raise KeyError("a")
    assert stopwatch.seconds == {"kernel": 5, "open": 4, "durable": 2}
    assert sum(stopwatch.seconds.values()) == clock.now - 1
    with stopwatch.measure("sort"):
        pass
    assert stopwatch.seconds["sort"] == 1, "what is between two phases is in none"


@pytest.mark.parametrize("limit", [1 << 30, 6000])
def test_a_unit_that_needs_old_rows_keeps_none_of_the_others(tmp_path, limit):
    """In memory, and with units in pages."""
    site = Site(tmp_path, limit)
    for epoch in range(60):
        bounds = [epoch - 3] * UNITS
        bounds[2] = 0  # it waits, or is frozen
        site.add(rows(epoch, 0, 1, 2, 3, each=20), keep_from=bounds)
    kept = site.all_rows()
    assert kept[2] == 60 * 20
    assert all(4 * 20 <= kept[unit] <= 12 * 20 for unit in (0, 1, 3)), kept
    files = {run.segment.file: run.segment.file_length for run in site.manifest}
    assert sum(files.values()) <= 2 * sum(run.bytes for run in site.manifest)
    assert len(site.manifest) <= 24


def test_merges_go_by_how_far_each_unit_has_come(tmp_path):
    site = Site(tmp_path, 1 << 30)
    for epoch in range(4):
        site.add(rows(epoch, 0, 1, 2, 3))
    transaction = site.begin()
    units = ((0, 2), (2, 3), (3, 4))
    compacting = tuple((((low, high),), lambda run, low=low: run.part(0, low)) for low, high in units)
    transaction.begin_turn(ALL)
    transaction.end_turn()
    site.retention = {0: replace(site.retention[0], compacting=compacting)}
    site.commit(transaction)
    assert site.all_rows() == {2: 2, 3: 3}  # of the run that four have become


def test_units_that_have_come_equally_far_are_merged_at_once_wherever_they_lie(tmp_path):
    site = Site(tmp_path, 1 << 30)
    for epoch in range(4):
        site.add(rows(epoch, 0, 1, 2, 3))
    calls: list[list[int]] = []

    def first_half(run: Run) -> Run:
        calls.append(sorted(set(run.rows.column("v").to_pylist())))
        return run.part(0, len(run) // 2)

    transaction = site.begin()
    transaction.begin_turn(ALL)
    transaction.end_turn()
    even, odd = ((0, 1), (2, 3)), ((1, 2), (3, 4))
    site.retention = {0: replace(site.retention[0], compacting=((even, first_half), (odd, first_half)))}
    site.commit(transaction)
    assert calls == [[0, 2], [1, 3]]
    assert site.all_rows() == {0: 160, 1: 160}
