"""`sluice metrics`: a checkpoint's figures for Prometheus, once or as often as it asks."""

from __future__ import annotations

from contextlib import suppress
from importlib.resources import files

from sluice.control.journal import Journal
from sluice.model.errors import FlowError
from sluice.model.extras import Extra, require
from sluice.state.files.storage import Storage

LOOPBACK = "127.0.0.1"


def print_metrics(checkpoint: str) -> str:
    """All metrics after the newest epoch, in the text format of Prometheus."""
    require(Extra.METRICS, "sluice metrics")
    from sluice.dashboard.metrics import metrics_text

    return metrics_text(Journal(Storage(checkpoint)))


def serve_metrics(checkpoint: str, port: int, host: str = LOOPBACK) -> int:
    """Answer scrapes until Ctrl-C; each reads the newest epoch."""
    require(Extra.METRICS, "sluice metrics")
    from prometheus_client import start_http_server

    from sluice.dashboard.metrics import registry_of, scrape_app

    journal = Journal(Storage(checkpoint))
    try:
        server, thread = start_http_server(port, addr=host, registry=registry_of(journal))
    except (OSError, OverflowError) as problem:
        why = getattr(problem, "strerror", None) or problem
        raise FlowError(f"cannot listen on {host}, port {port}: {why}") from problem
    server.set_app(scrape_app(journal))
    print(f"metrics at http://{host}:{server.server_port}/metrics, until Ctrl-C", flush=True)
    with suppress(KeyboardInterrupt):
        thread.join()
    server.shutdown()
    return 0


def grafana_dashboard() -> str:
    """A dashboard of these metrics, to import into Grafana."""
    return files("sluice.dashboard").joinpath("grafana.json").read_text(encoding="utf-8")
