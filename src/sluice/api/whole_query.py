"""What concerns a query as a whole, whoever says it: a writer, or `Flow.start`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sluice.api.options import OPTIONS, QUERY
from sluice.model.durations import microseconds
from sluice.model.errors import FlowError
from sluice.model.option import find_option
from sluice.policies import Policy, policy
from sluice.spark.checked_query import Trigger


@dataclass(frozen=True)
class PolicyChoice:
    """Which policy is asked, after how many seconds of statistics at least, and whether it only advises."""

    policy: Policy
    advise: bool
    minimum: float


@dataclass(frozen=True)
class StartChoices:
    """What `Flow.start` was told beside the writers."""

    options: Mapping[str, Any] = field(default_factory=dict)
    trigger: Trigger = field(default_factory=dict)
    policy: PolicyChoice | None = None

    @classmethod
    def read(
        cls,
        wanted: str | Policy | None,
        processing_time: str | None,
        available_now: bool | None,
        options: Mapping[str, Any],
    ) -> StartChoices:
        """What is given, as far as it can be said for all writers at once."""
        rows = {find_option(OPTIONS, name): value for name, value in options.items()}
        for row in rows:
            if row.scope != QUERY:
                raise FlowError(
                    f"flow.start takes what holds for all its writers, and {row.name!r} is of one sink: say it to its "
                    f"writer, with option({row.name!r}, …)"
                )
        is_timed = processing_time is not None or available_now is not None
        return cls(
            {row.name: value for row, value in rows.items()},
            choose_trigger(processing_time, available_now) if is_timed else {},
            None if wanted is None else choose_policy(wanted),
        )


def choose_trigger(processing_time: str | None, available_now: bool | None) -> Trigger:
    """How often there is an epoch: one of the two is given."""
    if (processing_time is None) == (available_now is None):
        raise FlowError("trigger takes either processingTime='1 second' or availableNow=True")
    if processing_time is not None:
        every = microseconds(processing_time, "trigger's processingTime")
        return {"processingTime": f"{every} microseconds"}  # Spark knows fewer units
    if available_now is not True:
        raise FlowError("trigger's availableNow must be True")
    return {"availableNow": True}


def choose_policy(
    wanted: str | Policy, advise: bool = False, collect: str = "5 seconds", **settings: object
) -> PolicyChoice:
    """A policy by name or as an object, and how it is asked."""
    if not isinstance(advise, bool):
        raise FlowError(f"advise={advise!r}: it is whether nothing is changed, True or False")
    minimum = microseconds(collect, "collect") / 1e6
    if minimum <= 0:
        raise FlowError(f"collect={collect!r}: statistics must be gathered for more than no time")
    return PolicyChoice(policy(wanted, **settings), advise, minimum)
