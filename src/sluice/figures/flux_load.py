"""Flux, sections 3 to 5: short-term imbalance and processing load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from sluice.dashboard.chart import Axis, Line, Mark, chart
from sluice.dashboard.quantity import COUNT, ROWS_PER_SECOND, SECONDS
from sluice.figures.claim import Claim, ClaimKind, at_least, at_most
from sluice.figures.experiment import Experiment, Reading, Trial, first_time, steady_from
from sluice.sim.hardware import Hardware
from sluice.sim.worlds.flux.scenario import FluxScenario, Load
from sluice.sim.worlds.flux.workload import SELF_SIMILAR, Skew, unit_shares
from sluice.sim.worlds.flux.world import FluxOutcome

Outcomes = Mapping[str, FluxOutcome]

RATE = Axis("tuples processed a second", ROWS_PER_SECOND)
PERTURBED = Axis("sites perturbed", COUNT)
KEPT = 0.43
"""What a loaded site keeps of its rate: the paper says that it loses about 57 %."""


def over_time(title: str, outcomes: Outcomes, marks: list[Mark], note: str = "") -> str:
    lines = [Line(name, o.times.tolist(), o.throughput.tolist()) for name, o in outcomes.items()]
    return chart(title, Axis("seconds", COUNT), RATE, lines, marks, note)


# --- baseline -------------------------------------------------------------------------------------------------------

_ONE = FluxScenario(name="one site", seconds=6, sites=1)


def _baseline(outcomes: Outcomes) -> Reading:
    rate = outcomes["32 sites"].mean_throughput(2)
    free, loaded = (outcomes[name].mean_throughput(2) for name in ("one site", "one loaded site"))
    marks = [Mark("paper: 690,000 tuples/s", y=6.9e5)]
    drawn = over_time("Baseline: 32 sites, no perturbation", {"32 sites": outcomes["32 sites"]}, marks)
    return Reading({"rate": rate, "loss": 1 - loaded / free}, {"": drawn}, {"alone": free, "alone, loaded": loaded})


BASELINE = Experiment(
    "flux-baseline",
    "unloaded throughput, and what an external process takes from one site",
    (
        Claim(
            "rate",
            "690,000 tuples/s on 32 nodes",
            6.9e5,
            6.55e5,
            7.25e5,
            "tuples/s",
            "5 %; scheduling and routing costs are not published, two switches of 5 µs a packet stand for them",
            kind=ClaimKind.FITTED,
        ),
        Claim(
            "loss",
            "the external process costs one node about 57 %",
            0.57,
            0.50,
            0.64,
            "",
            "the scheduler is not published: a load that waits for two tuples takes 52 %, one that never waits 67 %",
            kind=ClaimKind.FITTED,
        ),
    ),
    {
        "32 sites": Trial(FluxScenario(seconds=10)),
        "one site": Trial(_ONE),
        "one loaded site": Trial(replace(_ONE, loads=(Load(0),))),
    },
    _baseline,
)

# --- Fig. 3 ---------------------------------------------------------------------------------------------------------

_BUFFERS = (0, 256, 512, 1024, 2048, 4096, 8192)
_WARM = 2.0  # seconds before the load, in which the buffers fill


def _rotating(exchange: str, buffer: int) -> Trial:
    turns = tuple(Load(site, _WARM + site / 2, _WARM + (site + 1) / 2) for site in range(32))
    return Trial(FluxScenario("rotating load", _WARM + 16, exchange=exchange, buffer=buffer, loads=turns, interval=0.5))


def _fig3(outcomes: Outcomes) -> Reading:
    free = outcomes["unloaded"].mean_throughput(_WARM)
    kilobytes = [b * 80 / 1000 for b in _BUFFERS]
    flux, exchange = (
        [outcomes[f"{kind} {b}" if b else "exchange 0"].mean_throughput(_WARM) for b in _BUFFERS]
        for kind in ("flux", "exchange")
    )
    river = outcomes["river"].mean_throughput(_WARM)
    ends = [kilobytes[0], kilobytes[-1]]
    drawn = chart(
        "Fig. 3: a load of 0.5 s goes round 32 sites",
        Axis("kB of buffer at each producer", COUNT),
        RATE,
        [
            Line("unloaded", ends, [free, free], dashed=True),
            Line("Flux: transient skew buffer", kilobytes, flux, points=True),
            Line("Exchange: the same space in its queues", kilobytes, exchange, points=True),
            Line("RiverDQ, for consumers without state", ends, [river, river], dashed=True),
        ],
        [Mark("paper: without a buffer about half of the unloaded rate", x=0.0, y=free / 2)],
    )
    values = {
        "no buffer": flux[0] / free,
        "beats exchange": min(f / e for f, e in zip(flux[1:], exchange[1:], strict=True)),
        "quickly": min(f / e for f, e in zip(flux[2:], exchange[2:], strict=True)),
        "approaches": flux[-1] / free,
        "exchange behind": exchange[-1] / free,
    }
    return Reading(values, {"": drawn}, {"tuples": _BUFFERS, "flux": flux, "exchange": exchange, "river": river})


FIG_3 = Experiment(
    "flux-3",
    "short-term imbalance: the transient skew buffer against queues of the same space",
    (
        Claim(
            "no buffer",
            "with no buffer, throughput drops to about half of the unloaded case",
            0.5,
            0.36,
            0.6,
            "of unloaded",
            "one loaded site holds all to its own rate, 0.43 by the paper's 57 %; 'about half' leaves room",
        ),
        at_least(
            "beats exchange",
            "Flux beats Exchange at equal space",
            1.0,
            "Flux / Exchange, smallest over all sizes",
            "the paper's curves cross nowhere",
        ),
        at_least(
            "quickly",
            "as buffer size is increased, Flux quickly beats Exchange",
            1.02,
            "Flux / Exchange, smallest from 512 tuples on",
            "2 % is more than seeds differ by; 'quickly' leaves the smallest buffer out",
        ),
        at_least(
            "approaches",
            "and approaches the throughput of the unloaded case",
            0.9,
            "of unloaded",
            "a loaded site works less, whatever the buffer: 1 - 0.57 / 32 = 0.98 is the most",
        ),
        at_most(
            "exchange behind",
            "Exchange stays behind at the same sizes",
            0.97,
            "of unloaded",
            "Exchange divides the space beforehand",
        ),
    ),
    {
        "unloaded": Trial(FluxScenario(seconds=_WARM + 6)),
        "exchange 0": _rotating("exchange", 0),
        **{f"{kind} {b}": _rotating(kind, b) for kind in ("flux", "exchange") for b in _BUFFERS if b},
        "river": _rotating("river", 2048),
    },
    _fig3,
)

# --- Fig. 7 ---------------------------------------------------------------------------------------------------------

_SLOW = 5
_ONE_SLOW = FluxScenario("one slow site", 30, loads=(Load(_SLOW, 1.0),))


def _fig7(outcomes: Outcomes) -> Reading:
    free, static, adaptive = (outcomes[name] for name in ("unloaded", "static", "load-balancing"))
    level = free.mean_throughput(5)
    felt = first_time(static, static.throughput < 0.8 * level, 1.0) - 1.0  # the beginning of that interval
    steady = steady_from(adaptive)
    before = [d for d in adaptive.moves if d.done is not None and d.done <= steady]
    left = sum(d.source == _SLOW for d in before) - sum(d.target == _SLOW for d in before)
    marks = [Mark("paper: felt", x=5.0), Mark("paper: steady", x=14.0)]
    drawn = over_time("Fig. 7: one site is loaded at 1 s", outcomes, marks, "aggregate throughput in 1 s intervals")
    values = {
        "felt": felt,
        "steady": steady,
        "offloaded": float(left),
        "static": static.mean_throughput(20) / level,
        "adaptive": adaptive.mean_throughput(25) / (level * (31 + KEPT) / 32),
    }
    return Reading(values, {"": drawn}, {"moves in all": len(adaptive.moves), "rounds": adaptive.rounds})


FIG_7 = Experiment(
    "flux-7",
    "processing load on one site at 1 s, 2,048 tuples of buffer",
    (
        Claim(
            "felt",
            "the load is felt only after 5 s",
            5.0,
            3.5,
            6.5,
            "s",
            "told by the second; it follows from the share the load takes, for which 0.50 to 0.64 is accepted",
        ),
        Claim(
            "steady",
            "steady state at 14 s",
            14.0,
            10.0,
            18.0,
            "s",
            "9 s of 32 rounds whose length depends on unpublished costs of draining; half as much either way",
        ),
        Claim(
            "offloaded",
            "after offloading 32 partitions",
            32,
            24,
            40,
            "units",
            "the ratio 1.2 ends it anywhere between 1.2 and 1.0 times the others' load: 31 to 36 units at 57 %",
        ),
        Claim(
            "static",
            "static stays degraded",
            KEPT,
            0.36,
            0.5,
            "of unloaded",
            "the loaded site's own rate",
            ClaimKind.DERIVED,
        ),
        Claim(
            "adaptive",
            "load balancing reaches a steady state near what is left",
            1.0,
            0.93,
            1.05,
            "of the capacity left",
            "th_imb = 1.2 lets a sixth of one site's imbalance stand, and rounds go on moving by chance",
            ClaimKind.DERIVED,
        ),
    ),
    {
        "unloaded": Trial(replace(_ONE_SLOW, name="unloaded", loads=())),
        "static": Trial(_ONE_SLOW),
        "load-balancing": Trial(_ONE_SLOW, "load"),
    },
    _fig7,
)

# --- Fig. 8 ---------------------------------------------------------------------------------------------------------

_COUNTS = (0, 1, 2, 4, 8, 12, 16, 20, 24, 28, 32)


def some_sites(count: int, seed: int = 8) -> list[int]:
    """A random choice that grows with the count."""
    return [int(site) for site in np.random.default_rng(seed).permutation(32)[:count]]


def _fig8(outcomes: Outcomes) -> Reading:
    static = [outcomes[f"static {n}"].mean_throughput(25) for n in _COUNTS]
    adaptive = [outcomes[f"load {n}"].mean_throughput(25) for n in _COUNTS]
    line = [static[0] + (static[-1] - static[0]) * n / 32 for n in _COUNTS]
    counts = [float(n) for n in _COUNTS]
    drawn = chart(
        "Fig. 8: processing load on more and more sites",
        PERTURBED,
        RATE,
        [
            Line("load-balancing", counts, adaptive, points=True),
            Line("static", counts, static, points=True),
            Line("straight, from static with none to static with all", counts, line, dashed=True),
        ],
        [Mark("paper: static falls at the first site, to what a loaded site keeps", x=1.0, y=KEPT * adaptive[0])],
    )
    worst = max(abs(a - b) for a, b in zip(adaptive, line, strict=True)) / adaptive[0]
    values = {
        "first": static[1] / static[0],
        "stays": static[-1] / static[1],
        "linear": worst,
        "adaptive at 16": adaptive[_COUNTS.index(16)] / static[_COUNTS.index(16)],
    }
    return Reading(values, {"": drawn}, {"sites": _COUNTS, "static": static, "load": adaptive})


def _loaded(count: int) -> FluxScenario:
    return FluxScenario(f"{count} loaded sites", 40, loads=tuple(Load(s, 1.0) for s in some_sites(count)))


FIG_8 = Experiment(
    "flux-8",
    "graceful degradation: processing load on 0 to 32 sites",
    (
        Claim(
            "first",
            "static drops once a single machine is perturbed",
            KEPT,
            0.36,
            0.5,
            "of unloaded",
            "the loaded site's own rate",
            ClaimKind.DERIVED,
        ),
        Claim(
            "stays",
            "and remains there",
            1.0,
            0.85,
            1.1,
            "of static with one",
            "the slowest of several loaded sites is a little slower than one",
        ),
        at_most(
            "linear",
            "a smooth, linear degradation with load balancing",
            0.06,
            "of unloaded, farthest off the line from static with none to static with all",
            "the threshold 1.2 lets an imbalance of a few per cent stand",
        ),
        at_least(
            "adaptive at 16",
            "load balancing far above static in between",
            1.3,
            "times static with 16",
            "linear between 1 and 0.43 is 0.72 of unloaded at 16, static is 0.43",
        ),
    ),
    {f"{p} {n}": Trial(_loaded(n), p) for p in ("static", "load") for n in _COUNTS},
    _fig8,
)

# --- Fig. 9 ---------------------------------------------------------------------------------------------------------

_MINIMA = (10, 50, 100, 150, 200, 250, 500, 1000)  # milliseconds
_SKEWED = FluxScenario("80/20", 60, skew=Skew(SELF_SIMILAR, 0.8), hardware=Hardware(full_packets=True))
_AS_PRINTED = (("as_printed", True),)


def _hot_and_others() -> tuple[Load, ...]:
    """Eight loaded sites, the one with the most popular unit among them."""
    shares = unit_shares(_SKEWED.groups, _SKEWED.units, _SKEWED.skew, _SKEWED.seed)
    hot = int(np.argmax(shares)) // _SKEWED.units_per_site
    return tuple(Load(site) for site in [hot, *(s for s in some_sites(32) if s != hot)][:8])


_SKEWED_LOADED = replace(_SKEWED, name="80/20, 8 loaded sites", loads=_hot_and_others())


def _balanced(scenario: FluxScenario, minimum: int) -> Trial:
    """The paper's policy with a shortest collection phase of so many milliseconds."""
    return Trial(replace(scenario, minimum_collection=minimum / 1000), "load", _AS_PRINTED)


