"""The live page of a checkpoint, served in this process, and what it answers."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from typing import Any

import uvicorn

from sluice.control.journal import Journal
from sluice.dashboard.page.access import Access
from sluice.dashboard.page.driver import Driver
from sluice.dashboard.page.history import History
from sluice.dashboard.page.server import page_app
from sluice.state.files.storage import Storage


@dataclass(frozen=True)
class ServedPage:
    """A page that answers."""

    port: int
    history: History
    access: Access

    @property
    def link(self) -> str:
        return self.access.link("127.0.0.1", self.port)

    def get(self, path: str, method: str = "GET", body: bytes | None = None, **headers: str) -> HTTPResponse:
        """The answer to a request."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        return connection.getresponse()

    def value(self, path: str) -> Any:
        """What a view is told."""
        answer = self.get(path)
        text = answer.read()
        assert answer.status == 200, text
        return json.loads(text)

    def news(self) -> Iterator[dict[str, Any]]:
        """What a browser hears, one after the other."""
        with self.get("/events") as answer:
            for line in answer:
                if line.startswith(b"data: "):
                    yield json.loads(line.removeprefix(b"data: "))


@contextmanager
def served_page(
    uri: str, access: Access | None = None, interval: float = 0.05, driver: Driver | None = None
) -> Iterator[ServedPage]:
    """The page of a checkpoint, until the block ends."""
    history, access = History(Journal(Storage(uri))), access or Access()
    config = uvicorn.Config(
        page_app(history, access, interval, lambda: server.should_exit, driver),
        lifespan="off",
        log_level="warning",
        timeout_graceful_shutdown=30,
    )
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(config)
    serving = threading.Thread(target=server.run, args=([listening],), daemon=True)
    serving.start()
    try:
        yield ServedPage(listening.getsockname()[1], history, access)
    finally:
        server.should_exit = True
        serving.join(30)
        listening.close()
