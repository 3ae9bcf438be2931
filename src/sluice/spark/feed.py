"""Who has epochs run whenever there is input: Structured Streaming, or a loop of Sluice's own where all of it is files.

Both drive the same `Epochs`. A feed says that there is input and what it is, follows the trigger, and ends; all else is
the running query's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from sluice.engine.agreement import Exchange
from sluice.model.ids import SiteKey
from sluice.spark.epoch_job import EpochInput

RunEpoch = Callable[[tuple[SiteKey, ...], Exchange, str, float], None]
"""Runs an epoch by the sites' keys, an exchange, why sites have changed, and when the input was seen."""


@dataclass(frozen=True)
class FeedInput:
    """What an epoch takes in, and the step of `Epochs` that does it."""

    content: EpochInput
    run: RunEpoch


TakeIn = Callable[[FeedInput], None]
"""Has an epoch run over some input; returns when its results are shown."""


class Feed(Protocol):
    """Has a query take in input, from `start` on until it has ended."""

    @property
    def id(self) -> str:
        """Of the query, for as long as its checkpoint lives."""

    @property
    def run_id(self) -> str:
        """Of this run alone."""

    @property
    def name(self) -> str | None:
        """What the user calls the query."""

    @property
    def is_active(self) -> bool:
        """Whether it has not ended."""

    @property
    def status(self) -> dict[str, Any]:
        """What it is at, under Spark's names."""

    @property
    def failure(self) -> BaseException | None:
        """What ended it, if the feed alone knows."""

    @property
    def progress(self) -> Mapping[int, Mapping[str, Any]]:
        """What it has to say of the newest epochs with input, by their batch: times and durations, under Spark's
        names."""

    def start(self) -> None:
        """Begin."""

    def is_input_coming(self) -> bool:
        """Whether there is input for an epoch that has not begun, or not ended."""

    def process_all(self) -> None:
        """Wait until all that is there now has been taken in, or it has ended."""

    def wait(self, timeout: float | None) -> bool:
        """Wait until it has ended; whether it has. May raise what ended it."""

    def stop(self) -> None:
        """End, with the epoch that runs; returns when no other begins."""

    def release(self) -> None:
        """Let go of all that is left of it, once it has ended."""
