"""Parallel window joins, Fig. 5 to 10: delay, processor time and idle time by the rate of the streams."""

from __future__ import annotations

import numpy as np

from sluice.dashboard.chart import Axis, Mark
from sluice.dashboard.quantity import COUNT, LATENCY
from sluice.figures.claim import Claim, ClaimKind, at_least, at_most
from sluice.figures.experiment import Experiment, Reading
from sluice.figures.window_joins_runs import MEASURED, WindowJoinOutcomes, at_rate, over_rates, published, summary
from sluice.sim.worlds.window_joins.world import WindowJoinOutcome

_DELAY = Axis("average delay of a result", LATENCY, low=0.0)
_SECONDS = Axis("seconds of 600, a slave on average", COUNT, low=0.0)

# --- Fig. 5 and 6 ---------------------------------------------------------------------------------------------------

_SLAVES = (1, 2, 3, 4)
_RATES = tuple(range(1000, 11_000, 1000))
_SATURATED = 0.02
"""Part of their time below which slaves that are idle are overloaded."""


def _point(sites: int, rate: int) -> str:
    return f"{sites} slaves, {rate:,} tuples/s"


def _delays(outcomes: WindowJoinOutcomes, sites: int) -> np.ndarray:
    return np.array([outcomes[_point(sites, rate)].delay for rate in _RATES])


def _saturation(outcomes: WindowJoinOutcomes, sites: int) -> int:
    """The place of the first rate that is too much; behind the last if none is."""
    points = [outcomes[_point(sites, rate)] for rate in _RATES]
    over = np.array([one.mean(one.site_idle) < _SATURATED * MEASURED for one in points])
    return int(over.argmax()) if over.any() else len(over)


def _read_5(outcomes: WindowJoinOutcomes) -> Reading:
    delays = {sites: _delays(outcomes, sites) for sites in _SLAVES}
    places = {sites: _saturation(outcomes, sites) for sites in _SLAVES}
    rates = np.array([*_RATES, np.nan])
    saturated = [float(rates[place]) for place in places.values()]
    before = [float(delays[sites][: max(1, place)].max() / delays[sites][0]) for sites, place in places.items()]
    beyond = [
        float(delays[sites][place + 1] / delays[sites][0]) for sites, place in places.items() if place + 1 < len(_RATES)
    ]
    values = {
        "flat": max(before),
        "sharp": min(beyond, default=float("nan")),
        "grows": float(np.diff(saturated).min()),
    }
    lines = {f"{sites} slaves": (_RATES, delays[sites].tolist()) for sites in _SLAVES}
    marks = [Mark("published for 4 slaves, about 2 s", 4000, 2.0)]
    data = {
        "rates": _RATES,
        "delay, seconds, by slaves": {str(sites): delays[sites] for sites in _SLAVES},
        "first rate that is too much": dict(zip(map(str, _SLAVES), saturated, strict=True)),
    }
    title = "Average delay with fine tuning, by rate and number of slaves"
    calm = {f"{sites} slaves": (_RATES[:p], delays[sites][:p].tolist()) for sites, p in places.items() if p > 1}
    charts = {
        "": over_rates(title, _DELAY, lines),
        "-calm": over_rates(f"{title}, as long as slaves have time to spare", _DELAY, calm, marks),
    }
    return Reading(values, charts, data)


WINDOW_5: Experiment[WindowJoinOutcome] = Experiment(
    "window-joins-5",
    "average delay by rate, 1 to 4 slaves with fine tuning (Fig. 5 and 6)",
    (
        at_most(
            "flat",
            "before the saturation point the average delay varies very little",
            2.0,
            "times the delay at 1,000 tuples/s, greatest at rates where slaves are idle for 2 % of the time or more",
            "twice at most: a tuple waits for 1 s at the master, and as long at a slave with hardly any time to spare",
        ),
        at_least(
            "sharp",
            "at the saturation point it increases sharply",
            5.0,
            "times the delay at 1,000 tuples/s, 1,000 tuples/s beyond the first rate without idle time, smallest",
            "twice is flat; five times is not",
        ),
        at_least(
            "grows",
            "the rate that overloads the system grows with the number of slaves",
            1000,
            "tuples/s from a number of slaves to the next, smallest",
            "one step of the rates that are simulated",
        ),
    ),
    {_point(sites, rate): published(at_rate(rate, sites)) for sites in _SLAVES for rate in _RATES},
    _read_5,
)

# --- Fig. 7 to 10 ---------------------------------------------------------------------------------------------------

_FOUR = tuple(range(1000, 7000, 1000))
_TUNED = {True: "with tuning", False: "without tuning"}


def _run(tuned: bool, rate: int) -> str:
    return f"{_TUNED[tuned]}, {rate:,} tuples/s"


_COMPARED = {_run(tuned, rate): published(at_rate(rate, 4), tuned) for tuned in _TUNED for rate in _FOUR}


