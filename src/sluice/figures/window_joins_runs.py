"""What the experiments of the paper on parallel window joins run: its Table I, its policy, and charts over rates.

The policy is `elastic` as the paper has it: units are kept small by their bytes alone, and move one by one from
suppliers to consumers. Slaves split their own units at once, as the paper's do. Without tuning no unit is ever large
enough to split.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sluice.dashboard.chart import Axis, Line, Mark, chart
from sluice.dashboard.quantity import COUNT
from sluice.figures.experiment import Trial
from sluice.sim.worlds.window_joins.scenario import WindowJoinScenario
from sluice.sim.worlds.window_joins.world import WindowJoinOutcome

WindowJoinOutcomes = Mapping[str, WindowJoinOutcome]

_NEVER = 1 << 50
_AS_PUBLISHED = (("even", False), ("hot", 1e9))
TABLE_1 = WindowJoinScenario()
MEASURED = TABLE_1.seconds - TABLE_1.measured_from


def published(scenario: WindowJoinScenario, tuned: bool = True) -> Trial:
    """A run under the paper's rules, with or without fine tuning."""
    if not tuned:
        scenario = replace(scenario, name=f"{scenario.name}, not tuned", unit_size=_NEVER)
    return Trial(replace(scenario, local_tuning=True), "elastic", _AS_PUBLISHED)


def at_rate(rate: float, sites: int, **others: float) -> WindowJoinScenario:
    return replace(TABLE_1, name=f"{rate:g} tuples/s, {sites} slaves", rate=float(rate), sites=sites, **others)  # type: ignore[arg-type]


def over_rates(
    title: str, y: Axis, lines: Mapping[str, tuple[Sequence[float], Sequence[float]]], marks: Sequence[Mark] = ()
) -> str:
    """Something by the rate of each stream."""
    drawn = [Line(name, list(x), list(values)) for name, (x, values) in lines.items()]
    return chart(title, Axis("tuples a second in each stream", COUNT, low=0.0), y, drawn, marks)


def summary(one: WindowJoinOutcome) -> dict[str, object]:
    """What is kept of an outcome."""
    return {
        "delay, seconds": one.delay if one.results else None,
        "working, seconds of each slave": one.site_working[one.active],
        "communicating, seconds of each slave": one.site_communicating[one.active],
        "idle, seconds of each slave": one.site_idle[one.active],
        "slaves at the end": int(one.sites[-1]),
        "units at the end": int(one.units[-1]),
        "moves": len(one.moves),
        "bytes moved": int(one.moved_bytes),
        "splits and merges": one.redivisions,
    }
