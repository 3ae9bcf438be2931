"""DataStreamWriter: where the results go, how often, and how the query runs; `start` checks it all first."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sluice.api.query import Query
from sluice.control.controller import MINIMUM, Controller
from sluice.engine.epochs import Settings
from sluice.model.durations import microseconds, seconds, size_in_bytes
from sluice.model.errors import FlowError
from sluice.model.plan import plan_of
from sluice.model.stream import Stream
from sluice.policies import Policy, policy
from sluice.spark.executors import await_executors
from sluice.spark.running import RunningQuery, SinkChoice, temporary_checkpoint
from sluice.spark.sources import as_rows
from sluice.state.workspace import Places

if TYPE_CHECKING:
    from sluice.api.stream import StreamHandle

SINKS = ("parquet", "memory", "console", "noop", "foreachBatch")
COMPRESSIONS = ("none", "snappy", "gzip", "brotli", "zstd", "lz4")
OPTIONS = {
    "path": "directory for the parquet sink",
    "checkpointLocation": "directory for the flow's durable state",
    "sites": "how many sites hold state; one a core, also of executors that join, unless given",
    "partitions": "how many units the state is cut into",
    "siteMemory": "bytes of state a site keeps in memory",
    "spill": "above siteMemory whole units wait on disk for their turn (unit), or segments are probed there (probe)",
    "epochBudget": "how long a site works on an epoch at most; the rest of its input waits",
    "backlog": "bytes of input that may wait at a site before epochs wait for it",
    "memoryDir": "tmpfs directory of the memory tier",
    "diskDir": "directory of the disk tier",
    "compression": "of the parquet sink's files",
    "numRows": "rows the console sink prints",
    "truncate": "whether the console sink cuts long values",
}
OF_THE_QUERY = (
    "checkpointLocation",
    "sites",
    "partitions",
    "siteMemory",
    "spill",
    "epochBudget",
    "backlog",
    "memoryDir",
    "diskDir",
)
"""Options of a query as a whole; the others are of one sink."""
SPILLS = ("unit", "probe")


class DataStreamWriter:
    """Describes a continuous query; nothing runs before `start`."""

    def __init__(self, handle: StreamHandle) -> None:
        self._handle = handle
        self._format: str | None = None
        self._options: dict[str, Any] = {}
        self._name: str | None = None
        self._trigger: dict[str, Any] = {}
        self._function: Callable[..., Any] | None = None
        self._policy: tuple[Policy, bool, float] | None = None

    def format(self, source: str) -> DataStreamWriter:
        if source not in SINKS or source == "foreachBatch":
            raise FlowError(f"there is no sink {source!r}; known: {', '.join(SINKS)} (the last as a method)")
        self._format = source
        return self

    def foreachBatch(self, func: Callable[..., Any]) -> DataStreamWriter:
        """Call `func(df, epoch)` with every epoch's results; after a crash the last epoch may be handed over again."""
        if not callable(func):
            raise FlowError("foreachBatch takes a function of a DataFrame and the epoch's number")
        self._format, self._function = "foreachBatch", func
        return self

    def option(self, key: str, value: Any) -> DataStreamWriter:
        known = {k.lower(): k for k in OPTIONS}
        if key.lower() not in known:
            raise FlowError(f"there is no option {key!r}; known: {', '.join(OPTIONS)}")
        self._options[known[key.lower()]] = value
        return self

    def options(self, **options: Any) -> DataStreamWriter:
        for key, value in options.items():
            self.option(key, value)
        return self

    def outputMode(self, mode: str) -> DataStreamWriter:
        if mode.lower() != "append":
            raise FlowError(f"results are appended; there is no output mode {mode!r} here")
        return self

    def queryName(self, name: str) -> DataStreamWriter:
        if not isinstance(name, str) or not name.strip():
            raise FlowError("queryName must be a name that is not empty")
        self._name = name
        return self

    def trigger(
        self, *, processingTime: str | None = None, availableNow: bool | None = None, **others: Any
    ) -> DataStreamWriter:
        for other in others:
            raise FlowError(f"there is no trigger {other!r} here; use processingTime='1 second' or availableNow=True")
        if (processingTime is None) == (availableNow is None):
            raise FlowError("trigger takes either processingTime='1 second' or availableNow=True")
        if processingTime is not None:
            every = microseconds(processingTime, "trigger's processingTime")
            self._trigger = {"processingTime": f"{every} microseconds"}  # Spark knows fewer units
        elif availableNow is not True:
            raise FlowError("trigger's availableNow must be True")
        else:
            self._trigger = {"availableNow": True}
        return self

    def policy(self, wanted: str | Policy, advise: bool = False, collect: str = "5 seconds") -> DataStreamWriter:
        """How state is placed while the query runs, by name or as an object; `static` moves nothing.

        `collect` is for how long statistics are gathered at least before the policy is asked. With `advise` its
        decisions are reported, as refused, and nothing moves.
        """
        minimum = microseconds(collect, "collect") / 1e6
        if minimum <= 0:
            raise FlowError(f"collect={collect!r}: statistics must be gathered for more than no time")
        self._policy = (policy(wanted), bool(advise), minimum)
        return self

    def start(self, path: str | None = None) -> Query:
        """Check everything, claim the checkpoint, and start the query."""
        if path is not None:
            self.option("path", path)
        return start([self])

    def _sink(self) -> SinkChoice:
        kind = self._format
        if kind is None:
            raise FlowError(
                "say where the results go: writeStream.format('parquet'), 'memory', 'console' or 'noop', "
                "or writeStream.foreachBatch(f)"
            )
        if kind == "parquet" and not self._options.get("path"):
            raise FlowError("the parquet sink needs option('path', DIRECTORY)")
        if kind == "memory" and not self._name:
            raise FlowError("the memory sink needs queryName(NAME), the name of the view with its results")
        rows = self._count("numRows", 20)
        compression = _one_of("compression", self._options.get("compression", "snappy"), COMPRESSIONS)
        return SinkChoice(
            kind=kind,
            path=str(self._options["path"]) if kind == "parquet" else None,
            compression=compression,
            name=self._name,
            function=self._function,
            rows=rows,
            truncate=str(self._options.get("truncate", True)).lower() != "false",
        )

    def _count(self, option: str, default: int) -> int:
        return _whole_number(option, self._options.get(option, default))


