"""One level of operators at one site: which they are, what the site holds of their fragments, and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from sluice.engine.compiled_plan import compiled
from sluice.kernels.probe import Run
from sluice.model.epoch.times import Times, slowest, watermarks
from sluice.model.ids import InputNumber, Level, Site
from sluice.model.plan.plan import Plan
from sluice.model.routing.directory import Directory
from sluice.model.routing.routing import Routing
from sluice.model.routing.unit_ranges import Ranges, intersect, numbers, single_unit
from sluice.operators.protocol import FreezableOperator, Operator
from sluice.state.inputs import KEEPS_ALL, Holdings, InputLayouts, Retention
from sluice.state.scheduling import Cohort
from sluice.state.segment import Layout, counts


class SiteLevel:
    """The operators of a level by their place in the plan (`nodes`), and the readers of each state (`readers`)."""

    def __init__(self, plan: Plan, routing: Routing, site: Site, level: Level) -> None:
        self.plan, self.routing, self.site, self.number = plan, routing, site, level
        self.delays = tuple(s.delay for s in plan.sources)
        self.nodes = [n for n, node in enumerate(plan.nodes) if node.level == level]
        self.compiled = compiled(plan)
        self.operators = {n: self.compiled.operator(n) for n in self.nodes}
        self.readers = {
            InputNumber(number): state.readers for number, state in enumerate(plan.inputs) if state.level == level
        }
        shared = tuple(single_unit(routing.index_of(unit.unit))[0] for unit in routing.shared if site in unit.holders)
        self.holdings = self._holdings()
        self.shared = intersect(shared, self.holdings.units)
        """The units held here that others share."""

    @property
    def is_last(self) -> bool:
        return self.number == self.plan.levels - 1

    def directory(self, node: int) -> Directory:
        return self.routing.directories[self.plan.nodes[node].fragment]

    def first_reader(self, input_: InputNumber) -> tuple[Operator, int]:
        """The operator that stands for all that read a state where they do the same, and the input's number there."""
        node, number = self.readers[input_][0]
        return self.operators[node], number

    def time_kept(self, input_: InputNumber) -> int | None:
        """For how long, in its own time, rows of a state may be needed by any of its readers; None is for good."""
        times = [self.operators[reader.node].retention for reader in self.readers[input_]]
        return None if None in times else max(time for time in times if time is not None)

    def expires(self, input_: InputNumber) -> bool:
        """Whether all that read the state of a join need its rows for a bounded time only."""
        joins = ((self.operators[reader.node], reader.input) for reader in self.readers[input_])
        return all(isinstance(join, FreezableOperator) and join.expires(number) for join, number in joins)

    def count(self, input_: InputNumber, run: Run, units: Ranges) -> tuple[np.ndarray, np.ndarray]:
        """Those of some units that are of an input's fragment, and the rows that each of them has in a run."""
        directory = self.holdings.directories[input_]
        places = intersect(units, (directory.range,))
        return numbers(places), counts(run, places, directory)

    def watermarks(self, node: int, newest: Times) -> Times:
        """Those of an operator's streams where the sources have come so far."""
        return self.plan.watermarks_at(node, watermarks(newest, self.delays))

    def retention(
        self, begun: Sequence[Cohort], reached: Sequence[Cohort], frozen: Sequence[Cohort] = ()
    ) -> dict[InputNumber, Retention]:
        """How long rows of each input are needed, and how merged runs get smaller, as its readers say of each unit: by
        where it had `begun` and how far it has `reached`.

        Units with `frozen` state are judged by where the streams were then. What came after is needed too, if nobody
        else can need it: it has not met yet what is frozen.
        """
        out = {}
        for input_, readers in self.readers.items():
            node, (operator, i) = readers[0].node, self.first_reader(input_)
            directory = self.directory(node)
            here = intersect(self.holdings.units, (directory.range,))
            compacting = [
                (intersect(units, here), partial(operator.compact, i, after=self.watermarks(node, newest)))
                for units, newest in reached
            ]
            out[input_] = Retention(
                directory,
                self._keep_from(input_, numbers(here), begun, frozen if input_ in self.holdings.freezable else ()),
                tuple((units, compact) for units, compact in compacting if units),
                self.time_kept(input_),
                operator.shrinks,
            )
        return out

    def _keep_from(
        self, input_: InputNumber, held: np.ndarray, begun: Sequence[Cohort], frozen: Sequence[Cohort]
    ) -> np.ndarray:
        """From which time on each unit needs rows of an input; the latest such time for units that are not held."""
        begun_at, frozen_at = (_cohort_of(cohorts, self.holdings.unit_numbers)[held] for cohorts in (begun, frozen))
        frozen_since = [None, *(newest for _, newest in frozen)]
        pairs, pair_of = np.unique(begun_at * len(frozen_since) + frozen_at + 1, return_inverse=True)
        places = (divmod(pair, len(frozen_since)) for pair in pairs.tolist())
        bounds = [self._bound(input_, begun[at][1], frozen_since[cold]) for at, cold in places]
        keep_from = np.full(self.holdings.unit_numbers, max(bounds, default=KEEPS_ALL))
        keep_from[held] = np.array(bounds, dtype=np.int64)[pair_of]
        return keep_from

    def _bound(self, input_: InputNumber, begun: Times, frozen: Times | None) -> int:
        """From which time on rows of an input are needed by units that had begun there, and were frozen there: the
        earliest that any of its readers needs."""
        bounds = []
        for node, i in self.readers[input_]:
            before = self.watermarks(node, begun if frozen is None else slowest([begun, frozen]))
            bounds.append(self.operators[node].keep_from(i, before))
            if frozen is not None:
                bounds.append(self.watermarks(node, frozen)[self.plan.nodes[node].spec.inputs[i].stream])
        return min(KEEPS_ALL if bound is None else bound for bound in bounds)

    def _holdings(self) -> Holdings:
        """What the site has of the fragments on this level."""
        directories = {input_: self.directory(readers[0].node) for input_, readers in self.readers.items()}
        here = tuple(self.routing.directories[f].range for f in self.plan.fragments_at(self.number))
        layouts = {input_: self._layouts(*self.first_reader(input_)) for input_ in self.readers}
        units_held = intersect(self.routing.ranges_of(self.site), here)
        freezable = [i for i in self.readers if isinstance(self.first_reader(i)[0], FreezableOperator)]
        return Holdings(layouts, units_held, directories, tuple(freezable))

    def _layouts(self, operator: Operator, input_: int) -> InputLayouts:
        state = operator.state_layout(input_)
        return InputLayouts(state, Layout(operator.exchange_schema(input_), state.event_time))


def _cohort_of(cohorts: Sequence[Cohort], units: int) -> np.ndarray:
    """The place of the cohort that has each unit, -1 where none has."""
    places = np.full(units, -1)
    for place, (members, _) in enumerate(cohorts):
        places[numbers(members)] = place
    return places
