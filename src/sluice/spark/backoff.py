"""When something that has failed is tried again: after ever more epochs, until it succeeds."""

from __future__ import annotations

LONGEST_PAUSE = 64
"""Epochs after which it is tried again at the latest: what fails may fail for good."""


class Backoff:
    """
    >>> backoff = Backoff()
    >>> backoff.fail(7)
    >>> [backoff.allows(epoch) for epoch in (8, 9)]
    [False, True]
    >>> backoff.fail(9)
    >>> [backoff.allows(epoch) for epoch in (12, 13)]
    [False, True]
    """

    def __init__(self) -> None:
        self._from, self._pause = 0, 1

    def allows(self, epoch: int) -> bool:
        """Whether it is to be tried in an epoch."""
        return epoch >= self._from

    def fail(self, epoch: int) -> None:
        """It has failed in an epoch."""
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        self._from = epoch + self._pause

    def succeed(self) -> None:
        """It was of use: the next failure is a first one."""
        self._pause = 1
