"""`sluice ui`: a query in a browser, from its checkpoint alone."""

from __future__ import annotations

from sluice.control.journal import Journal
from sluice.model.durations import seconds
from sluice.model.errors import FlowError
from sluice.model.extras import Extra, require
from sluice.state.files.storage import Storage

SHORTEST, LONGEST = 0.05, 3600.0


def ui(checkpoint: str, host: str, port: int, interval: str, with_parent: bool = False, control: bool = False) -> int:
    """Serve the page of a checkpoint until Ctrl-C."""
    pause = seconds(interval, "interval")
    if not SHORTEST <= pause <= LONGEST:
        raise FlowError(f"interval must be between 50 milliseconds and 1 hour, not {interval!r}")
    if control and not with_parent:
        raise FlowError(
            "only the process that runs a query can act on it: open the page there, with query.ui(control=True) or "
            "sluice run FILE --ui --control"
        )
    journal = Journal(Storage(checkpoint))
    journal.recognised()
    require(Extra.UI, "sluice ui")
    from sluice.dashboard.page.serving import serve_page

    return serve_page(journal, host, port, pause, with_parent, control)
