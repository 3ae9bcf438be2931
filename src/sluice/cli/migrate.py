"""`sluice migrate`: a checkpoint that an older version wrote, in this version's format."""

from __future__ import annotations

import time
import uuid

from sluice.control.journal import FORMAT, Journal
from sluice.control.migration import migrate
from sluice.state.files.storage import Storage


def migrate_checkpoint(uri: str, take_over: bool = False) -> str:
    """Bring the checkpoint at `uri` to this version's format; returns what has become of it."""
    migrated = migrate(Journal(Storage(uri)), uuid.uuid4().hex[:8], time.time(), take_over)
    if migrated is None:
        return f"{uri} has format {FORMAT}, this version's: there is nothing to do"
    return (
        f"{uri} has format {FORMAT} now; it had {migrated.before}. What it was is in {migrated.kept}: remove it when "
        "the query has gone on"
    )
