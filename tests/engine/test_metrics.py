"""`sluice metrics`: what Prometheus gets of a checkpoint, read by its own parser."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pyarrow as pa
import pytest
from engine_harness import DirectQuery
from page_server import served_page
from prometheus_client.parser import text_string_to_metric_families
from specs import SECOND, TIME, join, stream

from sluice import Freeze, Move, Split
from sluice.cli import metrics
from sluice.cli.main import main
from sluice.control.journal import Journal
from sluice.model.epoch.decision import Verb, outcomes
from sluice.state.files.storage import Storage
from sluice.testing.clocks import CountingClock

A, B = stream("a", delay=SECOND), stream("b", delay=SECOND)
CONVENTIONS = re.compile(r"sluice_[a-z]+(_[a-z]+)*")
UNITS = ("seconds", "bytes", "ratio", "rows", "units", "sites", "queries", "under_way")


def epoch_rows(number: int, keys: int = 30, rows: int = 50) -> list[pa.Table]:
    rng = np.random.default_rng(number)
    times = pa.array(number * 5 * SECOND + rng.integers(0, 8 * SECOND, rows), TIME)
    return [pa.table([rng.integers(0, keys, rows), times, rng.integers(0, 9, rows)], A.schema) for _ in range(2)]


def scrape(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """All series of a text, by name and labels."""
    series = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in series
            series[key] = sample.value
    return series


def value(series: dict, name: str, **labels: str) -> float:
    return series[name, tuple(sorted({"flow": "flow", **labels}.items()))]


def metrics_of(root: Path) -> dict:
    return scrape(metrics.print_metrics(str(root / "checkpoint")))


@pytest.fixture
def query(tmp_path: Path) -> Iterator[DirectQuery]:
    query = DirectQuery(join([A, B], 20 * SECOND), tmp_path, sites=3, partitions=8, clock=CountingClock(1e9))
    yield query
    query.close()


def test_they_are_what_the_journal_says(query, tmp_path):
    ask = query.epochs.settings.controller.ask
    for action in (Move(0, 2, "x"), Move(7, 99, "x"), Split(1, "x"), Freeze(2, "x")):
        ask(action)
    for number in range(8):
        query.run(epoch_rows(number))
    series, records, newest = metrics_of(tmp_path), query.epochs.history(), query.epochs.record
    assert value(series, "sluice_epochs_total") == 8
    for at, name in enumerate("ab"):
        streams = [record.stats.streams[at] for record in records]
        assert value(series, "sluice_rows_total", stream=name) == sum(one.rows for one in streams) == 400
        assert value(series, "sluice_late_rows_total", stream=name) == sum(one.late for one in streams) > 0
        lag = newest.stats.committed_at - (newest.newest[at] - SECOND) / 1e6
        assert value(series, "sluice_watermark_lag_seconds", stream=name) == pytest.approx(lag)
    assert value(series, "sluice_results_total") == sum(record.stats.rows_out for record in records) > 0
    assert value(series, "sluice_exchanged_bytes_total") == sum(record.stats.traffic.total for record in records)
    for site in range(3):
        busy = sum(record.stats.sites[site].busy_seconds for record in records)
        assert value(series, "sluice_busy_seconds_total", site=str(site)) == pytest.approx(busy, abs=1e-3)
        for tier in ("memory", "disk", "durable"):
            size = getattr(newest.stats.sites[site], f"{tier}_bytes")
            assert value(series, "sluice_state_bytes", site=str(site), tier=tier) == size
    assert value(series, "sluice_moves_total") == sum(record.stats.moves for record in records) == 1
    assert 0 < value(series, "sluice_moved_bytes_total") < value(series, "sluice_exchanged_bytes_total")
    ends = [(one.action, one.outcome) for one in outcomes(records) if one.outcome != "waiting"]
    assert (Verb.MOVE, "done") in ends and (Verb.MOVE, "refused") in ends and (Verb.SPLIT, "done") in ends
    for verb, outcome in ends:
        labels = {"verb": verb.value.replace(" ", "_"), "outcome": outcome}
        assert value(series, "sluice_actions_total", **labels) == ends.count((verb, outcome))
    assert value(series, "sluice_epoch_seconds_count", phase="kernel") == 7
    assert value(series, "sluice_units") == 9


def test_counters_go_on_over_restarts_and_beyond_what_the_journal_keeps(tmp_path):
    def start() -> DirectQuery:
        return DirectQuery(join([A, B], SECOND), tmp_path, partitions=2, clock=CountingClock(1e9))

    query, before, sums = start(), {}, 0
    for number in range(130):
        if number in (50, 51):
            query.close()
            query = start()
        query.run(epoch_rows(number, rows=3))
        sums += query.epochs.record.stats.rows_out
        if number % 10 == 0:
            series = metrics_of(tmp_path)
            for key, count in series.items():
                if key[0].endswith(("_total", "_count", "_sum")):
                    assert count >= before.get(key, 0.0), key
            before = series
    series = metrics_of(tmp_path)
    assert len(query.epochs.history()) <= 100
    assert value(series, "sluice_rows_total", stream="a") == 390
    assert value(series, "sluice_results_total") == sums
    query.close()


def test_no_label_grows(tmp_path):
    """As many series however many units, keys, epochs and queries there are."""
    counts = []
    for partitions, keys, epochs in ((2, 5, 2), (64, 500, 12)):
        root = tmp_path / str(partitions)
        root.mkdir()
        query = DirectQuery(join([A, B], 20 * SECOND), root, partitions=partitions, clock=CountingClock(1e9))
        for number in range(epochs):
            query.run(epoch_rows(number, keys, rows=200))
        counts.append(set(metrics_of(root)))
        query.close()
    assert counts[0] == counts[1]


def test_names_and_units_are_conventional(query, tmp_path):
    query.run(epoch_rows(0))
    for family in text_string_to_metric_families(metrics.print_metrics(str(tmp_path / "checkpoint"))):
        assert CONVENTIONS.fullmatch(family.name), family.name
        if family.type == "counter":
            assert all(sample.name.endswith("_total") for sample in family.samples)
        elif family.type == "gauge":
            assert family.name.endswith(UNITS), family.name


@contextmanager
def scraped(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address at which `sluice metrics --port 0` answers, until the block ends."""
    import prometheus_client

    servers = []
    start = prometheus_client.start_http_server

    def remember(port, addr, registry):
        servers.append((*start(port, addr=addr, registry=registry), addr))
        return servers[-1][:2]

    monkeypatch.setattr(prometheus_client, "start_http_server", remember)
    serving = threading.Thread(target=main, args=(["metrics", str(checkpoint), "--port", "0"],))
    serving.start()
    while not servers:
        serving.join(0.01)
    server, _, address = servers[0]
    try:
        yield f"http://{address}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


