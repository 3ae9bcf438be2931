"""The journal of a query whose state moves, made by hand: a site turns slow, units go elsewhere, one is split, one is
shared, some wishes are refused. Of any size, so that the page can be tried on thousands of units."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from epoch_factory import AT, IDENTITY, RUN
from specs import SECOND

from sluice.control.journal import Journal
from sluice.model.epoch.decision import Decision, UnderWay, Verb
from sluice.model.epoch.segments import RunRef, SegmentRef
from sluice.model.epoch.stats import (
    EpochSeconds,
    EpochStats,
    ScaleTarget,
    SiteStats,
    StreamStats,
    TaskSeconds,
    Traffic,
    UnitColumns,
)
from sluice.model.epoch.work_stats import OperatorColumns, OperatorWork, OutputColumns, OutputWork
from sluice.model.identity import StreamIdentity
from sluice.model.plan.data_flow import DataFlow
from sluice.model.plan.layout import FragmentLayout, PlanLayout
from sluice.model.plan.recorded_plan import RecordedOperator, RecordedPlan, RecordedQuery, RecordedState
from sluice.model.routing.routing import Routing
from sluice.record.epoch import EpochRecord, Turn
from sluice.state.files.storage import Storage

STREAMS = ("orders", "trades")
MEMORY = 256 << 20


def moving_plan(queries: int = 3) -> RecordedPlan:
    """A join of two streams, an average over it, and so many queries that read them."""
    join = RecordedOperator("j", "Window join\n  'orders' on (symbol), 'trades' on (symbol)", (0, 1), (0, 1), 0, 0)
    average = RecordedOperator("a", "Last 20 rows\n  avg(price) by symbol", (2,), (2,), 1, 0)
    origins = [3, 2, 0]
    return RecordedPlan(
        queries=tuple(
            RecordedQuery(f"query-{n}", f"q{n}", f"SELECT … FROM pairs -- {n}", "noop", origins=(origins[n % 3],))
            for n in range(queries)
        ),
        says="Window join\n  'orders' on (symbol), 'trades' on (symbol)",
        sources=STREAMS,
        operators=(join, average),
        layout=PlanLayout(
            (FragmentLayout(0, (0, 1), is_divisible=True, is_freezable=True, shareable=(0, 1)),),
            data_flow=DataFlow(streams=((0, 1),)),
        ),
        states=tuple(RecordedState((origin,), ("symbol",), 0, 0) for origin in (0, 1, 2)),
    )


def moving_journal(uri: str, sites: int = 4, units: int = 48, epochs: int = 60, queries: int = 3) -> MovingQuery:
    """A checkpoint with the journal of such a query; more epochs can be committed."""
    query = MovingQuery(uri, sites, units, queries)
    for _ in range(epochs):
        query.commit()
    return query


class MovingQuery:
    """A query that commits an epoch when it is told to."""

    def __init__(self, uri: str, sites: int, units: int, queries: int = 3, name: str = "desk") -> None:
        storage = Storage(uri)
        storage.make_dir()
        self.journal = Journal(storage)
        streams = tuple(StreamIdentity(name, (("symbol", "string"),), "ts", 5 * SECOND) for name in STREAMS)
        self.journal.claim(replace(IDENTITY, name=name, streams=streams))
        self.plan = self.journal.write_plan(moving_plan(queries), 0, RUN)
        self.routing = replace(Routing.even(units, sites), homes=(0, sites - 1))
        first = EpochRecord(-1, (None, None), self.routing, ((),) * sites, plan=self.plan)
        assert self.journal.take_over(RUN, AT, self.journal.newest(), first)
        self.number = 0
        self.rng = np.random.default_rng(7)
        self.slow = 1 % sites
        self.lag = 1.0
        """Seconds by which the newest event time is behind the clock."""
        self.waiting: tuple[Decision, ...] = ()
        """What is under way from its epoch on, for good."""

    def commit(self) -> EpochRecord:
        """The next epoch. From epoch 10 on one site is slow, and units leave it, one an epoch."""
        decisions = (*self._decide(), *(one for one in self.waiting if one.epoch == self.number))
        record = self._record(decisions)
        self.journal.commit(record)
        self.number += 1
        return record

    def _decide(self) -> tuple[Decision, ...]:
        number, routing = self.number, self.routing
        here = routing.units_at(np.flatnonzero(routing.holders.array == self.slow))
        if number < 10 or routing.sites < 2:
            return ()
        if number % 13 == 0:
            return (Decision(number, "you", Verb.MOVE, 10**6, 0, "asked for", "there is no unit 1000000"),)
        if number % 17 == 0 and len(here) > 1:
            self.routing = routing.split(here[0], since=number)
            return (Decision(number, "load", Verb.SPLIT, here[0], self.slow, "it has 2.1 times the bytes of others"),)
        if number % 19 == 0 and len(here) > 1 and not routing.shared:
            other = (self.slow + 1) % routing.sites
            self.routing = routing.share(here[-1], other, inputs=(0, 1), since=number)
            return (Decision(number, "hybrid", Verb.SHARE, here[-1], other, "one key has most of its rows"),)
        if len(here) <= max(1, routing.units // (2 * routing.sites)):
            return (Decision(number, "memory", Verb.SPILL, here[0], self.slow, "the memory is full"),) if here else ()
        target = int(self.rng.integers(routing.sites - 1))
        target += target >= self.slow
        unit = next(unit for unit in here if routing.sharing(unit) is None)
        self.routing = routing.with_move(unit, target, since=number)
        reason = f"site {self.slow} is 100 % busy, site {target} 41 %"
        return (Decision(number, "hybrid", Verb.MOVE, unit, target, reason),)

    def _record(self, decisions: tuple[Decision, ...]) -> EpochRecord:
        routing, number, rng = self.routing, self.number, self.rng
        units, sites = routing.units, routing.sites
        popularity = 1.0 / (1 + np.arange(units) % 17) ** 0.6
        rows = rng.poisson(400 * popularity).astype(np.int64)
        slowness = np.where((np.arange(sites) == self.slow) & (number >= 10), 3.0, 1.0)
        holders = routing.holders.array
        seconds = (rows * 2e-5 * slowness[holders]).astype(np.float32)
        memory = (rows * 3000 * min(1.0, (number + 5) / 30)).astype(np.int64)
        pending = np.where(slowness[holders] > 1, rows // 4, 0)
        columns = UnitColumns(rows, rows // 2, 3 * rows, 9.0 * rows, pending, memory, memory // 9, seconds)
        by_site = [np.bincount(holders, column, sites) for column in (rows, seconds, memory, pending)]
        counts = np.bincount(holders, minlength=sites)
        total = int(rows.sum())
        busy = [float(spent) for spent in by_site[1]]
        job = 0.12 + max(busy)
        at = AT + 2.0 * number
        stats = EpochStats(
            committed_at=at,
            rows_in=total,
            rows_out=3 * total,
            late_rows=number % 7,
            moves=sum(one.action == Verb.MOVE and one.refused is None for one in decisions),
            spills=sum(one.action == Verb.SPILL for one in decisions),
            streams=tuple(StreamStats(n, rows=total // 2, late=(number % 7) * (n == "trades")) for n in STREAMS),
            sites=tuple(
                SiteStats(
                    site=site,
                    executor=f"host-{site // 4}/{site % 4}",
                    units=int(counts[site]),
                    rows_in=int(by_site[0][site]),
                    rows_out=3 * int(by_site[0][site]),
                    rows=40 * int(by_site[0][site]),
                    segments=6,
                    memory_limit=MEMORY * 12 // max(12, sites // 8),
                    memory_bytes=int(by_site[2][site]),
                    disk_bytes=int(by_site[2][site]) // 9,
                    durable_bytes=int(by_site[2][site]) * 5 // 4,
                    pending_rows=int(by_site[3][site]),
                    pending_bytes=40 * int(by_site[3][site]),
                    busy_seconds=busy[site],
                )
                for site in range(sites)
            ),
            units=columns,
            operators=OperatorColumns.of(
                [
                    OperatorWork(0, total, 3 * total, sum(busy) * 0.8, 0.1 + job),
                    OperatorWork(1, 3 * total, 3 * total, sum(busy) * 0.2, job),
                ],
                0.0,
            ),
            outputs=OutputColumns.of(
                [OutputWork(0, 3 * total), OutputWork(1, 3 * total), OutputWork(2, total // 2)], 0.0
            ),
            traffic=Traffic(np.array([0]), np.array([sites - 1]), np.array([total * 40])),
            scale_target=ScaleTarget(None, 1, 2 * sites),
            seconds=EpochSeconds(TaskSeconds(0.02, 0, 0.01, 0.02, 0.02, sum(busy), 0.03, 0.02), job=job),
        )
        before = EpochSeconds(stats.seconds.tasks, job=job, commit=0.02, deliver=0.01, total=job + 0.05)
        newest = int((at - self.lag - 2) * SECOND), int((at - self.lag - number % 5) * SECOND)
        manifests = tuple(self._manifest(site) for site in range(sites))
        return EpochRecord(
            number,
            newest,
            routing,
            manifests,
            stats=stats,
            decisions=decisions,
            under_way=tuple(UnderWay(one, ()) for one in self.waiting if one.epoch <= number),
            turns=(Turn(at - job, sites, seconds=before),),
            plan=self.plan,
        )

    def _manifest(self, site: int) -> tuple[RunRef, ...]:
        held = self.routing.ranges_of(site)
        units = sum(high - low for low, high in held)
        counts = (100,) * units
        return tuple(
            RunRef(
                SegmentRef(
                    f"{site}-{input_}", "f", 0, 4000 * units, input_, 100 * units, 0, 0, 0, 0, 0, 0, held, counts, ()
                ),
                held,
            )
            for input_ in (0, 1)
            if units
        )
