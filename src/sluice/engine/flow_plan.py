"""What a flow runs: its plan, and the sinks that its queries' results go to."""

from __future__ import annotations

from dataclasses import dataclass

from sluice.engine.delivery import Sink
from sluice.model.plan.plan import Plan
from sluice.model.plan.recorded_plan import RecordedPlan, RecordedQuery


@dataclass(frozen=True)
class FlowPlan:
    """A plan, with a sink for each of its outputs."""

    plan: Plan
    sinks: tuple[Sink, ...]

    @property
    def recorded(self) -> RecordedPlan:
        """As a checkpoint has it."""
        plan = self.plan
        queries = [
            RecordedQuery(output.name, plan.structure_of(number), plan.describe_output(number), sink.kind, sink.shown)
            for number, (output, sink) in enumerate(zip(plan.outputs, self.sinks, strict=True))
        ]
        return RecordedPlan(tuple(queries), plan.describe(), plan.time_zone)
