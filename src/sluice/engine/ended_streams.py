"""Streams that have ended: what comes after the end is refused, since it would be dropped as late."""

from __future__ import annotations

from typing import NoReturn

from sluice.model.errors import QueryError


def refuse_input(stream: str, what: str) -> NoReturn:
    """There is input of a stream that has ended; `what` says which."""
    raise QueryError(
        f"stream {stream!r} has ended: a run with closeAtEnd has closed its windows, and now there is {what}, of which "
        "every row would be late. Nothing of it was taken in. Take in everything from the beginning, with another "
        "checkpointLocation and path; or leave closeAtEnd out until all input is there"
    )
