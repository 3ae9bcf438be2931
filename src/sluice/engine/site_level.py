"""One level of operators at one site: which they are, what the site holds of their fragments, and for how long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from sluice.engine.compiled_plan import compiled
from sluice.kernels.probe import Run
from sluice.model.epoch.table_version import TableVersion
from sluice.model.epoch.times import Times, slowest, watermarks
from sluice.model.ids import Fragment, InputNumber, Level, Site
from sluice.model.lazy_mapping import LazyMapping
from sluice.model.plan.origin_watermarks import OriginWatermarks
from sluice.model.plan.plan import Plan
from sluice.model.plan.table_lookup import version_bound
from sluice.model.routing.directory import Directory
from sluice.model.routing.routing import Routing
from sluice.model.routing.unit_ranges import Ranges, intersect, numbers, single_unit
from sluice.operators.protocol import FreezableOperator, Operator
from sluice.state.inputs import KEEPS_ALL, Holdings, Retention
from sluice.state.scheduling import Cohort
from sluice.state.segment import counts


class SiteLevel:
    """The operators of a level of which the site holds units, by their place in the plan (`nodes`), and the readers of
    each state of the level (`readers`). Most of many operators have nothing to do in an epoch: what is only needed for
    those that have is worked out when it is asked for."""

    def __init__(
        self, plan: Plan, routing: Routing, site: Site, level: Level, tables: Sequence[TableVersion] = ()
    ) -> None:
        """`tables` says which content those have that are state."""
        self._contents = {version.state: version_bound(version.since) for version in tables}
        self.plan, self.routing, self.site, self.number = plan, routing, site, level
        self.compiled = compiled(plan)
        self.readers = self.compiled.readers[level]
        self.holdings = self._holdings()
        self.nodes = sorted({reader.node for input_ in self.holdings.layouts for reader in self.readers[input_]})
        self.operators: Mapping[int, Operator] = LazyMapping(self.nodes, self.compiled.operator)
        self.by_time = [node for node in self.nodes if node in self.compiled.by_time]
        """The operators that may have results without new rows."""
        self.tables = [node for node in self.nodes if node in self.compiled.tables]
        """The operators of which all is shown after each epoch."""
        shared = tuple(single_unit(routing.index_of(unit.unit))[0] for unit in routing.shared if site in unit.holders)
        self.shared = intersect(shared, self.holdings.units)
        """The units held here that others share."""
        self._delays = tuple(s.delay for s in plan.sources)
        self._watermarks: dict[Times, OriginWatermarks] = {}
        self._same_bounds: dict[int, np.ndarray] = {}

    @property
    def is_last(self) -> bool:
        return self.number == self.plan.levels - 1

    def directory(self, node: int) -> Directory:
        return self.routing.directories[self.plan.nodes[node].fragment]

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
        if newest not in self._watermarks:
            self._watermarks[newest] = OriginWatermarks(self.plan, watermarks(newest, self._delays))
        return self._watermarks[newest].at(node)

    def retention(self, reached: Sequence[Cohort], frozen: Sequence[Cohort] = ()) -> Mapping[InputNumber, Retention]:
        """How long rows of each input are needed, and how merged runs get smaller, as its readers say of each unit: by
        how far it has `reached`.

        Units with `frozen` state are judged by where the streams were then. What came after is needed too, if nobody
        else can need it: it has not met yet what is frozen.
        """
        frozen = [cohort for cohort in frozen if cohort[0]]
        reached_at, frozen_at = (_cohort_of(cohorts, self.holdings.unit_numbers) for cohorts in (reached, frozen))

        def of(input_: InputNumber) -> Retention:
            operator, _ = self.compiled.first_reader(input_)
            cold = frozen if input_ in self.compiled.freezable else ()
            compacting = tuple((units, partial(self._compact, input_, newest)) for units, newest in reached)
            if len(compacting) > 1:
                here = self.holdings.units_of(input_)
                compacting = tuple((own, compact) for units, compact in compacting if (own := intersect(units, here)))
            return Retention(
                self.holdings.directories[input_],
                self._keep_from(input_, reached, reached_at, cold, frozen_at),
                compacting,
                self.compiled.time_kept(input_),
                operator.shrinks,
            )

        return LazyMapping(self.holdings.inputs, of)

    def _compact(self, input_: InputNumber, reached: Times, run: Run) -> Run:
        """A merged run of units that have come so far with fewer rows that mean the same."""
        operator, number = self.compiled.first_reader(input_)
        return operator.compact(number, run, self.watermarks(self.readers[input_][0].node, reached))

    def _keep_from(
        self,
        input_: InputNumber,
        reached: Sequence[Cohort],
        reached_at: np.ndarray,
        frozen: Sequence[Cohort],
        frozen_at: np.ndarray,
    ) -> np.ndarray:
        """From which time on each unit needs rows of an input; the latest such time for units that are not held."""
        if len(reached) == 1 and not frozen:
            return self._keep_all_from(self._bound(input_, reached[0][1], None))
        held = numbers(self.holdings.units_of(input_))
        frozen_since = [None, *(newest for _, newest in frozen)]
        cold_at = frozen_at[held] + 1 if frozen else 0
        pairs, pair_of = np.unique(reached_at[held] * len(frozen_since) + cold_at, return_inverse=True)
        places = (divmod(pair, len(frozen_since)) for pair in pairs.tolist())
        bounds = [self._bound(input_, reached[at][1], frozen_since[cold]) for at, cold in places]
        keep_from = np.full(self.holdings.unit_numbers, max(bounds, default=KEEPS_ALL))
        keep_from[held] = np.array(bounds, dtype=np.int64)[pair_of]
        return keep_from

    def _keep_all_from(self, bound: int) -> np.ndarray:
        """The same time for all units; many inputs have the same one."""
        if bound not in self._same_bounds:
            self._same_bounds[bound] = np.full(self.holdings.unit_numbers, bound)
        return self._same_bounds[bound]

    def _bound(self, input_: InputNumber, reached: Times, frozen: Times | None) -> int:
        """From which time on rows of an input are needed by units that have come so far, and were frozen there: the
        earliest that any of its readers needs. Of a table it is the content that the epoch has."""
        if input_ in self.plan.divided_tables:
            return self._contents[self.plan.name_state(input_)]
        bounds = []
        for node, i in self.readers[input_]:
            before = self.watermarks(node, reached if frozen is None else slowest([reached, frozen]))
            bounds.append(self.operators[node].keep_from(i, before))
            if frozen is not None:
                bounds.append(self.watermarks(node, frozen)[self.plan.nodes[node].spec.inputs[i].stream])
        return min(KEEPS_ALL if bound is None else bound for bound in bounds)

    def _holdings(self) -> Holdings:
        """What the site has of the fragments on this level."""
        of_level = self.compiled.fragments[self.number]
        units_held = intersect(
            self.routing.ranges_of(self.site), tuple(self.routing.directories[f].range for f in of_level)
        )
        fragments = self._fragments_of(units_held)
        held = tuple(input_ for fragment in of_level if fragment in fragments for input_ in of_level[fragment])
        return Holdings(
            LazyMapping(held, self.compiled.layouts),
            units_held,
            LazyMapping(held, lambda input_: self.routing.directories[self.plan.inputs[input_].fragment]),
            tuple(input_ for input_ in held if input_ in self.compiled.freezable),
        )

    def _fragments_of(self, units: Ranges) -> set[Fragment]:
        """The fragments that these units are of."""
        ends = np.array([directory.range[1] for directory in self.routing.directories])
        return set(np.unique(np.searchsorted(ends, numbers(units), side="right")).tolist())


def _cohort_of(cohorts: Sequence[Cohort], units: int) -> np.ndarray:
    """The place of the cohort that has each unit, -1 where none has."""
    places = np.full(units, -1)
    for place, (members, _) in enumerate(cohorts):
        places[numbers(members)] = place
    return places
