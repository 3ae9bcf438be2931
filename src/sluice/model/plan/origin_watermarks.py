"""How far the rows of every origin of a plan have come, given how far those of the sources have."""

from __future__ import annotations

from sluice.model.epoch.times import Times, least_time
from sluice.model.plan.plan import Plan


class OriginWatermarks:
    """The watermarks of origins, worked out for those that are asked for: there may be hundreds."""

    def __init__(self, plan: Plan, sources: Times) -> None:
        self._plan = plan
        self._by_origin: dict[int, int | None] = dict(enumerate(sources))
        self._by_node: dict[int, Times] = {}

    def at(self, node: int) -> Times:
        """Those of an operator's streams."""
        if node not in self._by_node:
            self._by_node[node] = tuple(
                least_time(self._of(feed.origin) for feed in inflow) for inflow in self._plan.nodes[node].inflows
            )
        return self._by_node[node]

    def _of(self, origin: int) -> int | None:
        if origin not in self._by_origin:
            node = origin - len(self._plan.sources)
            self._by_origin[origin] = self._plan.nodes[node].spec.watermark(self.at(node))
        return self._by_origin[origin]
