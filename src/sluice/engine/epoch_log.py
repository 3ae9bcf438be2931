"""What the log tells of epochs, beside their records."""

from __future__ import annotations

import logging

from sluice.record.epoch import EpochRecord

_log = logging.getLogger(__name__)


def log_clean_up_begun(number: int, units: int, rows: float) -> None:
    """That so many units are to be cleaned up from an epoch on."""
    _log.info("epoch %d: cleaning up %s units begins, of %s rows", number, f"{units:,}", f"{rows:,}")


def log_clean_up(record: EpochRecord) -> None:
    """How far cleaning up has come, if there was any: it may take many epochs."""
    done = record.stats.clean_up
    if done is not None:
        rows, left, results, rate = (
            f"{value:,.0f}" for value in (done.rows_done, done.rows_left, done.results, done.rows_per_second)
        )
        _log.info(
            "epoch %d: cleaning up: %s rows done, %s left; %s results found; %s rows a second",
            record.number,
            rows,
            left,
            results,
            rate,
        )


def log_excess(previous: EpochRecord, record: EpochRecord) -> None:
    """Which sites have come to have more state that cannot be frozen than memory: to freeze the rest does not help."""
    before = {site.site for site in previous.stats.sites if site.unfreezable_excess}
    for site in record.stats.sites:
        if site.unfreezable_excess and site.site not in before:
            _log.warning(
                "epoch %d: site %d has %s bytes of state beyond its memory that cannot be frozen, of group-bys or of "
                "outer, semi and anti joins; they are used from disk, and other joins are frozen less often. More "
                "siteMemory, or more sites, would help",
                record.number,
                site.site,
                f"{site.unfreezable_excess:,}",
            )
