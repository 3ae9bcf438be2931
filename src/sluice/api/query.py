"""Query: the handle of a running query, with PySpark's names and what Sluice adds to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from sluice.api.changing import check_added
from sluice.api.options import describe_options
from sluice.api.page_process import PageProcess
from sluice.api.progress import epoch_progress, progress_dictionary, without_spark
from sluice.api.query_text import begin_description, describe_query, find_query, first_lines
from sluice.api.relation import Registry
from sluice.api.request import WriterChoices
from sluice.engine.plan_changes import ChangeRequest
from sluice.model.durations import size_in_bytes
from sluice.model.epoch.decision import DecisionOutcome, describe_end
from sluice.model.errors import FlowError, QueryError
from sluice.model.ids import Fragment, Site, Unit
from sluice.model.plan.plan import Plan
from sluice.model.plan.recorded_plan import RecordedPlan
from sluice.model.routing.routing import Routing
from sluice.model.routing.unit_ids import list_units
from sluice.record.epoch import EpochRecord
from sluice.record.progress import EpochProgress
from sluice.record.query_progress import QueryProgress, query_progress
from sluice.spark.running import RunningQuery
from sluice.verbs import Action
from sluice.verbs.base import Situation, whole_number
from sluice.verbs.freeze import Freeze
from sluice.verbs.move import Move
from sluice.verbs.scale import Scale
from sluice.verbs.share import Release, Share
from sluice.verbs.split import Merge, Split


class Writer(Protocol):
    """A `DataStreamWriter` that is not started."""

    def choices(self) -> WriterChoices:
        """All that it was told."""


_LISTED = 8
"""Runs of units that are named."""


class Query:
    """A continuous query. Its names and their meaning are those of PySpark's StreamingQuery.

    >>> query.processAllAvailable()
    >>> query.lastProgress["numOutputRows"]
    2
    """

    def __init__(self, running: RunningQuery, options: Mapping[str, Any], registry: Registry | None = None) -> None:
        self._running, self._options, self._registry = running, options, registry
        self._pages: dict[tuple[str, int, bool], PageProcess] = {}

    @property
    def id(self) -> str:
        """Stays the same when the query is started again on its checkpoint.

        >>> len(query.id)
        36
        """
        return self._running.feed.id

    @property
    def runId(self) -> str:
        """Of this run alone.

        >>> query.runId == query.id
        False
        """
        return self._running.feed.run_id

    @property
    def name(self) -> str | None:
        """What `queryName` said.

        >>> query.name
        'pairs'
        """
        return self._running.feed.name

    @property
    def isActive(self) -> bool:
        """Whether it runs, or has yet to process input that waits.

        >>> query.isActive
        True
        """
        return self._running.feed.is_active or self._running.draining

    @property
    def status(self) -> dict[str, Any]:
        """What is done for it right now, under Spark's names.

        >>> sorted(query.status)
        ['isDataAvailable', 'isTriggerActive', 'message']
        """
        return self._running.feed.status

    def exception(self) -> Exception | None:
        """Why it failed; None if it did not. Its first line says what went wrong.

        >>> query.exception()
        """
        return self._running.exception

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        """Wait for the end; raises the query's error if it failed.

        Args:
            timeout: in seconds; with it, returns whether the query has ended.

        >>> query.awaitTermination(timeout=0.1)
        False
        """
        ended = self._running.wait(timeout)
        return None if timeout is None else ended

    def processAllAvailable(self) -> None:
        """Wait until everything that is there now has been processed (for tests).

        >>> query.processAllAvailable()
        """
        self._running.process_all()

    def stop(self) -> None:
        """End the query; the checkpoint and the results stay, everything else is removed.

        >>> other = bars.writeStream.format("noop").start()
        >>> other.stop()
        >>> other.isActive
        False
        """
        self._running.stop()

    @property
    def recentProgress(self) -> list[dict[str, Any]]:
        """The progress of the last epochs, oldest first; see the page on progress.

        >>> query.recentProgress[0]["batchId"]
        0
        """
        return [progress_dictionary(*ended) for ended in self._ended_epochs()]

    @property
    def recentEpochs(self) -> list[EpochProgress]:
        """The same as values, for programs that show them.

        >>> query.recentEpochs[0].epoch
        0
        """
        return [epoch_progress(*ended) for ended in self._ended_epochs()]

    def _ended_epochs(self) -> list[tuple[Mapping[str, Any], EpochRecord, Plan]]:
        """What their feed says of the last epochs, their records, and the plans that they went by."""
        progress = self._running.feed.progress
        whose = {"id": self.id, "runId": self.runId, "name": self.name}
        recent: list[tuple[Mapping[str, Any], EpochRecord, Plan]] = []
        for record in self._records():
            own = without_spark(whose, record) if record.stats.catch_up else progress.get(record.batch)
            if own is None:  # its part is not known yet: what comes after it waits, too
                break
            recent.append((own, record, self._running.epochs.standing.plan_of(record)))
        return recent

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        """The newest epoch's progress under Spark's names, and its late rows, watermarks, phases, and sites by tier.

        >>> query.lastProgress["lateRows"]
        0
        """
        recent = self.recentProgress
        return recent[-1] if recent else None

    def routing(self) -> dict[int, int]:
        """Unit → site, in the order of the hashes of their keys.

        A unit has its id until it is split or merged, and no other gets that ever. Operators that are not chained on
        one key have units of their own: `explain` says which are whose. Of units that are shared it is the first
        holder; `holders` has all.

        >>> query.routing()[0]
        0
        """
        routing = self._running.epochs.record.routing
        return dict(zip(routing.ids.array.tolist(), routing.holders, strict=True))

    def holders(self, unit: int) -> tuple[int, ...]:
        """The sites that hold a unit: one, unless it is shared.

        Args:
            unit: its id.

        >>> query.holders(0)
        (0,)
        """
        routing, id_ = self._running.epochs.record.routing, Unit(whole_number("unit", unit))
        missing = self._why_missing(id_, routing)
        if missing is not None:
            raise QueryError(missing)
        return routing.holders_of(id_)

    def decisions(self) -> list[DecisionOutcome]:
        """What was decided in the epochs on record, oldest first: when, by whom, why, and what has become of it.

        `outcome` is "refused", "waiting", "done" or "abandoned"; `done` is the epoch with which it was done, `refused`
        and `abandoned` say why it was not. `new_units` are those that a split or a merge has begun. What you ask for is
        there at once, and waits. `as_dict()` has a decision as a dictionary.

        >>> query.move(unit=1, site=0 if query.routing()[1] else 1)
        >>> query.decisions()[-1].reason
        'asked for with move()'
        """
        return self._running.epochs.outcomes()

    def move(self, unit: int, site: int) -> None:
        """Have a unit go to another site: its state is prepared in the next epoch and is there in the one after it.

        Args:
            unit: its id.
            site: its number, from 0.

        >>> query.move(unit=2, site=0 if query.routing()[2] else 1)
        """
        self._ask(f"move unit {unit} to site {site}", Move(Unit(unit), Site(site), "asked for with move()"))

    def freeze(self, unit: int) -> None:
        """Have a join's state of one unit go out of memory: its rows so far meet no new ones until it is cleaned up.

        Args:
            unit: its id.

        >>> query.freeze(3)
        """
        self._ask(f"freeze unit {unit}", Freeze(Unit(unit), "asked for with freeze()"))

    def share(self, unit: int, site: int) -> None:
        """Have one more site hold a unit of a join, from the next epoch on, or when it has copied its part of a large
        state.

        The holders stand on a grid, and each has a part of the work and of the state. Not while the unit's input waits,
        or it is frozen or on its way.

        Args:
            unit: its id.
            site: that becomes a holder.

        >>> query.share(unit=4, site=0 if query.routing()[4] else 1)
        """
        sharing = Share(Unit(unit), Site(site), "asked for with share()", evenly=True)
        self._ask(f"share unit {unit} with site {site}", sharing)

    def release(self, unit: int, site: int) -> None:
        """Have a site hold a shared unit no longer: what it stored goes to the others.

        Args:
            unit: its id.
            site: one of its holders.

        >>> query.release(unit=5, site=0)
        Traceback (most recent call last):
        sluice.model.errors.QueryError: cannot release unit 5 from site 0: ...
        """
        self._ask(f"release unit {unit} from site {site}", Release(Unit(unit), Site(site), "asked for with release()"))

    def split(self, unit: int, bits: int = 1) -> None:
        """Have two new units in place of one, by one more bit of the hash of their keys; `decisions()` tells their ids.

        If one key has most of the unit's rows, it is split so often that this key is alone; if one has all of them it
        stays as it is, and `decisions()` says so. No row is written anew.

        Args:
            unit: its id.
            bits: by how many; two give four units, three eight.

        >>> query.split(6)
        """
        self._ask(f"split unit {unit}", Split(Unit(unit), "asked for with split()", bits))

    def merge(self, unit: int) -> None:
        """Have one new unit in place of a unit and its buddy, from which it was split; `decisions()` tells its id.

        Args:
            unit: its id. Its buddy has to be at the same site.

        >>> query.merge(7)
        Traceback (most recent call last):
        sluice.model.errors.QueryError: cannot merge unit 7: ...
        """
        self._ask(f"merge unit {unit}", Merge(Unit(unit), "asked for with merge()"))

    def scale(self, sites: int) -> None:
        """Have so many sites take part. Needs option `minSites` or `maxSites`.

        The last ones leave, when their units have moved to the others; some join when there are executors for them, and
        get their share of the units.

        Args:
            sites: how many.

        >>> query.scale(1)
        """
        if not self._running.settings.controller.loop.capabilities.scalable:
            raise QueryError(
                f"cannot scale to {sites} sites: give option minSites or maxSites when the query is started"
            )
        self._ask(f"scale to {sites} sites", Scale(sites, "asked for with scale()"))

    def add(self, *writers: Writer) -> None:
        """Have more writers' queries run in this flow, from the next epoch on; returns when that is committed.

        Each begins with the rows that are processed from then on, and where another query keeps the same rows, joins
        them with all that are there. What cannot be is refused, and nothing is touched.

        Args:
            writers: not started yet.

        >>> query.add(trades.filter("price > 3").writeStream.format("noop").queryName("alerts"))
        """
        self._refuse_if_over("add a query")
        if not writers or not all(hasattr(writer, "choices") for writer in writers):
            raise FlowError("query.add takes writers that are not started: query.add(pairs.writeStream.format(…), …)")
        choices = [writer.choices() for writer in writers]
        self._running.change(ChangeRequest(check_added(self._running, self._registry, self._options, choices)))

    def drop(self, *names: str) -> None:
        """End some of the flow's queries; returns when the epoch is committed from which on they are gone.

        Their results so far stay, and so does all that others share with them.

        Args:
            names: as `queries()` has them.

        >>> query.add(trades.filter("price > 4").writeStream.format("noop").queryName("high"))
        >>> query.drop("high")
        """
        self._refuse_if_over("drop a query")
        if not names:
            raise FlowError("query.drop takes names of queries, such as query.queries() has them")
        self._running.change(ChangeRequest(dropped=tuple(names)))

    def _refuse_if_over(self, what: str) -> None:
        over = self._over() or self._draining()
        if over is not None:
            raise QueryError(f"cannot {what}: {over}")

    def cleanUp(self) -> None:
        """Find all results that are missing by now because units were frozen, those of input that waits too; returns
        when they are there. New input is taken in meanwhile.

        >>> query.cleanUp()
        """
        over = self._over()
        if over is not None:
            raise QueryError(f"cannot clean up: {over}")
        self._running.clean_up()
        if self._over() and self._running.epochs.record.missing_units:
            raise QueryError("the query ended before all was cleaned up; start it again, and clean up then")

    def setSiteMemory(self, site: int, size: str | int) -> None:
        """How much state a site may keep in memory from the next epoch on, until the query ends.

        Args:
            site: its number.
            size: such as "512m".

        >>> query.setSiteMemory(0, "512m")
        """
        self._running.settings.controller.memory.set(self._site(site), size_in_bytes(size, "size"))

    def queries(self) -> list[QueryProgress]:
        """How each of the flow's queries does, in the order of their writers: its rows, results, delay, performance
        ratio and state, over the last ten epochs or since the last one that was added or dropped. Those that were set
        aside come last, with their error.

        >>> query.queries()[0].name
        'pairs'
        """
        _, recorded, record = self._running.epochs.standing.snapshot()
        return self._progress(recorded, record)

    def _progress(self, recorded: RecordedPlan, record: EpochRecord) -> list[QueryProgress]:
        """How each query of a plan does, in its order, and after them those that were set aside and are dropped."""
        progress = query_progress(recorded, record, self._records())
        failed = self._running.epochs.delivery.set_aside
        running = [replace(one, error=str(failed[one.name])) if one.name in failed else one for one in progress]
        dropped = [QueryProgress(one.name, one.sink, error=str(one)) for one in failed.values()]
        names = {one.name for one in progress}
        return [*running, *(one for one in dropped if one.name not in names)]

    def explain(self, name: str | None = None) -> None:
        """Print what the query computes, where it stands and how it runs.

        Args:
            name: of one of the flow's queries: then what that one has: its operators and states, with whom it shares
                them, and where they are; and why it was set aside, if it was.

        >>> query.explain()
        Window join...
        """
        running = self._running
        plan, recorded, record = running.epochs.standing.snapshot()
        if name is not None:
            progress = self._progress(recorded, record)
            query = find_query([one.name for one in progress], name)
            if query < len(plan.outputs):
                print(describe_query(plan, recorded, record, query, progress[query]))
            else:  # it is dropped
                print(*begin_description(progress[query]), sep="\n")
            return
        settings = running.settings
        print(*first_lines(plan.describe().split("\n")), sep="\n")
        print(
            f"Units: {record.routing.units} at {record.routing.sites} sites, routing {record.routing.version} "
            f"since epoch {record.routing.since}, policy {settings.controller.policy.name}"
        )
        scale_target = settings.controller.scale_target
        if scale_target is not None:
            print(f"Sites: {scale_target.in_words(record.routing.sites)}, at least {scale_target.least}")
        if plan.fragments > 1:
            described = []
            for fragment, directory in enumerate(record.routing.directories):
                units = list_units(record.routing.ids.array[slice(*directory.range)], _LISTED)
                described.append(f"  {units}: {plan.describe_fragment(Fragment(fragment))}")
            print(*first_lines(described), sep="\n")
        for directory in record.routing.directories:
            if directory.depths:
                print(f"  {directory.describe()}")
        for sharing in record.routing.shared:
            print(f"  {sharing.describe()}")
        print(f"Memory tier: {settings.site_memory / 2**20:,.0f} MiB a site; checkpoint {running.epochs.storage.uri}")
        print(f"Options: {describe_options(self._options)}")
        for stream, source in zip(plan.sources, running.sources, strict=True):
            print(f"Source {stream.name!r}: {source.how}")
        print(f"Last epoch: {record.number if record.number >= 0 else 'none yet'}")

    def ui(self, host: str = "127.0.0.1", port: int = 0, control: bool = False) -> str:
        """Serve a page about this query, in a process of its own that ends with this one; returns its link.

        It reads the checkpoint and costs the query nothing. Asked the same again, it answers with the link of the page
        that there is.

        Args:
            host: the address. On one that is not loopback the link has a token.
            port: a free one unless given.
            control: whether units can be moved, split, shared and frozen, and sites be scaled from the page; its link
                has a token then.

        >>> query.ui()
        'http://127.0.0.1:...'
        """
        page = self._pages.get((host, port, control))
        if page is None or not page.is_served:
            checkpoint = self._running.epochs.storage.uri
            page = PageProcess(checkpoint, host, port, self._ask_for_page if control else None)
            self._pages[host, port, control] = page
        return page.link

    def _ask_for_page(self, action: Action) -> None:
        what = f"{action.verb} unit {action.subject}" if action.subject is not None else str(action.verb)
        self._ask(what, action)

    def _ask(self, what: str, action: Action) -> None:
        record, controller = self._running.epochs.record, self._running.settings.controller
        missing = None if action.subject is None else self._why_missing(action.subject, record.routing)
        refused = self._over() or self._draining() or missing or controller.refuse(action, record)
        if refused is not None:
            raise QueryError(f"cannot {what}: {refused}")
        controller.ask(action)

    def _over(self) -> str | None:
        return None if self.isActive else "the query has ended"

    def _draining(self) -> str | None:
        """Why nothing more is begun at the end of a query with availableNow: what it takes would never be over."""
        draining = self._running.draining
        return "the query has taken in all there was, and only finishes what waits" if draining else None

    def _why_missing(self, unit: Unit, routing: Routing) -> str | None:
        """Why there is no such unit, and what has become of it as far as this run knows; None if there is one."""
        if routing.has_unit(unit):
            return None
        ended = (end for record in reversed(self._records()) for end in record.ended if end.decision.unit == unit)
        new_units = next((end.new_units for end in ended if end.new_units), ())
        return describe_end(unit, new_units) if new_units else routing.ids.why_missing(unit)

    def _site(self, site: int) -> Site:
        number = Site(whole_number("site", site))
        refused = self._over() or Situation(self._running.epochs.record.routing).why_no_site(number)
        if refused is not None:
            raise QueryError(refused)
        return number

    def _records(self) -> list[EpochRecord]:
        return self._running.epochs.standing.recent_records()
