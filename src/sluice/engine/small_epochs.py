"""An epoch over few rows needs no exchange: every site splits all of them, and takes what is its own.

The sites have to agree on what there was. So an attempt at the split is named by all that it would have sent: sites
that have read something else report another name, and the epoch is run again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa

from sluice.engine.blobs import SPLIT_REPORT, ReceivedBlob, SentBlob
from sluice.engine.compiled_plan import compiled
from sluice.model.codec import RunningChecksum, decode, encode
from sluice.model.columns import IntColumn
from sluice.model.epoch.stats import TaskSeconds
from sluice.model.ids import SiteKey
from sluice.model.plan.plan import Plan
from sluice.record.reports import SplitReport

_WHERE_TO = struct.Struct("<qq")


def can_skip_exchange(plan: Plan, sites: int) -> bool:
    """Whether the tasks of sites can split an epoch's rows: they exchange nothing later, and no rows go from the split
    to a sink, once for each site. A single site can in any case."""
    return sites == 1 or (plan.levels == 1 and not compiled(plan).has_results_of_splits)


def take_own(blobs: Iterable[SentBlob], site_key: SiteKey) -> list[ReceivedBlob]:
    """What a site gets of all blobs of a split, and of its reports."""
    own: list[ReceivedBlob] = []
    reports: list[SplitReport] = []
    everything = RunningChecksum()
    for to_site, number, payload in blobs:
        if number != SPLIT_REPORT:
            everything.update(_WHERE_TO.pack(to_site, number))
            everything.update(payload)
            own += [(number, payload)] if to_site == site_key else []
        elif to_site == site_key:
            reports.append(decode(payload.to_pybytes(), SplitReport))
    for report in reports:
        counts = replace(report.for_level_above(), attempt="", sent=IntColumn(), seconds=TaskSeconds())
        everything.update(encode(counts))
    attempt = everything.hexdigest()
    return [*own, *((SPLIT_REPORT, pa.py_buffer(encode(replace(report, attempt=attempt)))) for report in reports)]
