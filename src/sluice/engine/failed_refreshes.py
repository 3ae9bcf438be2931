"""Tables that could not be read again: what the log says of it, and when they are tried anew."""

from __future__ import annotations

import logging
from collections.abc import Hashable
from dataclasses import dataclass, replace

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Failure:
    """What is wrong with a table; `since` when it has looked like this and could not be read, and the last try."""

    fingerprint: Hashable | None
    problem: str
    since: float
    tried_at: float


class FailedRefreshes:
    """The tables of a run that stay as they were, because they cannot be read again.

    One that looks as it did is tried again after as long as it has failed, so that epochs do not read in vain. One that
    looks otherwise is tried at once.
    """

    def __init__(self) -> None:
        self._failures: dict[str, _Failure] = {}

    def note(self, name: str, fingerprint: Hashable | None, problem: str, epoch: int, now: float) -> None:
        """A table could not be read. The log has a warning, unless it has the same one already."""
        before = self._failures.get(name)
        failure = _Failure(fingerprint, problem, now, now)
        if before is not None and before.fingerprint == fingerprint:
            failure = replace(failure, since=before.since)
        self._failures[name] = failure
        if before is None or before.problem != problem:
            _log.warning("epoch %d: table %r cannot be read again, and stays as it was: %s", epoch, name, problem)

    def is_waiting(self, name: str, fingerprint: Hashable | None, now: float) -> bool:
        """Whether it is too early to try a table again that looks like this."""
        failure = self._failures.get(name)
        if failure is None or fingerprint is None or failure.fingerprint != fingerprint:
            return False
        return now < failure.tried_at + (failure.tried_at - failure.since)

    def forget(self, name: str) -> None:
        """A table was read."""
        self._failures.pop(name, None)
