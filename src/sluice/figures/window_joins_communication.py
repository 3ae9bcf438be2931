"""Parallel window joins, Fig. 11 to 14 and section V-B: what communication costs, and who waits for whom."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from sluice.dashboard.chart import Axis, Line, chart
from sluice.dashboard.quantity import COUNT, LATENCY, ROWS
from sluice.figures.claim import Claim, ClaimKind, at_least, at_most
from sluice.figures.experiment import Experiment, Reading, Trial
from sluice.figures.window_joins_runs import TABLE_1, WindowJoinOutcomes, at_rate, over_rates, published, summary
from sluice.sim.worlds.window_joins.scenario import RateChange
from sluice.sim.worlds.window_joins.world import WindowJoinOutcome

_SECONDS = Axis("seconds of 600", COUNT, low=0.0)

# --- Fig. 11 --------------------------------------------------------------------------------------------------------

_MOST = 8
_NUMBERS = tuple(range(1, _MOST + 1))
_UP_AND_DOWN = "four times the rate from minute 10 to 25"
_FAST = 4000


def _fixed(sites: int) -> str:
    return f"{sites} slaves"


def _adaptive(sites: int) -> str:
    return f"adaptive, at most {sites}"


def _at_fast_rate(name: str) -> str:
    return f"{name}, {_FAST:,} tuples/s"


def _saved(outcomes: WindowJoinOutcomes, fixed: str, adaptive: str) -> float:
    """Seconds of communication, of all slaves together."""
    return float(outcomes[fixed].site_communicating.sum() - outcomes[adaptive].site_communicating.sum())


def _read_11(outcomes: WindowJoinOutcomes) -> Reading:
    each = [outcomes[_fixed(sites)].mean(outcomes[_fixed(sites)].site_communicating) for sites in _NUMBERS]
    fixed, adaptive = (
        np.array([outcomes[name(sites)].site_communicating.sum() for sites in _NUMBERS]) for name in (_fixed, _adaptive)
    )
    fit = np.polynomial.Polynomial.fit(_NUMBERS, fixed, 1)(np.array(_NUMBERS))
    values = {
        "each": max(after / before for before, after in pairwise(each[:4])),
        "each, all": each[-1] / each[0],
        "linear": 1 - float(((fixed - fit) ** 2).sum() / max(((fixed - fixed.mean()) ** 2).sum(), 1e-9)),
        "rises": float(fixed[-1] / fixed[0]),
        "adaptive": float(adaptive[-1] / fixed[-1]),
        "prominent": _saved(outcomes, _at_fast_rate(_fixed(_MOST)), _at_fast_rate(_adaptive(_MOST)))
        / max(_saved(outcomes, _fixed(_MOST), _adaptive(_MOST)), 1e-9),
    }
    slaves = Axis("slaves, or at most so many", COUNT)
    lines = [
        Line("aggregate", list(_NUMBERS), fixed.tolist()),
        Line("aggregate, adaptive", list(_NUMBERS), adaptive.tolist()),
        Line("each slave", list(_NUMBERS), each),
    ]
    changing = outcomes[_UP_AND_DOWN]
    minutes = (np.arange(len(changing.sites)) * changing.scenario.slot / 60).tolist()
    charts = {
        "": chart("Communication at 1,500 tuples a second, by number of slaves", slaves, _SECONDS, lines),
        "-sites": chart(
            f"Slaves that take part under the policy elastic: 1,500 tuples a second, {_UP_AND_DOWN}",
            Axis("minutes", COUNT, low=0.0),
            Axis("slaves", COUNT, low=0.0),
            [Line("slaves", minutes, changing.sites.tolist())],
        ),
    }
    data = {name: summary(one) for name, one in outcomes.items()}
    return Reading(values, charts, {**data, f"slaves by slot, {_UP_AND_DOWN}": changing.sites})


WINDOW_11: Experiment[WindowJoinOutcome] = Experiment(
    "window-joins-11",
    "communication at 1,500 tuples/s by number of slaves, fixed and adaptive (Fig. 11)",
    (
        at_most(
            "each",
            "the communication time of a slave decreases with the number of slaves",
            1.0,
            "times that with one slave less, 2 to 4 slaves, greatest",
            "it falls with every slave; the paper has up to about so many in its other figures",
            kind=ClaimKind.FITTED,  # the time of a message was chosen with this in view
        ),
        at_most(
            "each, all",
            "the same with many slaves",
            0.8,
            "times that of one slave, with 8",
            "a fifth less at least is to be seen",
            kind=ClaimKind.FITTED,  # the same
        ),
        at_least(
            "linear",
            "the aggregate over all slaves increases linearly",
            0.98,
            "coefficient of determination of a straight line",
            "nearly all of it",
        ),
        at_least("rises", "it increases", 2.0, "times that of one slave, with 8", "twice at least is to be seen"),
        at_most(
            "adaptive",
            "with adaptive parallelism it is significantly lower",
            0.5,
            "of the aggregate of 8 slaves, with at most 8",
            "half at most for what is called significant",
        ),
        at_least(
            "prominent",
            "the benefit of adaptive parallelism is prominent at a high rate",
            1.5,
            "times the seconds of communication that it saves at 1,500 tuples/s, at 4,000",
            "2.7 times the tuples; half as much again at least for what is called prominent",
        ),
    ),
    {
        **{_fixed(sites): published(at_rate(1500, sites)) for sites in _NUMBERS},
        **{
            _adaptive(sites): published(replace(at_rate(1500, sites), name=_adaptive(sites), least_sites=1))
            for sites in _NUMBERS
        },
        _at_fast_rate(_fixed(_MOST)): published(at_rate(_FAST, _MOST)),
        _at_fast_rate(_adaptive(_MOST)): published(
            replace(at_rate(_FAST, _MOST), name=_at_fast_rate(_adaptive(_MOST)), least_sites=1)
        ),
        _UP_AND_DOWN: Trial(
            replace(
                at_rate(1500, 2),
                name=_UP_AND_DOWN,
                least_sites=1,
                most_sites=12,
                changes=(RateChange(600.0, 6000.0), RateChange(1500.0, 1500.0)),
                seconds=3000.0,
                measured_from=0.0,
            ),
            "elastic",
        ),
    },
    _read_11,
)

# --- Fig. 12 --------------------------------------------------------------------------------------------------------

_RATES = tuple(range(1000, 7000, 1000))


def _read_12(outcomes: WindowJoinOutcomes) -> Reading:
    by_rate = [one.site_communicating[one.active] for one in outcomes.values()]
    apart = np.array([max(float(np.ptp(column)), 1e-9) for column in by_rate])
    values = {
        "diverges": float(apart[-1] / apart[0]),
        "at every rate": float((apart[1:] / apart[:-1]).min()),
    }
    lines = {
        name: (_RATES, [float(of(column)) for column in by_rate])
        for name, of in (("greatest", np.max), ("average", np.mean), ("least", np.min))
    }
    charts = {"": over_rates("Communication across 4 slaves", _SECONDS, lines)}
    return Reading(values, charts, {name: summary(one) for name, one in outcomes.items()})


WINDOW_12: Experiment[WindowJoinOutcome] = Experiment(
    "window-joins-12",
    "least, average and greatest communication across 4 slaves, by rate (Fig. 12)",
    (
        at_least(
            "diverges",
            "the divergence across the slaves increases with the rate",
            3.0,
            "times the difference of the greatest and the least at 1,000 tuples/s, at 6,000",
            "six times the tuples; half of that at least",
            kind=ClaimKind.FITTED,  # by the order of the slaves, which is always the same
        ),
        at_least(
            "at every rate",
            "it does so all along",
            1.0,
            "times that of the rate before, smallest",
            "never less",
            kind=ClaimKind.FITTED,  # the same
        ),
    ),
    {f"{rate:,} tuples/s": published(at_rate(rate, 4)) for rate in _RATES},
    _read_12,
)

# --- Fig. 13 and 14 -------------------------------------------------------------------------------------------------

_EPOCHS = (0.25, 0.5, 1.0, 2.0, 3.0, 4.0)
_SHORTEST = "1 ms, windows of 2 s"
"""Long windows take too many slots, and what is asked is the time that is left beside communication."""


def _epoch(seconds: float) -> str:
    return f"{seconds:g} s"


def _read_13(outcomes: WindowJoinOutcomes) -> Reading:
    shown, shortest = [outcomes[_epoch(epoch)] for epoch in _EPOCHS], outcomes[_SHORTEST]
    delay = np.array([one.delay for one in shown])
    sending = np.array([one.mean(one.site_communicating) for one in shown])
    values = {
        "only communication": shortest.mean(shortest.site_communicating) / shortest.mean(shortest.site_taking_part),
        "delay": float(delay[0] / delay[-1]),
        "delay, all along": float((delay[1:] / delay[:-1]).min()),
        "communication": float(sending[0] / sending[-1]),
        "communication, all along": float((sending[:-1] / sending[1:]).min()),
    }
    epochs = Axis("distribution epoch", LATENCY, low=0.0)
    charts = {
        "": chart(
            "Average delay by distribution epoch, 3 slaves",
            epochs,
            Axis("average delay of a result", LATENCY, low=0.0),
            [Line("delay", list(_EPOCHS), delay.tolist())],
        ),
        "-communication": chart(
            "Communication of a slave by distribution epoch, 3 slaves",
            epochs,
            _SECONDS,
            [Line("communication", list(_EPOCHS), sending.tolist())],
        ),
    }
    return Reading(values, charts, {name: summary(one) for name, one in outcomes.items()})


WINDOW_13: Experiment[WindowJoinOutcome] = Experiment(
    "window-joins-13",
    "distribution epochs of 0.25 to 4 s, 3 slaves: delay and communication (Fig. 13 and 14)",
    (
        at_most(
            "delay",
            "as the distribution epoch decreases, so does the average delay",
            0.5,
            "of the delay at 4 s, at 0.25 s",
            "half at most; half an epoch is what a tuple waits at the master",
        ),
        at_least(
            "delay, all along", "it does so all along", 1.0, "times that of the shorter epoch, smallest", "never less"
        ),
        at_least(
            "communication",
            "the communication overhead increases",
            1.1,
            "times that at 4 s, at 0.25 s",
            "a tenth more at least is to be seen",
        ),
        at_least(
            "communication, all along",
            "it does so all along",
            1.0,
            "times that of the longer epoch, smallest",
            "never less",
        ),
        at_least(
            "only communication",
            "it reaches a point where slaves do nothing but communicate",
            0.95,
            "of a slave's time, with an epoch as long as a message takes",
            "a twentieth is nothing",
            kind=ClaimKind.FITTED,  # whatever time is chosen for a message, there is an epoch as short as that
        ),
    ),
    {
        **{
            _epoch(epoch): published(replace(at_rate(1500, 3), name=_epoch(epoch), distribution=epoch))
            for epoch in _EPOCHS
        },
        _SHORTEST: published(
            replace(
                at_rate(1500, 3),
                name=_SHORTEST,
                distribution=TABLE_1.message,
                window=2.0,
                seconds=4.0,
                measured_from=2.0,
            )
        ),
    },
    _read_13,
)

# --- section V-B ----------------------------------------------------------------------------------------------------

_GROUPS = (1, 2, 4, 8)


def _formula(groups: int) -> float:
    """The paper's largest buffer for one stream at the master, in tuples."""
    return TABLE_1.rate * TABLE_1.distribution / 2 * (1 + 1 / groups)


