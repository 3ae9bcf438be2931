"""Four times the rows for a while: how many sites there are meanwhile, how late results are, and what those that join
read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import mean

from benchmarks.adapt.arrivals import STEP, Rates
from benchmarks.adapt.bench import UNITS, Bench
from benchmarks.adapt.claims import judge, scaled
from benchmarks.adapt.epochs import Epoch
from benchmarks.adapt.exact import latencies, quantile
from benchmarks.adapt.executor_list import Listed, watched
from benchmarks.adapt.feeder import Schedule
from benchmarks.adapt.outcome import Bar, Chart, Outcome
from benchmarks.adapt.rows import Rows
from benchmarks.adapt.running import Contender, Run, Setup
from sluice.figures.claim import ANY, Claim, ClaimKind
from sluice.figures.window_joins_communication import WINDOW_11
from sluice.figures.window_joins_delay import WINDOW_5

FRUGAL, SOONER, READ = 1.35, 2.0, 1.5
SITES = 4
SERVICE = 800e-6  # so long that the sites' emulated work is much more than this machine's own
LOW = 0.515 / SERVICE  # rows a second that take a site 52 % of its time, and four times as many 69 % of three sites'
HIGH = 4 * LOW
SETTLED = 50.0  # seconds after which it counts: all begin with four sites
RATES = Rates((0, 60, 180, 240, 360, 400), (LOW, LOW, HIGH, HIGH, LOW, LOW))
WARM = 10  # files that are there at the start
FILE_ROWS = 200  # of a stream
SCHEDULE = Schedule(WARM, RATES.due(2 * FILE_ROWS))
ROWS = Rows("elastic", files=SCHEDULE.files, rows=FILE_ROWS, keys=20_000, seconds=1, within=20, wide=100)
SETUP = Setup(SITES, UNITS, SERVICE, files_at_once=SCHEDULE.files, trigger="10 seconds")
COLLECT = {"collect": "5 seconds"}
BUDGET = {"epochBudget": "8 seconds", "backlog": "64m"}  # a little less than the trigger; minutes of rows
ALL = Contender("all sites", "elastic", {**BUDGET, "minSites": str(SITES), "maxSites": str(SITES)}, settings=COLLECT)
ELASTIC = Contender(
    "elastic",
    "elastic",
    {**BUDGET, "minSites": "1", "maxSites": str(SITES)},
    settings={**COLLECT, "low": 0.71, "high": 0.75},
)
CLAIMS = tuple(
    replace(claim, kind=ClaimKind.FITTED)  # rates, thresholds and the trigger were chosen with sites and delays in view
    for claim in (
        Claim(
            "high rate",
            "the number of slaves is fixed by the arrival rate: at the high one",
            None,
            3,
            4,
            "sites at most",
            "the high rate takes three sites 69 % of their time; four are all there are",
        ),
        Claim(
            "low rate",
            "and at the low one",
            None,
            1,
            1.5,
            "sites, mean over the last ten seconds",
            "the low rate takes a site 52 % of its time; one that is about to leave may still be there for a while",
        ),
        replace(
            scaled(
                WINDOW_11,
                "adaptive",
                -ANY,
                0.75,
                "of the site-seconds when all take part all the time",
                "each site is sent a message in every epoch. The rate needs 46 % of four sites' time, so 54 % can be "
                "saved; half of it at least",
            ),
            says="with adaptive parallelism the aggregate overhead over all slaves is significantly lower",
        ),
        scaled(
            WINDOW_5,
            "flat",
            -ANY,
            2.0,
            "times the median delay with all sites",
            "twice, as for rates before the saturation point",
        ),
    )
)


def elastic(bench: Bench) -> Outcome:
    runs, lists = [], {}
    for contender in bench.contenders(ALL, ELASTIC):  # the one that gives executors back comes last
        with watched(bench.stage.spark) as executors:
            runs.append(bench.stage.run(contender, ROWS, SETUP, schedule=SCHEDULE))
        lists[contender.name] = executors
    return outcome(runs, lists)


def outcome(runs: Sequence[Run], lists: Mapping[str, Listed]) -> Outcome:
    least = least_site_seconds()
    table = [told(run, lists[run.contender], least) for run in runs]
    by_name = {run.contender: run for run in runs}
    fixed, adapted = by_name[ALL.name], by_name[ELASTIC.name]
    fewest, again = gone_and_back(adapted, lists[ELASTIC.name])
    bars = [
        Bar("site-seconds, elastic / least possible", site_seconds(adapted) / least, FRUGAL, True),
        Bar("99th percentile of latency, elastic / all sites", late(adapted, 0.99) / late(fixed, 0.99), SOONER, True),
        Bar("executors that Spark lists no more at the low rate", float(SITES - fewest), 1, style=".0f"),
        Bar("executors that it lists anew at the high rate", float(again), 1, style=".0f"),
        Bar("bytes read by sites that joined / of the units that came to them", read_by_joining(adapted), READ, True),
    ]
    head = [
        "contender", "site-seconds", "of the least", "executor-seconds", "most sites", "mean at the low rate",
        "latency p50", "p99", "scaled", "moves", "others",
    ]  # fmt: skip
    about = (
        f"{LOW:,.0f} rows a second arrive, then {HIGH:,.0f}, then as few as before; both ways take two minutes. The "
        f"least possible, {least:,.0f} site-seconds, has as many sites at every moment as can just take in what arrives"
    )
    facts = {"rows": ROWS.says(), "emulation": SETUP.says(), "counted": f"from second {SETTLED:.0f} to {RATES.last}"}
    lines = {run.contender: sites_over_time(run) for run in runs}
    moments, sites = RATES.fewest_sites(SERVICE, 0.0)
    lines["least possible"] = list(zip(moments[::100].tolist(), sites[::100].tolist(), strict=True))
    charts = {
        "": Chart("Four times the rows for a while: sites", "sites", lines, at={"counted": SETTLED}),
        "latency": Chart(
            "Four times the rows for a while: latency", "seconds", {run.contender: lateness(run) for run in runs}
        ),
    }
    return Outcome("elastic", about, facts, head, table, bars, charts, runs, judge(CLAIMS, values(by_name)))


def values(runs: Mapping[str, Run]) -> dict[str, float]:
    fixed, adapted = runs[ALL.name], runs[ELASTIC.name]
    return {
        "high rate": most_sites_at_high_rate(adapted),
        "low rate": sites_at_last(adapted),
        "adaptive": site_seconds(adapted) / site_seconds(fixed),
        "flat": late(adapted, 0.5) / late(fixed, 0.5),
    }


def most_sites_at_high_rate(run: Run) -> float:
    """Of the epochs that ended while the rate was high."""
    begin, end = RATES.seconds[2:4]
    return max(sites for at, sites in sites_over_time(run) if begin <= at <= end)


def sites_at_last(run: Run) -> float:
    """How many sites take part when the rate has been low again for a while."""
    return mean(sites for at, sites in sites_over_time(run) if at > RATES.last - 10)


def told(run: Run, executors: Listed, least: float) -> list[str]:
    used = executors.seconds(begun(run) + SETTLED, begun(run) + RATES.last)
    resized = sum(d["action"] == "resize" and not d["refused"] for d in run.decisions)
    return [
        run.contender, f"{site_seconds(run):,.0f}", f"{site_seconds(run) / least:.2f}",
        f"{used:,.0f}", str(max(len(e.busy) for e in counted(run))),
        f"{sites_at_last(run):.1f}", f"{late(run, 0.5):.1f} s", f"{late(run, 0.99):.1f} s", str(resized),
        str(run.moves), f"{run.others:.0%}",
    ]  # fmt: skip


def least_site_seconds() -> float:
    """Over the time that counts, the sites whose emulated capacity just covers the rate of each moment."""
    return float(RATES.fewest_sites(SERVICE, SETTLED)[1].sum() * STEP)


def begun(run: Run) -> float:
    return min(run.arrived.values())


def counted(run: Run) -> list[Epoch]:
    return [epoch for epoch in run.epochs if epoch.committed > begun(run) + SETTLED]


def site_seconds(run: Run) -> float:
    """Sites by the time that they were there, as long as it counts; an epoch's sites are there from the commit before
    it."""
    begin, end = begun(run) + SETTLED, begun(run) + RATES.last
    spans = [(max(begin, e.committed - e.seconds), min(end, e.committed), len(e.busy)) for e in run.epochs]
    after = max(0.0, end - run.epochs[-1].committed) * len(run.epochs[-1].busy)
    return sum(max(0.0, until - since) * sites for since, until, sites in spans) + after


def late(run: Run, share: float) -> float:
    """How late results are whose newest row arrived while it counts."""
    since = begun(run) + SETTLED
    arrived = {file: at for file, at in run.arrived.items() if at >= since}
    return quantile(latencies(list(run.given), arrived, run.committed()), share)


def gone_and_back(run: Run, executors: Listed) -> tuple[int, int]:
    """How few executors Spark listed before the rate went up, and how many after it that it had not listed then."""
    begin, up, down = begun(run), begun(run) + RATES.seconds[1], begun(run) + RATES.seconds[3]
    before = min((ids for _, ids in executors.between(begin, up)), key=len)
    return len(before), max(len(ids - before) for _, ids in executors.between(up, down))


def read_by_joining(run: Run) -> float:
    """What sites read that joined while the query ran, as a multiple of what the units had that came to them."""
    read = received = 0
    joined: set[int] = set()
    for before, epoch in zip(run.epochs, run.epochs[1:], strict=False):
        sites = len(epoch.busy)
        joined = {site for site in joined if site < sites} | set(range(len(before.busy), sites))
        read += sum(epoch.fetched[site] for site in joined)
        received += sum(epoch.received[site] for site in joined)
    return read / received if received else float("nan")


def sites_over_time(run: Run) -> list[tuple[float, float]]:
    return [(e.committed - begun(run), float(len(e.busy))) for e in run.epochs if e.committed > begun(run)]


def lateness(run: Run) -> list[tuple[float, float]]:
    """The 99th percentile of each epoch's results."""
    committed = run.committed()
    points = []
    for epoch in run.epochs:
        given = [entry for entry in run.given if entry[1] == epoch.number and entry[0] in run.arrived]
        if given:
            points.append((epoch.committed - begun(run), quantile(latencies(given, run.arrived, committed), 0.99)))
    return points
