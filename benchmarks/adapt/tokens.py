"""Three sites and a join without an equality for good: two have memory for a quarter of its state, the third for
three quarters. New rows are stored where there is room, as the D-CAPE proposal's storage tokens have it (section 4.2).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from benchmarks.adapt import adaptations
from benchmarks.adapt.bench import ROW_BYTES, Bench
from benchmarks.adapt.claims import judge, scaled
from benchmarks.adapt.outcome import Outcome
from benchmarks.adapt.rows import Rows
from benchmarks.adapt.running import Contender, Run, Setup
from sluice.figures.claim import ANY, ClaimKind, at_least
from sluice.figures.d_cape_comparison import D_CAPE_3, D_CAPE_4

MEMORY = (0.25, 0.25, 0.75)
"""Of all state at each site. A file brings a twelfth of the least, less than what `high` leaves free."""
ORDER_BYTES = 12
"""Of a row of state beside the others: its place in the order of the value that is compared."""
SITES = len(MEMORY)
ROWS = Rows("tokens", files=48, rows=1_000, keys=100_000, within=None, where="A.key - B.key > 99000")
EVERY_EPOCH = {"collect": "1 millisecond"}
TOKENS = Contender("tokens", "tokens", settings=EVERY_EPOCH)
DISABLED = Contender("static", "static", settings=EVERY_EPOCH)
CLAIMS = (
    scaled(D_CAPE_3, "enough", -ANY, 0, "epochs after which a site has more state than it may", "none, as it is said"),
    replace(
        scaled(D_CAPE_3, "enough, disabled", 1, ANY, "such epochs", "one site has memory for a quarter of the state"),
        value=None,  # the simulator's is a number of plans
        kind=ClaimKind.FITTED,
    ),
    replace(
        scaled(
            D_CAPE_3,
            "more, n:m",
            1.5,
            ANY,
            "times the results with partitioning disabled, before its first remiss state",
            "half as much again at least for what is called significant",
        ),
        says="where memory is exceeded, significantly more output before the first remiss state; joins n:m",
    ),
    scaled(
        D_CAPE_3,
        "normally",
        1.0,
        1.0,
        "times the results with partitioning disabled, up to its first remiss state",
        "results are counted, and an epoch has the same input",
    ),
    scaled(
        D_CAPE_3,
        "bandwidth",
        1.1,
        3.0,
        "copies of a row",
        "a tenth more at least is to be seen; three sites are the most there are",
    ),
    scaled(D_CAPE_4, "stays", -ANY, 0, "units moved", "the policy has no moves to ask for"),
    at_least(
        "in order",
        "tokens pass from a machine that is full to one that has room",
        2,
        "passes: from the first site to the third, and from there to the second",
        "two sites get full once, and nothing expires; a pass is of both inputs",
        2,
        ClaimKind.DERIVED,
    ),
)


def tokens(bench: Bench) -> Outcome:
    files = bench.epochs(ROWS.files)
    state = files * ROWS.rows * len(ROWS.streams) * (ROW_BYTES + ORDER_BYTES)
    limits = [int(part * state) for part in MEMORY]
    setup = Setup(SITES, SITES, options={"siteMemory": str(limits[0])})
    contenders = (DISABLED, TOKENS)
    steps = {1: partial(_limit_sites, limits=limits)}
    runs = {c.name: bench.stage.run(c, ROWS, setup, files, steps) for c in bench.contenders(*contenders)}
    all_runs = list(runs.values())
    head = [
        "contender", "epochs with input", "first remiss after", "results before it", "of all", "passes", "copies a row",
        "state at the end, by site", "units on disk at the end",
    ]  # fmt: skip
    about = (
        f"the sites may use {', '.join(f'{limit / 2**20:.2f}' for limit in limits)} MiB, which are "
        f"{', '.join(f'{part:.0%}' for part in MEMORY)} of all state. Results are compared with the same input. All "
        "answers are DuckDB's in the end"
    )
    return Outcome(
        "tokens",
        about,
        {"rows": ROWS.says(files), "results": f"{all_runs[0].results:,}", "emulation": setup.says()},
        head,
        [cells(run) for run in all_runs],
        charts={"": adaptations.results_chart("Memory for a quarter of the state at one site", all_runs)},
        runs=all_runs,
        verdicts=judge(CLAIMS, values(runs)) if len(runs) == len(contenders) else (),
    )


def _limit_sites(query: Any, limits: list[int]) -> None:
    for site, limit in enumerate(limits):
        query.setSiteMemory(site, limit)


def values(runs: dict[str, Run]) -> dict[str, float]:
    disabled, enabled = runs[DISABLED.name], runs[TOKENS.name]
    until = _until_remiss(disabled)
    without = adaptations.results_in(disabled, 0, until)
    return {
        "enough": float(len(remiss_epochs(enabled))),
        "enough, disabled": float(len(remiss_epochs(disabled))),
        "more, n:m": adaptations.results_in(enabled, 0, _until_remiss(enabled)) / max(1, without),
        "normally": adaptations.results_in(enabled, 0, until) / max(1, without),
        "bandwidth": copies(enabled),
        "stays": float(enabled.moves),
        "in order": float(len(passes(enabled))),
    }


def remiss_epochs(run: Run) -> list[int]:
    """The places, among the epochs with input, of those after which a site has more state than it may."""
    return [
        place
        for place, epoch in enumerate(adaptations.input_epochs(run))
        if any(held > limit for held, limit in zip(epoch.state, epoch.limits, strict=True))
    ]


def _until_remiss(run: Run) -> int | None:
    remiss = remiss_epochs(run)
    return remiss[0] if remiss else None


def passes(run: Run) -> list[tuple[int, int]]:
    """(epoch, site that gets the tokens) of every time that tokens passed, be it of one input or of both."""
    passed = (d for d in run.decisions if d["action"] == "pass token" and not d["refused"])
    return sorted({(d["epoch"], d["site"]) for d in passed})


def copies(run: Run) -> float:
    """How often a row was sent, on average."""
    epochs = adaptations.input_epochs(run)
    return 1 + sum(epoch.copied for epoch in epochs) / max(1, sum(epoch.rows for epoch in epochs))


def cells(run: Run) -> list[str]:
    epochs, until = adaptations.input_epochs(run), _until_remiss(run)
    results = adaptations.results_in(run, 0, until)
    last = epochs[-1]
    return [
        run.contender, str(len(epochs)), "-" if until is None else f"{until} epochs", f"{results:,}",
        f"{results / run.results:.0%}", str(len(passes(run))), f"{copies(run):.2f}",
        ", ".join(f"{held / 2**20:.2f}" for held in last.state) + " MiB", str(last.on_disk),
    ]  # fmt: skip
