"""The bars Sluice is held to, and whether what was measured meets them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from benchmarks.contenders import Result

Bars = dict[str, float | None]

# Sluice's warm rate over a peer's, at least; what has no number here is shown as a ratio only.
JOINS: Bars = {"spark-rocksdb": 20.0, "spark-heap": 7.0, "flink": 10.0, "duckdb": 0.12}
BY_WORKLOAD: dict[str, Bars] = {
    "uniform": {"spark-rocksdb": 60.0, "spark-heap": 28.0, "flink": 45.0, "duckdb": 0.6},
    "wide": JOINS | {"spark-heap": 12.0},
    "sliding": {"spark-heap": 1.5, "spark-rocksdb": 1.5, "flink": 2.0, "duckdb": None},
    "last": {"spark-pandas": 10.0, "flink": 3.0, "duckdb": None},
    "joined-groups": {"spark-heap": None, "flink": None, "duckdb": None},
    "band": {"spark-heap": 5.0, "spark-rocksdb": 5.0, "flink": 5.0, "duckdb": 0.15},
    "theta": {"duckdb": 0.3},
    "big": {},
    "trickle": {},
}
# Sluice beside itself on `uniform`: the contender, the words for the ratio, and its least value.
BESIDE_ITSELF = {
    "sluice-stream": ("readStream / readFiles", 0.5),
    "sluice-parquet": ("Parquet sink / no sink", 0.9),
    "sluice-cluster": ("two executors of one core / local[2]", 0.85),
}
STREAM_TO_SPARK = 15.0
PEAK_MEGABYTES = 2000.0
MILLION_GROUPS = 1.3
TENFOLD_STATE = 1.3
# A nearly empty epoch beside Spark's, at most: without a sink, and with `foreachBatch`.
NEARLY_EMPTY = {"sluice": 0.25, "sluice-batch": 0.35}

Results = Mapping[tuple[str, str], Result]


@dataclass(frozen=True)
class Verdict:
    """One bar with both numbers behind the ratio."""

    workload: str
    what: str
    ours: float
    theirs: float
    unit: str
    bar: float | None
    at_most: bool = False

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs

    @property
    def met(self) -> bool | None:
        if self.bar is None:
            return None
        return self.ratio <= self.bar if self.at_most else self.ratio >= self.bar

    @property
    def limit(self) -> str:
        if self.bar is None:
            return "none"
        sign = "<=" if self.at_most else ">="
        return f"{sign} {self.bar:g}"


def verdicts(results: Results) -> list[Verdict]:
    """Every bar for which both sides were measured."""
    return [
        *_beside_peers(results),
        *_beside_itself(results),
        *_by_size(results),
        *_nearly_empty(results),
    ]


def _beside_peers(results: Results) -> Iterator[Verdict]:
    for workload, contender in results:
        bars = BY_WORKLOAD.get(workload, JOINS)
        ours, theirs = rate(results, workload, "sluice"), rate(results, workload, contender)
        if contender in bars and ours and theirs:
            yield Verdict(workload, f"sluice / {contender}", ours, theirs, "rows/s", bars[contender])


def _beside_itself(results: Results) -> Iterator[Verdict]:
    files, stream = rate(results, "uniform", "sluice"), rate(results, "uniform", "sluice-stream")
    for contender, (what, bar) in BESIDE_ITSELF.items():
        other = rate(results, "uniform", contender)
        if files and other:
            yield Verdict("uniform", what, other, files, "rows/s", bar)
    spark = rate(results, "uniform", "spark-heap")
    if stream and spark:
        yield Verdict("uniform", "readStream / spark-heap", stream, spark, "rows/s", STREAM_TO_SPARK)
    if files:
        peak = results["uniform", "sluice"].peak.total
        yield Verdict("uniform", "peak memory / 2 GB", peak, PEAK_MEGABYTES, "MB", 1.0, at_most=True)


def _by_size(results: Results) -> Iterator[Verdict]:
    files, big = rate(results, "uniform", "sluice"), rate(results, "big", "sluice")
    if big and files:
        cost = "cost of a row, tenfold state"
        yield Verdict("big", cost, 1e6 / big, 1e6 / files, "µs/row", TENFOLD_STATE, at_most=True)
    for kind in ("sliding", "last"):
        many, few = rate(results, f"{kind}-1m", "sluice"), rate(results, f"{kind}-10k", "sluice")
        if many and few:
            cost = "cost of a row, 1 M groups / 10 k"
            yield Verdict(f"{kind}-1m", cost, 1e6 / many, 1e6 / few, "µs/row", MILLION_GROUPS, at_most=True)


def _nearly_empty(results: Results) -> Iterator[Verdict]:
    theirs = epoch(results, "spark-heap")
    for contender, bar in NEARLY_EMPTY.items():
        ours = epoch(results, contender)
        if ours and theirs:
            what = f"nearly empty epoch, {contender} / spark-heap"
            yield Verdict("trickle", what, ours, theirs, "s", bar, at_most=True)


def rate(results: Results, workload: str, contender: str) -> float | None:
    result = results.get((workload, contender))
    return result.figures.get("warm_rate") if result else None


def epoch(results: Results, contender: str) -> float | None:
    result = results.get(("trickle", contender))
    return result.figures.get("batch_seconds") if result else None
