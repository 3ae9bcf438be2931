"""Random streams through the engine and through DuckDB: a join's answer is that of the batch join."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pyarrow as pa
from engine_harness import DirectQuery, limits
from hypothesis import strategies as st
from oracle import batch_join, final_watermarks, multiset, on_time
from specs import SECOND, rows
from wandering import Wanderer

from sluice.model.epoch.times import ENDED
from sluice.model.plan.join import JoinSpec

FAST = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def check_join(data: st.DataObject, spec: JoinSpec, values: list, where: str | None = None, epochs: int = 6) -> None:
    """Run random epochs of every stream through the engine, restarting at will, and compare with DuckDB; then end all
    streams, and compare again."""
    spread = data.draw(st.sampled_from([2 * SECOND, 40 * SECOND, 100 * 60 * SECOND]))
    step = data.draw(st.sampled_from([SECOND, 20 * SECOND, 50 * 60 * SECOND]))
    sites, partitions = data.draw(st.integers(1, 4)), data.draw(st.sampled_from([4, 7, 16]))
    limited = limits(data)
    wander = data.draw(st.booleans())
    seen: list[list[pa.Table]] = [[] for _ in spec.streams]
    with tempfile.TemporaryDirectory(dir=FAST) as directory:
        root = Path(directory)

        def start(sites: int) -> DirectQuery:
            policy = Wanderer(sites, sites) if wander else "static"
            return DirectQuery(spec, root, sites, partitions, wanted=policy, **limited)

        query = start(sites)
        late = 0
        for epoch in range(data.draw(st.integers(1, epochs))):
            new = [data.draw(rows(s, v, epoch * step, spread)) for s, v in zip(spec.streams, values, strict=True)]
            query.run(new)
            late += query.epochs.record.stats.late_rows
            for kept, table in zip(seen, new, strict=True):
                kept.append(table)
            if data.draw(st.integers(0, 3)) == 0:
                query.catch_up()
            if data.draw(st.integers(0, 3)) == 0:
                again = data.draw(st.booleans())
                query.close()
                query = start(data.draw(st.integers(1, 4)))
                if again:  # Spark asks for the last epoch again when it was not told of its commit
                    query.run(new, number=epoch)
        query.drain()
        good = [on_time(tables, s.event_time, s.delay) for tables, s in zip(seen, spec.streams, strict=True)]
        expected = batch_join(spec, [rows for rows, _ in good], where, final_watermarks(seen, spec))
        assert multiset(query.results()) == multiset(expected)
        assert late == sum(count for _, count in good)
        query.end_input()
        query.drain()
        expected = batch_join(spec, [rows for rows, _ in good], where, (ENDED,) * len(spec.streams))
        assert multiset(query.results()) == multiset(expected)
        query.close()