def start(writers: Sequence[DataStreamWriter]) -> Query:
    """Start one query that feeds all these sinks and reads every source once.

    What concerns the whole query (checkpoint, sites, memory, trigger, policy) may be said by any of the writers, by
    several only if they agree.
    """
    flow = writers[0]._handle.flow
    for writer in writers:
        if writer._handle.flow is not flow:
            raise FlowError("all writers of one query must be of one Flow")
        if isinstance(writer._handle.relation.origin, Stream):
            raise FlowError(
                f"{writer._handle.title} has no join or group-by, so there is nothing for Sluice to do; write it with "
                "Spark's own writeStream"
            )
    sinks = [w._sink() for w in writers]
    _refuse_shared(sinks)
    said = {key: [w._options[key] for w in writers if key in w._options] for key in OF_THE_QUERY}
    options = {key: _agreed(key, values) for key, values in said.items() if values}
    trigger = _agreed("trigger", [w._trigger for w in writers if w._trigger]) or {}
    name = _agreed("queryName", [w._name for w in writers if w._name and w._format != "memory"])
    context = flow.spark.sparkContext
    cores = sum(e.slots for e in await_executors(flow.spark))
    memory = size_in_bytes(options.get("siteMemory", "1g"), "siteMemory")
    asked = _agreed("policy", [w._policy for w in writers if w._policy])
    chosen, advise, minimum = asked or (policy("static"), False, MINIMUM)
    partitions = _whole_number("partitions", options.get("partitions", 256))
    settings = Settings(
        checkpoint="",
        sites=_whole_number("sites", options.get("sites", max(1, min(cores, partitions)))),
        partitions=partitions,
        site_memory=memory,
        places=Places(options.get("memoryDir"), options.get("diskDir")),
        controller=Controller(chosen, memory, minimum, advise),
        follow="sites" not in options,
        seconds=_budget(options.get("epochBudget")),
        backlog=size_in_bytes(options.get("backlog", "256m"), "backlog"),
        spill=_one_of("spill", options.get("spill", "unit"), SPILLS),
    )
    if settings.partitions < settings.sites:
        raise FlowError(f"partitions ({settings.partitions}) must be at least sites ({settings.sites})")
    if settings.partitions > 65_536:
        raise FlowError(f"partitions ({settings.partitions}) must be at most 65536")
    plan = plan_of([w._handle.relation for w in writers])
    # last: what has been refused leaves no directory behind
    temporary, checkpoint = _checkpoint(options.get("checkpointLocation"), sinks, str(context.master))
    sources = [flow.sources[s.name] for s in plan.sources]
    wanted = [plan.by_spark(i) for i in range(len(sources))]
    sources = [
        as_rows(flow.spark, i, s, w) if w or s.file_options.why_spark else s
        for i, (s, w) in enumerate(zip(sources, wanted, strict=True))
    ]
    zone = str(flow.spark.conf.get("spark.sql.session.timeZone")) if plan.has_expressions else ""
    plan = replace(plan, sources=tuple(s.stream for s in sources), time_zone=zone)
    settings = replace(settings, checkpoint=checkpoint)
    name = name or next((w._name for w in writers if w._name), None)
    return Query(RunningQuery(flow.spark, flow.name, name, plan, sources, settings, sinks, trigger, temporary))


