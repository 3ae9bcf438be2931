"""Servers of object stores on loopback, for tests: S3 by moto, Azure by its own emulator, Azurite.

As a script it is the S3 server itself: moto, with one lock around every request. Amazon decides on a conditional put in
one step, moto in two, between which another thread of it could come.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any
from urllib.parse import quote

ROOT = Path(__file__).parents[2]
BUCKET = "sluice"
ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Of Azurite's documentation: the same everywhere, and no secret."""


class NotAvailable(Exception):
    """Why there is no such server here."""


@contextmanager
def s3_server() -> Iterator[Callable[[str], str]]:
    """From a path to its URI on an S3 server that lives as long as the context."""
    port = _free_port()
    with _process([sys.executable, __file__, str(port)], port):
        _request("PUT", f"http://127.0.0.1:{port}/{BUCKET}")
        options = f"endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
        yield lambda path: f"s3://key:secret@{BUCKET}/{path}?{options}"


@contextmanager
def azure_server() -> Iterator[Callable[[str], str]]:
    """From a path to its URI on an Azure server that lives as long as the context."""
    installed = subprocess.run([str(ROOT / "scripts" / "azurite.sh")], capture_output=True, text=True, check=False)
    if installed.returncode:
        raise NotAvailable(f"scripts/azurite.sh could not install Azurite: {installed.stderr.strip()[-300:]}")
    port = _free_port()
    program = ROOT / ".azurite" / "node_modules" / ".bin" / "azurite-blob"
    options = ["--silent", "--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck"]
    with _process(["node", str(program), *options, "--blobPort", str(port)], port):
        _make_container(port)
        account = f"{ACCOUNT}:{quote(ACCOUNT_KEY, safe='')}"
        yield lambda path: f"abfs://{account}@127.0.0.1:{port}/{BUCKET}/{path}?enable_tls=false"


SERVERS = {"s3": s3_server, "azure": azure_server}


def _make_container(port: int) -> None:
    """The one call that the library under test does not have, signed by hand."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    lines = [f"{name}:{value}" for name, value in headers.items()]
    text = "\n".join(["PUT", *[""] * 11, *lines, f"/{ACCOUNT}/{ACCOUNT}/{BUCKET}", "restype:container"])
    digest = hmac.new(base64.b64decode(ACCOUNT_KEY), text.encode(), hashlib.sha256).digest()
    signed = {**headers, "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"}
    _request("PUT", f"http://127.0.0.1:{port}/{ACCOUNT}/{BUCKET}?restype=container", signed)


def _request(method: str, url: str, headers: dict[str, str] | None = None) -> None:
    request = urllib.request.Request(url, method=method, headers={**(headers or {}), "Content-Length": "0"})
    with urllib.request.urlopen(request):
        pass


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@contextmanager
def _process(command: list[str], port: int) -> Iterator[None]:
    """A server process, once it listens; it ends with the context."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(1200):
            with socket.socket() as trying:
                if trying.connect_ex(("127.0.0.1", port)) == 0:
                    break
            if process.poll() is not None:
                raise NotAvailable(f"{command[0]} ended with {process.returncode}")
            time.sleep(0.1)
        yield
    finally:
        process.kill()
        process.wait()


def serve_s3(port: int) -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import run_simple

    application = DomainDispatcherApplication(create_backend_app)
    lock = threading.Lock()

    def one_at_a_time(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        with lock:
            return list(application(environ, start_response))

    run_simple("127.0.0.1", port, one_at_a_time, threaded=True)


if __name__ == "__main__":
    os.environ["MOTO_S3_DEFAULT_KEY_BUFFER_SIZE"] = str(64 << 20)
    serve_s3(int(sys.argv[1]))
