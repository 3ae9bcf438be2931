"""What Sluice does, in about three minutes: a join beside Spark's own, then one whose state leaves a slow site.

    make demo                                  # or: python -m examples.demo --help

Two acts over the same rows. In the first, Spark's own join and Sluice's go through some of the files in one session.
In the second the files arrive at a steady rate and one of four sites turns slow, once under `static` and once under
`hybrid`. All answers are held against batch queries.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

from pyspark.sql import SparkSession

from examples.demo import beside_spark, rows, slow_site
from examples.demo.check import is_exact
from sluice.dashboard.report import report_checkpoint
from sluice.state.files.workspace import temporary_directory

LEAST_FILES = 12


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=22, help="files in each stream (default %(default)s)")
    parser.add_argument("--rows", type=int, default=40_000, help="rows in each file (default %(default)s)")
    parser.add_argument("--report", default="demo-report.html", help="where the charts go (default %(default)s)")
    parser.add_argument("--page", default="demo-page.html", help="where hybrid's live page goes (default %(default)s)")
    args = parser.parse_args()
    if args.files < LEAST_FILES or args.rows < rows.LATE_PER_FILE:
        parser.error(f"needs at least {LEAST_FILES} files and {rows.LATE_PER_FILE} rows in each")

    signal.signal(signal.SIGTERM, lambda *_: sys.exit("demo: told to end"))  # so that it cleans up
    with temporary_directory() as home, ExitStack() as ending:
        print(f"Making {args.files} files each of trades and quotes, {args.rows:,} rows a file ...", flush=True)
        planted = rows.generate(home, args.files, args.rows)
        print("Starting Spark ...", flush=True)
        spark = session()
        ending.callback(spark.stop)
        right = show_race(spark, home, args.files // 2, args.rows)
        right &= show_slow_site(spark, home, args.files, args.rows, planted, args.report)
        report_checkpoint(str(slow_site.checkpoint(home / "hybrid")), args.page)
        print(f"The live page of hybrid, frozen: {os.path.abspath(args.page)}")
        return 0 if right else 1


def show_race(spark: SparkSession, home: Path, files: int, rows_a_file: int) -> bool:
    print(
        f"\n1. The same join by Spark and by Sluice: {files} files of each stream, {rows.WITHIN} seconds, "
        f"{beside_spark.FILES_A_TRIGGER} files a trigger"
    )
    right = beside_spark.race(spark, home, home / "race", files, rows_a_file)
    print("  EXACT: as many results" if right else "  WRONG: other numbers of results")
    return right


def show_slow_site(
    spark: SparkSession, home: Path, files: int, rows_a_file: int, planted: rows.Planted, report: str
) -> bool:
    print(
        f"\n2. A site turns slow: a file of each stream every {slow_site.EVERY} s, joined, and grouped into bars of "
        f"{slow_site.BAR} seconds;\n   {slow_site.SITES} sites, {slow_site.SERVICE_MICROSECONDS} µs a row (emulated); "
        f"after a third of the files site {slow_site.SLOW_SITE} takes {slow_site.SLOWER} times as long"
    )
    outcomes, right = [], True
    for policy in ("static", "hybrid"):
        print(f"\npolicy {policy}")
        outcome = slow_site.run_policy(spark, home, home / policy, policy, files, rows_a_file)
        right &= is_exact(spark, home / policy, outcome.seen.late, planted, slow_site.BAR)
        outcomes.append(outcome)
    print("\nWith the slow site:")
    for outcome in outcomes:
        after = [epoch for epoch in outcome.epochs if epoch.end > outcome.arrivals.slow]
        print(
            f"  {outcome.policy:<7} the last rows waited {after[-1].latency:5.1f} s for their results, at worst "
            f"{max(epoch.latency for epoch in after):5.1f} s; units moved: {outcome.moves}"
        )
    slow_site.write_page(outcomes, report)
    print(f"Both in charts: {os.path.abspath(report)}")
    return right


def session() -> SparkSession:
    spark = (
        SparkSession.builder.master(f"local[{slow_site.SITES}]")
        .appName("sluice-demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", str(slow_site.SITES))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


if __name__ == "__main__":
    sys.exit(main())
