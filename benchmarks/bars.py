"""The bars Sluice is held to, and whether what was measured meets them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.contenders import Result

# Sluice's warm rate over the peer's: the bar, and what is aimed for.
RATIOS = {"spark-rocksdb": (20.0, 40.0), "spark-heap": (7.0, 15.0), "flink": (10.0, 25.0), "duckdb": (0.12, 0.3)}
# The same for group-bys, by workload; what has no bar here is shown as a ratio only.
GROUP_RATIOS: dict[str, dict[str, float | None]] = {
    "sliding": {"spark-heap": 1.5, "spark-rocksdb": 1.5, "flink": 2.0, "duckdb": None},
    "last": {"spark-pandas": 10.0, "flink": 3.0, "duckdb": None},
    "joined-groups": {"spark-heap": None, "flink": None, "duckdb": None},
}
# And for joins without an equality, where the better of Spark and Flink is the one that counts.
THETA_RATIOS: dict[str, dict[str, float | None]] = {
    "band": {"spark-heap": 5.0, "spark-rocksdb": 5.0, "flink": 5.0, "duckdb": 0.15},
    "theta": {"duckdb": 0.3},
}
MILLION_GROUPS = 1.3
STREAM_SHARE = 0.5
TENFOLD_STATE = 1.3
NEARLY_EMPTY = 1.0

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
    aim: float | None = None
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
        return f"{sign} {self.bar:g}" + (f" (aim {self.aim:g})" if self.aim else "")


def verdicts(results: Results) -> list[Verdict]:
    """Every bar for which both sides were measured."""
    found = []
    bar: float | None
    aim: float | None
    for workload, contender in results:
        ours = rate(results, workload, "sluice")
        theirs = rate(results, workload, contender)
        if not ours or not theirs:
            continue
        own = GROUP_RATIOS.get(workload) or THETA_RATIOS.get(workload) or {}
        if contender in own:
            bar, aim = own[contender], None
        elif contender in RATIOS and workload not in ("big", "trickle"):
            bar, aim = RATIOS[contender]
        else:
            continue
        found.append(Verdict(workload, f"sluice / {contender}", ours, theirs, "rows/s", bar, aim))
    files, stream = rate(results, "uniform", "sluice"), rate(results, "uniform", "sluice-stream")
    if files and stream:
        found.append(Verdict("uniform", "readStream / readFiles", stream, files, "rows/s", STREAM_SHARE))
    big = rate(results, "big", "sluice")
    if big and files:
        cost = "cost of a row, tenfold state"
        found.append(Verdict("big", cost, 1e6 / big, 1e6 / files, "µs/row", TENFOLD_STATE, at_most=True))
    for kind in ("sliding", "last"):
        many, few = rate(results, f"{kind}-1m", "sluice"), rate(results, f"{kind}-10k", "sluice")
        if many and few:
            cost = "cost of a row, 1 M groups / 10 k"
            found.append(Verdict(f"{kind}-1m", cost, 1e6 / many, 1e6 / few, "µs/row", MILLION_GROUPS, at_most=True))
    ours, theirs = epoch(results, "sluice"), epoch(results, "spark-heap")
    if ours and theirs:
        what = "nearly empty epoch / spark-heap"
        found.append(Verdict("trickle", what, ours, theirs, "s", NEARLY_EMPTY, at_most=True))
    return found


def rate(results: Results, workload: str, contender: str) -> float | None:
    result = results.get((workload, contender))
    return result.figures.get("warm_rate") if result else None


def epoch(results: Results, contender: str) -> float | None:
    result = results.get(("trickle", contender))
    return result.figures.get("batch_seconds") if result else None
