"""A run as one HTML file: the summary, plots over the epochs, decisions, the last epochs, the streams and operators.

It opens without a network: the style sheet and the plots are inside, there is no script.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from importlib.resources import files

from sluice.control.journal import Journal
from sluice.dashboard import plot, series
from sluice.dashboard.decision_text import summarize
from sluice.dashboard.picture import dark_style, written
from sluice.dashboard.quantity import BYTES, COUNT, RATIO, ROWS, ROWS_PER_SECOND, SECONDS
from sluice.dashboard.query_table import OVER, columns_of, rank_queries
from sluice.model.durations import in_words
from sluice.model.epoch.decision import DecisionOutcome, outcomes
from sluice.model.errors import StorageError
from sluice.model.extras import Extra, require
from sluice.model.identity import CheckpointIdentity
from sluice.model.plan.recorded_plan import RecordedPlan
from sluice.record.epoch import EpochRecord
from sluice.record.query_progress import QueryProgress
from sluice.state.files.storage import Storage

LISTED = 25
_LINES = 60
"""Lines about operators that are seen at once."""


def report_checkpoint(uri: str, path: str) -> None:
    """Write the report of the checkpoint at `uri`; the checkpoint is only read, its query may be running."""
    require(Extra.CHARTS, "a report")
    identity, plan, records = read_checkpoint(uri)
    write_report(records, identity, plan, path)


def read_checkpoint(uri: str) -> tuple[CheckpointIdentity, RecordedPlan, list[EpochRecord]]:
    """The identity of a checkpoint, the plan of its newest epoch, and the epochs on record."""
    journal = Journal(Storage(uri))
    identity = journal.recognised()
    records = journal.epochs()
    return identity, journal.plan_after(records), records


def write_report(records: Sequence[EpochRecord], identity: CheckpointIdentity, plan: RecordedPlan, path: str) -> None:
    """Write the report of these epochs, oldest first, of the flow with this identity, which goes by this plan."""
    page = _page(list(records), identity, plan)
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(page)
    except OSError as problem:
        raise StorageError(f"cannot write the report to {path}: {problem.strerror or problem}") from problem


def _page(records: list[EpochRecord], identity: CheckpointIdentity, plan: RecordedPlan) -> str:
    name = identity.name
    style = files("sluice.dashboard").joinpath("report.css").read_text(encoding="utf-8") + dark_style()
    sections = [_header(name, records), _tiles(records)]
    if records:
        sections.append(_plots(records))
    decisions = outcomes(records)
    if decisions:
        sections.append("<h2>Decisions</h2>" + _decisions(decisions))
    queries = rank_queries(plan, records)
    if queries:
        sections.append(f"<h2>Queries</h2><p>{written(OVER)}</p>{_queries(queries)}")
    if records:
        sections.append("<h2>Sites after the last epoch</h2>" + _sites(records[-1]))
        sections.append(f"<h2>Last epochs</h2>{_epochs(records[-LISTED:])}")
    sections.append("<h2>Streams</h2>" + _streams(identity))
    sections.append("<h2>Operators</h2>" + _operators(identity, plan))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{written(name)}: Sluice report</title>\n<style>\n{style}</style></head>\n<body>\n"
        + "\n".join(sections)
        + "\n</body></html>\n"
    )


def _header(name: str, records: list[EpochRecord]) -> str:
    if not records:
        standing = "no epoch has committed yet"
    else:
        first, last = records[0], records[-1]
        standing = f"epochs {first.number:,} to {last.number:,}" if len(records) > 1 else f"epoch {last.number:,}"
        if first.number > 0:
            standing += " (the journal keeps the last ones)"
        standing += f", committed {_when(first)}" + (f" to {_when(last)}" if len(records) > 1 else "")
    return f"<header><h1>{written(name)}</h1><p>{written(standing)}</p></header>"


def _tiles(records: list[EpochRecord]) -> str:
    s = series.summary(records)
    took = sum(r.stats.seconds.elapsed for r in records)
    tiles = [
        ("Epochs", f"{len(records):,}", f"{SECONDS.text(took)} in all"),
        ("Rows in", ROWS.text(s.rows_in), f"{s.rows_in:,}"),
        ("Results", ROWS.text(s.rows_out), f"{s.rows_out:,}"),
        ("Late rows, dropped", ROWS.text(s.late), f"{_share(s.late, s.rows_in)} of the rows in"),
        ("Rows in per second", ROWS.text(s.rows_per_second), "median of the epochs"),
        ("State, rows", ROWS.text(s.state_rows), f"{s.state_rows:,} after the last epoch"),
        ("State, bytes", BYTES.text(s.state_bytes), "after the last epoch, durable"),
    ]
    return (
        '<dl class="tiles">'
        + "".join(
            f"<div><dt>{written(what)}</dt><dd>{written(value)}</dd><small>{written(more)}</small></div>"
            for what, value, more in tiles
        )
        + "</dl>"
    )


def _plots(records: list[EpochRecord]) -> str:
    epochs = [r.number for r in records]
    plots = [
        plot.stack("Rows in per second", epochs, series.by_stream(records, "rows", True), ROWS_PER_SECOND),
        plot.lines("Results per second", epochs, [series.results_per_second(records)], ROWS_PER_SECOND),
        plot.stack(
            "Epoch time by phase",
            epochs,
            series.by_phase(records),
            SECONDS,
            "exchange is what Spark does around the tasks: planning, scheduling, shuffling",
        ),
        plot.stack(
            "State by tier",
            epochs,
            series.by_tier(records),
            BYTES,
            "memory and disk are local; durable is the checkpoint's copy of all of it",
        ),
        plot.by_site("State rows by site", epochs, series.by_site(records, "rows"), ROWS),
        plot.by_site("Busy time by site", epochs, series.by_site(records, "busy_seconds"), SECONDS),
        plot.stack("Late rows", epochs, series.by_stream(records, "late"), ROWS, "dropped and counted"),
        *_adaptive_plots(records, epochs),
    ]
    return f'<h2>Over the epochs</h2><div class="plots">{"".join(plots)}</div>'


def _adaptive_plots(records: list[EpochRecord], epochs: list[int]) -> list[str]:
    """How evenly the sites worked, what waited and what changed its place, so far as there is any of it."""
    plots = []
    if any(len(r.stats.sites) > 1 for r in records):
        note = "the busiest site's time divided by the mean of all: 1 is even"
        plots.append(plot.lines("Imbalance", epochs, [series.by_epoch(records, "imbalance")], RATIO, note))
    backlog = series.by_site(records, "pending_rows")
    if any(any(one.values) for one in backlog):
        note = "rows that wait for their unit's turn"
        plots.append(plot.by_site("Backlog by site", epochs, backlog, ROWS, note))
    changes = [series.by_epoch(records, name) for name in ("moves", "spills", "fetches")]
    if any(any(one.values) for one in changes):
        note = "to another site, to disk, and back from it"
        plots.append(plot.stack("Units that changed their place", epochs, changes, COUNT, note))
    return plots


def _decisions(decisions: list[DecisionOutcome]) -> str:
    rows = [(str(one.epoch), one.policy, one.action, one.reason, one.outcome) for one in summarize(decisions)]
    return _table(("epoch", "policy", "action", "reason", "outcome"), rows, words=True)


def _sites(record: EpochRecord) -> str:
    rows = [
        (
            str(site.site),
            f"{site.units:,}",
            f"{site.rows:,}",
            f"{site.segments:,}",
            *(BYTES.text(getattr(site, column)) for column in series.TIERS.values()),
            f"{site.spilled_units:,}",
            f"{site.pending_rows:,}",
            SECONDS.text(site.busy_seconds),
            site.executor,
        )
        for site in record.stats.sites
    ]
    head = ("site", "units", "state rows", "segments", *series.TIERS, "units on disk", "backlog", "busy", "executor")
    return _table(head, rows)


def _epochs(records: list[EpochRecord]) -> str:
    rows = []
    for record in reversed(records):
        stats, sites = record.stats, record.stats.sites
        rows.append(
            (
                f"{record.number:,}",
                f"{stats.rows_in:,}",
                f"{stats.rows_out:,}",
                f"{stats.late_rows:,}",
                f"{sum(site.rows for site in sites):,}",
                f"{sum(site.merged_rows for site in sites):,}",
                f"{stats.moves:,}",
                f"{stats.backlog_rows:,}",
                f"{stats.imbalance:.2f}",
                BYTES.text(sum(site.spilled_bytes for site in sites)),
                BYTES.text(sum(site.fetched_bytes for site in sites)),
                SECONDS.text(stats.seconds.elapsed),
                _when(record),
            )
        )
    head = ("epoch", "rows in", "results", "late", "state rows", "merged", "moves", "backlog", "imbalance")
    return _table((*head, "spilled", "fetched", "time", "committed"), rows)


def _streams(identity: CheckpointIdentity) -> str:
    rows = [
        (
            stream.name,
            stream.eventTime,
            in_words(stream.delay),
            ", ".join(f"{column} {kind}" for column, kind in stream.columns),
        )
        for stream in identity.streams
    ]
    return _table(("stream", "event time", "delay", "columns"), rows, words=True)


def _operators(identity: CheckpointIdentity, plan: RecordedPlan) -> str:
    lines = plan.says.split("\n")
    said = f"<pre>{written(plan.says)}</pre>"
    if len(lines) > _LINES:
        first, rest = (written("\n".join(part)) for part in (lines[:_LINES], lines[_LINES:]))
        more = f"<details><summary>{len(lines) - _LINES:,} more lines</summary><pre>{rest}</pre></details>"
        said = f"<pre>{first}</pre>{more}"
    return f"{said}<p>{identity.partitions} units</p>"


def _queries(queries: Sequence[QueryProgress]) -> str:
    columns = columns_of(queries)
    return _table([name for name, _ in columns], list(zip(*(cells for _, cells in columns), strict=True)))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], words: bool = False) -> str:
    kind = "table words" if words else "table"
    top = "".join(f"<th>{written(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{written(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="{kind}"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _share(part: int, whole: int) -> str:
    share = 100 * part / whole if whole else 0.0
    return "less than 0.01 %" if 0 < share < 0.01 else f"{share:.2g} %"


def _when(record: EpochRecord) -> str:
    return datetime.fromtimestamp(record.stats.committed_at, tz=timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
