"""The options of `writeStream`, one row each: the writer, its errors, `explain()` and their page go by these rows.

`QueryOptions` and `SinkOptions` are what a user gave, read and checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sluice.engine.site_task import Spill
from sluice.model.errors import FlowError
from sluice.model.option import DIRECTORY, DURATION, FLAG, SIZE, SIZE_ABOVE_ZERO, WHOLE_NUMBER, Kind, Option, one_of
from sluice.model.routing.directory import MOST_UNITS

QUERY = "query"
"""The scope of options that hold for a query as a whole; the others are of one sink, by its name."""
_ANYTHING_BUT_FALSE = Kind("`true` or `false`", lambda name, value: str(value).lower() != "false")

CHECKPOINT_LOCATION = Option(
    "checkpointLocation",
    DIRECTORY,
    QUERY,
    "where the durable state and the journal are; on a cluster, a directory that every executor can reach",
    unless_given="required for `parquet` and on a cluster; else a temporary one",
)
CHANGE_QUERIES = Option(
    "changeQueries",
    FLAG,
    QUERY,
    "at a restart: [exchange the checkpoint's queries](../how-to/many-queries.md#restart) for those of the writers",
    default="false",
)
FAIL_FAST = Option(
    "failFast",
    FLAG,
    QUERY,
    "whether a sink that raises ends all queries; else, if there are others, its query is "
    "[set aside](../how-to/many-queries.md#a-sink-that-raises)",
    default="false",
)
CLOSE_AT_END = Option(
    "closeAtEnd",
    FLAG,
    QUERY,
    "with `trigger(availableNow=True)`: no input comes after this run, so [all windows close]"
    "(end-of-input.md), and all rows without a partner appear",
    default="false",
)
SITES = Option(
    "sites",
    WHOLE_NUMBER,
    QUERY,
    "how many sites hold state; may change from run to run; with `minSites` or `maxSites`, how many it begins with",
    unless_given="one a core, also of executors that join",
)
MIN_SITES = Option(
    "minSites",
    WHOLE_NUMBER,
    QUERY,
    "the fewest sites where their number [may change while the query runs](../how-to/scaling.md)",
    unless_given="1 with `maxSites`, else nothing is scaled",
)
MAX_SITES = Option(
    "maxSites",
    WHOLE_NUMBER,
    QUERY,
    "the most sites, likewise",
    unless_given="`partitions` with `minSites`, else nothing is scaled",
)
PARTITIONS = Option(
    "partitions",
    WHOLE_NUMBER,
    QUERY,
    "units that all operators with keys begin with together; policies split and merge them",
    default=256,
)
UNIT_SIZE = Option(
    "unitSize",
    SIZE_ABOVE_ZERO,
    QUERY,
    "units with more than twice as much state are split, those with less are merged, under policies that do so",
    default="64m",
)
SITE_MEMORY = Option("siteMemory", SIZE, QUERY, "state a site keeps in memory before it spills to disk", default="1g")
SPILL = Option(
    "spill",
    one_of(*(mode.value for mode in Spill)),
    QUERY,
    "beyond `siteMemory`: `unit`, whole units wait on disk for their turn; `probe`, segments are read there",
    default=Spill.UNIT.value,
)
EPOCH_BUDGET = Option(
    "epochBudget", DURATION, QUERY, "how long a site works on an epoch at most; the rest of its input waits"
)
BACKLOG = Option(
    "backlog",
    SIZE,
    QUERY,
    "input that may wait at a site before epochs wait for it; `8m` unless given where `elastic`, which goes by "
    "it, chooses the number of sites",
    default="256m",
)
BACKLOG_TO_SCALE_BY = "8m"
"""Where a policy goes by how full it is: what takes a site seconds, not minutes."""
MEMORY_DIR = Option("memoryDir", DIRECTORY, QUERY, "where the memory tier is, on a tmpfs", unless_given="`/dev/shm`")
DISK_DIR = Option(
    "diskDir",
    DIRECTORY,
    QUERY,
    "where the disk tier is",
    unless_given="Spark's local directory, else the system's temporary one",
)
PATH = Option("path", DIRECTORY, "parquet, delta", "where the results go", unless_given="required")
COMPRESSION = Option(
    "compression",
    one_of("none", "snappy", "gzip", "brotli", "zstd", "lz4"),
    "parquet, delta",
    "how results are compressed",
    default="snappy",
)
NUM_ROWS = Option("numRows", WHOLE_NUMBER, "console", "rows of an epoch that are printed", default=20)
TRUNCATE = Option("truncate", _ANYTHING_BUT_FALSE, "console", "whether long values are cut", default="true")

OPTIONS: tuple[Option[Any], ...] = (
    CHECKPOINT_LOCATION,
    CHANGE_QUERIES,
    FAIL_FAST,
    CLOSE_AT_END,
    SITES,
    MIN_SITES,
    MAX_SITES,
    PARTITIONS,
    UNIT_SIZE,
    SITE_MEMORY,
    SPILL,
    EPOCH_BUDGET,
    BACKLOG,
    MEMORY_DIR,
    DISK_DIR,
    PATH,
    COMPRESSION,
    NUM_ROWS,
    TRUNCATE,
)


@dataclass(frozen=True)
class QueryOptions:
    """How a query runs as a whole; None where the query finds out by itself."""

    checkpoint: str | None
    change_queries: bool
    fail_fast: bool
    close_at_end: bool
    sites: int | None
    min_sites: int | None
    max_sites: int | None
    partitions: int
    unit_size: int
    site_memory: int
    spill: Spill
    epoch_budget: float | None
    backlog: int
    memory_dir: str | None
    disk_dir: str | None

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> QueryOptions:
        """What is given, checked, and the defaults.

        >>> QueryOptions.read({"sites": "4"}).sites, QueryOptions.read({}).spill.value
        (4, 'unit')
        """
        options = cls(
            checkpoint=CHECKPOINT_LOCATION.value_if_given(given),
            change_queries=CHANGE_QUERIES.value(given),
            fail_fast=FAIL_FAST.value(given),
            close_at_end=CLOSE_AT_END.value(given),
            sites=SITES.value_if_given(given),
            min_sites=MIN_SITES.value_if_given(given),
            max_sites=MAX_SITES.value_if_given(given),
            partitions=PARTITIONS.value(given),
            unit_size=UNIT_SIZE.value(given),
            site_memory=SITE_MEMORY.value(given),
            spill=Spill(SPILL.value(given)),
            epoch_budget=EPOCH_BUDGET.value_if_given(given),
            backlog=BACKLOG.value(given),
            memory_dir=MEMORY_DIR.value_if_given(given),
            disk_dir=DISK_DIR.value_if_given(given),
        )
        if options.partitions < (options.sites or 1):
            raise FlowError(f"partitions ({options.partitions}) must be at least sites ({options.sites})")
        if options.partitions > MOST_UNITS:
            raise FlowError(f"partitions ({options.partitions}) must be at most {MOST_UNITS}")
        options._check_bounds()
        return options

    @property
    def scales(self) -> bool:
        """Whether the number of sites may change while the query runs."""
        return self.min_sites is not None or self.max_sites is not None

    @property
    def bounds(self) -> tuple[int, int]:
        """How many sites there may be while it runs, at least and at most.

        >>> QueryOptions.read({"maxSites": 8}).bounds
        (1, 8)
        """
        return self.min_sites or 1, self.max_sites or self.partitions

    def _check_bounds(self) -> None:
        least, most = self.bounds
        if most > self.partitions:
            raise FlowError(f"maxSites ({most}) must be at most partitions ({self.partitions})")
        if least > most:
            raise FlowError(f"minSites ({least}) must be at most maxSites ({most})")
        if self.scales and self.sites is not None and not least <= self.sites <= most:
            raise FlowError(f"sites ({self.sites}) must be from minSites ({least}) to maxSites ({most})")


@dataclass(frozen=True)
class SinkOptions:
    """How one sink takes its results."""

    path: str | None
    compression: str
    rows: int
    truncate: bool

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> SinkOptions:
        """What is given, checked, and the defaults."""
        return cls(
            path=PATH.value_if_given(given),
            compression=COMPRESSION.value(given),
            rows=NUM_ROWS.value(given),
            truncate=TRUNCATE.value(given),
        )


def describe_options(given: Mapping[str, Any]) -> str:
    """The options of a query for `explain`: those that are given, and the defaults of the others that have one.

    >>> describe_options({"sites": 4}).split(", ")[2:5]
    ['closeAtEnd=false', 'sites=4', 'partitions=256']
    """
    values = {row.name: given.get(row.name, row.default) for row in OPTIONS if row.scope == QUERY}
    return ", ".join(f"{name}={value}" for name, value in values.items() if value is not None)