def _from(values: list[float], level: float) -> float:
    """The smallest minimum from which on all larger ones do better than `level`, by 2 % at least."""
    found = float("nan")
    for minimum, value in zip(reversed(_MINIMA), reversed(values), strict=True):
        if value < 1.02 * level:
            break
        found = float(minimum)
    return found


def _fig9(outcomes: Outcomes) -> Reading:
    static, static_loaded = (outcomes[name].mean_throughput() for name in ("static", "static loaded"))
    free = [outcomes[f"load {m}"].mean_throughput() for m in _MINIMA]
    loaded = [outcomes[f"load {m} loaded"].mean_throughput() for m in _MINIMA]
    x = [m / 1000 for m in _MINIMA]
    ends = [x[0], x[-1]]
    drawn = chart(
        "Fig. 9: 80/20 keys, the shortest collection phase varied",
        Axis("shortest collection phase", SECONDS),
        RATE,
        [
            Line("load-balancing", x, free, points=True),
            Line("static", ends, [static, static], dashed=True),
            Line("load-balancing, 8 sites loaded", x, loaded, points=True),
            Line("static, 8 sites loaded", ends, [static_loaded, static_loaded], dashed=True),
        ],
        [
            Mark("paper: half of static", x=0.01, y=static / 2),
            Mark("paper: wins unloaded", x=0.25),
            Mark("paper: wins loaded", x=0.15),
        ],
    )
    values = {
        "half": free[0] / static,
        "wins unloaded": _from(free, static),
        "wins loaded": _from(loaded, static),
        "loaded first": _from(loaded, static) - _from(free, static),
        "improves": free[-1] / free[0],
        "gain": min(rate for minimum, rate in zip(_MINIMA, free, strict=True) if minimum >= 500) / static,
        "loaded ineffective": loaded[0] / static_loaded,
    }
    data = {"milliseconds": _MINIMA, "load": free, "load, loaded": loaded, "static": static, "loaded": static_loaded}
    return Reading(values, {"": drawn}, data)


