"""Every writer of a flow has a name of its own, by which its results lie in the checkpoint."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.api.request import WriterChoices, read_request
from sluice.model.errors import FlowError
from sluice.model.plan.planning import plan_of
from sluice.model.plan.query_names import directory_of, name_queries
from sluice.spark.sinks import SinkKind
from tests.support.specs import handle, stream


def writer(name: str | None, kind: SinkKind = SinkKind.NOOP, **options: Any) -> WriterChoices:
    rows = handle(stream("s")).groupBy("k").last(2).agg(n=("*", "count"))
    return WriterChoices(rows, kind, None, name, options, {}, None)


def test_each_writer_has_its_own_name_and_the_plan_knows_it() -> None:
    request = read_request([writer("alerts"), writer(None), writer("sums"), writer(None)])
    assert request.names == ("alerts", "query-2", "sums", "query-4")
    assert [sink.name for sink in request.sinks] == list(request.names)
    plan = plan_of(request.outputs, request.names)
    assert [output.name for output in plan.outputs] == list(request.names)
    assert [output.name for output in plan_of(request.outputs).outputs] == [f"query-{n}" for n in (1, 2, 3, 4)]


def test_spark_calls_one_writer_by_its_name_and_several_by_that_of_the_flow() -> None:
    flow = writer(None).rows.registry.flow
    for writers, name in (
        ([writer("alerts")], "alerts"),
        ([writer(None)], None),
        ([writer("alerts"), writer("sums")], flow),
    ):
        assert read_request(writers).name == name


@pytest.mark.parametrize("kind", [SinkKind.NOOP, SinkKind.MEMORY])
def test_no_two_have_the_same_name(kind: SinkKind) -> None:
    with pytest.raises(FlowError, match="two writers have the queryName 'Alerts'; give each writer its own"):
        read_request([writer("alerts", kind), writer("Alerts", kind)])
    with pytest.raises(FlowError, match="the running query has the queryName 'ALERTS'"):
        name_queries(["ALERTS"], taken=["alerts"])
    assert name_queries([None, "query-1"]) == ("query-2", "query-1")


NAMES = st.text(max_size=40) | st.text("a./~ _%", max_size=300)


@given(st.lists(NAMES | st.none(), max_size=6), st.lists(NAMES, max_size=6))
def test_whatever_they_are_called_no_two_get_the_same(names: list[str | None], taken: list[str]) -> None:
    try:
        given_names = name_queries(names, taken)
    except FlowError:
        return
    everybody = [name.lower() for name in given_names]
    assert len(set(everybody)) == len(everybody) and not set(everybody) & {name.lower() for name in taken}
    assert all(name is None or name == got for name, got in zip(names, given_names, strict=True))


@given(NAMES, NAMES)
def test_directories_are_plain_words_and_as_different_as_names(one: str, other: str) -> None:
    for name in (one, other):
        assert re.fullmatch(r"[A-Za-z0-9_~-]*", directory_of(name)) and len(directory_of(name)) <= 120
    assert (directory_of(one) == directory_of(other)) == (one == other)
