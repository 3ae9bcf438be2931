"""One level of operators at one site: which they are, what the site holds of their fragments, and for how long."""

from __future__ import annotations

from functools import partial

import numpy as np

from sluice.kernels.probe import Run
from sluice.model.directory import Directory
from sluice.model.epoch import Times, watermarks
from sluice.model.ids import InputNumber, Level, Site
from sluice.model.plan import Plan
from sluice.model.routing import Routing
from sluice.model.unit_ranges import Ranges, intersect, numbers, only
from sluice.operators import operator
from sluice.operators.protocol import FreezableOperator
from sluice.state.inputs import Holdings, InputLayouts, Retention
from sluice.state.segment import Layout, counts


class SiteLevel:
    """The operators of a level by their place in the plan (`nodes`), and where each input is of (`local`): its operator
    and its number there."""

    def __init__(self, plan: Plan, routing: Routing, site: Site, level: Level) -> None:
        self.plan, self.routing, self.site, self.number = plan, routing, site, level
        self.delays = tuple(s.delay for s in plan.sources)
        self.nodes = [n for n, node in enumerate(plan.nodes) if node.level == level]
        self.operators = {n: operator(plan.nodes[n].spec) for n in self.nodes}
        self.local = {g: (n, i) for n in self.nodes for i, g in enumerate(plan.inputs_of(n))}
        shared = tuple(only(sharing.unit)[0] for sharing in routing.shared if site in sharing.holders)
        self.holdings = self._holdings()
        self.shared = intersect(shared, self.holdings.units)
        """The units held here that others share."""

    @property
    def is_last(self) -> bool:
        return self.number == self.plan.levels - 1

    def directory(self, node: int) -> Directory:
        return self.routing.directories[self.plan.nodes[node].fragment]

    def count(self, input_: InputNumber, run: Run, units: Ranges) -> tuple[np.ndarray, np.ndarray]:
        """Those of some units that are of an input's fragment, and the rows that each of them has in a run."""
        directory = self.holdings.directories[input_]
        places = intersect(units, (directory.range,))
        return numbers(places), counts(run, places, directory)

    def watermarks(self, node: int, newest: Times) -> Times:
        """Those of an operator's streams where the sources have come so far."""
        return self.plan.watermarks_at(node, watermarks(newest, self.delays))

    def retention(self, since: Times, until: Times, frozen: Times | None = None) -> dict[InputNumber, Retention]:
        """How long rows of each input are needed, and how merged runs get smaller, as its operator says, where all
        units have come as far as `until` and the slowest began at `since`.

        What came after a unit was `frozen`, when the streams were there, is needed too, if nobody else can need it: it
        has not met yet what is frozen.
        """
        out = {}
        for input_, (node, i) in self.local.items():
            operator, before, after = self.operators[node], self.watermarks(node, since), self.watermarks(node, until)
            keep_from = operator.keep_from(i, before, after)
            if frozen is not None and input_ in self.holdings.freezable:
                earliest = self.watermarks(node, frozen)[self.plan.nodes[node].spec.inputs[i].stream]
                keep_from = None if keep_from is None or earliest is None else min(keep_from, earliest)
            compacted = partial(operator.compacted, i, after=after)
            out[input_] = Retention(keep_from, operator.retention, compacted, operator.shrinks)
        return out

    def _holdings(self) -> Holdings:
        """What the site has of the fragments on this level."""
        directories = {input_: self.directory(node) for input_, (node, _) in self.local.items()}
        here = tuple(self.routing.directories[f].range for f in self.plan.fragments_at(self.number))
        layouts = {input_: self._layouts(node, i) for input_, (node, i) in self.local.items()}
        held = intersect(self.routing.ranges_of(self.site), here)
        freezable = [i for i, (node, _) in self.local.items() if isinstance(self.operators[node], FreezableOperator)]
        return Holdings(layouts, held, directories, tuple(freezable))

    def _layouts(self, node: int, input_: int) -> InputLayouts:
        state = self.operators[node].stored(input_)
        return InputLayouts(state, Layout(self.operators[node].crossing(input_), state.event_time))
