"""Who takes part: how each contender is started, on how many files, and what came back."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.footprint import NOTHING, Footprint, Sample
from benchmarks.workloads import Workload, files_for

ROOT = Path(__file__).resolve().parent.parent
PEERS = ("spark-heap", "spark-rocksdb", "spark-pandas", "flink", "duckdb", "pathway", "bytewax")
EXTRA_PEERS = ("flink-rocksdb",)
OWN_ENVIRONMENT = ("flink", "pathway", "bytewax")
"""Peers whose packages do not go with those of Sluice; scripts/peers.sh makes their environments."""
SLUICE = {
    "sluice": [],
    "sluice-stream": ["--source", "stream"],
    "sluice-parquet": ["--sink", "parquet"],
    "sluice-cluster": ["--master", "local-cluster[2,1,2048]"],
    "sluice-batch": ["--sink", "foreachBatch"],
}
ON_UNIFORM = ("sluice", "sluice-stream", "sluice-parquet", "sluice-cluster")
# Micro-batches of a slow peer that count, on `uniform` and on the other workloads. It gets the files that fill the
# state and those: the first of the same rows, as many a trigger as everybody, since what a row costs does not depend on
# how many windows have gone by. Sluice and DuckDB get every file.
COUNTED = {"spark-heap": (4, 2), "spark-rocksdb": (1, 1), "flink": (1, 1), "flink-rocksdb": (1, 1)}
# Micro-batches that the peers of `last` get: they would take too long to fill its state, and less state is less work.
UNFILLED = 2
# Who takes part in which operation: `transformWithStateInPandas` stands in for the operator that Spark does not have.
OPERATIONS = {
    "join": ("spark-heap", "spark-rocksdb", "flink", "flink-rocksdb", "duckdb"),
    "band": ("spark-heap", "spark-rocksdb", "flink", "flink-rocksdb", "duckdb"),
    "theta": ("duckdb",),  # the others refuse it, and have no bucket to put rows into
    "sliding": ("spark-heap", "spark-rocksdb", "flink", "flink-rocksdb", "duckdb"),
    "last": ("spark-pandas", "flink", "flink-rocksdb", "duckdb"),
    "joined-groups": ("spark-heap", "flink", "flink-rocksdb", "duckdb"),
}
ALONE = ("sliding-10k", "sliding-1m", "last-10k", "last-1m")  # Sluice beside itself
TIMEOUT = 1500
LEAVING = 60  # seconds a contender has to close its session once its figures are out


@dataclass(frozen=True)
class Result:
    """Figures of one contender on one workload, or why there are none."""

    contender: str
    workload: str
    files: int
    figures: dict[str, Any]
    peak: Sample = NOTHING
    cpu_seconds: float = 0.0
    others: float = 0.0
    expected: tuple[int, int | None] | None = None
    failure: str = ""

    @property
    def check(self) -> str:
        """Whether the number of results, and the total where there is one, are DuckDB's over the same files."""
        rows, total = self.figures.get("rows_out"), self.figures.get("total")
        if rows is None or self.expected is None:
            return "not counted"
        if rows != self.expected[0]:
            return f"WRONG, DuckDB has {self.expected[0]:,}"
        if total is None or self.expected[1] is None:
            return "agrees"
        if total != self.expected[1]:
            return f"WRONG, total {total:,} is not {self.expected[1]:,}"
        return "agrees, total too"


def line_up(w: Workload, peers: list[str]) -> list[str]:
    """Contenders of a workload, in the order they run."""
    if w.name == "trickle":
        return ["sluice", "sluice-batch", *(p for p in peers if p == "spark-heap")]
    if w.name == "big":
        return ["sluice", *(p for p in peers if p == "duckdb")]
    if w.name in ALONE:
        return ["sluice"]
    ours = [*ON_UNIFORM] if w.name == "uniform" else ["sluice"] if w.is_join else ["sluice", "sluice-parquet"]
    return [*ours, *(p for p in peers if p in OPERATIONS[w.operation])]


def complete_until(w: Workload, contender: str) -> int:
    """Event time up to which a contender's results are complete once it has read all rows."""
    if w.operation == "joined-groups" and contender.startswith("spark"):
        return w.newest - w.window_seconds * 1_000_000  # Spark holds the watermark back by the width of the join
    return w.newest


