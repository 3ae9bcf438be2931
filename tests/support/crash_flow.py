"""The flow that crash tests kill: pairs of two streams, and the newest pairs of each key."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
from engine_harness import DirectQuery
from oracle import multiset
from specs import SECOND, TIME, handle, join, stream

from sluice.model.plan.planning import plan_of

A, B = stream("a"), stream("b")
SPEC = join([A, B], 16 * SECOND)
PAIRS = handle(A).join(handle(B), on="k", within="16 seconds")
NEWEST = PAIRS.groupBy("a_k").last(3).agg(n=("*", "count"))
PLAN = plan_of([PAIRS.relation, NEWEST.relation])
KEEP = 8  # epochs before the one that crashes, so that a merge is part of it


def epoch_rows(epoch: int) -> list[pa.Table]:
    rng = np.random.default_rng(epoch)
    out = []
    for s in (A, B):
        times = epoch * 2 * SECOND + np.sort(rng.integers(0, 2 * SECOND, 24))
        out.append(pa.table([rng.integers(0, 9, 24), pa.array(times, TIME), rng.integers(0, 9, 24)], schema=s.schema))
    return out


def found_by(query: DirectQuery) -> list[Counter]:
    query.drain()
    return [multiset(query.results(output)) for output in (0, 1)]
