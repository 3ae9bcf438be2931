"""References to segments that nobody has written."""

from __future__ import annotations

from sluice.model.epoch.segments import SegmentRef


def segment(name: str, **values: int) -> SegmentRef:
    base = dict(offset=0, length=100, input=0, rows=10, earliest=0, middle=0, latest=0, base=0, shift=0, level=0)
    return SegmentRef(
        id=name, file=f"{name}.segments", units=((0, 8),), counts=(1,) * 8, blocks=(), **{**base, **values}
    )
