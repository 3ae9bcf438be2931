"""Sites that split an epoch's rows themselves, each for itself, find what they find with an exchange."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from engine_harness import DirectQuery
from oracle import batch_join, multiset
from specs import SECOND, TIME, handle, join, stream

from sluice.engine.small_epochs import can_skip_exchange, take_own
from sluice.model.errors import SluiceError
from sluice.model.plan.planning import plan_of

A, B = stream("a"), stream("b")


class WithoutExchange(DirectQuery):
    """Every site is given all rows, and what any other sends is lost."""

    jobs = 0
    astray = 0
    """In how many jobs the last site reads other rows than the others."""

    def split(self, split, rows):
        self.jobs += 1
        self.given = split, rows
        return []

    def at_site(self, task, level, site_key, blobs):
        split, rows = self.given
        if site_key == self.site_keys[-1] and self.jobs <= self.astray:
            rows = [table.slice(1) for table in rows]
        own = take_own(DirectQuery.split(self, split, rows), site_key)
        return super().at_site(task, level, site_key, own)


def rows(epoch: int) -> list[pa.Table]:
    rng = np.random.default_rng(epoch)
    times = pa.array(epoch * SECOND + np.sort(rng.integers(0, SECOND, 60)), TIME)
    return [pa.table([rng.integers(0, 20, 60), times, np.arange(60)], schema=s.schema) for s in (A, B)]


@pytest.mark.parametrize("sites", [1, 3])
def test_the_answer_is_the_same(tmp_path, sites):
    spec = join([A, B])
    query = WithoutExchange(spec, tmp_path, sites=sites)
    for epoch in range(3):
        query.run(rows(epoch))
    tables = [pa.concat_tables(tables) for tables in zip(*map(rows, range(3)), strict=True)]
    assert multiset(query.results()) == multiset(batch_join(spec, tables))
    assert query.jobs == 3 and query.epochs.record.stats.rows_in == 120
    query.close()


def test_sites_that_have_read_different_rows_do_not_commit(tmp_path):
    spec = join([A, B])
    query = WithoutExchange(spec, tmp_path)
    query.astray = 2
    query.run(rows(0))
    assert query.jobs == 3
    assert multiset(query.results()) == multiset(batch_join(spec, rows(0)))
    query.astray = 100
    with pytest.raises(SluiceError, match="different attempts"):
        query.run(rows(1))
    query.close()


def test_where_it_is_done():
    pairs = handle(A).join(handle(B), on="k", within="2 seconds")
    chain = pairs.groupBy("b_v").last(2).agg(n=("*", "count"))
    to_sink = [pairs.relation, handle(A).where("v > 3").relation]
    assert can_skip_exchange(plan_of([pairs.relation]), 4)
    assert not can_skip_exchange(plan_of([chain.relation]), 2) and can_skip_exchange(plan_of([chain.relation]), 1)
    assert not can_skip_exchange(plan_of(to_sink), 2) and can_skip_exchange(plan_of(to_sink), 1)
