"""Joins whose rows without a partner never appear while input comes: they have a meaning where all input ends."""

from __future__ import annotations

from sluice.model.durations import LONGEST
from sluice.model.errors import FlowError
from sluice.model.plan.join import JoinSpec
from sluice.model.plan.plan import Plan

_OR_AT_THE_END = "; or have it appear when all input has ended: trigger(availableNow=True), option('closeAtEnd', True)"


def check_that_rows_settle(plan: Plan, closes_at_end: bool) -> None:
    """Refuses joins of which rows without a partner could never appear."""
    if not closes_at_end:
        for node in plan.nodes:
            if isinstance(node.spec, JoinSpec):
                _check_join(node.spec)


def _check_join(spec: JoinSpec) -> None:
    for leg in spec.kind.kept_legs if spec.kind.waits else ():
        own, other = spec.legs[leg].name, spec.legs[1 - leg].name
        kind = spec.kind.value
        if spec.reach[leg][1 - leg] >= LONGEST:
            example = "within=('unbounded', '1 hour')" if leg == 0 else "within=('1 hour', 'unbounded')"
            raise FlowError(
                f"how={kind!r}: a row of {own!r} appears without a partner when none can come any more, and one of "
                f"{other!r} may come at any time; bound how much later than {own!r} a row of {other!r} may be, such as "
                f"{example}{_OR_AT_THE_END}"
            )
        if spec.stream_of(1 - leg).delay is None:
            otherwise = ", while how='inner' and how='semi' need none" if leg == 0 else ""
            raise FlowError(
                f"how={kind!r}: a row of {own!r} appears without a partner when none can come any more, and nothing of "
                f"{other!r} is ever late; give {other!r} a delay, which says when rows are late{otherwise}"
                f"{_OR_AT_THE_END}"
            )
