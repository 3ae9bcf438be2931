"""D-CAPE proposal, section 4.2: storage tokens against no partitioning, and against hash partitions that move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sluice.dashboard.chart import Axis, Line, chart
from sluice.dashboard.quantity import BYTES, COUNT, RATIO, SHARE
from sluice.figures.claim import Claim, ClaimKind, at_least, at_most
from sluice.figures.d_cape_plans import ENOUGH, MANY_TO_MANY, ONE_TO_ONE, PLANS, ReplicationOutcomes
from sluice.figures.experiment import Experiment, Reading, Trial
from sluice.sim.worlds.replication.scenario import ReplicationScenario
from sluice.sim.worlds.replication.world import ReplicationOutcome

_ENABLED, _DISABLED = "tokens", "static"
_MOVED, _SPREAD = "hash partitions that move", "hash partitions spread from the start"


def _bars(title: str, y: Axis, values: dict[str, Sequence[float]], note: str = "") -> str:
    plans = Axis("plan", COUNT, names=[plan.name for plan in PLANS])
    lines = [Line(name, list(range(len(PLANS))), list(numbers)) for name, numbers in values.items()]
    return chart(title, plans, y, lines, note=note, bars=True)


def _data(outcomes: ReplicationOutcomes) -> dict[str, object]:
    return {
        name: {
            "results": one.total,
            "first remiss state, seconds": None if one.remiss is None else one.remiss.time,
            "memory filled at most, of all machines": one.peak,
            "bytes of tuples, each once": one.input_bytes,
            "bytes sent to holders": one.sent_bytes,
            "bytes moved": one.moved_bytes,
            "moves": len(one.moves),
            "tokens passed": one.passes,
            "holders of all units": one.holders,
        }
        for name, one in outcomes.items()
    }


# --- comparison 1 and 3 ---------------------------------------------------------------------------------------------


def _named(policy: str, plan: ReplicationScenario) -> str:
    return f"{plan.name}, {policy}"


def _gains(plans: Sequence[ReplicationScenario], outcomes: ReplicationOutcomes) -> list[float]:
    return [outcomes[_named(_ENABLED, p)].total / max(outcomes[_named(_DISABLED, p)].total, 1e-9) for p in plans]


def _remiss(policy: str, outcomes: ReplicationOutcomes) -> float:
    return float(sum(outcomes[_named(policy, plan)].remiss is not None for plan in ENOUGH.values()))


def _alike(plan: ReplicationScenario, outcomes: ReplicationOutcomes) -> float:
    """Output with tokens by that without, as long as there is one without."""
    static, tokens = outcomes[_named(_DISABLED, plan)], outcomes[_named(_ENABLED, plan)]
    return tokens.total_until(float(static.times[-1])) / max(static.total, 1e-9)


def _read_3(outcomes: ReplicationOutcomes) -> Reading:
    tokens = [outcomes[_named(_ENABLED, plan)] for plan in PLANS]
    values = {
        "enough": _remiss(_ENABLED, outcomes),
        "enough, disabled": _remiss(_DISABLED, outcomes),
        "more, 1:1": min(_gains(ONE_TO_ONE, outcomes)),
        "more, n:m": min(_gains(MANY_TO_MANY, outcomes)),
        "filled": min(one.peak for one in tokens),
        "normally": max((_alike(plan, outcomes) for plan in PLANS), key=lambda ratio: abs(ratio - 1)),
        "bandwidth": min(one.sent_bytes / max(one.input_bytes, 1e-9) for one in tokens),
    }
    filled = {policy: [outcomes[_named(policy, plan)].peak for plan in PLANS] for policy in (_DISABLED, _ENABLED)}
    shown = ONE_TO_ONE[1]
    one = outcomes[_named(_ENABLED, shown)]
    machines = [
        Line(f"machine {site}", one.times.tolist(), column.tolist()) for site, column in enumerate(one.filled.T)
    ]
    charts = {
        "": _bars(
            "Output before the first remiss state, by that with partitioning disabled",
            Axis("times the output with partitioning disabled", RATIO, low=0.0),
            {"storage tokens": _gains(PLANS, outcomes)},
        ),
        "-memory": _bars(
            "Memory of all machines that was filled at the first remiss state",
            Axis("of the memory of all machines", SHARE, low=0.0, high=1.0),
            {"partitioning disabled": filled[_DISABLED], "storage tokens": filled[_ENABLED]},
        ),
        "-machines": chart(
            f"Memory of each machine under storage tokens: {shown.name}",
            Axis("seconds", COUNT, low=0.0),
            Axis("of its memory", SHARE, low=0.0, high=1.0),
            machines,
        ),
    }
    return Reading(values, charts, _data(outcomes))


D_CAPE_3: Experiment[ReplicationOutcome] = Experiment(
    "d-cape-3",
    "the same plans with partitioning disabled and enabled (section 4.2, comparisons 1 and 3)",
    (
        at_most(
            "enough",
            "as long as aggregate memory is not exceeded, partitioning prevents system failure",
            0,
            "of 6 plans remiss, with state of 0.9 of all memory at its peak",
            "none, as it is said; a tenth is left since machines cannot be filled to the last tuple",
            0,
        ),
        at_least(
            "enough, disabled",
            "without it those plans fail",
            6,
            "of 6 plans remiss",
            "all",
            6,
            kind=ClaimKind.FITTED,  # by the windows chosen, a join of each plan needs more than a machine has
        ),
        at_least(
            "more, 1:1",
            "where memory is exceeded, significantly more output before the first remiss state; joins 1:1",
            1.5,
            "times the output with partitioning disabled, smallest",
            "half as much again at least for what is called significant",
        ),
        at_least(
            "more, n:m",
            "the same for joins n:m",
            1.5,
            "times the output with partitioning disabled, smallest",
            "half as much again at least, as before",
        ),
        at_least(
            "filled",
            "the memory of the whole network is used before the system fails",
            0.85,
            "of all memory filled, smallest",
            "up to the high threshold at least; above it holders store in turn",
        ),
        Claim(
            "normally",
            "the system continues to function normally",
            1.0,
            0.999,
            1.001,
            "times the output with partitioning disabled, up to its first remiss state, farthest from 1",
            "the same results; the merge hands them on in order",
        ),
        Claim(
            "bandwidth",
            "at the cost of a greater usage of network bandwidth",
            None,
            1.1,
            4.0,
            "copies of a tuple, smallest",
            "a tenth more at least is to be seen; four machines are the most there are",
        ),
    ),
    {
        _named(policy, plan): Trial(plan, policy)
        for plan in (*PLANS, *ENOUGH.values())
        for policy in (_DISABLED, _ENABLED)
    },
    _read_3,
)

# --- comparison 2 ---------------------------------------------------------------------------------------------------

_PARTITIONS = 16


def _hashed(plan: ReplicationScenario, spread: bool) -> ReplicationScenario:
    return replace(
        plan,
        name=f"{plan.name}, {_PARTITIONS} partitions{', spread' if spread else ''}",
        units=_PARTITIONS,
        spread=spread,
    )


def _network_rate(one: ReplicationOutcome) -> float:
    """Bytes a second."""
    return (one.sent_bytes + one.moved_bytes) / float(one.times[-1])


def _read_4(outcomes: ReplicationOutcomes) -> Reading:
    ways = (_ENABLED, _MOVED, _SPREAD)
    by_way = {way: [outcomes[_named(way, plan)] for plan in PLANS] for way in ways}
    against = {
        way: [one.total / max(hashed.total, 1e-9) for one, hashed in zip(by_way[way], by_way[_MOVED], strict=True)]
        for way in ways
    }
    network = {way: [_network_rate(one) for one in by_way[way]] for way in ways}
    farther = [max(one, 1 / max(one, 1e-9)) for one in against[_ENABLED]]
    values = {
        "as good": against[_ENABLED][farther.index(max(farther))],
        "stays": max(one.moved_bytes for one in by_way[_ENABLED]),
        "bandwidth": min(t / max(h, 1e-9) for t, h in zip(network[_ENABLED], network[_MOVED], strict=True)),
    }
    charts = {
        "": _bars(
            "Output before the first remiss state, by that of hash partitions that move",
            Axis("times the output of hash partitions that move", RATIO, low=0.0),
            {"storage tokens": against[_ENABLED], _SPREAD: against[_SPREAD]},
        ),
        "-network": _bars(
            "What the network carried: copies of tuples, and state that moved",
            Axis("bytes a second", BYTES, low=0.0),
            {"storage tokens": network[_ENABLED], _MOVED: network[_MOVED], _SPREAD: network[_SPREAD]},
        ),
    }
    return Reading(values, charts, _data(outcomes))


D_CAPE_4: Experiment[ReplicationOutcome] = Experiment(
    "d-cape-4",
    "equality joins: storage tokens and hash partitions that move (section 4.2, comparison 2)",
    (
        Claim(
            "as good",
            "replication does for any join what hashing does for equality joins",
            None,
            0.8,
            1.25,
            "times the output of hash partitions that move, farthest from 1",
            "the proposal does not say who yields more; both can use all memory, so a fifth less or a quarter more",
        ),
        at_most(
            "stays",
            "neither states nor partitions ever need to be moved",
            0,
            "bytes of state",
            "none",
            0,
            kind=ClaimKind.FITTED,  # the policy has no moves to ask for
        ),
        at_least(
            "bandwidth",
            "which costs a greater usage of network bandwidth",
            1.1,
            "times the bytes a second of hash partitions, with what these move, smallest",
            "a tenth more at least is to be seen",
        ),
    ),
    {
        **{_named(_ENABLED, plan): Trial(plan, "tokens") for plan in PLANS},
        **{_named(_MOVED, plan): Trial(_hashed(plan, False), "memory") for plan in PLANS},
        **{_named(_SPREAD, plan): Trial(_hashed(plan, True), "memory") for plan in PLANS},
    },
    _read_4,
)