FIG_9 = Experiment(
    "flux-9",
    "80/20 keys: too short a collection phase makes the policy overreact",
    (
        Claim(
            "half",
            "at small minima half the throughput of static",
            0.5,
            0.3,
            0.7,
            "of static",
            "popular units are stalled in every move phase, which is half of the time; its length is not published",
        ),
        Claim(
            "wins unloaded",
            "outperforms static at 250 ms",
            250,
            125,
            500,
            "ms, from which on it is at least 2 % better",
            "a factor of two: it depends on how 80/20 is drawn and on the length of a move",
        ),
        Claim(
            "wins loaded",
            "with 8 sites loaded, outperforms unloaded static at 150 ms",
            150,
            75,
            300,
            "ms, from which on it is at least 2 % better",
            "a factor of two, as above",
        ),
        at_most(
            "loaded first",
            "the policy needs a smaller minimum when sites are loaded",
            -1.0,
            "ms later",
            "strictly smaller",
            -100,
            ClaimKind.DERIVED,
        ),
        at_least(
            "improves",
            "as the minimum is increased, performance improves",
            1.2,
            "times, from the smallest to the largest minimum",
            "from half of static to better than static is a factor of two; a fifth is the least to call it improved",
        ),
        at_least(
            "gain",
            "load balancing is better than static at large minima",
            1.0,
            "times static, smallest from 500 ms on",
            "the sign alone",
        ),
        at_most(
            "loaded ineffective",
            "with 8 sites loaded, still ineffective at small minima",
            1.02,
            "times static with the same sites loaded, at the smallest minimum",
            "no better than without it; 2 % is more than seeds differ by",
        ),
    ),
    {
        "static": Trial(_SKEWED),
        "static loaded": Trial(_SKEWED_LOADED),
        **{f"load {m}": _balanced(_SKEWED, m) for m in _MINIMA},
        **{f"load {m} loaded": _balanced(_SKEWED_LOADED, m) for m in _MINIMA},
    },
    _fig9,
)
