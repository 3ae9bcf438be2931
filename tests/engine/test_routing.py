"""What each site is handed: its own runs under any routing, its own part of the record, and no other site's."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from engine_harness import DirectQuery
from hypothesis import given
from hypothesis import strategies as st
from specs import SECOND, TIME, handle, join, stream

from sluice.control.copying import missing_runs
from sluice.engine.blobs import ReceivedBlob, SentBlob
from sluice.engine.site_task import SiteTask
from sluice.model.columns import IntColumn
from sluice.model.epoch.segments import Manifest, RunRef, SegmentRef
from sluice.model.epoch.times import Lagging, Queues
from sluice.model.errors import ProtocolError
from sluice.model.plan.planning import plan_of
from sluice.model.routing.routing import Routing
from sluice.model.routing.unit_ranges import Ranges, holds, intersect, single_unit, to_ranges, unite
from sluice.record import reassignment
from sluice.record.epoch import EpochRecord
from sluice.record.reassignment import reassign, reassign_unit
from sluice.testing.drawn_actions import draw_sharing

UNITS = 12


def segment(name: str, units: Ranges = ((0, UNITS),), **values: int) -> SegmentRef:
    base = dict(offset=0, length=100, input=0, rows=10, earliest=0, middle=0, latest=0, base=0, shift=0, level=0)
    counts = (1,) * sum(high - low for low, high in units)
    return SegmentRef(id=name, file=f"{name}.segments", units=units, counts=counts, blocks=(), **{**base, **values})


def reassigned_one_by_one(manifests: tuple[Manifest, ...], routing: Routing) -> tuple[Manifest, ...]:
    """What `reassign` means: every site looks through the runs of all."""
    out = []
    for site in range(routing.sites):
        held: dict[str, RunRef] = {}
        for run in (run for manifest in manifests for run in manifest):
            units = intersect(run.units, routing.ranges_of(site))
            if units and run.segment.id in held:
                held[run.segment.id] = replace(run, units=unite(held[run.segment.id].units, units))
            elif units:
                held[run.segment.id] = replace(run, units=units)
        out.append(tuple(sorted(held.values(), key=lambda r: (r.segment.input, r.segment.latest, r.segment.id))))
    return tuple(out)


@st.composite
def routings(draw: st.DrawFn) -> Routing:
    sites = draw(st.integers(1, 5))
    return Routing(sites, tuple(draw(st.lists(st.integers(0, sites - 1), min_size=UNITS, max_size=UNITS))))


@st.composite
def segments(draw: st.DrawFn) -> list[SegmentRef]:
    written = st.sets(st.integers(0, UNITS - 1), min_size=1).map(lambda units: to_ranges(sorted(units)))
    times = draw(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2), written), max_size=8))
    return [segment(f"s{i}", units, input=input_, latest=latest) for i, (input_, latest, units) in enumerate(times)]


@given(segments(), st.lists(routings(), min_size=1, max_size=4))
def test_runs_follow_their_units_through_any_routings(written, path):
    manifests = reassigned_one_by_one((tuple(RunRef(ref, ref.units) for ref in written),), path[0])
    for before, routing in pairwise(path):
        assert reassign(manifests, before, routing) == (manifests := reassigned_one_by_one(manifests, routing))


def many_sites(sites: int, runs: int, units: int) -> tuple[Routing, tuple[Manifest, ...]]:
    routing = Routing.even(units, sites)
    held = [routing.ranges_of(site) for site in range(sites)]
    refs = [[segment(f"{site:03d}-{run:03d}", held[site], latest=run) for run in range(runs)] for site in range(sites)]
    return routing, tuple(tuple(RunRef(ref, ref.units) for ref in mine) for mine in refs)


def test_a_move_touches_no_run_of_other_sites_and_divides_units_once(monkeypatch):
    divided: list[Ranges] = []
    divide = reassignment.divide
    monkeypatch.setattr(reassignment, "divide", lambda units, owners: divided.append(units) or divide(units, owners))
    routing, manifests = many_sites(sites=64, runs=20, units=256)
    after = reassign(manifests, routing, routing.with_move(4, 9, since=1))
    assert len(divided) == 64  # not once a run, nor once for each pair of a run and a site
    known = {id(run) for manifest in manifests for run in manifest}
    assert [site for site, runs in enumerate(after) if not {id(run) for run in runs} <= known] == [1, 9]
    assert [run.units for run in after[1]] == [((5, 8),)] * 20
    assert sum(run.units == ((4, 5),) for run in after[9]) == 20


@pytest.mark.parametrize("seed", range(20))
def test_the_runs_of_one_unit_are_reassigned_as_with_those_of_all(seed):
    """However it is shared, and from one way to any other."""
    rng = np.random.default_rng(seed)
    before = Routing.even(2, 5)
    written = [segment(f"s{i}", ((0, 2),), input=i % 2, length=int(rng.integers(1, 100))) for i in range(8)]
    manifests = reassigned_one_by_one((tuple(RunRef(ref, ref.units) for ref in written),), before)
    for _ in range(20):
        routing = before
        for _ in range(int(rng.integers(1, 4))):
            with suppress(ProtocolError):
                routing = draw_sharing(rng, routing, (0, 1)).apply(routing, (0, 1), since=0)
        then = reassign(manifests, before, routing)
        for unit in range(2):
            alone = [[run.of(single_unit(unit)) for run in held if holds(run.units, unit)] for held in then]
            found = reassign_unit(manifests, before, routing, unit)
            assert [sorted(runs, key=lambda run: run.segment.id) for runs in found] == [
                sorted(runs, key=lambda run: run.segment.id) for runs in alone
            ]
        before, manifests = routing, then


def test_what_a_wish_to_share_a_unit_costs_the_driver_has_nothing_to_do_with_the_other_units():
    """A policy may have 64 units, each by three wishes, shared otherwise in a round."""
    routing = Routing.even(60_000, 16).share(7, 3, (0, 1), since=0)
    record = EpochRecord(3, (7,), routing, ((),) * 16)
    after = routing.pass_token(7, 1, 3, since=0)

    def seconds(work: Callable[[], object]) -> float:
        begun = time.process_time()
        for _ in range(20):
            work()
        return time.process_time() - begun

    assert seconds(lambda: missing_runs(record, after, 7)) < seconds(lambda: list(routing.holders))


@given(routings())
def test_the_units_of_all_sites_at_once_are_those_of_each(routing):
    assert [to_ranges(units.tolist()) for units in routing.units_by_site()] == [
        routing.ranges_of(s) for s in range(routing.sites)
    ]


def test_a_run_travels_without_what_was_counted_on_the_way():
    run = RunRef(segment("s"), ((2, 5),))
    size = len(pickle.dumps(run))
    assert run.rows == 3
    assert len(pickle.dumps(run)) == size and pickle.loads(pickle.dumps(run)) == run


@given(routings(), st.data())
def test_a_share_has_what_is_of_its_site(routing, data):
    sets = data.draw(st.lists(st.sets(st.integers(0, UNITS - 1), min_size=1), max_size=3))
    behind = tuple(Lagging(level, to_ranges(sorted(units)), (level, None)) for level, units in enumerate(sets))
    sites = range(routing.sites)
    queues = tuple(Queues(site, 0, (site,), (), 0.0) for site in (*sites, routing.sites))  # of one that is gone, too
    manifests = reassigned_one_by_one(((RunRef(segment("s"), ((0, UNITS),)),),), routing)
    shares = EpochRecord(3, (7,), routing, manifests, lagging=behind, queues=queues).shares()
    for site, share in zip(sites, shares, strict=True):
        assert share.manifest == manifests[site] and share.queues == (queues[site],) and share.arriving == ()
        own = [replace(b, units=intersect(b.units, routing.ranges_of(site))) for b in behind]
        assert list(share.lagging) == [b for b in own if b.units]


class OwnShareOnly(DirectQuery):
    """Every site's task has nothing that can be read in place of the other sites' shares."""

    def at_site(self, task: SiteTask, level: int, site_key: int, blobs: list[ReceivedBlob]) -> list[SentBlob]:
        own = self.site_keys.index(site_key)
        assert not (task.before.manifests or task.before.lagging or task.before.queues)
        shares = tuple(share if site == own else b"" for site, share in enumerate(task.shares))
        return super().at_site(replace(task, shares=shares), level, site_key, blobs)


def test_a_site_needs_no_other_sites_share(tmp_path):
    a, b = stream("a"), stream("b")
    rng = np.random.default_rng(1)
    queries = {kind: kind(join([a, b]), tmp_path / kind.__name__, sites=4) for kind in (DirectQuery, OwnShareOnly)}
    for epoch in range(6):
        times = pa.array(epoch * SECOND + np.sort(rng.integers(0, SECOND, 50)), TIME)
        rows = pa.table([rng.integers(0, 20, 50), times, np.arange(50)], schema=a.schema)
        for query in queries.values():
            query.run([rows, rows])
    results = [query.results() for query in queries.values()]
    assert results[0].num_rows > 0 and results[0].num_rows == results[1].num_rows
    for query in queries.values():
        query.close()


def test_bytes_between_sites_are_told_by_sender_and_receiver(tmp_path):
    """Streams a and b are native at sites 0 and 1, all units are at site 1, and so are those of the level above."""
    a, b = stream("a"), stream("b")
    pairs = handle(a).join(handle(b), on="k", within="2 seconds")
    plan = plan_of([pairs.groupBy("b_v").last(2).agg(n=("*", "count")).relation])
    query = DirectQuery(plan, tmp_path, sites=2, partitions=1)
    query.epochs.standing.record = replace(
        query.epochs.record, routing=replace(query.epochs.record.routing, holders=IntColumn([1, 1]))
    )
    rows = pa.table([[1, 1], pa.array([0, SECOND], TIME), [3, 4]], schema=a.schema)
    query.run([rows, rows])
    traffic = query.epochs.record.stats.traffic
    query.close()
    assert list(zip(traffic.sender.tolist(), traffic.receiver.tolist(), strict=True)) == [(0, 1), (1, 1)]
    assert traffic.between_sites == traffic.bytes[0] < traffic.bytes[1]  # that has the stream b, and the pairs
