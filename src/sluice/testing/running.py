"""`run`: a user's flow on a user's rows, in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sluice.api.flow import Flow
from sluice.api.options import PARTITIONS
from sluice.api.options import SITE_MEMORY as SITE_MEMORY_OPTION
from sluice.api.output_mode import OutputMode, changes
from sluice.api.request import QueryRequest, WriterChoices, read_request
from sluice.api.stream import DataStream
from sluice.api.writer import DataStreamWriter
from sluice.model.durations import seconds
from sluice.model.errors import FlowError
from sluice.spark.sinks import SinkKind
from sluice.state.files.workspace import ANYWHERE, temporary_directory
from sluice.testing.arrivals import Arrival, Batch, Rows, read_batches
from sluice.testing.bench import Bench, plan_request
from sluice.testing.clocks import CountingClock
from sluice.testing.disturbance import MOST_SITES, SITE_MEMORY, Disturbance, DisturbedQuery
from sluice.testing.local_query import EpochRows, LocalQuery
from sluice.testing.outcome import Outcome

Written = DataStream | DataStreamWriter
Tested = Written | Sequence[Written] | Mapping[str, DataStream] | Callable[[None], Written | Sequence[Written]]
"""What can be tested: streams and writers, one or several, streams by the names of their queries, or a `define`."""
SITES, UNITS = 2, 16
"""How many there are unless the writers say otherwise: a test has few rows, and every unit costs an epoch something."""
START_TIME = 1e9


def run(
    tested: Tested,
    rows: Mapping[str, Rows | Sequence[Rows | Arrival]],
    *,
    disturb: int | None = None,
    interval: str = "1 second",
) -> Outcome:
    """Run streams or writers on rows, without Spark, and wait for all that comes of it.

    Args:
        tested: a stream or a writer, several of them, streams by the names of their queries, or a function that returns
            them.
        rows: for each stream, by its name, an Arrow table or a list of dictionaries; or a list of these, one for each
            epoch.
        disturb: a number: units move, split and freeze, sites come and go, and tasks and drivers are killed, as that
            number has it. The results have to be the same.
        interval: by how much the clock goes on between two epochs.

    >>> from sluice import Flow
    >>> trades = Flow().readStream("trades", "symbol string, ts timestamp, price double", eventTime="ts")
    >>> row = {"symbol": "A", "ts": "2026-01-01 09:30:00", "price": 3.0}
    >>> run(trades.filter("price > 2").select("symbol"), {"trades": [row]}, disturb=7).rows()
    [{'symbol': 'A'}]
    """
    if disturb is not None and (not isinstance(disturb, (int, np.integer)) or disturb < 0):
        raise FlowError(f"disturb={disturb!r} is no seed: give a whole number from 0 on, the same for the same run")
    request = _read_request(tested)
    batches = read_batches(plan_request(request).sources, rows, request.registry.time_zone)
    clock, pause = CountingClock(START_TIME), seconds(interval, "interval")
    with temporary_directory(ANYWHERE.roots()[0]) as directory:
        if disturb is None:
            return _run_calmly(Bench(request, directory, clock), batches, pause)
        rng = np.random.default_rng(disturb)
        return _DisturbedFlow(request, directory, clock, rng, batches).run(pause)


def _read_request(tested: Tested) -> QueryRequest:
    if isinstance(tested, Flow):
        raise FlowError(
            f"flow {tested.name!r} does not say by itself what is written: give the streams or writers to test, or the "
            "function that defines them"
        )
    if callable(tested) and not isinstance(tested, Written):
        tested = tested(None)
    if isinstance(tested, Mapping):
        tested = [stream.writeStream.queryName(name) for name, stream in tested.items()]
    written = [tested] if isinstance(tested, Written) else list(tested) if isinstance(tested, Sequence) else []
    if not written or not all(isinstance(one, Written) for one in written):
        raise FlowError(
            "a test takes a stream, a writer that is not started, several of them, streams by name, or a function that "
            f"returns them, not {tested!r}"
        )
    request = read_request([_choices_of(one) for one in written])
    options = request.options
    if PARTITIONS.name in request.chosen_options:
        return request
    units = min(options.partitions, max(UNITS, options.sites or 0, options.max_sites or 0))
    return replace(request, options=replace(options, partitions=units))


def _choices_of(written: Written) -> WriterChoices:
    """What a writer was told, but for its sink: results go to the test."""
    writer = written.writeStream if isinstance(written, DataStream) else written
    choices = writer.choices()
    name = choices.name or (written.name if isinstance(written, DataStream) else "") or None
    mode = OutputMode.UPDATE if isinstance(written, DataStream) and changes(written.relation) else choices.mode
    return replace(choices, format=SinkKind.NOOP, function=None, name=name, mode=mode)


def _run_calmly(bench: Bench, batches: Sequence[Batch], pause: float) -> Outcome:
    options = bench.request.options
    least, most = options.bounds
    query = bench.start(LocalQuery, options.sites or max(least, min(SITES, most)))
    for batch in batches:
        query.clock.sleep(pause)
        query.follow()
        query.run(batch.rows, event_times=batch.event_times)
        bench.note_newest(query)
    _drain(bench, query)
    if options.close_at_end and query.end_input():
        bench.note_newest(query)
        _drain(bench, query)
    query.epochs.close()
    query.close()
    return bench.outcome(batches)


def _drain(bench: Bench, query: LocalQuery) -> None:
    query.epochs.clean_up()
    while query.follow() and query.catch_up():
        bench.note_newest(query)
        query.epochs.clean_up()


class _DisturbedFlow(Disturbance):
    """A user's flow on bad days."""

    def __init__(
        self,
        request: QueryRequest,
        root: Path,
        clock: CountingClock,
        rng: np.random.Generator,
        batches: Sequence[Batch],
    ) -> None:
        super().__init__(root, clock, rng)
        self.draw_troubles(scales=request.options.scales)
        self.bench, self.batches = Bench(self._with_limits(request), root, clock), batches
        self.story: list[str] = []
        self.sites = int(rng.integers(1, MOST_SITES + 1))
        self.start()

    def _with_limits(self, request: QueryRequest) -> QueryRequest:
        """With sites of little memory, and as many as there are to be, unless the user says otherwise."""
        options = request.options
        if SITE_MEMORY_OPTION.name not in request.chosen_options:
            options = replace(options, site_memory=int(self.rng.choice(SITE_MEMORY)))
        if self.most_sites is not None and not options.scales:
            options = replace(options, sites=None, min_sites=self.least_sites, max_sites=self.most_sites)
        return replace(request, options=options)

    def run(self, pause: float) -> Outcome:
        """All batches, with what happens between and in them."""
        for number, batch in enumerate(self.batches):
            self.clock.sleep(pause)
            self.between_epochs()

            def run_batch(number: int = number, batch: Batch = batch, **hooks: Any) -> None:
                self.query.run(batch.rows, number, event_times=batch.event_times, **hooks)

            self.epoch(f"batch {number}", run_batch, again=True)
        self.drain()
        if self.bench.request.options.close_at_end:
            self.end_input()
        self.query.epochs.close()
        self.close_workspaces()
        return self.bench.outcome(self.batches, self.story)

    def start_query(self) -> DisturbedQuery:
        query = self.bench.start(DisturbedQuery, self.sites)
        query.disturbance = self
        return query

    def rows_of(self, batch: int) -> EpochRows:
        no_rows = [stream.schema.empty_table() for stream in self.bench.plan.sources]
        return self.batches[batch].rows if batch < len(self.batches) else no_rows

    def say(self, what: str) -> None:
        self.story.append(what)

    def check(self, in_order: bool) -> None:
        self.bench.note_all(self.query)
