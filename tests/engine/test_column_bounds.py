"""Joins whose rows say until when they have partners equal the batch join, and state goes by what the rows say."""

from __future__ import annotations

import pyarrow as pa
import pytest
from engine_harness import DirectQuery
from exactness import check_join
from hypothesis import given
from hypothesis import strategies as st
from specs import KEYS, SECOND, TIME, UNTIL, expiring, handle, join_until, stream

from sluice.model.durations import LONGEST
from sluice.model.errors import FlowError
from sluice.model.plan.group_by import TimeGroups
from sluice.model.plan.planning import plan_of
from sluice.model.plan.running_groups import RunningGroups
from sluice.verbs.freeze import CleanUp, Freeze

delays = st.sampled_from([0, 5 * SECOND, 60 * SECOND, None])
earlier = st.sampled_from([0, 3 * SECOND, LONGEST])
later = st.sampled_from([LONGEST, LONGEST, 10 * SECOND])


@given(st.data(), st.sampled_from(sorted(KEYS)), st.integers(0, 1), earlier, later, delays, delays)
def test_until_a_column_says(data, kind, leg, earlier, later, delay_a, delay_b):
    key, values = KEYS[kind]
    streams = [stream("a", key, delay_a), stream("b", key, delay_b)]
    streams[leg] = expiring(streams[leg])
    check_join(data, join_until(streams, leg, earlier, later), [values, values])


@given(st.data(), st.integers(0, 1), delays)
def test_with_a_condition(data, leg, delay):
    streams = [stream("a", delay=delay), stream("b", delay=delay)]
    streams[leg] = expiring(streams[leg])
    where = "a.v > b.v OR a.k = 1"
    values = KEYS["long"][1]
    check_join(data, join_until(streams, leg, where=where), [values, values], where)


@given(st.data(), delays)
def test_a_stream_with_itself(data, delay):
    a = expiring(stream("a", delay=delay))
    check_join(data, join_until([a, a]), [KEYS["long"][1]])


def rows_at(second: int, count: int, lives: int | None) -> list[pa.Array]:
    """Rows of a second, of as many keys."""
    times = [second * SECOND + i for i in range(count)]
    columns = [pa.array(range(count)), pa.array(times, TIME), pa.array([second] * count)]
    ends = [] if lives is None else [pa.array([t + lives * SECOND * (1 + (i % 5)) for i, t in enumerate(times)], TIME)]
    return [*columns, *ends]


def test_state_goes_by_what_the_rows_say(tmp_path):
    """Each row for as long as it says, from 3 to 15 seconds; those of the other stream at once, as all that they could
    meet is there."""
    a, b = expiring(stream("a", delay=SECOND)), stream("b", delay=SECOND)
    query = DirectQuery(join_until([a, b]), tmp_path, sites=1)
    rows = []
    for second in range(80):
        new = [pa.table(rows_at(second, 20, lives), schema=s.schema) for s, lives in ((a, 3), (b, None))]
        query.run(new)
        rows.append(query.epochs.record.stats.sites[0].rows)
    assert max(rows[50:]) <= max(rows[20:50])
    assert max(rows) <= 4 * 20 * 15
    lives = [min(3 * (1 + i % 5), second) + 1 for second in range(80) for i in range(20)]
    assert len(query.results()) == sum(lives)
    query.close()


def test_a_row_that_stays_for_long_keeps_no_others(tmp_path):
    """One row of each epoch is needed for ever after; what was stored beside it goes all the same."""
    a, b = expiring(stream("a", delay=SECOND)), stream("b", delay=SECOND)
    query = DirectQuery(join_until([a, b]), tmp_path, sites=1)
    for second in range(80):
        key, times, values, ends = rows_at(second, 50, 1)
        ends = pa.concat_arrays([pa.array([10**15], pa.int64()).cast(TIME), ends.slice(1)])
        query.run([pa.table([key, times, values, ends], schema=a.schema), b.schema.empty_table()])
        query.run([a.schema.empty_table(), pa.table(rows_at(second, 1, None), schema=b.schema)])
    assert query.epochs.record.stats.sites[0].rows < 4 * (80 + 50 * 7)
    query.close()


def test_frozen_state_is_found_again(tmp_path):
    a, b = expiring(stream("a", delay=SECOND)), stream("b", delay=SECOND)
    answers = []
    for freezing in (False, True):
        query = DirectQuery(join_until([a, b]), tmp_path / str(freezing), sites=2, partitions=4)
        for second in range(20):
            if freezing and second in (4, 9):
                for unit in (0, 2):
                    query.epochs.settings.controller.ask(Freeze(unit, "to see"))
            if freezing and second == 15:
                query.epochs.settings.controller.ask(CleanUp(0, "to see"))
            new = [rows_at(second, 30, 2), rows_at(second, 30, None)]
            query.run([pa.table(r, schema=s.schema) for r, s in zip(new, (a, b), strict=True)])
        query.drain()
        answers.append(sorted(map(str, query.results().to_pylist())))
        query.close()
    assert answers[0] == answers[1]
    assert len(answers[0]) > 1000


