"""A query run through random epochs and disturbed at will, held against the batch query."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from engine_harness import DirectQuery
from hypothesis import strategies as st
from oracle import batch_join, multiset, on_time
from specs import SECOND
from wandering import Wanderer

from sluice.model.plan.join import JoinSpec
from sluice.model.plan.stream import Stream
from sluice.verbs import Action

PARTITIONS = 4
FAST = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
MakeRows = Callable[[Stream, int, int], pa.Table]
"""New rows of a stream, near a point in time and with so much spread."""


def check(
    data: st.DataObject,
    spec: JoinSpec,
    make_rows: MakeRows,
    asked: Callable[[DirectQuery], list[Action]],
    limited: dict[str, Any],
    where: str | None = None,
    epochs: int = 6,
    by_name: str = "static",
) -> None:
    """Epochs with new rows and what is `asked` for, in `limited` memory and time, now and then one that only catches
    up, or a restart on another number of sites; what came of it is the batch query, each result once."""
    spread = data.draw(st.sampled_from([2 * SECOND, 40 * SECOND, 100 * 60 * SECOND]))
    step = data.draw(st.sampled_from([SECOND, 20 * SECOND, 50 * 60 * SECOND]))
    wander = data.draw(st.booleans())
    seen: list[list[pa.Table]] = [[] for _ in spec.streams]
    with tempfile.TemporaryDirectory(dir=FAST) as directory:

        def start() -> DirectQuery:
            sites = data.draw(st.integers(1, 4))
            wanted = Wanderer(sites, sites) if wander else by_name
            return DirectQuery(spec, Path(directory), sites, PARTITIONS, wanted=wanted, **limited)

        query = start()
        for epoch in range(data.draw(st.integers(1, epochs))):
            new = [make_rows(s, epoch * step, spread) for s in spec.streams]
            for kept, table in zip(seen, new, strict=True):
                kept.append(table)
            for action in asked(query):
                query.epochs.settings.controller.ask(action)
            query.run(new)
            if data.draw(st.integers(0, 3)) == 0:
                if data.draw(st.booleans()):
                    query.epochs.clean_up()
                query.catch_up()
            if data.draw(st.integers(0, 3)) == 0:
                query.close()
                query = start()
        query.drain()
        good = [on_time(tables, s.event_time, s.delay)[0] for tables, s in zip(seen, spec.streams, strict=True)]
        assert multiset(query.results()) == multiset(batch_join(spec, good, where))
        assert not query.epochs.record.missing_units
        query.close()
