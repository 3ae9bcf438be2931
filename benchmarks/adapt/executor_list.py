"""Which executors Spark itself lists, looked at while a query runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

from pyspark.sql import SparkSession

from benchmarks.adapt.sampling import sampling

PERIOD = 0.5
DRIVER = "driver"


@dataclass
class Listed:
    """The ids of the executors, and when they were listed."""

    samples: list[tuple[float, frozenset[str]]] = field(default_factory=list)

    def between(self, begin: float, end: float) -> list[tuple[float, frozenset[str]]]:
        return [(at, ids) for at, ids in self.samples if begin <= at <= end]

    def seconds(self, begin: float, end: float) -> float:
        """Executors by the time that they were listed.

        >>> Listed([(0.0, frozenset("01")), (2.0, frozenset("0")), (5.0, frozenset("0"))]).seconds(1.0, 4.0)
        4.0
        """
        spans = [(max(begin, at), min(end, until), ids) for (at, ids), (until, _) in pairwise(self.samples)]
        return sum(max(0.0, until - since) * len(ids) for since, until, ids in spans)

    def look(self, spark: SparkSession) -> None:
        self.samples.append((time.time(), listed(spark)))


def listed(spark: SparkSession) -> frozenset[str]:
    """The executors that Spark says are active, but for the driver."""
    found = spark.sparkContext._jsc.sc().statusStore().executorList(True)
    return frozenset(str(found.apply(number).id()) for number in range(found.size())) - {DRIVER}


@contextmanager
def watched(spark: SparkSession) -> Iterator[Listed]:
    """Look at Spark's list meanwhile."""
    samples = Listed()
    with sampling(lambda: samples.look(spark), PERIOD):
        yield samples
