"""Whose a checkpoint is: its flow, the queries that this has, and in which words others differ from them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sluice.model.codec import decode, encode
from sluice.model.identity import BATCHES, FILES, CheckpointIdentity, FlowIdentity, StreamIdentity
from sluice.model.plan.recorded_plan import RecordedPlan, RecordedQuery
from sluice.model.plan.stream import Stream, columns_of

_INPUT_IN_WORDS = {
    FILES: "all its streams are readFiles, which are read as Arrow",
    BATCHES: "Structured Streaming drives it: a stream is a readStream, or one of files that Spark has to read",
}


def identify(flow: str, streams: Sequence[Stream], partitions: int, input: str = BATCHES) -> FlowIdentity:
    """What has to be the same whenever a flow goes on with its checkpoint."""
    own = (StreamIdentity(s.name, columns_of(s.schema), s.event_time, s.delay) for s in streams)
    return FlowIdentity(name=flow, partitions=partitions, streams=tuple(own), input=input)


def differing_flows(ours: CheckpointIdentity, recorded: CheckpointIdentity) -> list[str]:
    """Where a flow differs from the one that a checkpoint has, in words."""
    if ours.input != recorded.input:
        return [f"{_INPUT_IN_WORDS[ours.input]}; of the flow in the checkpoint, {_INPUT_IN_WORDS[recorded.input]}"]
    compared, theirs = _compared(ours), _compared(recorded)
    names, recorded_names = ([stream["name"] for stream in flow.pop("streams")] for flow in (compared, theirs))
    if names != recorded_names:
        wording = f"its streams are {', '.join(names)}, the checkpoint has {', '.join(recorded_names)}"
        return [*differing(compared, theirs), wording]
    return differing(_compared(ours), _compared(recorded))


def _compared(identity: CheckpointIdentity) -> dict[str, Any]:
    """What has to be the same, as JSON has it: in which words it differs is told by the names there."""
    document = decode(encode(identity), dict[str, Any])
    return {key: value for key, value in document.items() if key != "id"}


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


@dataclass(frozen=True)
class QueryChanges:
    """Which queries a flow is to have that its checkpoint does not know, which it is to have no longer, and which are
    to compute something else under the same name, as they are to be and as they were."""

    added: tuple[RecordedQuery, ...] = ()
    dropped: tuple[RecordedQuery, ...] = ()
    changed: tuple[tuple[RecordedQuery, RecordedQuery], ...] = ()

    @classmethod
    def between(cls, recorded: RecordedPlan, ours: RecordedPlan) -> QueryChanges:
        """
        >>> before, now = (RecordedPlan((RecordedQuery(name, "x", "a join"),)) for name in ("pairs", "sums"))
        >>> print(QueryChanges.between(before, now))
        'sums' would be added (a join); 'pairs' would be dropped (a join)
        """
        were, are = ({query.name: query for query in plan.queries} for plan in (recorded, ours))
        kept = [(query, were[name]) for name, query in are.items() if name in were]
        return cls(
            tuple(query for name, query in are.items() if name not in were),
            tuple(query for name, query in were.items() if name not in are),
            tuple((query, was) for query, was in kept if query.structure != was.structure),
        )

    def __bool__(self) -> bool:
        return bool(self.added or self.dropped or self.changed)

    def __str__(self) -> str:
        phrases = [
            *(f"{query.name!r} would be added ({query.says})" for query in self.added),
            *(f"{query.name!r} would be dropped ({query.says})" for query in self.dropped),
            *(f"{query.name!r} would be changed ({_difference(query, was)})" for query, was in self.changed),
        ]
        return "; ".join(phrases)


def _difference(query: RecordedQuery, was: RecordedQuery) -> str:
    if query.says == was.says:
        return f"{query.says}, of other columns or types"
    return f"it is {query.says}, the checkpoint has {was.says}"