def _budget(value: Any) -> float | None:
    if value is None:
        return None
    budget = seconds(value, "epochBudget")
    if budget <= 0:
        raise FlowError(f"option 'epochBudget' must be longer than no time, not {value!r}")
    return budget


def _one_of(option: str, value: Any, choices: tuple[str, ...]) -> str:
    if str(value).lower() not in choices:
        raise FlowError(f"option {option!r} must be one of {', '.join(choices)}, not {value!r}")
    return str(value).lower()


def _refuse_shared(sinks: Sequence[SinkChoice]) -> None:
    """Two sinks of one query cannot share a directory or a view."""
    paths = [os.path.abspath(s.path) if "://" not in s.path else s.path.rstrip("/") for s in sinks if s.path]
    views = [str(s.name).lower() for s in sinks if s.kind == "memory"]
    for what, names in (("path", paths), ("queryName", views)):
        for name in names:
            if names.count(name) > 1:
                raise FlowError(f"two writers of this query have the {what} {name!r}; give each its own")


def _checkpoint(given: Any, sinks: Sequence[SinkChoice], master: str) -> tuple[bool, str]:
    """Whether the checkpoint goes with the query, and where it is."""
    if given:
        return False, str(given)
    if any(sink.kind == "parquet" for sink in sinks):
        raise FlowError("the parquet sink needs option('checkpointLocation', DIRECTORY) to show no result twice")
    if not master.startswith("local"):
        raise FlowError(
            "on a cluster a query needs option('checkpointLocation', DIRECTORY) that every executor can reach"
        )
    return True, temporary_checkpoint()


def _agreed(what: str, said: list[Any]) -> Any:
    """The one thing that is said, None if nothing is."""
    for other in said[1:]:
        if other != said[0]:
            raise FlowError(f"the writers of one query disagree on {what}: {said[0]!r} and {other!r}")
    return said[0] if said else None


def _whole_number(option: str, value: Any) -> int:
    try:
        number = int(str(value))
    except (TypeError, ValueError):
        number = 0
    if number < 1 or isinstance(value, bool):
        raise FlowError(f"option {option!r} must be a whole number of at least 1, not {value!r}")
    return number
