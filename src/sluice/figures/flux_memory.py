"""Flux, section 6: memory pressure, and mixtures of it with processing load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from sluice.dashboard.chart import Axis, Line, Mark, chart
from sluice.dashboard.quantity import COUNT, LATENCY
from sluice.figures.claim import Claim, ClaimKind, at_least, at_most
from sluice.figures.experiment import Experiment, Reading, Trial, first_time, steady_from
from sluice.figures.flux_load import PERTURBED, RATE, over_time, some_sites
from sluice.sim.hardware import MB
from sluice.sim.worlds.flux.scenario import MEMORY_BOUND, FluxScenario, Load, Pressure
from sluice.sim.worlds.flux.world import FluxOutcome

Outcomes = Mapping[str, FluxOutcome]

DELAY = Axis("mean latency of a tuple", LATENCY, log=True)
IN_MEMORY = 1e-3
"""Seconds. A tuple of a unit in memory takes 45 µs; one that was on disk, seconds."""
HALF = 512 * MB

_STAGE = FluxScenario("memory", 70, **MEMORY_BOUND)  # type: ignore[arg-type]

# --- Fig. 11 and 12 -------------------------------------------------------------------------------------------------

_ONE_SHORT = replace(_STAGE, name="one site short of memory", pressures=(Pressure(5, HALF, 1.0),))


def _fig11(outcomes: Outcomes) -> Reading:
    free, static, adaptive = (outcomes[name] for name in ("unloaded", "static", "memory-based"))
    level = free.mean_throughput(5)
    begins = first_time(static, static.throughput < 0.05 * level)
    stall_ends = first_time(static, static.throughput >= 0.05 * level, begins) - 1.0  # the interval before it
    stalled = static.times[static.throughput < 0.05 * level]
    back = steady_from(adaptive)
    calm = [t for t, value in zip(adaptive.times, adaptive.latency, strict=True) if not value < IN_MEMORY]
    marks = [Mark("paper: stall ends", x=15.0), Mark("paper: adaptive is back", x=37.0)]
    seconds = Axis("seconds", COUNT)
    delays = [Line(name, o.times.tolist(), o.latency.tolist()) for name, o in outcomes.items()]
    charts = {
        "": over_time("Fig. 11: memory of one site halved at 1 s", outcomes, marks),
        "-latency": chart("Fig. 12: the same run, latency", seconds, DELAY, delays, marks),
    }
    values = {
        "stall": stall_ends,
        "last stall": float(stalled[-1]) if len(stalled) else float("nan"),
        "back": back,
        "rate": adaptive.mean_throughput(back) / level,
        "latency back": max(calm, default=0.0) - back,
        "static": static.mean_throughput(50) / level,
        "trickle": adaptive.mean_throughput(6, 14) / level,
    }
    return Reading(values, charts, {"moves": len(adaptive.moves), "rounds": adaptive.rounds})


FIG_11 = Experiment(
    "flux-11",
    "memory of one site from 1 GB to 512 MB at 1 s, 128 units of 6 MB (Fig. 11 and 12)",
    (
        Claim(
            "stall",
            "256 MB are written first, all is stalled until 15 s",
            15.0,
            13.0,
            17.0,
            "s",
            "43 units of 6 MB at 20 MB/s and 15 ms of extraction take 13.7 s",
        ),
        Claim(
            "last stall",
            "and at no time after that",
            15.0,
            13.0,
            17.0,
            "s, the end of the last second with less than 5 % of unloaded, static",
            "as before",
        ),
        Claim(
            "back",
            "at the unloaded rate at 37 s",
            37.0,
            28.0,
            46.0,
            "s",
            "22 s after the stall: rounds whose length depends on when a busy site reads its messages; 40 % either way",
        ),
        Claim(
            "rate",
            "the throughput of the stage reaches the unloaded case",
            1.0,
            0.95,
            1.05,
            "of unloaded",
            "the units moved are more work for others",
        ),
        Claim(
            "latency back",
            "and the latency returns to the in-memory latency",
            0.0,
            -3.0,
            3.0,
            "s after the rate",
            "the last unit's pending input",
        ),
        Claim(
            "static",
            "static goes on at a much reduced rate",
            0.33,
            0.2,
            0.5,
            "of unloaded",
            "a swap of 0.6 s leaves 0.3 of every 0.9 s; spooling takes some of that",
            ClaimKind.DERIVED,
        ),
        Claim(
            "trickle",
            "some minute throughput during the stall, with repartitioning",
            None,
            0.0005,
            0.2,
            "of unloaded, from 6 s to 14 s",
            "more than none, and far from any rate",
        ),
    ),
    {
        "unloaded": Trial(replace(_STAGE, name="unloaded", seconds=30)),
        "static": Trial(_ONE_SHORT),
        "memory-based": Trial(_ONE_SHORT, "memory"),
    },
    _fig11,
)

# --- Fig. 13 and 14 -------------------------------------------------------------------------------------------------

_COUNTS = (0, 1, 4, 8, 12, 14, 15, 16, 18, 24, 32)
_STATIC_COUNTS = (0, 1, 8, 16, 32)


def _until_steady(count: int) -> float:
    """Seconds: the more sites are short, the more they share the network, as long as moving helps."""
    return 80.0 + 10.0 * count if count <= 16 else 160.0


def _short(count: int, seconds: float) -> FluxScenario:
    pressed = tuple(Pressure(site, HALF, 1.0) for site in some_sites(count))
    return replace(_STAGE, name=f"{count} sites short of memory", seconds=seconds if count else 30.0, pressures=pressed)


LAST = 20.0
"""Seconds at the end of a run over which steady state is measured."""


def _last(outcome: FluxOutcome) -> tuple[float, float]:
    """Throughput and latency in steady state."""
    start = outcome.scenario.seconds - LAST
    return outcome.mean_throughput(start), outcome.mean_latency(start)


def _moves_at_end(outcome: FluxOutcome) -> int:
    """Moves decided while steady state was measured."""
    return outcome.count_moves(outcome.scenario.seconds - LAST)


def _fig13(outcomes: Outcomes) -> Reading:
    adaptive = {n: _last(outcomes[f"memory {n}"]) for n in _COUNTS}
    static = {n: _last(outcomes[f"static {n}"]) for n in _STATIC_COUNTS}
    free = adaptive[0][0]

    def lines(which: int) -> list[Line]:
        return [
            Line("memory-based", [*map(float, adaptive)], [v[which] for v in adaptive.values()], points=True),
            Line("static", [*map(float, static)], [v[which] for v in static.values()], points=True),
        ]

    marks = [Mark("paper: aggregate memory is exhausted", x=16.0)]
    charts = {
        "": chart("Fig. 13: memory halved on more and more sites", PERTURBED, RATE, lines(0), marks),
        "-latency": chart("Fig. 14: the same runs, latency", PERTURBED, DELAY, lines(1), marks),
    }
    held = [n for n in _COUNTS if all(adaptive[m][0] >= 0.9 * free for m in _COUNTS if m <= n)]
    values = {
        "holds": float(max(held)),
        "latency": static[8][1] / adaptive[8][1],
        "static first": static[1][0] / free,
        "drop": adaptive[16][0] / free,
        "latency after": adaptive[18][1] / adaptive[8][1],
    }
    return Reading(values, charts, {"memory": adaptive, "static": static})


FIG_13 = Experiment(
    "flux-13",
    "memory pressure on 0 to 32 sites (Fig. 13 and 14)",
    (
        Claim(
            "holds",
            "holds while aggregate memory lasts; it is exhausted with 16 machines",
            15,
            14,
            15,
            "sites, the last with at least 0.9 of unloaded",
            "at 15 each of the last units has to find the last gap",
            ClaimKind.DERIVED,
        ),
        at_least(
            "latency",
            "latency orders of magnitude under static before that",
            100.0,
            "times lower than static at 8",
            "two orders at least",
        ),
        Claim(
            "static first",
            "static degrades as soon as a single machine is perturbed",
            0.33,
            0.2,
            0.5,
            "of unloaded",
            "as in Fig. 11",
            ClaimKind.DERIVED,
        ),
        Claim(
            "drop",
            "with 16 the throughput drops steeply",
            None,
            0.05,
            0.7,
            "of unloaded at 16",
            "each of 16 sites rotates through one unit; not to nothing",
        ),
        at_least(
            "latency after",
            "and the latency increases exponentially",
            100.0,
            "times that at 8, at 18",
            "two orders at least",
        ),
    ),
    {
        **{f"memory {n}": Trial(_short(n, _until_steady(n)), "memory") for n in _COUNTS},
        **{f"static {n}": Trial(_short(n, 100.0)) for n in _STATIC_COUNTS},
    },
    _fig13,
)

# --- section 6.3, what lies on disk ---------------------------------------------------------------------------------

_PERTURBED = some_sites(1)[0]


def _mean_gap(times: tuple[float, ...], start: float) -> float:
    """Seconds from one of these times to the next, after `start`."""
    later = [time for time in times if time > start]
    return (later[-1] - later[0]) / (len(later) - 1) if len(later) > 1 else float("nan")


def _over_by_site(outcome: FluxOutcome) -> list[int]:
    """How many units more each site holds than fit into its memory."""
    scenario = outcome.scenario
    memory = np.full(scenario.sites, scenario.hardware.memory)
    for pressure in scenario.pressures:
        memory[pressure.site] -= pressure.size
    held = np.bincount(outcome.unit_sites, minlength=scenario.sites)
    over: list[int] = np.maximum(held - memory // scenario.unit_size, 0).tolist()
    return over


def _on_disk(outcomes: Outcomes) -> Reading:
    static, adaptive = outcomes["static 1"], outcomes["memory 16"]
    over, short = _over_by_site(adaptive), some_sites(16)
    values = {
        "on disk": float(static.spilled.sum()),
        "swap": _mean_gap(static.fetches[_PERTURBED] if static.fetches else (), static.scenario.seconds / 2),
        "one each": float(sum(over[site] == 1 for site in short)),
        "none elsewhere": float(sum(over) - sum(over[site] for site in short)),
        "rebalanced": float(_moves_at_end(adaptive)),
    }
    ended = max((move.done or 0.0 for move in adaptive.moves), default=0.0)
    return Reading(values, {}, {"units over what fits, by site": over, "last move done": ended})


FIG_13_DISK = Experiment(
    "flux-13-disk",
    "what lies on disk: one site short and nothing moves, 16 sites short and memory-based (section 6.3)",
    (
        Claim(
            "on disk",
            "static: 42 of a perturbed machine's 128 partitions are on disk",
            42,
            41,
            44,
            "units at the end",
            "256 of 768 MB are 42.7 units; one more is there in the middle of a swap",
        ),
        Claim(
            "swap",
            "it takes 0.9 s on average for a swapped-in partition to finish and the next one to begin",
            0.9,
            0.72,
            1.08,
            "s from one unit read to the next",
            "a fifth: 0.3 s to write, 0.3 s to read and as long until the next are 0.9 s; spooled input comes on top",
        ),
        at_least(
            "one each",
            "when 16 machines are perturbed, each overloaded machine has one partition on disk",
            16,
            "of 16 overloaded sites hold one unit more than fits",
            "all, as it is said",
            16,
        ),
        at_most(
            "none elsewhere",
            "and the others have none",
            0,
            "units more than fit at the other 16",
            "none: 16 units are what does not fit into all memory",
            0,
            ClaimKind.DERIVED,
        ),
        at_most(
            "rebalanced",
            "steady state is after rebalancing has completed",
            0,
            "moves in the last 20 s",
            "none, as it is said",
            0,
        ),
    ),
    {
        "static 1": Trial(_short(1, 100.0)),
        "memory 16": Trial(_short(16, _until_steady(16)), "memory"),
    },
    _on_disk,
)

# --- Fig. 15 --------------------------------------------------------------------------------------------------------

_POLICIES = ("load", "memory", "hybrid")
_EIGHT = some_sites(8, seed=15)
_MEDIUM = replace(
    _STAGE,
    name="medium load",
    seconds=160,  # the paper ran 100 s; here movement has to have subsided too
    loads=tuple(Load(s) for s in _EIGHT),
    pressures=tuple(Pressure(s, HALF) for s in _EIGHT),
)
_HEAVY = replace(
    _STAGE,
    name="heavy load",
    seconds=100,
    loads=tuple(Load(s) for s in range(32)),
    pressures=tuple(Pressure(s, HALF if s < 16 else 262 * MB) for s in range(32)),
)


def _fig15(outcomes: Outcomes) -> Reading:
    medium = {p: outcomes[f"medium {p}"] for p in _POLICIES}
    heavy = {p: _last(outcomes[f"heavy {p}"]) for p in _POLICIES}
    rates = {p: _last(o)[0] for p, o in medium.items()}
    steady = {p: steady_from(o, 0.95, 10.0) for p, o in medium.items()}
    still = {p: _moves_at_end(outcomes[f"heavy {p}"]) for p in _POLICIES}
    names = Axis("policy", names=_POLICIES)
    order = [0.0, 1.0, 2.0]
    charts = {
        "a": over_time(
            "Fig. 15 (a): 8 sites with load and half the memory",
            medium,
            [Mark("paper: hybrid steady", x=55.0), Mark("paper: load-balancing steady", x=63.0)],
        ),
        "b": chart(
            "Fig. 15 (b): load on all sites, too little memory",
            names,
            RATE,
            [Line("throughput", order, [heavy[p][0] for p in _POLICIES])],
            bars=True,
        ),
        "c": chart(
            "Fig. 15 (c): the same runs, latency",
            names,
            Axis("mean latency of a tuple", LATENCY),
            [Line("latency", order, [heavy[p][1] for p in _POLICIES])],
            bars=True,
        ),
    }
    values = {
        "load over memory": rates["load"] / rates["memory"],
        "hybrid over memory": rates["hybrid"] / rates["memory"],
        "hybrid steady": steady["hybrid"],
        "load steady": steady["load"],
        "hybrid first": steady["load"] - steady["hybrid"],
        "heavy throughput": heavy["hybrid"][0] / heavy["load"][0],
        "heavy latency": heavy["load"][1] / heavy["hybrid"][1],
        "hybrid subsided": float(still["hybrid"]),
        "load moving": float(still["load"]),
    }
    stricter = {p: steady_from(o) for p, o in medium.items()}
    data = {"medium": rates, "steady": steady, "steady within 3 %": stricter, "heavy": heavy}
    ends = {p: max((m.done or 0.0 for m in outcomes[f"heavy {p}"].moves), default=0.0) for p in _POLICIES}
    return Reading(values, charts, {**data, "heavy, moves in the last 20 s": still, "heavy, last move done": ends})


FIG_15 = Experiment(
    "flux-15",
    "processing load and memory pressure together: load-balancing, memory-based, hybrid",
    (
        at_least(
            "load over memory",
            "medium load: load-balancing beats memory-based",
            1.02,
            "times",
            "2 % is more than seeds differ by",
        ),
        at_least(
            "hybrid over memory",
            "medium load: hybrid beats memory-based",
            1.02,
            "times",
            "2 % is more than seeds differ by",
        ),
        Claim("hybrid steady", "hybrid is steady in 55 s", 55.0, 38.0, 72.0, "s", "30 %, as for Fig. 11"),
        Claim("load steady", "load-balancing is steady in 63 s", 63.0, 44.0, 82.0, "s", "30 %, as for Fig. 11"),
        at_least(
            "hybrid first",
            "hybrid is steady before load-balancing",
            1.0,
            "s earlier",
            "one interval at least",
            8.0,
            ClaimKind.DERIVED,
        ),
        Claim(
            "heavy throughput",
            "heavy load: the throughput is unaffected by the choice",
            1.0,
            0.85,
            1.15,
            "times load-balancing",
            "15 %: a mean over few cycles through the units on disk",
        ),
        Claim(
            "heavy latency",
            "heavy load: hybrid reduces the latency by a factor of two",
            2.0,
            1.5,
            3.0,
            "times lower",
            "a mean over few cycles through the units on disk",
        ),
        at_most(
            "hybrid subsided",
            "heavy load: hybrid is in steady state in the last 20 s",
            0,
            "moves of hybrid in the last 20 s",
            "none, as it is said",
            0,
        ),
        at_least(
            "load moving",
            "while load-balancing is still periodically moving partitions",
            1,
            "moves of load-balancing in the last 20 s",
            "one at least",
        ),
    ),
    {
        **{f"medium {p}": Trial(_MEDIUM, p) for p in _POLICIES},
        **{f"heavy {p}": Trial(_HEAVY, p) for p in _POLICIES},
    },
    _fig15,
)
