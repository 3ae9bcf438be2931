"""Whose a checkpoint is: the identity of its flow, and in which words another flow differs from it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sluice.model.codec import decode, encode
from sluice.model.identity import CheckpointIdentity, FlowIdentity
from sluice.model.plan.plan import Plan

UNCOMPARED = ("id", "shown", "says", "queries")
"""What stands in an identity and does not have to be the same: where results are shown, and words for the rest."""
_LISTS = ("streams", "operators", "outputs")


def identify(flow: str, plan: Plan, partitions: int) -> FlowIdentity:
    """What has to be the same whenever a flow goes on with its checkpoint, and words for it."""
    return FlowIdentity(
        name=flow,
        partitions=partitions,
        says=plan.describe(),
        queries=tuple(plan.describe_output(number) for number in range(len(plan.outputs))),
        **vars(plan.identity()),
    )


def differing_flows(ours: CheckpointIdentity, recorded: CheckpointIdentity) -> list[str]:
    """Where a flow differs from the one that a checkpoint has, in words: which queries, and how."""
    compared, theirs = _compared(ours), _compared(recorded)
    new, old = ours.queries, recorded.queries
    if all(len(compared[key]) == len(theirs[key]) for key in _LISTS) and len(new) == len(old):
        changed = [str(n) for n, (a, b) in enumerate(zip(new, old, strict=True), start=1) if a != b]
        whose = f"query {', '.join(changed)}: " if changed and len(new) > 1 else ""
        return [f"{whose}{difference}" for difference in differing(compared, theirs)]
    rest = {key: value for key, value in compared.items() if key not in _LISTS}
    return [*differing(rest, theirs), _differing_queries(new, old)]


def _compared(identity: CheckpointIdentity) -> dict[str, Any]:
    """What has to be the same, as JSON has it: in which words it differs is told by the names there."""
    document = decode(encode(identity), dict[str, Any])
    return {key: value for key, value in document.items() if key not in UNCOMPARED}


def _differing_queries(new: Sequence[str], old: Sequence[str]) -> str:
    """Which queries are new, and which are gone.

    >>> _differing_queries(["pairs"], ["pairs", "sums"])
    'there is 1 query, the checkpoint has 2: its query 2 (sums) is gone'
    """
    gone = [f"its query {n} ({query}) is gone" for n, query in enumerate(old, start=1) if query not in new]
    added = [f"query {n} ({query}) is not in it" for n, query in enumerate(new, start=1) if query not in old]
    count = f"there {'is 1 query' if len(new) == 1 else f'are {len(new)} queries'}, the checkpoint has {len(old)}"
    return f"{count}: {', '.join([*gone, *added]) or 'some stand twice, or share what they did not share'}"


def differing(ours: Any, recorded: Any, at: str = "") -> list[str]:
    """Where two identities differ, in words.

    >>> differing({"join": {"within": 5}}, {"join": {"within": 7}})
    ['join.within is 5, the checkpoint has 7']
    """
    if isinstance(ours, dict) and isinstance(recorded, dict):
        keys = list(ours)
        return [d for k in keys for d in differing(ours[k], recorded.get(k), f"{at}.{k}" if at else k)]
    if isinstance(ours, list) and isinstance(recorded, list) and len(ours) == len(recorded):
        pairs = enumerate(zip(ours, recorded, strict=True))
        return [d for i, (a, b) in pairs for d in differing(a, b, f"{at}[{i}]")]
    return [] if ours == recorded else [f"{at} is {json.dumps(ours)}, the checkpoint has {json.dumps(recorded)}"]
