"""A flow whose queries come and go, as a program of its own, for tests that kill it: `changing_job.py ROOT` takes the
flow of a seed through its steps, and goes on from ROOT/ck if it was killed."""

from __future__ import annotations

import argparse
from pathlib import Path

from kill_job import keep_spark_inside, start_spark


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("root", type=Path)
    arguments.add_argument("--sites", type=int, default=3)
    arguments.add_argument("--master", default="local-cluster[3,1,1024]")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--steps", type=int, default=10)
    chosen = arguments.parse_args()
    keep_spark_inside(chosen.root)
    from changing_flow import ChangingFlow  # after Spark's place is known

    spark = start_spark(chosen.root, chosen.master)
    ChangingFlow(spark, chosen.root, chosen.seed, chosen.sites, chosen.steps, executors=True).run()
    spark.stop()


if __name__ == "__main__":
    main()
