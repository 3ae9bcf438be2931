"""How the benchmark speaks: the machine, a line per contender while it runs, and the tables at the end."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from benchmarks.bars import Results, Verdict
from benchmarks.contenders import OWN_ENVIRONMENT, Result, peer_python
from benchmarks.workloads import Workload


def machine() -> dict[str, str]:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30)
    load = os.getloadavg()[0]
    return {
        "cores": str(os.cpu_count()),
        "memory": f"{memory:.1f} GB",
        "processor": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "load at start": f"{load:.2f}",
    }


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in ("pyspark", "pyarrow", "numpy", "duckdb"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    found |= {peer: peer_version(peer) for peer in OWN_ENVIRONMENT}
    found["java"] = first_line(["java", "-version"])
    return found


def peer_version(peer: str) -> str:
    python = peer_python(peer)
    if python is None:
        return "not installed"
    package = {"flink": "apache-flink"}.get(peer, peer)
    return first_line([python, "-c", f"import importlib.metadata as m; print(m.version({package!r}))"])


def first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except OSError:
        return "not found"
    return (done.stdout + done.stderr).strip().splitlines()[0]


def facts(title: str, values: dict[str, str]) -> None:
    print(f"{title}: " + ", ".join(f"{name} {value}" for name, value in values.items()), flush=True)


def opening(w: Workload) -> None:
    print(f"\n{w.name}: {w.about}", flush=True)
    streams = f"{len(w.streams)} stream{'s' * (len(w.streams) > 1)}"
    if w.operation == "last":
        window = f"newest {w.last:,} rows of each = {w.state_rows:,} rows of state"
    elif w.operation == "sliding":
        window = f"window {w.window_seconds} s every {w.slide_seconds} s = {w.state_rows:,} rows"
    else:
        window = f"window {w.window_seconds} s = {w.state_rows:,} rows of state a side"
    print(
        f"  {streams} x {w.files} files x {w.rows_per_file:,} rows, {w.keys:,} keys, {window}, "
        f"{w.files_per_trigger} files a stream per trigger"
    )


def line(result: Result) -> None:
    """One contender, as soon as it is through."""
    if result.failure:
        print(f"  {result.contender:<15} FAILED: {result.failure}", flush=True)
        return
    f = result.figures
    if result.workload == "trickle":
        rates = f"{f['batch_seconds'] * 1000:>11,.0f} ms median epoch"
    else:
        rates = f"{f['warm_rate']:>11,.0f} rows/s warm {f['startup_rate']:>11,.0f} with start-up"
    results = "results not counted" if f.get("rows_out") is None else f"{f['rows_out']:,} results ({result.check})"
    late = f", {f['late_rows']:,} late rows" if f.get("late_rows") else ""
    print(f"  {result.contender:<15} {rates}, {result.files} files, {results}{aside(f)}{late}", flush=True)


BUSY = 0.15  # share of the machine in other hands above which a run is not to be trusted


def aside(figures: dict[str, Any]) -> str:
    """What else a contender measured, that its rate alone does not say."""
    if "count_rate" in figures:
        return f", counting only {figures['count_rate']:,.0f} rows/s"
    if "read_rate" in figures:
        parsing, whole = figures["read_rate"], figures["warm_rate"]
        bare = f", the rest about {1 / (1 / whole - 1 / parsing):,.0f}" if parsing > whole else ""
        return f", reading the CSV alone {parsing:,.0f} rows/s{bare}"
    return ""


def settings(results: Results) -> None:
    print("\nSettings")
    seen: dict[tuple[str, str], list[str]] = {}
    for r in results.values():
        if r.figures:
            seen.setdefault((r.contender, r.figures["settings"]), []).append(r.workload)
    for (contender, text), workloads in seen.items():
        print(f"  {contender:<15} {text} ({', '.join(workloads)})")
    if any(contender.startswith("flink") for contender, _ in seen):
        print("  Flink reads CSV: its PyPI package has no Parquet reader. All others read Parquet.")


def breakdown(results: Results) -> None:
    rows = [
        [r.workload, r.contender, f"{r.figures['batch_seconds']:.3f}"]
        + [f"{seconds:.3f}" for seconds in r.figures["phases"].values()]
        for r in results.values()
        if "phases" in r.figures
    ]
    if rows:
        phases = next(list(r.figures["phases"]) for r in results.values() if "phases" in r.figures)
        table("Where a warm epoch of Sluice goes (median seconds)", ["workload", "contender", "epoch", *phases], rows)


def memory(results: Results) -> None:
    head = ["workload", "contender", "total", "driver", "JVM", "python workers", "tmpfs", "CPU s", "others' CPU"]
    rows = [
        [r.workload, r.contender]
        + [f"{v:,.0f}" for v in (r.peak.total, r.peak.driver, r.peak.jvm, r.peak.workers, r.peak.tmpfs, r.cpu_seconds)]
        + [f"{r.others:.0%}"]
        for r in results.values()
        if r.figures
    ]
    table("Peak memory in MB (proportional set size; tmpfs pages counted once, mapped or not)", head, rows)
    if any(r.others > BUSY for r in results.values()):
        print(
            f"  Other processes took more than {BUSY:.0%} of the machine during some runs: take those again when quiet."
        )


def closing(found: Sequence[Verdict], results: Results) -> None:
    head = ["workload", "what", "Sluice", "other", "unit", "bar", "measured", ""]
    rows = [
        [v.workload, v.what, number(v.ours), number(v.theirs), v.unit, v.limit, f"{v.ratio:.2f}",
         {True: "met", False: "MISSED", None: ""}[v.met]]
        for v in found
    ]  # fmt: skip
    table("Bars", head, rows)
    for result in results.values():
        if result.failure:
            print(f"  not measured: {result.contender} on {result.workload} failed")


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3f}"


def table(title: str, head: list[str], rows: list[list[str]]) -> None:
    print(f"\n{title}")
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    for row in [head, *rows]:
        cells = [c.rjust(n) if c[:1].isdigit() else c.ljust(n) for c, n in zip(row, widths, strict=True)]
        print("  " + "  ".join(cells).rstrip())
