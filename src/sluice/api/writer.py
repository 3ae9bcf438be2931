"""DataStreamWriter: where the results go, how often, and how the query runs; `start` checks it all first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sluice.api.query import Query
from sluice.model.durations import microseconds, size_in_bytes
from sluice.model.errors import FlowError
from sluice.model.join import JoinSpec
from sluice.policies import Policy, policy
from sluice.spark.epochs import Settings
from sluice.spark.running import RunningQuery, SinkChoice, temporary_checkpoint
from sluice.state.workspace import Places

if TYPE_CHECKING:
    from sluice.api.flow import Flow

SINKS = ("parquet", "memory", "console", "noop", "foreachBatch")
COMPRESSIONS = ("none", "snappy", "gzip", "brotli", "zstd", "lz4")
OPTIONS = {
    "path": "directory for the parquet sink",
    "checkpointLocation": "directory for the flow's durable state",
    "sites": "how many sites hold state; one a core unless given",
    "partitions": "how many units the state is cut into",
    "siteMemory": "bytes of state a site keeps in memory",
    "memoryDir": "tmpfs directory of the memory tier",
    "diskDir": "directory of the disk tier",
    "compression": "of the parquet sink's files",
    "numRows": "rows the console sink prints",
    "truncate": "whether the console sink cuts long values",
}


class DataStreamWriter:
    """Describes a continuous query; nothing runs before `start`."""

    def __init__(self, flow: Flow, spec: JoinSpec) -> None:
        self._flow, self._spec = flow, spec
        self._format: str | None = None
        self._options: dict[str, Any] = {}
        self._name: str | None = None
        self._trigger: dict[str, Any] = {}
        self._function: Callable[..., Any] | None = None
        self._policy: Policy = policy("static")

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
            raise FlowError(f"a join's results are appended; there is no output mode {mode!r} here")
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

    def policy(self, wanted: str | Policy) -> DataStreamWriter:
        """How state is placed while the query runs, by name or as an object; `static` moves nothing."""
        self._policy = policy(wanted)
        return self

    def start(self, path: str | None = None) -> Query:
        """Check everything, claim the checkpoint, and start the query."""
        if path is not None:
            self.option("path", path)
        sink = self._sink()
        settings = Settings(
            checkpoint="",
            sites=self._count("sites", self._flow.spark.sparkContext.defaultParallelism),
            partitions=self._count("partitions", 256),
            site_memory=size_in_bytes(self._options.get("siteMemory", "1g"), "siteMemory"),
            places=Places(self._options.get("memoryDir"), self._options.get("diskDir")),
            policy=self._policy,
        )
        if settings.partitions < settings.sites:
            raise FlowError(f"partitions ({settings.partitions}) must be at least sites ({settings.sites})")
        if settings.partitions > 65_536:
            raise FlowError(f"partitions ({settings.partitions}) must be at most 65536")
        temporary, checkpoint = self._checkpoint()  # last: what has been refused leaves no directory behind
        settings = replace(settings, checkpoint=checkpoint)
        sources = [self._flow.sources[s.name] for s in self._spec.streams]
        running = RunningQuery(
            self._flow.spark, self._flow.name, self._name, self._spec, sources, settings, sink, self._trigger, temporary
        )
        return Query(running)

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
        compression = str(self._options.get("compression", "snappy")).lower()
        if compression not in COMPRESSIONS:
            raise FlowError(f"option 'compression' must be one of {', '.join(COMPRESSIONS)}, not {compression!r}")
        return SinkChoice(
            kind=kind,
            path=self._options.get("path"),
            compression=compression,
            name=self._name,
            function=self._function,
            rows=rows,
            truncate=str(self._options.get("truncate", True)).lower() != "false",
        )

    def _checkpoint(self) -> tuple[bool, str]:
        given = self._options.get("checkpointLocation")
        if given:
            return False, str(given)
        if self._format == "parquet":
            raise FlowError("the parquet sink needs option('checkpointLocation', DIRECTORY) to show no result twice")
        if not str(self._flow.spark.sparkContext.master).startswith("local"):
            raise FlowError(
                "on a cluster a query needs option('checkpointLocation', DIRECTORY) that every executor can reach"
            )
        return True, temporary_checkpoint()

    def _count(self, option: str, default: int) -> int:
        value = self._options.get(option, default)
        try:
            number = int(str(value))
        except (TypeError, ValueError):
            number = 0
        if number < 1 or isinstance(value, bool):
            raise FlowError(f"option {option!r} must be a whole number of at least 1, not {value!r}")
        return number