def files_given(w: Workload, contender: str) -> int:
    if w.operation == "last" and contender.startswith(("spark", "flink")):
        return min(w.files, UNFILLED * w.files_per_trigger)
    if contender not in COUNTED or w.name == "trickle":
        return w.files
    return files_for(w, COUNTED[contender][w.name != "uniform"])


def peer_python(peer: str) -> str | None:
    """Interpreter that has a peer with an environment of its own: for Flink SLUICE_FLINK_PYTHON, or the project's
    .venv-flink."""
    python = os.environ.get(f"SLUICE_{peer.upper()}_PYTHON", str(ROOT / f".venv-{peer}/bin/python"))
    return python if os.access(python, os.X_OK) else None


def missing(contender: str) -> str:
    """Why a contender cannot take part, in words; empty when it can."""
    kind = contender.split("-")[0]
    if kind in OWN_ENVIRONMENT and peer_python(kind) is None:
        return (
            f"no interpreter that has it: set SLUICE_{kind.upper()}_PYTHON, or install {kind}-requirements.txt into "
            f".venv-{kind}"
        )
    module = {"duckdb": "duckdb", "spark": "pyspark"}.get(kind)
    if module and find_spec(module) is None:
        return f"the package {module} is not installed"
    if contender == "spark-pandas" and not protobuf():
        return "the package protobuf is not installed, which transformWithStateInPandas needs"
    return ""


def protobuf() -> bool:
    try:
        return find_spec("google.protobuf.descriptor") is not None
    except ModuleNotFoundError:
        return False


def command(contender: str, w: Workload, home: Path, count: bool) -> list[str]:
    kind, _, variant = contender.partition("-")
    match kind:
        case "sluice":
            shared = ["--policy", "hybrid"] if w.operation in ("band", "theta") else []  # one unit, and two cores
            return [sys.executable, "-m", "benchmarks.sluice_job", str(home), *shared, *SLUICE[contender]]
        case "spark":
            return [sys.executable, "-m", "benchmarks.spark_peer", str(home), variant]
        case "flink":
            extra = ["--runs", "2" if w.name == "uniform" else "1", *(["--count"] if count else [])]
            return [
                str(peer_python("flink")),
                "-m",
                "benchmarks.flink_peer",
                str(home / "csv"),
                variant or "heap",
                *extra,
            ]
    return [sys.executable, "-m", "benchmarks.duckdb_peer", str(home)]


def run(contender: str, w: Workload, home: Path, log: Path, count: bool) -> Result:
    """Runs one contender in a process of its own and waits for its JSON line."""
    process = launch(command(contender, w, home, count), log)
    with Footprint(process.pid) as footprint:
        figures = awaited(process)
    for left in (*home.glob("run-*"), *home.glob("csv/run-*")):
        shutil.rmtree(left, ignore_errors=True)  # what a killed process could not clear away
    return Result(
        contender,
        w.name,
        Workload.load(home).files,
        figures,
        footprint.peak,
        footprint.cpu_seconds,
        footprint.others,
        failure="" if figures else reason(process.returncode, log),
    )


def launch(words: list[str], log: Path) -> subprocess.Popen[str]:
    """A process of its own, whose JSON line can be awaited; what else it says goes into a log."""
    log.parent.mkdir(parents=True, exist_ok=True)
    paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    env = os.environ | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(p for p in paths if p)}
    with open(log, "w") as stderr:
        return subprocess.Popen(
            words, cwd=ROOT, env=env, text=True, stdout=subprocess.PIPE, stderr=stderr, start_new_session=True
        )


def awaited(process: subprocess.Popen[str], seconds: float = TIMEOUT) -> dict[str, Any]:
    """The figures of the JSON line, empty when none came in time; the process and its children are gone afterwards."""
    too_long = threading.Timer(seconds, end, [process])
    too_long.start()
    lines = (line for line in process.stdout or () if line.startswith("{"))
    figures: dict[str, Any] = json.loads(next(lines, "{}"))
    too_long.cancel()
    try:
        process.wait(LEAVING)
    except subprocess.TimeoutExpired:
        end(process)
        process.wait()
    return figures


def end(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGKILL)


def reason(code: int, log: Path, seconds: float = TIMEOUT) -> str:
    if code == -signal.SIGKILL:
        return f"killed: no figures within {seconds:,.0f} s, or no memory left"
    said = [line.strip() for line in log.read_text().splitlines() if line.strip()] or ["no message"]
    return f"{said[-1][:160]} (all of it in {log})"
