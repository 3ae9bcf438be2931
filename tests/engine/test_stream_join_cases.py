"""Stream joins answer as Spark's do, case by case; where they do not, what they answer instead is on record too."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_harness import DirectQuery
from stream_join_cases import CASES, LAST_EPOCH, SCHEMA, Case, count_results, table_of

from sluice import Flow
from sluice.model.plan.join_kind import JoinKind
from sluice.model.plan.plan import Plan
from sluice.model.plan.planning import plan_of


def joins_of_every_kind(case: Case) -> Plan:
    flow = Flow(name="cases")
    left, right = (
        flow.readStream(name, SCHEMA, eventTime="ts", delay=f"{delay} seconds")
        for name, delay in zip("ab", case.delays, strict=True)
    )
    before, after = (f"{seconds} seconds" for seconds in case.bounds)
    joins = [left.join(right, on="k", within=(before, after), how=kind.value) for kind in JoinKind]
    return plan_of([joined.relation for joined in joins])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_answer_is_that_on_record(tmp_path: Path, case: Case) -> None:
    plan = joins_of_every_kind(case)
    query = DirectQuery(plan, tmp_path)
    for number, epoch in enumerate([*case.epochs, LAST_EPOCH]):
        if number in case.restarts:
            query.close()
            query = DirectQuery(plan, tmp_path)
        query.run([table_of(rows) for rows in epoch])
    on_record = case.sluice or case.spark
    for output, kind in enumerate(JoinKind):
        rows = query.results(output).to_pylist()
        results = count_results((row.get("a_v", row.get("v")), row.get("b_v")) for row in rows)
        assert results == on_record.of_kind(kind), kind
    query.close()
