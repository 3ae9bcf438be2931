"""What came out of simulated runs, as text: a line a run, and what was decided when and why."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sluice.dashboard.quantity import BYTES, COUNT, LATENCY, ROWS, ROWS_PER_SECOND, SECONDS, SHARE
from sluice.dashboard.terminal_style import align_columns
from sluice.sim.outcome import Measure, Outcome, TimedDecision, TimedMove
from sluice.sim.scenario_file import Comparison, Trial

SHOWN = 20
QUANTITIES = {
    "bytes": BYTES,
    "count": COUNT,
    "latency": LATENCY,
    "rows": ROWS,
    "rows a second": ROWS_PER_SECOND,
    "seconds": SECONDS,
    "share": SHARE,
}
"""What the measures and curves of a simulation are in."""


def heading(comparison: Comparison) -> str:
    """The scenario in a line or two."""
    scenario = comparison.scenario
    cluster = f"{scenario.name}: {scenario.summary}, {scenario.seconds:g} seconds, seed {scenario.seed}"
    return f"{cluster}\n{comparison.about}" if comparison.about else cluster


def table(outcomes: Sequence[tuple[Trial, Outcome]]) -> str:
    """A line a run."""
    headings = ("policy", *(measure.heading for measure in outcomes[0][1].measures))
    rows = [headings, *((trial.label, *map(_text, outcome.measures)) for trial, outcome in outcomes)]
    return "\n".join(line[2:] for line in align_columns(rows, words={0}))


def decisions_text(label: str, outcome: Outcome, every: bool) -> str:
    """The time line of a run's decisions: the first of them, or every one."""
    decisions = outcome.timeline
    if not decisions:
        return f"{label}: nothing was decided"
    shown = decisions if every else decisions[:SHOWN]
    left = len(decisions) - len(shown)
    rest = [f"  … and {left:,} more (--decisions shows all)"] if left else []
    count = f"{len(decisions):,} decision{'s' if len(decisions) > 1 else ''}"
    return "\n".join([f"{label}: {count}", *(f"  {one.time:8.3f} s  {_line(one)}" for one in shown), *rest])


def _line(one: TimedMove | TimedDecision) -> str:
    if isinstance(one, TimedMove):
        under_way = "; still under way at the end" if one.done is None else ""
        return f"unit {one.unit} from site {one.source} to {one.target}: {one.reason}{under_way}"
    unit = "" if one.unit is None else f" unit {one.unit}"
    site = "" if one.site is None else f", site {one.site}"
    return f"{one.action}{unit}{site}: {one.reason}"


def _text(measure: Measure) -> str:
    return "none" if math.isnan(measure.value) else QUANTITIES[measure.unit].text(measure.value)
