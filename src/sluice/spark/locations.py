"""Where checkpoints and results lie: paths as every executor understands them, and directories that go with a query."""

from __future__ import annotations

import atexit
import os
import shutil
import uuid

from sluice.state.files.storage import Storage
from sluice.state.files.workspace import scratch

_temporary: set[str] = set()
"""Checkpoints that go with this process."""


def absolute(path: str) -> str:
    """A path every executor understands: local ones made absolute, URIs as they are."""
    if "://" in path or path.startswith("file:"):
        storage = Storage(path)
        return storage.root if storage.local else path
    return os.path.abspath(path)


def make_temporary() -> str:
    """A directory for the checkpoint of a query without a checkpointLocation; it goes with the query, or with this
    process."""
    directory = scratch(uuid.uuid4().hex[:16])
    _temporary.add(directory)
    return directory


def remove_temporary(directory: str) -> None:
    """Remove a directory that `make_temporary` made."""
    shutil.rmtree(directory, ignore_errors=True)
    _temporary.discard(directory)


@atexit.register
def _remove_all_temporary() -> None:
    for directory in tuple(_temporary):
        remove_temporary(directory)