def test_groups_that_end_leave_the_state(tmp_path):
    """Each group when the time until which its rows have partners has passed, whatever times the others have."""
    a, b = expiring(stream("a", delay=SECOND)), stream("b", delay=SECOND)
    pairs = handle(a).join(handle(b), on="k", within=("0 seconds", "a.until"))
    counts = pairs.groupBy("a_k", "a_until").agg(n=("*", "count"))
    query = DirectQuery(plan_of([counts.relation]), tmp_path, sites=1)
    rows, runs = [], []
    for second in range(70):
        new = [pa.table(rows_at(second, 20, lives), schema=s.schema) for s, lives in ((a, 3), (b, None))]
        query.run(new)
        rows.append(query.epochs.record.stats.sites[0].rows)
        runs.append(sum(len(manifest) for manifest in query.epochs.record.manifests))
    assert max(rows[45:]) <= max(rows[20:45]) and max(runs[45:]) <= max(runs[20:45])
    watermark = 68 * SECOND + 19  # the newest row of either stream is a second later
    lives = [(second, i, 3 * (1 + i % 5)) for second in range(70) for i in range(20)]
    ended = [lasting + 1 for second, i, lasting in lives if (second + lasting) * SECOND + i < watermark]
    assert sorted(query.results()["n"].to_pylist()) == sorted(ended)
    query.close()


@pytest.mark.parametrize(
    ("within", "step", "ends"),
    [
        (("0 seconds", "a.until"), lambda pairs: pairs, True),
        (("0 seconds", "a.until"), lambda pairs: pairs.filter("a_v > 1").withColumn("w", "b_v + 1"), True),
        (("0 seconds", "a.until"), lambda pairs: pairs.withColumn("a_until", "a_until - INTERVAL 1 SECOND"), False),
        (("1 second", "a.until"), lambda pairs: pairs, False),  # a row may come after the end that it gives
        (("0 seconds", "20 seconds"), lambda pairs: pairs, False),
    ],
)
def test_groups_end_where_no_row_comes_after_the_time_among_their_columns(within, step, ends):
    a, b = handle(expiring(stream("a"))), handle(stream("b"))
    counts = step(a.join(b, on="k", within=within)).groupBy("a_k", "a_until").agg(n=("*", "count"))
    assert isinstance(counts.relation.origin.spec, TimeGroups if ends else RunningGroups)
    assert (counts.event_time == "a_until") == ends


def test_a_renamed_column_ends_groups_too():
    a, b = handle(expiring(stream("a"))), handle(stream("b"))
    pairs = a.join(b, on="k", within=("0 seconds", "a.until")).select("a_k AS k", "a_until AS till", "b_v AS v")
    spec = pairs.groupBy("k", "till").agg(most=("v", "max")).relation.origin.spec
    assert isinstance(spec, TimeGroups) and spec.event_time == "till"


@pytest.mark.parametrize(
    ("within", "options", "words"),
    [
        (("0 seconds", "a.nope"), {}, "within= names a.nope, but stream 'a' has only k, ts, v, until"),
        (("0 seconds", "a.v"), {}, "within= names a.v, which is int64 and no time like 'ts'; cast it"),
        (("0 seconds", "a.until"), {"how": "left"}, "which is for how='inner'"),
        (("0 seconds", "a.until"), {"on": None, "where": "a.v > b.v"}, "which is for joins with on="),
        (("0 seconds", "b.until"), {}, "within is not a duration: 'b.until'"),
    ],
)
def test_mistakes_are_named_in_the_users_words(within, options, words):
    a, b = handle(expiring(stream("a"))), handle(stream("b"))
    with pytest.raises(FlowError) as error:
        a.join(b, **({"on": "k", "within": within} | options))
    assert words in str(error.value)


def test_a_column_of_either_side_can_be_the_bound():
    a, b = handle(expiring(stream("a"))), handle(expiring(stream("b")))
    first = a.join(b, on="k", within=("1 second", "A.until")).relation.origin.spec
    assert [leg.until for leg in first.legs] == [UNTIL, None]
    assert first.reach == ((0, LONGEST), (SECOND, 0))
    second = a.join(b, on="k", within=("b.until", "1 second")).relation.origin.spec
    assert [leg.until for leg in second.legs] == [None, UNTIL]
    assert second.reach == ((0, SECOND), (LONGEST, 0))
    assert (
        "'a' not later than b.until"
        in plan_of([b.join(a, on="k", within=("0 seconds", "b.until")).relation]).describe()
    )
    with pytest.raises(FlowError, match="and another one; one of the two bounds can be a column"):
        a.join(b, on="k", within=("b.until", "a.until"))
