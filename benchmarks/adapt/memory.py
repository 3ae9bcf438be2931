"""One site loses half of its memory while the query runs: units have to go elsewhere, or to disk and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.adapt.bench import EIGHT, EPOCH_ROWS, WARM, Bench
from benchmarks.adapt.epochs import Epoch
from benchmarks.adapt.exact import quantile
from benchmarks.adapt.outcome import Bar, Chart, Outcome, over_time, rate
from benchmarks.adapt.rows import Rows
from benchmarks.adapt.running import HYBRID, STATIC, Contender, Run

ABOVE, BACK = 1.1, 0.95
STEADY = 15
LIMIT = 12 << 20  # bytes a site: its state takes 7 to 9 MiB, so half is too little, and the others have some room
ROWS = Rows("wide", files=40, rows=EPOCH_ROWS // 2, keys=200_000, wide=100)
PROBED = Contender("static, probing", "static", {"spill": "probe"})


def memory(bench: Bench) -> Outcome:
    setup = bench.eight(siteMemory=str(LIMIT), spill="unit")
    files = WARM + bench.epochs(25)

    def halve(query: Any) -> None:
        query.setSiteMemory(0, str(LIMIT // 2))

    runs = [bench.stage.run(c, ROWS, setup, files, {WARM: halve}) for c in bench.contenders(STATIC, PROBED, HYBRID)]
    table = [told(run) for run in runs]
    bars = []
    for run in runs:
        if run.contender == HYBRID.name:
            back = rate(steady(run)) / rate(run.epochs[2:WARM])
            bars.append(Bar("rows/s after, as a part of before, hybrid", back, BACK))
        above = max(most(run).values())
        bars.append(Bar(f"most in memory at any moment / limit, {run.contender}", above, ABOVE, at_most=True))
    head = [
        "contender", "rows/s before", "at worst", "after", "units on disk at the end", "most rows waiting",
        "epochs late p99", "in memory / limit", "spills", "moves", "others",
    ]  # fmt: skip
    about = (
        f"site 0 of {EIGHT} may use {LIMIT >> 20} MiB, and {LIMIT >> 21} MiB from epoch {WARM} on; its state takes "
        f"{run.epochs[WARM - 1].memory[0] / 2**20:.0f} MiB. What is in memory is sampled while sites work"
    )
    facts = {"rows": ROWS.says() + f", {ROWS.wide} bytes of payload a row", "emulation": setup.says()}
    chart = Chart(
        "Half of a site's memory is gone", "rows/s", {r.contender: over_time(r, WARM) for r in runs}, at={"halved": 0.0}
    )
    return Outcome("memory", about, facts, head, table, bars, {"": chart}, runs)


def told(run: Run) -> list[str]:
    after = run.epochs[WARM:]
    late = quantile(sorted((float(epoch - file), n) for file, epoch, n in run.given if file >= WARM), 0.99)
    return [
        run.contender, f"{rate(run.epochs[2:WARM]):,.0f}", f"{min(e.rate for e in after):,.0f}",
        f"{rate(steady(run)):,.0f}", str(after[-1].on_disk), f"{max(e.backlog for e in after):,}", f"{late:.0f}",
        f"{most(run)[0]:.2f}", str(sum(e.spills for e in after)), str(run.moves), f"{run.others:.0%}",
    ]  # fmt: skip


def steady(run: Run) -> Sequence[Epoch]:
    """Epochs with input after things have settled; those that only catch up have no rows."""
    after = [epoch for epoch in run.epochs[WARM:] if epoch.rows]
    return after[STEADY:] if len(after) > STEADY else after[1:]


def most(run: Run) -> dict[int, float]:
    """The most that each site had in memory, as a multiple of what it may have, from the end of the first epoch under
    the new limits on."""
    begin, limits = run.epochs[WARM].committed, run.epochs[WARM].limits
    later = [held for at, held in run.resident if at >= begin] or [run.epochs[WARM].memory]
    return {site: max(held[site] for held in later) / limit for site, limit in enumerate(limits)}
