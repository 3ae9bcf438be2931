"""Units with several holders: whoever stores what, the answer is the batch query's, and each result comes once."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from disturbed import FAST
from disturbed import check as check_disturbed
from engine_harness import DirectQuery, limits
from holders import sharing_by_hand
from hypothesis import given
from hypothesis import strategies as st
from oracle import batch_join, multiset, on_time
from specs import SECOND, TIME, join, rows, self_join, stream

from sluice.control import copying
from sluice.control.controller import Controller
from sluice.model.durations import LONGEST
from sluice.model.plan.join import JoinSpec
from sluice.testing.drawn_actions import draw_sharing
from sluice.verbs.freeze import Freeze
from sluice.verbs.move import Move
from sluice.verbs.share import LayOut, Release, Share, SharingPhase, SharingProtocol
from sluice.verbs.split import Split

delays = st.sampled_from([0, 5 * SECOND, 60 * SECOND, None])


def check(data: st.DataObject, spec: JoinSpec, where: str | None = None) -> None:
    check_disturbed(
        data,
        spec,
        lambda s, around, spread: data.draw(rows(s, st.integers(0, 3), around, spread)),
        lambda query: sharing_by_hand(data, query),
        limits(data),
        where,
    )


@given(st.data(), st.sampled_from([10 * SECOND, LONGEST, (0, 20 * SECOND)]), delays, delays)
def test_two_streams(data, within, delay_a, delay_b):
    check(data, join([stream("a", delay=delay_a), stream("b", delay=delay_b)], within))


@given(st.data(), delays)
def test_a_join_with_a_condition(data, delay):
    where = "a.v > b.v OR a.k = 1"
    check(data, join([stream("a", delay=delay), stream("b", delay=delay)], LONGEST, where), where)


@given(st.data(), delays)
def test_a_stream_with_itself(data, delay):
    check(data, self_join(stream("a", delay=delay), other_key=data.draw(st.sampled_from(["k", "v"]))))


def some_rows(rng: np.random.Generator, schema: pa.Schema, count: int, around: int, keys: int = 4) -> pa.Table:
    """Rows of few keys, near a point in time."""
    times = np.maximum(0, around + rng.integers(-20 * SECOND, 20 * SECOND, count))
    return pa.table([rng.integers(0, keys, count), pa.array(times, TIME), rng.integers(0, 9, count)], schema=schema)


def is_preparing(controller: Controller) -> bool:
    """Whether a unit waits to be shared otherwise."""
    return any(one.phase is SharingPhase.PREPARING for one in controller.loop.in_flight.of(SharingProtocol))


def test_what_a_holder_will_have_is_copied_ahead_and_little_in_an_epoch(tmp_path, monkeypatch):
    """A new holder, another grid, a holder that is released: no site reads more than it may, but for one segment."""
    least = 6_000
    monkeypatch.setattr(copying, "MIN_COPY_BYTES", least)
    monkeypatch.setattr(copying, "MAX_EPOCH_SHARE", 0.0)
    spec = join([stream("a", delay=None), stream("b", delay=None)], LONGEST)
    rng = np.random.default_rng(7)
    seen: list[list[pa.Table]] = [[], []]
    query = DirectQuery(spec, tmp_path, sites=3, partitions=2)
    hand = query.epochs.settings.controller

    def run(count: int) -> None:
        new = [some_rows(rng, s.schema, count, 8 * SECOND * query.next, keys=4000) for s in spec.streams]
        for kept, table in zip(seen, new, strict=True):
            kept.append(table)
        query.run(new)

    for _ in range(12):
        run(400)
    wishes = [
        Share(0, 2, "to see", evenly=True),
        Share(0, 1, "to see", evenly=True),
        LayOut(0, (1, 3), "to see"),
        LayOut(0, (), "to see"),
        Release(0, 0, "to see"),
        Release(0, 2, "to see"),
    ]
    for wish in wishes:
        before = query.epochs.record
        hand.ask(wish)
        epochs, read = 0, 0
        while query.epochs.record.routing == before.routing or is_preparing(hand):
            held = [run for manifest in query.epochs.record.manifests for run in manifest]
            largest = max((run.segment.length for run in held if run.units == ((0, 1),)), default=0)
            run(4)
            fetched = [site.fetched_bytes for site in query.epochs.record.stats.sites]
            assert max(fetched) <= least + largest
            read += sum(fetched)
            epochs += 1
            assert epochs < 40
            newest = [one for one in query.epochs.outcomes() if one.policy == "you"][-1]
            routed = query.epochs.record.routing != before.routing
            assert newest.outcome == ("done" if routed else "waiting")
        assert epochs > 3 or read <= 3 * least, "what is much takes some epochs"
    assert query.epochs.record.routing.holders_of(0) == (1,)
    query.close()
    assert multiset(query.results()) == multiset(batch_join(spec, [pa.concat_tables(tables) for tables in seen]))


@pytest.mark.parametrize("wish", [Share(0, 2, "to see", evenly=True), Move(0, 2, "to see")], ids=["share", "move"])
def test_copying_catches_up_with_a_unit_that_gets_more_in_an_epoch_than_may_be_copied(tmp_path, monkeypatch, wish):
    """A segment of each stream comes with every epoch; copying one at a time would fall behind for good."""
    monkeypatch.setattr(copying, "MIN_COPY_BYTES", 1)
    monkeypatch.setattr(copying, "MAX_EPOCH_SHARE", 0.0)
    spec, rng = join([stream("a"), stream("b")], LONGEST), np.random.default_rng(7)
    query = DirectQuery(spec, tmp_path, sites=3, partitions=2)
    query.epochs.settings.controller.ask(wish)
    for epoch in range(30):
        query.run([some_rows(rng, s.schema, 200, 8 * SECOND * epoch) for s in spec.streams])
        if 2 in query.epochs.record.routing.holders_of(0):
            break
    assert epoch < 12
    query.close()


def test_a_unit_that_is_about_to_be_shared_otherwise_stays_and_wishes_follow_each_other(tmp_path, monkeypatch):
    monkeypatch.setattr(copying, "MIN_COPY_BYTES", 1)
    monkeypatch.setattr(copying, "MAX_EPOCH_SHARE", 0.0)
    spec, rng = join([stream("a"), stream("b")], LONGEST), np.random.default_rng(7)
    query = DirectQuery(spec, tmp_path, sites=4, partitions=2)
    for epoch in range(3):
        query.run([some_rows(rng, s.schema, 100, 8 * SECOND * epoch) for s in spec.streams])
    hand = query.epochs.settings.controller
    for wish in (
        Share(0, 3, "to see", evenly=True),
        Share(0, 3, "again", evenly=True),
        Share(0, 2, "to see", evenly=True),
        Move(0, 1, "to see"),
        Freeze(0, "to see"),
        Split(0, "to see"),
        Move(1, 0, "to see"),
    ):
        hand.ask(wish)
    assert query.catch_up()
    waits = "unit 0 is about to be shared otherwise"
    refused = [decision.refused for decision in query.epochs.record.decisions]
    assert refused == [None, "site 3 holds unit 0 already", None, waits, waits, waits, None]
    while query.catch_up():
        pass
    assert query.epochs.record.routing.holders_of(0) == (0, 3, 2) and not is_preparing(hand)
    query.close()


@pytest.mark.parametrize(
    "seed",
    [pytest.param(seed, marks=() if seed in (*range(5), 16, 17) else pytest.mark.slow) for seed in range(24)],
)
def test_holders_that_come_and_go(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fourteen epochs of two units at up to five sites, shared in another way in most of them."""
    if seed >= 16:  # what changes hands is copied ahead
        monkeypatch.setattr(copying, "MIN_COPY_BYTES", 3_000)
        monkeypatch.setattr(copying, "MAX_EPOCH_SHARE", 0.0)
    rng = np.random.default_rng(seed)
    delay = [None, 5 * SECOND][seed % 2]
    streams = [stream("a", delay=delay), stream("b", delay=delay)]
    spec = self_join(streams[0]) if seed % 5 == 4 else join(streams, [30 * SECOND, LONGEST][seed // 2 % 2])
    limited = [{}, {"seconds": 1e-6}, {"memory": 20_000}, {"memory": 20_000, "spill": "probe"}][seed % 4]
    seen: list[list[pa.Table]] = [[] for _ in spec.streams]
    done = 0
    with tempfile.TemporaryDirectory(dir=FAST) as directory:
        query = DirectQuery(spec, Path(directory), 4, 2, **limited)
        for epoch in range(14):
            for _ in range(rng.integers(3)):
                query.epochs.settings.controller.ask(draw_sharing(rng, query.epochs.record.routing))
            new = [some_rows(rng, s.schema, int(rng.integers(0, 60)), 8 * SECOND * epoch) for s in spec.streams]
            for kept, table in zip(seen, new, strict=True):
                kept.append(table)
            query.run(new)
            record = query.epochs.record
            done += sum(decision.refused is None for decision in record.decisions)
            unready = [record.why_unready(sharing.unit) for sharing in record.routing.shared]
            assert not any(unready), "no holder of a shared unit is behind"
            if rng.random() < 0.15:
                query.close()
                query = DirectQuery(spec, Path(directory), int(rng.integers(1, 6)), 2, **limited)
        query.drain()
        good = [on_time(tables, s.event_time, s.delay)[0] for tables, s in zip(seen, spec.streams, strict=True)]
        assert multiset(query.results()) == multiset(batch_join(spec, good))
        assert done > 3
        query.close()


@pytest.mark.parametrize(
    ("within", "memory", "spill"), [(30 * SECOND, 3_000, "unit"), (LONGEST, 9_000, "unit"), (LONGEST, 9_000, "probe")]
)
def test_memory_that_fills_up_passes_all_tokens_of_a_site_on(within: int, memory: int, spill: str) -> None:
    """Several units of a site in one round, from sites that go on filling; the answer stays the batch query's."""
    rng = np.random.default_rng(7)
    spec = join([stream("a"), stream("b")], within)
    seen: list[list[pa.Table]] = [[] for _ in spec.streams]
    passed: list[set[int]] = []
    with tempfile.TemporaryDirectory(dir=FAST) as directory:
        query = DirectQuery(spec, Path(directory), 3, 6, memory=memory, spill=spill, wanted="tokens")
        for epoch in range(14):
            new = [some_rows(rng, s.schema, 40, 8 * SECOND * epoch) for s in spec.streams]
            for kept, table in zip(seen, new, strict=True):
                kept.append(table)
            query.run(new)
            accepted = [decision for decision in query.epochs.record.decisions if decision.refused is None]
            passed.append({decision.unit for decision in accepted if decision.action == "pass token"})
        query.drain()
        good = [on_time(tables, s.event_time, s.delay)[0] for tables, s in zip(seen, spec.streams, strict=True)]
        assert multiset(query.results()) == multiset(batch_join(spec, good))
        assert max(map(len, passed)) > 1, passed
        query.close()
