"""What a flow runs: its plan, and the sinks that its queries' results go to."""

from __future__ import annotations

from dataclasses import dataclass

from sluice.engine.delivery import Sink
from sluice.model.plan.layout import PlanLayout
from sluice.model.plan.plan import Plan
from sluice.model.plan.recorded_plan import RecordedOperator, RecordedPlan, RecordedQuery


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
            RecordedQuery(
                name=output.name,
                structure=plan.structure_of(number),
                says=plan.describe_output(number),
                sink=sink.kind,
                shown=sink.shown,
                origin=output.feed.origin,
            )
            for number, (output, sink) in enumerate(zip(plan.outputs, self.sinks, strict=True))
        ]
        operators = [
            RecordedOperator(
                structure=node.structure,
                says=node.spec.describe().split("\n")[0],
                origins=tuple(feed.origin for feed in node.feeds),
                states=node.inputs,
                level=node.level,
                fragment=node.fragment,
            )
            for node in plan.nodes
        ]
        sources = tuple(source.name for source in plan.sources)
        return RecordedPlan(
            queries=tuple(queries),
            says=plan.describe(),
            timeZone=plan.time_zone,
            sources=sources,
            operators=tuple(operators),
            nextLabel=plan.next_label,
            layout=PlanLayout.of(plan),
        )
