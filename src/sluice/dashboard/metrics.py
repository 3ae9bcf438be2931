"""A checkpoint's newest epoch as metrics of Prometheus.

Counters are sums over all epochs since the checkpoint began: its journal has them. No label grows: streams, sites,
tiers, phases, verbs and outcomes are few, and neither units nor keys nor queries, which come and go, are labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

from prometheus_client import CollectorRegistry, generate_latest, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from sluice.control.journal import Journal
from sluice.dashboard.site_rows import TIERS
from sluice.dashboard.watermarks import watermark_seconds
from sluice.model.epoch.stats import phases
from sluice.model.errors import SluiceError
from sluice.model.identity import CheckpointIdentity
from sluice.model.plan.recorded_plan import RecordedPlan
from sluice.record.epoch import EpochRecord

FLOW = "flow"
Sample = tuple[tuple[str, ...], float]
"""The values of labels beside the flow's name, and the value."""


WsgiApp: TypeAlias = Callable[[dict[str, Any], Callable[..., object]], Iterable[bytes]]
"""Takes a request's environment and a function that takes status and headers; returns the body."""


class CheckpointCollector(Collector):
    """Reads the newest epoch of a checkpoint whenever it is asked."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        journal.recognised()

    def collect(self) -> Iterator[Metric]:
        """All metrics; before the first epoch, that there was none."""
        identity = self._journal.recognised()
        newest = self._journal.newest_with_plan()
        if newest is None or newest[0].record.number < 0:
            yield _counter(identity, "sluice_epochs", "Epochs that were committed.", (), [((), 0)])
            return
        entry, plan = newest
        yield from epoch_metrics(identity, plan, entry.record)


def metrics_text(journal: Journal) -> str:
    """All metrics in the text format of Prometheus."""
    return generate_latest(registry_of(journal)).decode()


def scrape_app(journal: Journal) -> WsgiApp:
    """Answers scrapes of a checkpoint; 503 with the reason while it cannot be read."""

    def answer(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
        try:
            app: WsgiApp = make_wsgi_app(registry_of(journal))
            return app(environ, start_response)
        except SluiceError as problem:
            start_response("503 Service Unavailable", [("Content-Type", "text/plain; charset=utf-8")])
            return [f"{problem}\n".encode()]

    return answer


def registry_of(journal: Journal) -> CollectorRegistry:
    """A registry with the metrics of a checkpoint."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(CheckpointCollector(journal))
    return registry


def epoch_metrics(identity: CheckpointIdentity, plan: RecordedPlan, record: EpochRecord) -> Iterator[Metric]:
    """The metrics after an epoch."""
    yield from _sums(identity, record)
    yield from _newest_epoch(identity, plan, record)
    yield from _sites(identity, record)


def _sums(identity: CheckpointIdentity, record: EpochRecord) -> Iterator[Metric]:
    totals, streams = record.totals, record.totals.streams
    counters: list[tuple[str, str, tuple[str, ...], list[Sample]]] = [
        ("sluice_epochs", "Epochs that were committed.", (), [((), record.number + 1)]),
        ("sluice_rows", "Rows that came in.", ("stream",), [((s.name,), s.rows) for s in streams]),
        ("sluice_late_rows", "Rows dropped as late.", ("stream",), [((s.name,), s.late) for s in streams]),
        (
            "sluice_invalid_rows",
            "Rows dropped for a null or an event time out of range.",
            ("stream",),
            [((s.name,), s.nulls + s.out_of_range) for s in streams],
        ),
        (
            "sluice_unread_files",
            "Files that were missing or corrupt, and ignored.",
            ("stream",),
            [((s.name,), s.missing + s.corrupt) for s in streams],
        ),
        ("sluice_results", "Results of all queries.", (), [((), totals.results)]),
        (
            "sluice_busy_seconds",
            "Seconds that a site worked.",
            ("site",),
            [((str(site),), spent) for site, spent in enumerate(totals.busy_seconds)],
        ),
        (
            "sluice_actions",
            "Actions on units and sites that came to an end.",
            ("verb", "outcome"),
            [((one.verb.value.replace(" ", "_"), one.outcome), one.count) for one in totals.actions],
        ),
        ("sluice_moves", "Units that went to another site.", (), [((), totals.moves)]),
        ("sluice_moved_bytes", "State of units that went to another site.", (), [((), totals.moved_bytes)]),
        ("sluice_exchanged_bytes", "Rows sent to sites.", (), [((), totals.exchanged_bytes)]),
        (
            "sluice_between_sites_bytes",
            "Rows that left the home of their stream, or the site that made them.",
            (),
            [((), totals.bytes_between_sites)],
        ),
        ("sluice_copied_bytes", "Rows sent to further holders of shared units.", (), [((), totals.copied_bytes)]),
        ("sluice_fetched_bytes", "State read from the checkpoint.", (), [((), totals.fetched_bytes)]),
        ("sluice_damaged_files", "Local files that were not as written.", (), [((), totals.damaged_files)]),
    ]
    for name, help_, labels, samples in counters:
        yield _counter(identity, name, help_, labels, samples)
    epochs = SummaryMetricFamily("sluice_epoch_seconds", "Time of epochs by phase.", labels=[FLOW, "phase"])
    for one in totals.phases:
        epochs.add_metric([identity.name, one.phase], totals.timed_epochs, one.seconds)
    yield epochs


