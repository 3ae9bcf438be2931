"""What reaches a site in an epoch, at one level of operators: rows, reports, and what is for levels above."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from sluice.engine.blobs import LEVEL_WATERMARK, SPLIT_REPORT, UNUSABLE, Blob, InputUnusable, Payload, ReceivedBlob
from sluice.engine.joint_delivery import deal_out
from sluice.engine.site_level import SiteLevel
from sluice.kernels.probe import Run
from sluice.model.codec import decode
from sluice.model.epoch.attempt import name_attempts
from sluice.model.epoch.times import Times, slowest
from sluice.model.errors import StorageError
from sluice.model.ids import InputNumber, Site, SiteKey
from sluice.record.reports import LevelWatermark, SplitReport, newest_of
from sluice.state.segment import Layout, sort_run


@dataclass(frozen=True)
class SiteInput:
    """What a site has received at one level."""

    rows: dict[InputNumber, Run]
    """The new rows of each input, sorted."""
    probe_only: dict[InputNumber, Run]
    """Rows that probe the state here and are stored elsewhere."""
    splits: tuple[SplitReport, ...]
    watermarks_below: tuple[LevelWatermark, ...]
    """How far the sites of the level below have come."""
    forwarded: tuple[Blob, ...]
    """Blobs for the levels above."""
    senders: str
    """A name for the attempts that sent the rows: those of the splits, or of the level below."""

    def newest(self, before: Times) -> Times:
        """How far the level has come with it."""
        return slowest([newest_of(before, self.splits), *(below.newest for below in self.watermarks_below)])

    def refuse_late_rows(self, late_below: Times) -> None:
        """Rows that were split before the epoch's watermarks were known must not be among those that are late by
        them."""
        for split in self.splits:
            watermark = late_below[split.stream]
            if split.oldest is not None and watermark is not None and split.oldest < watermark:
                raise InputUnusable("rows that were read ahead are late by now")


def unpack(level: SiteLevel, site_key: SiteKey, blobs: Iterable[ReceivedBlob]) -> SiteInput:
    """Read the blobs that a site has received."""
    batches: dict[InputNumber, list[pa.RecordBatch]] = {}
    splits: list[SplitReport] = []
    watermarks_below: list[LevelWatermark] = []
    forwarded: list[Blob] = []
    joint_ways = level.compiled.joint_ways_to[level.number]
    first_probing = level.plan.probe_only_number(InputNumber(0))
    probe_only: dict[InputNumber, list[pa.RecordBatch]] = {}
    for number, payload in blobs:
        if number == SPLIT_REPORT:
            splits.append(decode(payload.to_pybytes(), SplitReport))
        elif number == UNUSABLE:
            raise InputUnusable(payload.to_pybytes().decode())
        elif number == LEVEL_WATERMARK:
            watermarks_below.append(decode(payload.to_pybytes(), LevelWatermark))
        elif number in level.readers:
            input_ = InputNumber(number)
            batches.setdefault(input_, []).append(_read_rows(level, input_, payload))
        elif number in joint_ways:
            for input_, batch in deal_out(joint_ways[number], payload):
                batches.setdefault(input_, []).append(batch)
        elif number - first_probing in level.readers:
            input_ = InputNumber(number - first_probing)
            probe_only.setdefault(input_, []).append(_read_rows(level, input_, payload))
        else:
            forwarded.append((site_key, number, Payload((payload,))))
    splits.sort(key=lambda split: split.stream)
    layouts = level.holdings.layouts
    stored_rows, probing_rows = (
        {number: _sort_rows(level.site, layouts[number].pending, parts) for number, parts in received.items()}
        for received in (batches, probe_only)
    )
    senders = name_attempts(sent.attempt for sent in (watermarks_below if level.number else splits))
    return SiteInput(stored_rows, probing_rows, tuple(splits), tuple(watermarks_below), tuple(forwarded), senders)


def _read_rows(level: SiteLevel, input_: InputNumber, payload: pa.Buffer) -> pa.RecordBatch:
    return pa.ipc.read_record_batch(payload, level.compiled.blob_schema(input_))


def _sort_rows(site: Site, layout: Layout, parts: list[pa.RecordBatch]) -> Run:
    try:
        rows = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
        return sort_run(layout, rows.column(0).to_numpy(), rows.remove_column(0))
    except pa.ArrowInvalid as problem:
        raise StorageError(
            f"an epoch brings site {site} more than 2 GB of one column ({problem}): take in less at a "
            "time, with maxFilesPerTrigger or its like, or use more sites"
        ) from problem
