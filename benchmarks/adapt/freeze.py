"""Three streams joined for good with memory for a tenth of their state: what yields least is frozen and found later
(lazy-disk), or frozen at random, or all of it goes to disk and back by turns (lazy/active-disk paper, Fig. 7)."""

from __future__ import annotations

from benchmarks.adapt import late_results
from benchmarks.adapt.bench import ROW_BYTES, SLOW_DISK, Bench
from benchmarks.adapt.outcome import Bar, Outcome
from benchmarks.adapt.rows import JoinRates, Rows
from benchmarks.adapt.running import Contender, Run, Setup

OVER_RANDOM, OVER_ROTATION, ABOVE, OF_DUCKDB = 1.5, 1.3, 1.1, 3.0
SITES, UNITS = 2, 96  # 48 units a site: the paper has 500 partitions at 10 machines
SHARE = 10  # what memory is a part of
RATES = JoinRates(UNITS, (4, 2, 1))
ROWS = Rows("rates", files=40, rows=40_000, keys=1_300_000, within=None, streams="ABC", rates=RATES)
LAZY = Contender("lazy-disk", "lazy-disk", settings={"push": 0.3})
RANDOM = Contender("lazy-disk, at random", "lazy-disk", settings={"push": 0.3, "order": "random"})
ROTATION = Contender("rotation", "static", {"spill": "unit"})


def freeze(bench: Bench) -> Outcome:
    files = bench.epochs(ROWS.files)
    limit = files * ROWS.rows * len(ROWS.streams) * ROW_BYTES // SITES // SHARE
    setup = Setup(SITES, UNITS, options={"siteMemory": str(limit)}, disk=SLOW_DISK)
    contenders = bench.contenders(LAZY, RANDOM, ROTATION)
    recomputed = [bench.stage.recompute(ROWS, files)]
    runs = [bench.stage.run(c, ROWS, setup, files) for c in contenders]
    recomputed.append(bench.stage.recompute(ROWS, files))
    compared, by_name = late_results.first_to_take_all(runs), {run.contender: run for run in runs}
    about = (
        f"each of {SITES} sites may use {limit / 2**20:.1f} MiB; its state is "
        f"{late_results.state_bytes(runs[0]) / SITES / 2**20:.0f} MiB in the end. "
        f"What was found by the time at which the fastest contender had taken in all input is compared, "
        f"{compared:.0f} s after the first epoch. All answers are DuckDB's in the end"
    )
    facts = {
        "rows": ROWS.says(files),
        "results": f"{runs[0].results:,}",
        "emulation": setup.says(),
        "DuckDB, all at once": f"{min(recomputed):.1f} s into Parquet, 2 threads, at the machine's own speed",
    }
    head = [
        "contender", "results by then", "of all", "input by then", "of all with all input",
        "all input after", "cleanup", "results it found", "in memory / limit", "others",
    ]  # fmt: skip
    rows = [told(run, compared) for run in runs]
    bars = lazy_bars(by_name, compared, min(recomputed))
    bars += [
        Bar(f"most in memory at any moment / limit, {run.contender}", late_results.most_in_memory(run), ABOVE, True)
        for run in runs
    ]
    chart = late_results.over_time("Memory for a tenth of the state: results so far", runs, compared)
    return Outcome("freeze", about, facts, head, rows, bars, {"": chart}, runs)


def lazy_bars(runs: dict[str, Run], compared: float, duckdb: float) -> list[Bar]:
    """What lazy-disk is held to, beside whoever else takes part."""
    lazy, bars = runs.get(LAZY.name), []
    if lazy is None:
        return []
    for other, least in ((RANDOM, OVER_RANDOM), (ROTATION, OVER_ROTATION)):
        if other.name in runs:
            more = late_results.output(lazy, compared) / max(1, late_results.output(runs[other.name], compared))
            bars.append(Bar(f"results by then, {LAZY.name} / {other.name}", more, least))
    slower = late_results.cleanup_seconds(lazy) / duckdb
    return [*bars, Bar(f"cleanup of {LAZY.name} / DuckDB's whole join", slower, OF_DUCKDB, at_most=True)]


def told(run: Run, compared: float) -> list[str]:
    output = late_results.output(run, compared)
    return [
        run.contender, f"{output:,}", f"{output / run.results:.0%}", f"{late_results.taken_in(run, compared):.0%}",
        f"{late_results.found_with_input(run):.0%}",
        f"{late_results.input_seconds(run):.0f} s", f"{late_results.cleanup_seconds(run):.1f} s",
        f"{late_results.cleaned_up(run):,}", f"{late_results.most_in_memory(run):.2f}", f"{run.others:.0%}",
    ]  # fmt: skip
