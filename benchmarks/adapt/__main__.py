"""Policies side by side on a query that is disturbed while it runs, each on the same rows, then the bars.

    python -m benchmarks.adapt --only slow-1,moving
    python -m benchmarks.adapt --quick --seconds 0.5
    python -m benchmarks.adapt --markdown            # the tables of the figures that are on file

Ends with an error when a run's results are not DuckDB's.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import groupby
from pathlib import Path

from benchmarks import data, report
from benchmarks.adapt import tell
from benchmarks.adapt.active import active
from benchmarks.adapt.alternate import alternate
from benchmarks.adapt.bench import Bench, NobodyTakesPart
from benchmarks.adapt.cluster import cluster, keep_spark_inside
from benchmarks.adapt.contention import contention
from benchmarks.adapt.dividing import dividing
from benchmarks.adapt.drift import drift
from benchmarks.adapt.elastic import elastic
from benchmarks.adapt.freeze import freeze
from benchmarks.adapt.hot_key import hot_key
from benchmarks.adapt.memory import memory
from benchmarks.adapt.moving import moving
from benchmarks.adapt.outcome import Outcome
from benchmarks.adapt.placed import placed
from benchmarks.adapt.push import push
from benchmarks.adapt.quiet import quiet
from benchmarks.adapt.rotate import rotate
from benchmarks.adapt.running import Inexact, Stage
from benchmarks.adapt.scarce import scarce
from benchmarks.adapt.slow import slow
from benchmarks.adapt.split import split
from benchmarks.adapt.theta import theta
from benchmarks.adapt.tokens import tokens
from benchmarks.adapt.tuning import tuning
from benchmarks.adapt.uneven import uneven
from benchmarks.adapt.unit_sizes import unit_sizes
from benchmarks.run import chosen
from benchmarks.session import scratch

EIGHT_SITES, TWO_SITES = "local-cluster[4,2,1024]", "local-cluster[2,1,2048]"
ONE_SITE, THREE_SITES = "local-cluster[1,1,2048]", "local-cluster[3,1,1024]"
FOUR_SITES = "local-cluster[4,1,1024]"
SCENARIOS: dict[str, tuple[str, Callable[[Bench], Outcome]]] = {
    "slow-1": (EIGHT_SITES, partial(slow, slowed=1)),
    "slow-2": (EIGHT_SITES, partial(slow, slowed=2)),
    "slow-4": (EIGHT_SITES, partial(slow, slowed=4)),
    "slow-6": (EIGHT_SITES, partial(slow, slowed=6)),
    "drift": (EIGHT_SITES, drift),
    "memory": (EIGHT_SITES, memory),
    "rotate": (EIGHT_SITES, rotate),
    "active": (EIGHT_SITES, active),
    "hot-key": (EIGHT_SITES, hot_key),
    "theta": (EIGHT_SITES, theta),
    "split": (EIGHT_SITES, split),
    "placed": (EIGHT_SITES, placed),
    "quiet": (TWO_SITES, quiet),
    "moving": (TWO_SITES, moving),
    "dividing": (TWO_SITES, dividing),
    "unit-sizes": (TWO_SITES, unit_sizes),
    "contention": (TWO_SITES, contention),
    "freeze": (TWO_SITES, freeze),
    "alternate": (TWO_SITES, alternate),
    "push": (ONE_SITE, push),
    "uneven": (THREE_SITES, uneven),
    "scarce": (THREE_SITES, scarce),
    "tokens": (THREE_SITES, tokens),
    "tuning": (FOUR_SITES, tuning),
    "elastic": (FOUR_SITES, elastic),
}
POLICIES = ("static", "hybrid", "elastic", "lazy-disk", "active-disk", "no-relocation", "tokens", "placement")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.adapt", description=__doc__.splitlines()[0])
    names = tuple(SCENARIOS)
    parser.add_argument("--only", type=lambda t: chosen(t, names), default=list(names), metavar=",".join(names))
    parser.add_argument(
        "--policies", type=lambda t: chosen(t, POLICIES), default=list(POLICIES), metavar=",".join(POLICIES)
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="emulated work that a site has in an epoch (3)")
    parser.add_argument("--quick", action="store_true", help="few epochs: shows that it runs, and little else")
    parser.add_argument("--cold", action="store_true", help="no run before the first: enough where nothing is timed")
    parser.add_argument("--cache", type=Path, default=data.CACHE, help="where rows are kept")
    parser.add_argument("--out", type=Path, help="where figures and charts go (adapt in the cache)")
    parser.add_argument("--markdown", action="store_true", help="print the figures on file as tables; runs nothing")
    return parser.parse_args()


def run(args: argparse.Namespace, out: Path, work: Path) -> list[str]:
    """All scenarios, those on the same executors together; returns what went wrong."""
    head = {"versions": report.versions(), "machine": report.machine()}
    tell.opening(head)
    wrong = []
    wanted = sorted(args.only, key=lambda name: list(SCENARIOS).index(name))
    for master, names in groupby(wanted, key=lambda name: SCENARIOS[name][0]):
        with cluster(master, work) as spark:
            bench = Bench(Stage(spark, args.cache, work), tuple(args.policies), args.seconds, args.quick)
            if not args.cold:
                bench.warm_up(spark.sparkContext.defaultParallelism)
            for name in names:
                begun = time.monotonic()
                try:
                    found = SCENARIOS[name][1](bench)
                except Inexact as problem:
                    wrong.append(f"{name}: {problem}")
                    print(f"\n{name}: INEXACT: {problem}", flush=True)
                    continue
                except NobodyTakesPart as reason:
                    print(f"\n{name} is left out: {reason}", flush=True)
                    continue
                tell.outcome(found)
                tell.keep(found, head, out)
                print(f"  {master}, {time.monotonic() - begun:.0f} s in all", flush=True)
    return wrong


def main() -> int:
    args = arguments()
    out = args.out or args.cache / "adapt"
    if args.markdown:
        print(tell.markdown(out, args.only))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything is cleared away then, too
    with scratch(data.open_cache(args.cache)) as work:
        keep_spark_inside(work)
        wrong = run(args, out, work)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
