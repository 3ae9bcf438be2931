"""What a checkpoint says of itself, for people: the flow, its epochs, routing, state by tier, the last epochs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from itertools import groupby

from sluice.control.journal import FORMAT, Journal
from sluice.dashboard.decision_text import DecisionSummary, summarize
from sluice.dashboard.frozen_text import clean_up_text, frozen_text
from sluice.dashboard.quantity import BYTES, PRODUCTIVITY
from sluice.dashboard.query_table import OVER, WORDS, columns_of, rank_queries, rest_text
from sluice.dashboard.terminal_style import align_columns, one_line
from sluice.model.epoch.decision import outcomes
from sluice.model.errors import CheckpointError
from sluice.model.identity import CheckpointIdentity
from sluice.model.ids import Site
from sluice.model.plan.recorded_plan import RecordedPlan
from sluice.model.routing.unit_ids import list_units
from sluice.model.routing.unit_ranges import numbers
from sluice.record.epoch import EpochRecord
from sluice.state.files.storage import Storage

_RANKED = 5  # units that are named at either end
_LISTED = 8  # runs of units that are named
_LINES = 20  # operators and queries that are listed


def inspect(uri: str, epochs: int = 10) -> str:
    """A page of text about the checkpoint at `uri`; it is only read."""
    journal = Journal(Storage(uri))
    identity = journal.recognised()
    passed_by: list[CheckpointError] = []
    records = journal.epochs(epochs, passed_by)
    if passed_by and not records:
        raise passed_by[0]
    plan = journal.plan_after(records)
    lines = [*_flow(identity, plan), *_listed("Passed by", [str(damage) for damage in passed_by], "entries")]
    if not records:
        return _page([*lines, "", "No epoch has committed yet."])
    last = records[-1]
    lines += ["", f"Epochs     {last.number + 1} committed, the last one {_when(last.stats.committed_at)}"]
    lines += ["", *_routing(last), "", *_state(last), *_yields(last), *_frozen(last)]
    lines += [*_queries(plan, records), "", *_history(records)]
    decisions = outcomes(records)
    if decisions:
        lines += ["", "Decisions", *(f"  {_decision(one)}" for one in summarize(decisions))]
    return _page(lines)


def _page(lines: Sequence[str]) -> str:
    """What the checkpoint says was written by others: no line moves a terminal's cursor."""
    return "\n".join(map(one_line, lines))


def _flow(identity: CheckpointIdentity, plan: RecordedPlan) -> list[str]:
    lines = [f"Flow       {identity.name!r}, checkpoint format {FORMAT}, id {identity.id}"]
    lines += [f"Stream     {stream.describe()}" for stream in identity.streams]
    queries = [f"{query.name}: {query.says}" for query in plan.queries] if len(plan.queries) > 1 else []
    return [*lines, *_listed("Operators", plan.says.split("\n"), "lines"), *_listed("Queries", queries, "queries")]


def _listed(heading: str, lines: Sequence[str], what: str) -> list[str]:
    """Lines behind a heading; of many, the first ones."""
    left = len(lines) - _LINES
    shown = lines if left <= 1 else [*lines[:_LINES], f"… and {left:,} more {what}"]
    return [f"{heading if i == 0 else '':<10} {line}" for i, line in enumerate(shown)]


def _routing(record: EpochRecord) -> list[str]:
    routing = record.routing
    lines = [
        f"Routing    version {routing.version} since epoch {routing.since}: {routing.units} units at "
        f"{routing.sites} sites"
    ]
    if len(routing.directories) > 1:
        shown = routing.directories[:_LISTED]
        fragments = [list_units(routing.ids.array[slice(*d.range)], _LISTED) for d in shown]
        left = len(routing.directories) - len(shown)
        more = f"; … and {left:,} more fragments" if left else ""
        lines.append(f"  units of fragments: {'; '.join(fragments)}{more}")
    lines += [f"  {directory.describe()}" for directory in routing.directories if directory.depths]
    for site in range(routing.sites):
        units = routing.units_at(numbers(routing.ranges_of(Site(site))))
        lines.append(f"  site {site}: {len(units)} units ({list_units(units, _LISTED)})")
    return [*lines, *(f"  {sharing.describe()}" for sharing in routing.shared)]


