"""What a site has once is divided among the levels of its operators: an epoch's time, by what each took before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chaos_flows import rows
from engine_harness import DirectQuery
from group_by_oracle import source
from specs import SECOND

from sluice.engine import site
from sluice.engine.level_shares import LEAST_SHARE, divide_by_need
from sluice.model.plan.planning import plan_of
from sluice.testing.clocks import CountingClock

BUDGET = 40.0


def test_an_epoch_s_time_goes_to_the_levels_by_what_each_took_in_the_epoch_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = (source(name) for name in "ab")
    pairs = a.join(b, on="k", within="9 seconds").groupBy("b_v").window("5 seconds").agg(n=("*", "count"))
    query = DirectQuery(plan_of([pairs.relation]), tmp_path, 1, 4, seconds=BUDGET, clock=CountingClock())
    assert query.plan.levels == 2
    given: list[float | None] = []
    schedule = site.UnitSchedule

    def noted(*arguments: Any) -> Any:
        given.append(next(one.seconds for one in arguments if isinstance(one, site.Limits)))
        return schedule(*arguments)

    monkeypatch.setattr(site, "UnitSchedule", noted)
    rng = np.random.default_rng(0)
    shares = divide_by_need([0, 0])  # nothing is known before the first epoch
    for epoch in range(4):
        given.clear()
        query.run([rows(rng, 200, epoch * 5 * SECOND, 5 * SECOND, 5, False) for _ in "ab"])
        assert given == pytest.approx([share * BUDGET for share in shares], abs=0.01)  # less a few looks at the clock
        operators = query.epochs.record.stats.operators
        took = dict(zip(operators.operator.tolist(), operators.seconds.tolist(), strict=True))
        shares = divide_by_need([took[0], took[1]])
        assert sum(shares) == pytest.approx(1) and min(shares) > LEAST_SHARE / 2 and shares[0] != shares[1]
    query.close()
