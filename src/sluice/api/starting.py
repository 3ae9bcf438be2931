"""From writers that are described to a query that runs: everything is checked first, and what is refused leaves
nothing behind."""

from __future__ import annotations

from collections.abc import Sequence

from sluice.api.checking import check_request
from sluice.api.query import Query
from sluice.api.request import WriterChoices, read_request
from sluice.api.whole_query import StartChoices
from sluice.engine.checkpoint import PlanMovedOn
from sluice.spark.starting import start as run_checked


def start_query(writers: Sequence[WriterChoices], start: StartChoices | None = None) -> Query:
    """Run one query that feeds the sinks of all these writers and reads every source once; `start` is what was said
    for all of them."""
    request = read_request(writers, start)
    while True:
        try:
            return Query(run_checked(check_request(request)), request.chosen_options, request.registry)
        except PlanMovedOn:  # an earlier run has added or dropped queries meanwhile
            continue
