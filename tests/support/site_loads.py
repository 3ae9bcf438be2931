"""Sites under a policy, round by round, with nothing but arithmetic: rows come in, results are found, a policy sees
what that made of the sites and its actions hold from the next round on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sluice.control.round_history import RoundHistory
from sluice.model.epoch.stats import Slices
from sluice.model.plan.plan import Capabilities
from sluice.model.routing.routing import Routing
from sluice.model.view import ClusterView, Period, SharedUnits
from sluice.policies import Policy
from sluice.verbs import Action
from sluice.verbs.base import Situation
from sluice.verbs.move import Move

ROW_BYTES = 100


class SiteLoads:
    """Units of one join, spread evenly; all have a hundred rows of each input a round and as many results, but for the
    one that is hot. Counts vary by `noise`, a result costs `result_cost` rows, a round costs a site `overhead` rows.
    Sites begin with the speed 1."""

    def __init__(
        self,
        policy: Policy,
        sites: int,
        units: int,
        seed: int = 0,
        noise: float = 0.1,
        result_cost: float = 1.0,
        overhead: float = 0.0,
        memory: int = 1 << 40,
    ) -> None:
        self.policy, self.memory = policy, memory
        self.rng, self.noise = np.random.default_rng(seed), noise
        self.result_cost, self.overhead = result_cost, overhead
        self.routing, self.capabilities = Routing.even(units, sites), Capabilities(shareable={0: (0, 1)})
        self.hot, self.heat = 0, (100.0, 100.0, 100.0)
        self.speed, self.history = np.ones(sites), RoundHistory()
        self.imbalance = self.busiest = 1.0

    def run(self, rounds: int) -> list[Action]:
        """What was done in so many rounds; all that the policy asks for can be done."""
        done: list[Action] = []
        for _ in range(rounds):
            for action in self.policy.decide(self.history.complete(self.view())):
                assert action.refuse(Situation(self.routing, self.capabilities)) is None, action
                if isinstance(action, Move):
                    self.routing = self.routing.with_move(action.unit, action.site, since=0)
                else:
                    self.routing = action.apply(self.routing, self.capabilities.shareable[0], since=0)
                done.append(action)
        return done

    def view(self) -> ClusterView:
        """A round, as a policy sees it afterwards."""
        sites, units = self.routing.sites, self.routing.units
        rows, first, results, size = np.zeros((4, units), dtype=np.int64)
        work = np.full(sites, self.overhead)
        slices = []
        for unit in range(units):
            counts = np.array(self.heat if unit == self.hot else (100.0, 100.0, 100.0))
            *came, found = (counts * (1 + self.noise * self.rng.uniform(-1, 1, 3))).tolist()
            sharing = self.routing.sharing(unit)
            holders, lines = self.routing.holders_of(unit), sharing.grid_shape if sharing else (1, 1)
            each = [count / line for count, line in zip(came, lines, strict=True)]
            rows[unit], first[unit], results[unit] = sum(each) * len(holders), each[0] * len(holders), found
            size[unit] = rows[unit] * ROW_BYTES
            for site in sorted(holders):
                work[site] += sum(each) + found / len(holders) * self.result_cost
                if sharing:
                    part = (sum(each), found / len(holders), sum(each) * ROW_BYTES)
                    slices.append((unit, site, *map(int, part)))
        work /= self.speed
        self.imbalance, self.busiest = float(work.max() / work.mean()), float(work.max())
        return replace(
            ClusterView.at_rest(self.routing.holders, [self.memory] * sites)
            .with_units(rows=rows, first_rows=first, results=results, bytes=size, memory=size, inputs=np.full(units, 2))
            .with_sites(idle=work.max() - work),
            period=Period(working_seconds=float(work.max())),
            shared=SharedUnits(
                self.routing.shared,
                slices=Slices(*map(np.array, zip(*slices, strict=True))) if slices else Slices.none(),
            ),
        )
