"""What crosses the exchange: blobs of rows, and messages in place of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from sluice.model.codec import encode
from sluice.model.columns import IntColumn
from sluice.model.ids import SiteKey
from sluice.record.reports import LevelWatermark, SiteReport, SplitReport

SPLIT_REPORT, SITE_REPORT, LEVEL_WATERMARK = -1, -2, -3
"""Numbers, in place of an input's, of blobs that carry a split's report (to every site), a site's (to the driver), or
how far a site has come (to every site of the level above)."""
Blob = tuple[SiteKey, int, pa.Buffer]
"""For which site, of which input or kind, and its bytes."""
ReceivedBlob = tuple[int, pa.Buffer]
"""The same at its site."""


class SentBytes:
    """How many bytes of rows were sent to each site."""

    def __init__(self, site_keys: tuple[SiteKey, ...]) -> None:
        self._by_key = dict.fromkeys(site_keys, 0)

    def count(self, blobs: Iterable[Blob]) -> Iterator[Blob]:
        for blob in blobs:
            self._by_key[blob[0]] += len(blob[2])
            yield blob

    @property
    def by_site(self) -> IntColumn[int]:
        return IntColumn(self._by_key.values())


def message(site_key: SiteKey, number: int, value: SplitReport | SiteReport | LevelWatermark) -> Blob:
    """What a task has to say beside its rows, as a blob."""
    return site_key, number, pa.py_buffer(encode(value))