def _read_groups(outcomes: WindowJoinOutcomes) -> Reading:
    largest = [one.largest_waiting for one in outcomes.values()]
    sending = [one.mean(one.site_communicating) for one in outcomes.values()]
    ratios = [measured / _formula(groups) for measured, groups in zip(largest, _GROUPS, strict=True)]
    values = {
        "buffer": max(ratios, key=lambda ratio: abs(ratio - 1)),
        "half": largest[-1] / largest[0],
        "waiting": sending[-1] / sending[0],
    }
    groups = Axis("groups", COUNT)
    charts = {
        "": chart(
            "The master's largest buffer for one stream, 8 slaves",
            groups,
            Axis("tuples", ROWS, low=0.0),
            [
                Line("measured", list(_GROUPS), largest),
                Line("calculated", list(_GROUPS), [_formula(g) for g in _GROUPS]),
            ],
        ),
        "-communication": chart(
            "Communication of a slave, 8 slaves", groups, _SECONDS, [Line("communication", list(_GROUPS), sending)]
        ),
    }
    data = {name: {**summary(one), "largest buffer, tuples": one.largest_waiting} for name, one in outcomes.items()}
    return Reading(values, charts, data)


WINDOW_GROUPS: Experiment[WindowJoinOutcome] = Experiment(
    "window-joins-groups",
    "8 slaves in 1 to 8 sub-groups (section V-B)",
    (
        Claim(
            "buffer",
            "the master's largest buffer is (r t_d / 2)(1 + 1 / n_g)",
            1.0,
            0.95,
            1.05,
            "times what is calculated, farthest from 1",
            "a twentieth; tuples come at random",
        ),
        Claim(
            "half",
            "with many groups it is reduced almost by a half",
            0.5625,
            0.52,
            0.6,
            "of that without groups, with 8",
            "what is calculated for 8, and a twentieth",
            ClaimKind.DERIVED,
        ),
        at_most(
            "waiting",
            "slaves wait less for the others to receive",
            0.8,
            "of the communication without groups, with 8",
            "a fifth less at least is to be seen",
        ),
    ),
    {f"{n} groups": published(replace(at_rate(1500, 8), name=f"{n} groups", groups=n)) for n in _GROUPS},
    _read_groups,
)