def _means(outcomes: WindowJoinOutcomes, tuned: bool, column: str) -> dict[int, float]:
    """Of the slaves, by rate."""
    return {rate: one.mean(getattr(one, column)) for rate in _FOUR for one in [outcomes[_run(tuned, rate)]]}


def _read_7(outcomes: WindowJoinOutcomes) -> Reading:
    working = {tuned: _means(outcomes, tuned, "site_working") for tuned in _TUNED}
    delay = {tuned: {rate: outcomes[_run(tuned, rate)].delay for rate in _FOUR} for tuned in _TUNED}
    values = {
        "cpu": working[False][4000] / working[False][2000],
        "cpu, tuned": working[True][4000] / working[False][4000],
        "delay": delay[False][4000],
        "delay, tuned": delay[True][4000],
    }
    charts = {
        "": over_rates(
            "Processor time of a slave, 4 slaves",
            _SECONDS,
            {_TUNED[t]: (_FOUR, [*working[t].values()]) for t in _TUNED},
        ),
        "-delay": over_rates(
            "Average delay, 4 slaves",
            _DELAY,
            {_TUNED[t]: (_FOUR, [*delay[t].values()]) for t in _TUNED},
            [Mark("published, 48 s", 4000, 48.0)],
        ),
    }
    return Reading(values, charts, {name: summary(one) for name, one in outcomes.items()})


WINDOW_7: Experiment[WindowJoinOutcome] = Experiment(
    "window-joins-7",
    "4 slaves with and without fine tuning: processor time and delay (Fig. 7 and 8)",
    (
        at_least(
            "cpu",
            "without tuning the processor time rises sharply with the rate",
            3.0,
            "times the processor time of 2,000 tuples/s at 4,000",
            "scanning grows with the square of the rate, four times; less since 4,000 is just too much",
        ),
        at_most(
            "cpu, tuned",
            "tuning significantly lowers the processor time",
            0.6,
            "of the processor time without, at 4,000 tuples/s",
            "40 % less at least for what is called significant",
        ),
        Claim(
            "delay",
            "without tuning the delay is around 48 s at 4,000 tuples/s",
            48.0,
            36.0,
            60.0,
            "s",
            "a quarter more or less",
            kind=ClaimKind.FITTED,  # by the time that a comparison takes
        ),
        Claim(
            "delay, tuned",
            "with tuning it drops to around 2 s",
            2.0,
            1.0,
            3.0,
            "s",
            "half as much again, or half of it; an epoch of 2 s makes 1 s the least there can be",
        ),
    ),
    _COMPARED,
    _read_7,
)


def _read_9(outcomes: WindowJoinOutcomes) -> Reading:
    idle = {tuned: _means(outcomes, tuned, "site_idle") for tuned in _TUNED}
    sending = {tuned: _means(outcomes, tuned, "site_communicating") for tuned in _TUNED}
    ratios = [sending[True][rate] / sending[False][rate] for rate in _FOUR if rate < 4000]
    values = {
        "idle, untuned": idle[False][4000] / MEASURED,
        "idle, tuned": idle[True][6000] / MEASURED,
        "idle, tuned at 4,000": idle[True][4000] / MEASURED,
        "communication": max(ratios, key=lambda ratio: abs(ratio - 1)),
    }
    charts = {
        suffix: over_rates(
            f"Idle time and communication of a slave, 4 slaves, {_TUNED[tuned]}",
            _SECONDS,
            {
                "idle": (_FOUR, [*idle[tuned].values()]),
                "communication": (_FOUR, [*sending[tuned].values()]),
            },
        )
        for suffix, tuned in (("", False), ("-tuned", True))
    }
    return Reading(values, charts, {name: summary(one) for name, one in outcomes.items()})


WINDOW_9: Experiment[WindowJoinOutcome] = Experiment(
    "window-joins-9",
    "4 slaves with and without fine tuning: idle time and communication (Fig. 9 and 10)",
    (
        at_most(
            "idle, untuned",
            "without tuning the idle time is near zero at 4,000 tuples/s",
            0.05,
            "of the time",
            "a twentieth",
            0.0,
            kind=ClaimKind.FITTED,  # 48 s of delay at this rate leave no time
        ),
        at_most(
            "idle, tuned",
            "with tuning it is near zero at 6,000 tuples/s",
            0.1,
            "of the time",
            "a tenth, as nothing was fitted here",
            0.0,
        ),
        at_least(
            "idle, tuned at 4,000",
            "with tuning there is idle time left at 4,000 tuples/s",
            0.1,
            "of the time",
            "the delay is that of a system with time to spare",
        ),
        Claim(
            "communication",
            "tuning costs no communication",
            1.0,
            0.95,
            1.05,
            "times the communication without tuning, farthest from 1 of the rates below 4,000",
            "a twentieth; at higher rates the one without is overloaded and takes in less",
        ),
    ),
    _COMPARED,
    _read_9,
)
