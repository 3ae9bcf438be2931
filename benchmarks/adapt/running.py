"""One run: a contender over a scenario's rows, disturbed at given epochs, watched, and checked against DuckDB."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.adapt import exact, resident
from benchmarks.adapt.epochs import Epoch, Watch
from benchmarks.adapt.feeder import Feeder, Schedule
from benchmarks.adapt.load import others
from benchmarks.adapt.rows import Rows, linked, prepared
from benchmarks.adapt.turns import Turns
from benchmarks.session import scratch
from sluice import Flow
from sluice.experiments import slowDisk, slowDown
from sluice.model.durations import size_in_bytes
from sluice.policies import Policy

PERIOD = 0.05  # seconds between two looks at the journal
COLLECT = "2 seconds"
LONGEST = 1200.0  # seconds after which a run is given up

Step = Callable[[Any], None]
"""Something done to the running query, before the epoch it is filed under."""


class Inexact(Exception):
    """A run whose results are not those of the batch join."""


@dataclass(frozen=True)
class Contender:
    """A way to run the query: under a policy with its settings, rounds as short as they can be unless these say
    otherwise, and with options of the writer."""

    name: str
    policy: str | Policy
    options: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


STATIC, HYBRID = Contender("static", "static"), Contender("hybrid", "hybrid")


@dataclass(frozen=True)
class Run:
    """What was measured of one contender."""

    contender: str
    epochs: tuple[Epoch, ...]
    results: int
    moves: int
    others: float
    decisions: tuple[dict[str, Any], ...] = ()
    given: tuple[tuple[int, int, int], ...] = ()  # (file, epoch, results), see exact.by_file
    arrived: Mapping[int, float] = field(default_factory=dict)
    resident: tuple[tuple[float, tuple[int, ...]], ...] = ()  # see resident.py
    ended: float = 0.0  # when the query was over

    def committed(self) -> dict[int, float]:
        return {epoch.number: epoch.committed for epoch in self.epochs}

    def latencies(self) -> list[tuple[float, int]]:
        return exact.latencies(list(self.given), self.arrived, self.committed())


@dataclass(frozen=True)
class Setup:
    """How every run of a scenario is set up: sites, units, and what is emulated."""

    sites: int
    units: int
    service: float = 0.0  # emulated seconds a row; 0 is the machine's own speed
    result_service: float = 0.0  # and a result
    options: Mapping[str, str] = field(default_factory=dict)
    files_at_once: int = 1
    trigger: str = "0 seconds"  # where files come on a schedule
    disk: str | None = None  # emulated bytes a second of each site's disk; None is the machine's own speed

    def says(self) -> str:
        how = []
        if self.service:
            each = f" and every result {self.result_service * 1e6:.0f} µs" if self.result_service else ""
            how.append(f"every row takes {self.service * 1e6:.0f} µs{each} at its site, emulated by sleeping")
        if self.disk:
            rate = size_in_bytes(self.disk, "disk") / 2**20
            how.append(f"every site's disk reads and writes {rate:.0f} MiB/s, emulated by sleeping")
        return f"{self.sites} sites, {self.units} units; {'; '.join(how) or 'real processor time only'}"


@dataclass(frozen=True)
class Stage:
    """Where runs take place."""

    spark: SparkSession
    cache: Path
    work: Path

    def run(
        self,
        contender: Contender,
        rows: Rows,
        setup: Setup,
        files: int | None = None,
        steps: Mapping[int, Step] | None = None,
        schedule: Schedule | None = None,
    ) -> Run:
        """Run over the first `files` files; or over those that a schedule has, as it has them arrive."""
        home, files = prepared(rows, self.cache), files or rows.files
        with scratch(self.work) as here:
            linked(rows.streams, home, here / "in", 0, schedule.there if schedule else files)
            feeder = Feeder(rows.streams, home, here / "in", schedule) if schedule else None
            before = others()
            with resident.sampled(setup.sites) as memory:
                run = self._watched(contender, rows, setup, here, memory, steps or {}, feeder)
            busy = others().since(before)
            results = self._check(contender, rows, here)
            return Run(
                contender.name,
                tuple(run.epochs),
                results,
                sum(e.moves for e in run.epochs),
                busy,
                tuple(run.decisions),
                tuple(exact.by_file(rows, here / "out")),
                feeder.arrived if feeder else {},
                tuple(memory.samples),
                run.ended,
            )

    def recompute(self, rows: Rows, files: int) -> float:
        """The seconds that DuckDB takes to join the first so many files at once."""
        home = prepared(rows, self.cache)
        with scratch(self.work) as here:
            linked(rows.streams, home, here / "in", 0, files)
            return exact.recompute(rows, here / "in", here / "out.parquet")

    def _watched(
        self,
        contender: Contender,
        rows: Rows,
        setup: Setup,
        here: Path,
        memory: resident.Samples,
        steps: Mapping[int, Step],
        feeder: Feeder | None,
    ) -> _Watched:
        query = self._started(contender, rows, setup, here, memory.directory, feeder is None)
        try:
            for site in range(setup.sites if setup.service else 0):
                slowDown(query, site, *(f"{s * 1e6} microseconds" for s in (setup.service, setup.result_service)))
            if setup.disk:
                slowDisk(query, setup.disk)
            watched = _Watched(Watch(here / "ck", time.time()), steps, query)
            watched.until_over(feeder)
            return watched
        finally:
            if feeder:
                feeder.end()
            query.stop()
            shutil.rmtree(here / "ck", ignore_errors=True)

    def in_turns(self, contenders: Sequence[Contender], rows: Rows, setup: Setup, files: int) -> list[Run]:
        """Run all of them at a time, but only one at any moment: an epoch of one, then an epoch of the next. Whatever
        becomes of the machine's speed is the same for all. An epoch's seconds are those of its turn."""
        home, turns = prepared(rows, self.cache), Turns(len(contenders), files)
        with scratch(self.work) as here, scratch(resident.SHARED) as memory:
            places = [here / contender.name for contender in contenders]
            for place in places:
                linked(rows.streams, home, place / "in", 0, files)
            before = others()
            queries: list[Any] = []
            try:
                for i, (contender, place) in enumerate(zip(contenders, places, strict=True)):
                    queries.append(self._started(contender, rows, setup, place, memory, turn=turns.of(i)))
                for query in queries:
                    query.awaitTermination()
            finally:
                turns.end()
                for query in queries:
                    query.stop()
            busy = others().since(before)
            return [
                self._in_turn(contender, rows, place, seconds, busy)
                for contender, place, seconds in zip(contenders, places, turns.seconds, strict=True)
            ]

    def _in_turn(self, contender: Contender, rows: Rows, here: Path, seconds: list[float], busy: float) -> Run:
        self._check(contender, rows, here)
        watch = Watch(here / "ck", time.time())
        epochs = tuple(replace(e, seconds=took) for e, took in zip(watch.new(), seconds, strict=True))
        moves = sum(e.moves for e in epochs)
        return Run(contender.name, epochs, sum(e.results for e in epochs), moves, busy, tuple(watch.decisions))

    def _check(self, contender: Contender, rows: Rows, here: Path) -> int:
        """See that the results are DuckDB's; how many there are."""
        wanted, got = exact.expected(rows, here / "in"), exact.found(rows, here / "out")
        if got != wanted:
            raise Inexact(f"{contender.name} on {rows.name}: {got} is not DuckDB's {wanted}")
        return got.results

    def _started(
        self,
        contender: Contender,
        rows: Rows,
        setup: Setup,
        here: Path,
        memory: Path,
        to_the_end: bool = True,
        turn: Callable[..., None] | None = None,
    ) -> Any:
        flow = Flow(self.spark, name=rows.name)
        streams = [
            flow.readFiles(s, str(here / "in" / s), eventTime="ts", maxFilesPerTrigger=setup.files_at_once)
            for s in rows.streams
        ]
        within = "unbounded" if rows.within is None else f"{rows.within} seconds"
        if rows.where:
            joined = streams[0].join(streams[1], where=rows.where, within=within)
        else:
            joined = flow.join(streams, on="key", within=within)
        writer = joined.writeStream.format("parquet")
        writer = writer.option("path", str(here / "out")).option("checkpointLocation", str(here / "ck"))
        writer = writer.options(memoryDir=str(memory), diskDir=str(here / "disk"))
        writer = writer.options(sites=setup.sites, partitions=setup.units)
        writer = writer.options(**{**setup.options, **contender.options})
        writer = writer.policy(contender.policy, **{"collect": COLLECT, **contender.settings})
        writer = writer.trigger(availableNow=True) if to_the_end else writer.trigger(processingTime=setup.trigger)
        if turn is None:
            return writer.start()
        return flow.start(writer, joined.filter("A_id < 0").writeStream.foreachBatch(turn))


