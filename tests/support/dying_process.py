"""Work in a process of its own that dies just before one of its file operations."""

from __future__ import annotations

import os
from collections.abc import Callable

from forking import fork

from sluice.state.files.storage import watch

DIED = 9


def dies_before(operation: int, work: Callable[[], None], counts: Callable[[str], bool] = lambda path: True) -> bool:
    """Do the work in a child process, which dies just before a file operation, counted from 0 over the paths that
    count. Whether it died; it is an error if the work failed."""
    child = fork()
    if child == 0:
        count = 0

        def watcher(name: str, path: str) -> None:
            nonlocal count
            if count == operation:
                os._exit(DIED)
            count += counts(path)

        try:
            with watch(watcher):
                work()
            os._exit(0)
        except BaseException:
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, DIED), f"the child failed with {status}"
    return status == DIED