def _state(record: EpochRecord) -> list[str]:
    rows = [("site", "rows", "segments", "memory", "disk", "durable", "backlog", "spilled units", "levels")]
    for site, manifest in zip(record.stats.sites, record.manifests, strict=True):
        levels = sorted(run.segment.level for run in manifest)
        shown = " ".join(f"L{level}:{len(list(group))}" for level, group in groupby(levels))
        rows.append(
            (
                str(site.site),
                f"{site.rows:,}",
                str(site.segments),
                BYTES.text(site.memory_bytes),
                BYTES.text(site.disk_bytes),
                BYTES.text(site.durable_bytes),
                f"{site.pending_rows:,}",
                str(site.spilled_units),
                shown or "-",
            )
        )
    return [f"State      after epoch {record.number}, {len(record.files())} durable files", *align_columns(rows)]


def _yields(record: EpochRecord) -> list[str]:
    """What the state in memory is good for: by site, and the units at both ends. Nothing where no operator is a join,
    whose state alone is ranked by it."""
    units = record.stats.units
    if not units.results_produced.any():
        return []
    rows = [("site", "results/unit", "productivity")]
    for site in record.stats.sites:
        rows.append((str(site.site), f"{site.results_per_unit:,.1f}", PRODUCTIVITY.text(site.productivity)))
    productivity = units.productivity
    joins = [d.range for d in record.routing.directories if units.results_produced[slice(*d.range)].any()]
    places = [place for place in numbers(tuple(joins)).tolist() if units.memory[place] + units.disk[place]]
    ranked = sorted(places, key=lambda place: -productivity[place])

    def told(some: Sequence[int]) -> str:
        ids = record.routing.ids.array
        return ", ".join(f"{ids[place]} ({PRODUCTIVITY.text(productivity[place])})" for place in some)

    return [
        "",
        f"Yields     in epoch {record.number}, and by byte of state since its units were frozen last",
        *align_columns(rows),
        f"  units that yield most: {told(ranked[:_RANKED])}",
        f"  units that yield least: {told(ranked[: -_RANKED - 1 : -1])}",
    ]


def _frozen(record: EpochRecord) -> list[str]:
    """State that lies outside of memory until it is cleaned up, if there is any."""
    frozen, done = record.stats.frozen, record.stats.clean_up
    rows = [("site", "units", "missing results", "rows", "bytes", "results found late")]
    rows += [
        (
            str(site.site),
            f"{site.frozen_units:,}",
            f"{site.missing_units:,}",
            f"{site.frozen_rows:,}",
            BYTES.text(site.frozen_bytes),
            f"{site.late_results:,}",
        )
        for site in record.stats.sites
    ]
    lines = ["", f"Frozen     {frozen_text(*frozen)}", *align_columns(rows)] if frozen.units else []
    if done is not None:
        told = clean_up_text(done.rows_done, done.rows_left, done.results, done.rows_per_second)
        lines += ["", f"Cleaning   {told}"]
    return lines


def _queries(plan: RecordedPlan, records: Sequence[EpochRecord]) -> list[str]:
    """The queries that have most to do, if there are several."""
    ranked = rank_queries(plan, records)
    if not ranked:
        return []
    shown = ranked if len(ranked) <= _LINES + 1 else ranked[:_LINES]
    columns = columns_of(shown)
    rows = [[name for name, _ in columns], *zip(*(cells for _, cells in columns), strict=True)]
    words = {place for place, (name, _) in enumerate(columns) if name in WORDS}
    rest = [f"  {rest_text(ranked[len(shown) :], ranked)}"] if len(shown) < len(ranked) else []
    return ["", f"By query   {len(ranked):,}, {OVER}", *align_columns(rows, words), *rest]


def _history(records: list[EpochRecord]) -> list[str]:
    counted = {
        "rows in": "rows_in",
        "results": "rows_out",
        "late": "late_rows",
        "moves": "moves",
        "spills": "spills",
        "fetches": "fetches",
        "backlog": "backlog_rows",
    }
    rows = [("epoch", *counted, "imbalance", "seconds", "committed, UTC")]
    for record in records:
        stats = record.stats
        rows.append(
            (
                str(record.number),
                *(f"{getattr(stats, name):,}" for name in counted.values()),
                f"{stats.imbalance:.2f}",
                f"{stats.seconds.job:.2f}",
                _when(stats.committed_at).removesuffix(" UTC"),
            )
        )
    return ["Last epochs", *align_columns(rows)]


def _decision(one: DecisionSummary) -> str:
    return f"epoch {one.epoch}: {one.policy} {one.action} ({one.reason}): {one.outcome}"


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, tz=timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
