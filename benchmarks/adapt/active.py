"""One site's units yield four times what the others' do, and memory is short everywhere: lazy-disk leaves it to each
site what to freeze, active-disk has those freeze that yield little (lazy/active-disk paper, Fig. 13)."""

from __future__ import annotations

from benchmarks.adapt import late_results
from benchmarks.adapt.bench import ROW_BYTES, SLOW_DISK, Bench
from benchmarks.adapt.outcome import Bar, Outcome
from benchmarks.adapt.rows import JoinRates, Rows
from benchmarks.adapt.running import Contender, Run, Setup

MORE, ABOVE = 1.05, 1.1
SITES, UNITS = 4, 96
SHARE = 5  # what memory is a part of: not even the units of the first site would fit into all of it
RATES = JoinRates(UNITS, (4,) * (UNITS // SITES) + (1,) * (UNITS - UNITS // SITES))
ROWS = Rows("rate-by-site", files=60, rows=20_000, keys=1_000_000, within=None, streams="ABC", rates=RATES)
LAZY = Contender("lazy-disk", "lazy-disk", settings={"push": 0.3})
ACTIVE = Contender("active-disk", "active-disk", settings={"push": 0.3, "ratio": 2.0})


def active(bench: Bench) -> Outcome:
    files = bench.epochs(ROWS.files)
    limit = files * ROWS.rows * len(ROWS.streams) * ROW_BYTES // SITES // SHARE
    setup = Setup(SITES, UNITS, options={"siteMemory": str(limit)}, disk=SLOW_DISK)
    runs = [bench.stage.run(c, ROWS, setup, files) for c in bench.contenders(LAZY, ACTIVE)]
    compared = late_results.first_to_take_all(runs)
    about = (
        f"the units that begin at site 0 of {SITES} have a join rate of 4, all others of 1. A site may use "
        f"{limit / 2**20:.1f} MiB; it has {late_results.state_bytes(runs[0]) / SITES / 2**20:.0f} MiB of state in the "
        f"end. What was found by the time at which the fastest contender had taken in all input is compared, "
        f"{compared:.0f} s after the first epoch. All answers are DuckDB's in the end"
    )
    facts = {"rows": ROWS.says(files), "results": f"{runs[0].results:,}", "emulation": setup.says()}
    head = [
        "contender", "results by then", "of all", "input by then", "of all with all input",
        "units of site 0 elsewhere", "moves", "frozen by the policy", "cleanup", "in memory / limit", "others",
    ]  # fmt: skip
    bars = []
    if len(runs) == 2:
        more = late_results.output(runs[1], compared) / max(1, late_results.output(runs[0], compared))
        bars.append(Bar(f"results by then, {ACTIVE.name} / {LAZY.name}", more, MORE))
    for run in runs:
        held = late_results.most_in_memory(run)
        bars.append(Bar(f"most in memory at any moment / limit, {run.contender}", held, ABOVE, at_most=True))
    chart = late_results.over_time("One site yields most: results so far", runs, compared)
    rows = [told(run, compared) for run in runs]
    return Outcome("active", about, facts, head, rows, bars, {"": chart}, runs)


def told(run: Run, compared: float) -> list[str]:
    output = late_results.output(run, compared)
    return [
        run.contender, f"{output:,}", f"{output / run.results:.0%}", f"{late_results.taken_in(run, compared):.0%}",
        f"{late_results.found_with_input(run):.0%}",
        str(gone_from_first(run)), str(run.moves), str(asked_to_freeze(run)),
        f"{late_results.cleanup_seconds(run):.1f} s", f"{late_results.most_in_memory(run):.2f}", f"{run.others:.0%}",
    ]  # fmt: skip


def gone_from_first(run: Run) -> int:
    """Units with the high rate that are not at the first site any more, by the decisions that were carried out."""
    place = {d["unit"]: d["site"] for d in run.decisions if d["action"] == "move" and not d["refused"]}
    return sum(1 for unit, site in place.items() if unit < UNITS // SITES and site != 0)


def asked_to_freeze(run: Run) -> int:
    """Units that the policy had frozen; what sites freeze by themselves is not in it."""
    freezes = [d for d in run.decisions if d["action"] == "freeze" and not d["refused"]]
    return sum(1 for d in freezes if d["policy"] == ACTIVE.policy)