def _newest_epoch(identity: CheckpointIdentity, plan: RecordedPlan, record: EpochRecord) -> Iterator[Metric]:
    stats = record.stats
    marks = watermark_seconds(identity, plan, record).items()
    gauges: list[tuple[str, str, tuple[str, ...], list[Sample]]] = [
        (
            "sluice_last_commit_timestamp_seconds",
            "When the newest epoch was committed.",
            (),
            [((), stats.committed_at)],
        ),
        (
            "sluice_last_epoch_seconds",
            "Time of the newest epoch by phase, until its commit.",
            ("phase",),
            [((phase,), spent) for phase, spent in phases(stats).items()],
        ),
        (
            "sluice_watermark_timestamp_seconds",
            "The event time below which rows are late.",
            ("stream",),
            [((name,), mark) for name, mark in marks],
        ),
        (
            "sluice_watermark_lag_seconds",
            "By how much the watermark was behind the clock at the newest commit.",
            ("stream",),
            [((name,), stats.committed_at - mark) for name, mark in marks],
        ),
        ("sluice_imbalance_ratio", "Work of the busiest site by that of the average one.", (), [((), stats.imbalance)]),
        ("sluice_sites", "Sites that take part.", (), [((), record.routing.sites)]),
        ("sluice_units", "Units of all operators.", (), [((), record.routing.units)]),
        ("sluice_shared_units", "Units with several holders.", (), [((), len(record.routing.shared))]),
        ("sluice_queries", "Queries of the flow.", (), [((), len(plan.queries))]),
        ("sluice_actions_under_way", "Actions that have not come to an end.", (), [((), len(record.under_way))]),
    ]
    for name, help_, labels, samples in gauges:
        yield _gauge(identity, name, help_, labels, samples)


def _sites(identity: CheckpointIdentity, record: EpochRecord) -> Iterator[Metric]:
    sites = [(str(site.site), site) for site in record.stats.sites]
    by_tier = [((name, tier), getattr(site, column)) for name, site in sites for tier, column in TIERS.items()]
    yield _gauge(identity, "sluice_state_bytes", "State by tier.", ("site", "tier"), by_tier)
    gauges = {
        "sluice_state_rows": ("Rows of state.", "rows"),
        "sluice_memory_limit_bytes": ("Memory that a site may use for state.", "memory_limit"),
        "sluice_frozen_bytes": ("State that is frozen.", "frozen_bytes"),
        "sluice_backlog_rows": ("Input that waits.", "pending_rows"),
        "sluice_backlog_bytes": ("Input that waits.", "pending_bytes"),
    }
    for name, (help_, field) in gauges.items():
        samples: list[Sample] = [((site,), getattr(stats, field)) for site, stats in sites]
        yield _gauge(identity, name, help_, ("site",), samples)


def _counter(
    identity: CheckpointIdentity, name: str, help_: str, labels: tuple[str, ...], samples: Iterable[Sample]
) -> Metric:
    return _with_samples(CounterMetricFamily(name, help_, labels=[FLOW, *labels]), identity, samples)


def _gauge(
    identity: CheckpointIdentity, name: str, help_: str, labels: tuple[str, ...], samples: Iterable[Sample]
) -> Metric:
    return _with_samples(GaugeMetricFamily(name, help_, labels=[FLOW, *labels]), identity, samples)


def _with_samples(
    family: CounterMetricFamily | GaugeMetricFamily, identity: CheckpointIdentity, samples: Iterable[Sample]
) -> Metric:
    for values, value in samples:
        family.add_metric([identity.name, *values], value)
    return family