def test_a_scrape(query, tmp_path, monkeypatch, capsys):
    """Over HTTP; each scrape has the newest epoch. Nothing but loopback unless it is said."""
    query.run(epoch_rows(0))
    with scraped(tmp_path / "checkpoint", monkeypatch) as where:
        assert where.startswith("http://127.0.0.1:")
        for epochs in (1, 2):
            with urlopen(where) as answer:
                assert answer.headers["Content-Type"].startswith("text/plain")
                assert value(scrape(answer.read().decode()), "sluice_epochs_total") == epochs
            query.run(epoch_rows(epochs))
    assert "metrics at http://127.0.0.1:" in capsys.readouterr().out


def test_of_a_damaged_journal_a_scrape_says_so_in_words(query, tmp_path, monkeypatch, capsys):
    """The command and the page alike; they answer again when there is an epoch that can be read."""
    checkpoint = tmp_path / "checkpoint"
    query.run(epoch_rows(0))
    entry = max((checkpoint / "journal").glob("*.json"))
    content = entry.read_bytes()
    with scraped(checkpoint, monkeypatch) as where, served_page(str(checkpoint)) as page:
        page_url = f"http://127.0.0.1:{page.port}/metrics"
        entry.write_bytes(content[:-9])
        for url in (where, page_url):
            with pytest.raises(HTTPError) as refused:
                urlopen(url)
            assert refused.value.code == 503
            assert refused.value.headers["Content-Type"] == "text/plain; charset=utf-8"
            assert refused.value.read().decode() == f"{entry} is damaged: it has no checksum\n"
        entry.write_bytes(content)
        for url in (where, page_url):
            with urlopen(Request(url, headers={"Accept": "application/openmetrics-text"})) as answer:
                assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
                assert answer.read().endswith(b"# EOF\n")
    assert "Traceback" not in capsys.readouterr().err


def test_every_metric_of_the_dashboard_exists(query, tmp_path, capsys):
    query.epochs.settings.controller.ask(Move(0, 2, "x"))
    for number in range(4):
        query.run(epoch_rows(number))
    known = {name: {label for label, _ in labels} for name, labels in metrics_of(tmp_path)}
    assert main(["metrics", "--dashboard"]) == 0
    board = json.loads(capsys.readouterr().out)
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    expressions += [one["query"]["query"] for one in board["templating"]["list"] if one["type"] == "query"]
    used = {name for text in expressions for name in re.findall(r"\bsluice_\w+", text)}
    assert len(board["panels"]) > 10 and used <= set(known), used - set(known)
    for text in expressions:
        (first, *_) = re.findall(r"\bsluice_\w+", text)
        by = [label for labels in re.findall(r"by \(([\w, ]+)\)", text) for label in labels.split(", ")]
        assert {*by, *re.findall(r"(\w+)=", text)} <= known[first], text


def test_what_is_wrong_is_said_in_words(tmp_path, monkeypatch, capsys):
    assert main(["metrics", str(tmp_path / "nothing")]) == 2
    assert main(["metrics"]) == 2
    query = DirectQuery(join([A, B], SECOND), tmp_path)
    assert scrape(metrics.print_metrics(str(tmp_path / "checkpoint"))) == {
        ("sluice_epochs_total", (("flow", "flow"),)): 0.0
    }
    query.close()
    assert main(["metrics", str(tmp_path / "checkpoint"), "--port", "99999"]) == 2
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    assert main(["metrics", str(tmp_path / "checkpoint")]) == 2
    said = capsys.readouterr().err
    assert "holds no Sluice checkpoint" in said and "needs a checkpoint, or --dashboard" in said
    assert "cannot listen on 127.0.0.1, port 99999" in said and "pip install 'sluice-streaming[metrics]'" in said


def test_a_scrape_reads_one_entry(query, tmp_path):
    """However many epochs there were."""
    from sluice.state.files.storage import watch

    reads = []
    for epochs in (3, 30):
        while query.epochs.record.number + 1 < epochs:
            query.run(epoch_rows(query.next, rows=4))
        read: list[str] = []
        with watch(lambda operation, path, read=read: read.append(path) if operation == "read" else None):
            list(metrics.print_metrics(str(tmp_path / "checkpoint")))
        reads.append(len(read))
    assert reads[0] == reads[1] <= 8
    assert Journal(Storage(str(tmp_path / "checkpoint"))).newest()
