"""What holds for a whole query may be said to `flow.start` or to any writer, and nobody may contradict another."""

from __future__ import annotations

import pytest
from group_by_oracle import source

from sluice.api.request import QueryRequest, read_request
from sluice.api.whole_query import StartChoices
from sluice.api.writer import DataStreamWriter
from sluice.model.errors import FlowError
from sluice.policies import policy

A = source("a")


def writer(name: str | None = None) -> DataStreamWriter:
    wanted = A.filter("v > 0").writeStream.format("noop")
    return wanted.queryName(name) if name else wanted


def request(*writers: DataStreamWriter, wanted=None, every=None, now=None, **options) -> QueryRequest:
    return read_request([w.choices() for w in writers], StartChoices.read(wanted, every, now, options))


def test_start_says_it_for_all():
    asked = request(writer(), writer(), wanted="placement", every="2 seconds", SITES=3, checkpointLocation="ck")
    assert asked.policy.policy == policy("placement")
    assert asked.trigger == {"processingTime": "2000000 microseconds"}
    assert (asked.options.sites, asked.options.checkpoint, asked.chosen_options["sites"]) == (3, "ck", 3)
    assert request(writer(), now=True).trigger == {"availableNow": True}
    assert request(writer(), wanted=policy("load")).policy.policy == policy("load")


def test_a_writer_may_say_the_same():
    asked = request(writer().option("sites", 3).policy("load"), writer(), wanted="load", sites=3)
    assert asked.options.sites == 3 and asked.policy.policy == policy("load")


@pytest.mark.parametrize(
    ("said", "start", "message"),
    [
        ("sites", {"sites": 2}, "flow.start and writer 'b' disagree on sites, which holds for all: 2 and 1"),
        ("policy", {"wanted": "static"}, "flow.start and writer 'b' disagree on policy"),
        ("trigger", {"every": "5 seconds"}, "flow.start and writer 'b' disagree on trigger"),
    ],
)
def test_start_and_a_writer_that_disagree(said, start, message):
    other = writer("b")
    match said:
        case "sites":
            other.option("sites", 1)
        case "policy":
            other.policy("load")
        case "trigger":
            other.trigger(availableNow=True)
    with pytest.raises(FlowError, match=message):
        request(writer("a"), other, **start)


def test_writers_that_disagree_are_named():
    with pytest.raises(FlowError, match="writer 'a' and writer 'query-3' disagree on sites, which holds for all"):
        request(writer("a").option("sites", 1), writer(), writer().option("sites", 2))


def test_what_is_of_one_sink_is_refused():
    with pytest.raises(FlowError, match=r"flow\.start takes what holds for all its writers, and 'path' is of one sink"):
        request(writer(), path="out")
    with pytest.raises(FlowError, match="there is no option 'site', perhaps 'sites' is meant"):
        request(writer(), site=2)
    with pytest.raises(FlowError, match="either processingTime='1 second' or availableNow=True"):
        request(writer(), every="1 second", now=True)
