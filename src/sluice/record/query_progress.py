"""How the queries of a flow do, each by itself: what it took in and gave, how late, how much state, and where.

An operator that several queries use is divided among them: of n, each has an nth of its rows, seconds and bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sluice.model.ids import Fragment, InputNumber, Site
from sluice.model.plan.recorded_plan import RecordedPlan
from sluice.model.routing.routing import Routing
from sluice.record.epoch import EpochRecord

LATELY = 10
"""Epochs that are added up."""


@dataclass(frozen=True)
class QueryProgress:
    """One of a flow's queries: what it did in the last epochs, and how it stands after them.

    `rows_in` and `seconds` are its part of what its operators took in and of their processor time, `results` what it
    wrote. `delay` is the mean of the seconds from when an epoch's input was seen until the last site was through with
    the query's rows, `performance_ratio` that delay by the time that its operators alone took: None where it had no
    rows. `own_bytes` of state nobody else reads; of what it shares with others `shared_bytes` are its part. It is on
    `sites`; one of filters and projections alone is on none. `error` says why it was set aside, if it was.
    """

    name: str
    sink: str
    rows_in: float = 0.0
    results: int = 0
    seconds: float = 0.0
    delay: float | None = None
    performance_ratio: float | None = None
    own_bytes: int = 0
    shared_bytes: int = 0
    sites: tuple[Site, ...] = ()
    error: str | None = None


@dataclass(frozen=True)
class OperatorEpoch:
    """What an operator did in an epoch at all sites."""

    rows_in: int
    seconds: float
    longest: float
    delay: float


def query_progress(plan: RecordedPlan, newest: EpochRecord, lately: Sequence[EpochRecord]) -> tuple[QueryProgress, ...]:
    """The progress of all queries of a plan: their state after the newest epoch, and what they did in the last ones,
    oldest first. Of these, those count that went by the same plan."""
    epochs = [_Epoch(record) for record in lately if record.plan == newest.plan][-LATELY:]
    users, readers, sizes = plan.users, plan.readers, state_bytes(newest)
    sites = [sites_of(newest.routing, Fragment(f)) for f in range(len(newest.routing.directories))]
    progress = []
    for output, query in enumerate(plan.queries):
        operators = plan.operators_of(output)
        parts = [part for epoch in epochs if (part := epoch.part_of(plan, output, operators, users))]
        taken = [(part.delay, part.alone) for part in parts if part.delay is not None]
        delay, alone = sum(delay for delay, _ in taken), sum(alone for _, alone in taken)
        states = {state for operator in operators for state in plan.operators[operator].states}
        fragments = {plan.operators[operator].fragment for operator in operators}
        progress.append(
            QueryProgress(
                name=query.name,
                sink=query.sink,
                rows_in=sum(part.rows_in for part in parts),
                results=sum(part.results for part in parts),
                seconds=sum(part.seconds for part in parts),
                delay=delay / len(taken) if taken else None,
                performance_ratio=delay / alone if alone else None,
                own_bytes=round(sum(sizes.get(state, 0.0) for state in states if len(readers[state]) == 1)),
                shared_bytes=round(sum(sizes.get(s, 0.0) / len(readers[s]) for s in states if len(readers[s]) > 1)),
                sites=tuple(sorted({site for fragment in fragments for site in sites[fragment]})),
            )
        )
    return tuple(progress)


@dataclass(frozen=True)
class _Part:
    """A query's part of an epoch: `alone` is how long its operators took by themselves."""

    rows_in: float
    results: int
    seconds: float
    delay: float | None
    alone: float


class _Epoch:
    """What was counted in an epoch, by operator and by output."""

    def __init__(self, record: EpochRecord) -> None:
        operators, outputs = record.stats.operators, record.stats.outputs
        columns = (operators.operator, operators.rows_in, operators.seconds, operators.longest, operators.delay)
        self.operators = {
            operator: OperatorEpoch(*numbers)
            for operator, *numbers in zip(*(column.tolist() for column in columns), strict=True)
        }
        columns = (outputs.output, outputs.rows, outputs.seconds, outputs.longest, outputs.delay)
        self.outputs = {
            output: OperatorEpoch(*numbers)
            for output, *numbers in zip(*(column.tolist() for column in columns), strict=True)
        }
        self.stream_rows = [s.rows - s.late - s.nulls - s.out_of_range for s in record.stats.streams]
        self.late_rows = [s.late for s in record.stats.streams]

    def part_of(
        self, plan: RecordedPlan, output: int, operators: Sequence[int], users: Sequence[Sequence[int]]
    ) -> _Part | None:
        """What of it is a query's; None if it had nothing to do."""
        written = self.outputs.get(output)
        if not operators:
            query = plan.queries[output]
            in_time = Counter(query.origins) - Counter(query.late)
            rows = sum(self.stream_rows[source] for source in in_time if source < len(self.stream_rows))
            rows += sum(self.late_rows[source] for source in set(query.late))
            if written is None:
                return _Part(rows, 0, 0.0, None, 0.0) if rows else None
            return _Part(rows, written.rows_in, written.seconds, written.delay, written.longest)
        works = [(self.operators[o], len(users[o])) for o in operators if o in self.operators]
        if not works:
            return None
        return _Part(
            rows_in=sum(work.rows_in / shared for work, shared in works),
            results=written.rows_in if written else 0,
            seconds=sum(work.seconds / shared for work, shared in works),
            delay=max(work.delay for work, _ in works),
            alone=sum(work.longest for work, _ in works),
        )


def state_bytes(record: EpochRecord) -> dict[InputNumber, float]:
    """The bytes of each state at all sites, input that waits among them."""
    sizes: dict[InputNumber, float] = {}
    for manifest in record.manifests:
        for run in manifest:
            sizes[run.segment.input] = sizes.get(run.segment.input, 0.0) + run.bytes
    return sizes


def sites_of(routing: Routing, fragment: Fragment) -> tuple[Site, ...]:
    """The sites that hold units of a fragment."""
    first, end = routing.directories[fragment].range
    holders = set(routing.holders.array[first:end].tolist())
    for sharing in routing.shared:
        if first <= routing.index_of(sharing.unit) < end:
            holders |= set(sharing.holders)
    return tuple(Site(site) for site in sorted(holders))
