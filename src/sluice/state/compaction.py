"""Which runs to merge, so that the number of runs and files stays small and every row is rewritten a few times only.

Runs are merged `FAN_IN` at a time, one merge an input and epoch: so the work is spread over epochs and a run moves up a
level each time. A merged run may span at most half the time that state is kept, so that it can leave as a whole soon
after its newest row has expired, and it has at most `largest` bytes, so that no merge holds an epoch up for long.
"""

from __future__ import annotations

from collections.abc import Sequence

from sluice.model.state import SegmentRef

FAN_IN = 4
CROWDED = 8
"""So many runs of one level are merged even where the merged run spans a long time (an idle stream keeps state)."""


def choose_merge(
    segments: Sequence[SegmentRef], keep_from: int | None, retention: int | None, largest: int
) -> Sequence[SegmentRef]:
    """The segments of one input to merge in this epoch; none, most of the time. They come oldest first.

    >>> some = [SegmentRef(str(i), "f", 0, 100, 0, 1, i, i, i, 0, 0, 0, (), (), ()) for i in range(5)]
    >>> [s.id for s in choose_merge(some, None, retention=1000, largest=10_000)]
    ['0', '1', '2', '3']
    """
    for segment in segments:
        # one row far ahead of the others would keep a whole run of expired rows alive: write the rest anew
        if keep_from is not None and segment.middle < keep_from - max(retention or 0, 1) and segment.rows > 1:
            return [segment]
    for level in sorted({s.level for s in segments}):
        group = [s for s in segments if s.level == level]
        groups = [group[i : i + FAN_IN] for i in range(len(group) - FAN_IN + 1)]
        for chosen in groups:
            if _small(chosen, largest) and (retention is None or _span(chosen) * 2 <= retention):
                return chosen
        if len(group) >= CROWDED:
            for chosen in groups:
                if _small(chosen, largest):
                    return chosen
    return []


def _small(segments: Sequence[SegmentRef], largest: int) -> bool:
    return sum(s.length for s in segments) <= largest


def _span(segments: Sequence[SegmentRef]) -> int:
    return max(s.latest for s in segments) - min(s.earliest for s in segments)
