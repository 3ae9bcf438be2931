"""Sluice against its peers on the same rows: everything in sequence, then the bars.

    python -m benchmarks.run --quick
    python -m benchmarks.run --only uniform,sliding --peers spark-heap,duckdb --json figures.json
    python -m benchmarks.run --only units
    python -m benchmarks.run --only many
    python -m benchmarks.run --only nexmark --queries q9,q20 --peers spark-heap
    python -m benchmarks.run --only latency,first --peers spark-heap,bytewax

Ends with an error when a contender failed or found other results than DuckDB.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import contenders, data, figures_file, report, units
from benchmarks.bars import verdicts
from benchmarks.contenders import EXTRA_PEERS, PEERS, Result
from benchmarks.latency import bench as latency
from benchmarks.many import bench as many
from benchmarks.measure import WARM_UP
from benchmarks.nexmark import bench as nexmark
from benchmarks.nexmark.queries import BY_NAME
from benchmarks.workloads import WORKLOADS, Workload, quick

# Workloads on which Flink runs once more to count its results; on the others that would take long and show no more.
COUNTED_ONCE = ("uniform", "sliding", "last", "joined-groups")

# What is measured in another way than by rows a second, each by a module of its own.
APART = ("units", "many", "latency", "first", "nexmark")


def chosen(text: str, allowed: tuple[str, ...]) -> list[str]:
    names = [name for name in text.split(",") if name]
    for name in names:
        if name not in allowed:
            raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(allowed)}")
    return names


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = (*WORKLOADS, *APART)
    peers = (*PEERS, *EXTRA_PEERS)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, of the state and of the warm-up")
    parser.add_argument("--only", type=lambda t: chosen(t, names), default=list(names), metavar=",".join(names))
    parser.add_argument("--peers", type=lambda t: chosen(t, peers), metavar=",".join(peers))
    queries = tuple(BY_NAME)
    parser.add_argument(
        "--queries", type=lambda t: chosen(t, queries), metavar="q0,q1,...", help="of nexmark, these alone"
    )
    parser.add_argument("--no-sluice", action="store_true", help="the peers alone")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write every figure there too, beside those of the same code"
    )
    parser.add_argument("--cache", type=Path, default=data.CACHE, help="where data sets and logs are kept")
    return parser.parse_args()


def taking_part(named: list[str] | None) -> list[str]:
    """The peers asked for by name, all of them; if none were, those that are installed."""
    missing = {peer: why for peer in named or PEERS if (why := contenders.missing(peer))}
    if named and missing:
        sys.exit("; ".join(f"{peer} cannot take part: {why}" for peer, why in missing.items()))
    for peer, why in missing.items():
        print(f"{peer} is left out: {why}")
    return [peer for peer in named or PEERS if peer not in missing]


def compete(w: Workload, names: list[str], cache: Path, every_count: bool) -> list[Result]:
    """All contenders on one workload, each checked against DuckDB's results over the same files."""
    report.opening(w)
    whole = data.prepare(w, cache)
    expected: dict[tuple[Path, int], tuple[int, int | None] | None] = {}
    results = []
    for name in names:
        home = data.first(whole, contenders.files_given(w, name))
        if name.startswith("flink"):
            data.as_csv(home)
        part = Workload.load(home)
        check = home, contenders.complete_until(part, name)
        if check not in expected:
            expected[check] = right_results(*check)
        log = cache / "logs" / f"{w.name}-{name}.log"
        result = contenders.run(name, w, home, log, count=every_count or w.name in COUNTED_ONCE)
        results.append(replace(result, expected=expected[check]))
        report.line(results[-1])
    return results


def right_results(home: Path, until: int) -> tuple[int, int | None] | None:
    if contenders.missing("duckdb"):
        return None
    from benchmarks.duckdb_peer import expected

    return expected(home, until)


def main() -> int:
    args = arguments()
    if args.quick:
        os.environ.setdefault(WARM_UP, "2")  # for all contenders, which inherit it
    head: dict[str, Any] = {"versions": report.versions(), "machine": report.machine()}
    for title, values in head.items():
        report.facts(title, values)
    head["code"] = figures_file.code()
    if args.json and (why := figures_file.refusal(args.json, head)):
        sys.exit(why)
    if "units" in args.only:
        head["units"] = units.run_cases(units.QUICK if args.quick else units.CASES)
    if "many" in args.only:
        head["many"] = many.run_many(many.QUICK if args.quick else many.Scale(), data.open_cache(args.cache))
    workloads = [name for name in args.only if name in WORKLOADS]
    timed = {"latency": latency.run_latency, "first": latency.run_first}
    asked = [name for name in timed if name in args.only]
    peers = taking_part(args.peers) if workloads or asked or "nexmark" in args.only else []
    data.open_cache(args.cache)
    for name in asked:
        scale = latency.QUICK if args.quick else latency.Scale()
        earlier = figures_file.read(args.json).get(name)
        head[name] = timed[name](scale, args.cache, peers, not args.no_sluice, earlier)
    if "nexmark" in args.only:
        head["nexmark"] = measure_nexmark(args, head, peers)
    results = []
    for name in workloads:
        w = quick(WORKLOADS[name]) if args.quick else WORKLOADS[name]
        names = contenders.line_up(w, peers)
        results += compete(w, [n for n in names if not (args.no_sluice and "sluice" in n)], args.cache, args.quick)
    if results:
        show(results)
    if args.json:
        figures_file.add_figures(args.json, head, results)
    wrong = any(r.failure or "WRONG" in r.check for r in results)
    return int(wrong or any(head.get(name, {}).get("wrong") for name in ("many", "nexmark", *timed)))


def measure_nexmark(args: argparse.Namespace, head: dict[str, Any], peers: list[str]) -> dict[str, Any]:
    """The queries that were asked for; the file of figures has each as soon as it is through."""

    def keep(figures: dict[str, Any]) -> None:
        if args.json:
            figures_file.add_figures(args.json, head | {"nexmark": figures}, [])

    scale = nexmark.QUICK if args.quick else nexmark.Scale()
    scale = replace(scale, queries=tuple(args.queries or scale.queries))
    usual = peers if args.peers else [peer for peer in peers if peer in nexmark.USUAL_PEERS]
    earlier = figures_file.read(args.json).get("nexmark")
    return nexmark.run_nexmark(scale, args.cache, usual, not args.no_sluice, earlier, keep)


def show(results: list[Result]) -> None:
    """The tables at the end."""
    by_name = {(r.workload, r.contender): r for r in results}
    report.settings(by_name)
    report.breakdown(by_name)
    report.memory(by_name)
    report.closing(verdicts(by_name), by_name)


if __name__ == "__main__":
    sys.exit(main())
