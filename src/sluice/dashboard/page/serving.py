"""The page at an address, until it is told to stop."""

from __future__ import annotations

import socket
import sys
import threading
from contextlib import suppress

import uvicorn

from sluice.control.journal import Journal
from sluice.dashboard.page.access import Access
from sluice.dashboard.page.driver import Driver
from sluice.dashboard.page.history import History
from sluice.dashboard.page.server import page_app
from sluice.model.errors import FlowError


def serve_page(
    journal: Journal, host: str, port: int, interval: float, with_parent: bool = False, control: bool = False
) -> int:
    """Print the page's link and serve it until Ctrl-C; `with_parent`: or until standard input ends, as it does with the
    process that started this one. With `control`, what people ask for goes to that process."""
    history, access = History(journal), Access.for_page(host, control)
    listening = _listen(host, port)
    driver = Driver(sys.stdout.buffer) if control else None
    server = uvicorn.Server(
        uvicorn.Config(
            page_app(history, access, interval, lambda: server.should_exit, driver),
            log_level="warning",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=5,
        )
    )
    print(f"{history.name}: {access.link(_shown(host), listening.getsockname()[1])}", flush=True)
    if with_parent:
        threading.Thread(target=_hear_parent, args=(server, driver), daemon=True).start()
    with suppress(KeyboardInterrupt):
        server.run(sockets=[listening])
    return 0


def _hear_parent(server: uvicorn.Server, driver: Driver | None) -> None:
    """Take in answers until the parent ends; then so does the page."""
    for line in sys.stdin.buffer:
        if driver is not None:
            driver.hear(line)
    server.should_exit = True


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, OverflowError) as problem:
        why = getattr(problem, "strerror", None) or problem
        raise FlowError(f"cannot listen on {host}, port {port}: {why}") from problem


def _shown(host: str) -> str:
    """An address that a browser can open."""
    return socket.gethostname() if host in ("0.0.0.0", "::") else host