@dataclass
class _Watched:
    """The epochs of a run as they come, with steps taken between them."""

    watch: Watch
    steps: Mapping[int, Step]
    query: Any
    epochs: list[Epoch] = field(default_factory=list)
    ended: float = 0.0

    @property
    def decisions(self) -> list[dict[str, Any]]:
        return self.watch.decisions

    def until_over(self, feeder: Feeder | None) -> None:
        begun = time.monotonic()
        while self.query.isActive:
            self._look()
            if feeder and self._caught_up(feeder):
                break
            if time.monotonic() - begun > LONGEST:
                raise TimeoutError(f"a run took longer than {LONGEST:.0f} s")
            time.sleep(PERIOD)
        if not feeder:
            self.query.awaitTermination()
        elif self.query.exception():
            raise self.query.exception()
        self.ended = time.time()
        self._look()

    def _look(self) -> None:
        for epoch in self.watch.new():
            self.epochs.append(epoch)
            if step := self.steps.get(epoch.number + 1):
                step(self.query)

    def _caught_up(self, feeder: Feeder) -> bool:
        """Whether all that arrived has been processed; the first time, the schedule begins."""
        behind = sum(e.rows for e in self.epochs) < feeder.rows() or (self.epochs and self.epochs[-1].backlog > 0)
        if behind or not self.epochs:
            return False
        feeder.begin()
        return feeder.over and sum(e.rows for e in self.epochs) == feeder.rows()
