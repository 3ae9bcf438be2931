"""D-CAPE proposal, section 4.1: which thresholds of saturation give most output before the first remiss state."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sluice.dashboard.heat_map import Panel, Settings, heat_map
from sluice.dashboard.quantity import ROWS
from sluice.figures.claim import Claim, ClaimKind, at_least
from sluice.figures.d_cape_plans import MANY_TO_MANY, ONE_TO_ONE, ReplicationOutcomes
from sluice.figures.experiment import Experiment, Reading, Trial
from sluice.sim.worlds.replication.scenario import ReplicationScenario
from sluice.sim.worlds.replication.world import ReplicationOutcome

LOW = (0.1, 0.15, 0.2, 0.25, 0.3)
HIGH = (0.75, 0.8, 0.85, 0.9, 0.95)


def _name(plan: ReplicationScenario, low: float, high: float) -> str:
    return f"{plan.name}, {low:g} and {high:g}"


def _runs(plans: Sequence[ReplicationScenario]) -> dict[str, Trial]:
    return {
        _name(plan, low, high): Trial(plan, "tokens", (("low", low), ("high", high)))
        for plan in plans
        for high in HIGH
        for low in LOW
    }


def _outputs(plan: ReplicationScenario, outcomes: ReplicationOutcomes) -> np.ndarray:
    """Before the first remiss state: a row for each high, a column for each low."""
    return np.array([[outcomes[_name(plan, low, high)].total for low in LOW] for high in HIGH])


def _reader(title: str, plans: Sequence[ReplicationScenario]) -> Callable[[ReplicationOutcomes], Reading]:
    def read(outcomes: ReplicationOutcomes) -> Reading:
        outputs = [_outputs(plan, outcomes) for plan in plans]
        shares = [output / max(output.max(), 1e-9) for output in outputs]
        together = np.exp(np.mean([np.log(np.maximum(share, 1e-9)) for share in shares], axis=0))
        row, column = np.unravel_index(int(together.argmax()), together.shape)
        values = {
            "impact": min(float(output.max() / max(output.min(), 1e-9)) for output in outputs),
            "one for all": min(float(share[row, column]) for share in shares),
            "remiss": float(np.mean([one.remiss is not None for one in outcomes.values()])),
        }
        panels = [
            Panel(f"{plan.name}: 100 is {ROWS.text(float(output.max()))}", output.tolist())
            for plan, output in zip(plans, outputs, strict=True)
        ]
        low, high = (Settings(name, [f"{v:g}" for v in vs]) for name, vs in (("low", LOW), ("high", HIGH)))
        note = "results before the first remiss state, in percent of the plan's best pair of thresholds"
        data = {
            "low": LOW,
            "high": HIGH,
            "best pair": {"low": LOW[int(column)], "high": HIGH[int(row)]},
            "share of the best, geometric mean of the plans": together,
            "output": {plan.name: output for plan, output in zip(plans, outputs, strict=True)},
        }
        return Reading(values, {"": heat_map(title, low, high, panels, note)}, data)

    return read


def _claims() -> tuple[Claim, ...]:
    return (
        at_least(
            "impact",
            "the thresholds are expected to majorly impact performance",
            1.1,
            "times the output of the worst pair with the best, of the plan where it matters least",
            "10 % at least for what is called major",
        ),
        at_least(
            "one for all",
            "optimal thresholds can be determined, to be used from then on",
            0.95,
            "of the output of a plan's own best pair with the pair that is best for all, smallest",
            "one pair is used in all comparisons; 5 % is what that may cost a plan",
        ),
        at_least(
            "remiss",
            "every plan is large enough for an eventual remiss state",
            1.0,
            "of the runs",
            "all",
            1,
            kind=ClaimKind.FITTED,  # memory was chosen so
        ),
    )


D_CAPE_1: Experiment[ReplicationOutcome] = Experiment(
    "d-cape-1",
    "thresholds low 0.10 to 0.30 and high 0.75 to 0.95, plans of 3, 5 and 7 joins 1:1 (section 4.1, test 1)",
    _claims(),
    _runs(ONE_TO_ONE),
    _reader("Thresholds of memory saturation, joins 1:1", ONE_TO_ONE),
)

D_CAPE_2: Experiment[ReplicationOutcome] = Experiment(
    "d-cape-2",
    "the same thresholds, plans of 2, 3 and 4 joins n:m (section 4.1, test 2)",
    _claims(),
    _runs(MANY_TO_MANY),
    _reader("Thresholds of memory saturation, joins n:m", MANY_TO_MANY),
)
