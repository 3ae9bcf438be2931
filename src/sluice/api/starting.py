"""From writers that are described to a query that runs: everything is checked first, and what is refused leaves
nothing behind."""

from __future__ import annotations

from collections.abc import Sequence

from sluice.api.checking import check_request
from sluice.api.query import Query
from sluice.api.request import WriterChoices, read_request
from sluice.spark.starting import start


def start_query(writers: Sequence[WriterChoices]) -> Query:
    """Start one query that feeds the sinks of all these writers and reads every source once."""
    request = read_request(writers)
    checked = check_request(request)
    running = start(checked)
    return Query(running, request.given)
