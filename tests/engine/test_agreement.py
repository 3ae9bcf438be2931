"""All sites of an epoch take in what the same attempts at its tasks sent, or the epoch is run again as a whole.

Spark makes blobs that a lost executor took with it again, for the sites that still need them. Whether it notices that
they are different ones depends on its settings; these tests stand for a Spark that does not.
"""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from engine_harness import DirectQuery
from oracle import batch_join, multiset
from specs import SECOND, TIME, handle, join, stream

from sluice.engine.agreement import MAX_JOB_RUNS
from sluice.engine.blobs import SentBlob
from sluice.model.errors import SluiceError
from sluice.model.plan.planning import plan_of

A, B = stream("a"), stream("b")


def rows(keys: range) -> list[pa.Table]:
    """One row of each key in both streams."""
    times = pa.array([SECOND] * len(keys), TIME)
    return [pa.table([list(keys), times, list(keys)], schema=s.schema) for s in (A, B)]


def mixed(first: list[SentBlob], second: list[SentBlob], site_key: int) -> list[SentBlob]:
    """One site's blobs of the first attempt, all others' of the second."""
    return [*(blob for blob in first if blob[0] == site_key), *(blob for blob in second if blob[0] != site_key)]


class Unsteady(DirectQuery):
    """Loses blobs in the first of an epoch's jobs, `losses` times: a site gets those of a second attempt at a task."""

    losses = 0
    jobs = 0

    def split(self, split, rows):
        """A split whose second attempt sends other rows, as one of a user's own source may."""
        self.jobs += 1
        sent = super().split(split, rows)
        if self.losses < self.jobs:
            return sent
        other = super().split(split, [table.slice(0, table.num_rows // 2) for table in rows])
        return mixed(sent, other, self.site_keys[0])


def test_sites_that_got_blobs_of_different_attempts_at_a_split_commit_nothing(tmp_path):
    spec = join([A, B])
    query = Unsteady(spec, tmp_path)
    query.losses = 2
    query.run(rows(range(100)))
    assert query.jobs == 3
    assert multiset(query.results()) == multiset(batch_join(spec, rows(range(100))))
    query.close()


def test_an_epoch_that_never_comes_through_whole_ends_the_query(tmp_path):
    query = Unsteady(join([A, B]), tmp_path)
    query.losses = MAX_JOB_RUNS
    with pytest.raises(SluiceError, match="executors are lost while it runs"):
        query.run(rows(range(100)))
    assert query.epochs.record.number == -1 and query.results().num_rows == 0
    query.run(rows(range(100)))
    assert query.results().num_rows == 100
    query.close()


class LosesResults(DirectQuery):
    """In the first job, what site 0 sent is lost when site 0 is at the next level already: site 1 gets what a second
    attempt sent."""

    jobs = 0

    def at_site(self, task, level, site_key, blobs):
        first = super().at_site(task, level, site_key, blobs)
        self.jobs += level == 0 and site_key == self.site_keys[0]
        if level or site_key != self.site_keys[0] or self.jobs > 1:
            return first
        second = super().at_site(task, level, site_key, blobs)
        return mixed(first, second, self.site_keys[0])


def test_nor_do_sites_that_got_results_of_different_attempts_at_a_level_below(tmp_path):
    a, b = handle(A), handle(B)
    counts = a.join(b, on="k", within="5 seconds").groupBy("a_v").last(2).agg(n=("*", "count"))
    query = LosesResults(plan_of([counts.relation]), tmp_path)
    query.run(rows(range(100)))
    assert query.jobs == 2
    assert Counter(query.results()["a_v"].to_pylist()) == Counter(range(100))
    query.close()
