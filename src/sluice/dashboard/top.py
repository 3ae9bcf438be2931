"""What `sluice top` shows: how a query stands after its newest epoch, for a terminal of any size. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.text import Text

from sluice.dashboard.decision_text import DecisionSummary, adapted_text, summarize
from sluice.dashboard.frozen_text import clean_up_text, frozen_text
from sluice.dashboard.quantity import BYTES, PRODUCTIVITY, ROWS, ROWS_PER_SECOND, SECONDS
from sluice.dashboard.query_table import WORDS, columns_of, rank_queries, rest_text
from sluice.dashboard.site_rows import busiest
from sluice.dashboard.table import Column, table
from sluice.dashboard.terminal_style import one_line, spark
from sluice.model.epoch.decision import outcomes
from sluice.model.epoch.segments import unit_bytes
from sluice.model.ids import UnitIndex
from sluice.model.plan.recorded_plan import RecordedPlan
from sluice.record.epoch import EpochRecord
from sluice.record.query_progress import QueryProgress
from sluice.record.repartition import spread_column

LATELY = 10
"""Epochs that rates and counts are taken over."""
_CURVE = 20
_UNITS, _DECISIONS, _QUERIES = 10, 10, 20  # lines that are enough of them
_ABOVE = 2  # lines above the rows of a part: a space and the heading
_LEAST = 4  # lines of a part of many rows
_SIDE_BY_SIDE = 78
_RATES = {"rows in": "rows_in", "results": "rows_out"}
_NEARLY_FULL = 0.9
_SIZE = 8  # of bytes as texts, and seconds are one shorter: columns must not shift with every epoch

Part: TypeAlias = Callable[[int], Sequence[RenderableType]]
"""A part of the screen, drawn into so many lines."""


def screen(
    name: str,
    records: Sequence[EpochRecord],
    now: float,
    console: Console,
    rows: int,
    plan: RecordedPlan | None = None,
) -> Group:
    """The flow's last epochs, oldest first, in so many rows, as they look at the time `now`; `plan` is what the newest
    of them went by."""
    if not records:
        return Group(_line(f"{one_line(name)}: waiting for the first epoch", console))
    last, lately = records[-1], records[-LATELY:]
    lines: list[RenderableType] = [*_head(name, records, now, console)[:rows]]
    hottest = _hottest(lately)
    queries = rank_queries(plan or RecordedPlan(), lately)
    decisions = summarize(outcomes(records))[::-1]
    parts: list[tuple[int, Part]] = [
        (len(last.stats.sites), lambda room: _sites(last, console, room)),
        (min(_QUERIES, len(queries)), lambda room: _queries(queries, console, room)),
        (len(hottest), lambda room: _units(lately, hottest[:room], console)),
        (min(_DECISIONS, len(decisions)), lambda room: _decisions(decisions[:room], console)),
    ]
    rooms = share_lines(rows - len(lines), [entries + _ABOVE if entries else 0 for entries, _ in parts])
    for room, (_, draw) in zip(rooms, parts, strict=True):
        lines += ["", *draw(room - _ABOVE)] if room else []
    return Group(*lines)


def share_lines(room: int, needs: Sequence[int]) -> list[int]:
    """Lines for each part: first the least that makes sense of one after the other, then the rest in turn.

    >>> share_lines(20, [5, 30, 4]), share_lines(9, [5, 30, 4]), share_lines(3, [5, 30, 4])
    ([5, 11, 4], [5, 4, 0], [0, 0, 0])
    """
    shares = []
    for lines in needs:
        shares.append(least if (least := min(lines, _LEAST)) <= room else 0)
        room -= shares[-1]
    while room > 0 and (short := [part for part, share in enumerate(shares) if 0 < share < needs[part]]):
        for part in short[:room]:
            shares[part] += 1
            room -= 1
    return shares


def _head(name: str, records: Sequence[EpochRecord], now: float, console: Console) -> list[Text]:
    last, lately = records[-1], records[-LATELY:]
    curve, timed = records[-_CURVE:], records[1:] or records
    left = [_rate(label, timed, column, _times(records)) for label, column in _RATES.items()]
    right = [
        ("imbalance", f"{last.stats.imbalance:.2f} max/mean", _column(curve, "imbalance")),
        ("backlog", f"{ROWS.text(last.stats.backlog_rows)} rows", _column(curve, "backlog_rows")),
    ]
    changed = adapted_text(*(int(sum(_column(lately, column))) for column in ("moves", "spills", "fetches")))
    late = int(sum(_column(lately, "late_rows")))
    dropped = f"; {late:,} late rows dropped" if late else ""
    over = "the last epoch" if len(lately) == 1 else f"the last {len(lately)} epochs"
    lines = [
        f"{one_line(name)}: epoch {last.number:,}, committed {_ago(last, now)}; "
        f"{last.routing.units:,} units at {_turnout(last)}, routing {last.routing.version:,}",
        *_curves(left, right, console),
        f"  {over}: {changed}{dropped}",
        *_frozen(last),
    ]
    texts = [_line(line, console) for line in lines]
    texts[0].stylize("bold", 0, len(one_line(name)))
    return texts


def _rate(label: str, timed: Sequence[EpochRecord], column: str, times: Sequence[float]) -> Measured:
    """Rows a second of the last epochs, and of each."""
    counts = _column(timed, column)
    rate = sum(counts[-LATELY:]) / sum(times[-LATELY:])
    return label, ROWS_PER_SECOND.text(rate), [n / t for n, t in zip(counts, times, strict=True)][-_CURVE:]


def _turnout(record: EpochRecord) -> str:
    sites, scale_target = record.routing.sites, record.stats.scale_target
    return f"{sites:,} sites" if scale_target is None else scale_target.in_words(sites)


def _frozen(record: EpochRecord) -> list[str]:
    """What lies outside of memory, and how far cleaning it up has come; nothing where there is neither."""
    frozen, done = record.stats.frozen, record.stats.clean_up
    lines = [f"  frozen: {frozen_text(*frozen)}"] if frozen.units else []
    if done is not None:
        progress = clean_up_text(done.rows_done, done.rows_left, done.results, done.rows_per_second)
        lines.append(f"  cleaning up: {progress}")
    return lines


Measured: TypeAlias = tuple[str, str, list[float]]
"""What it is, its newest value as text, and its values over the last epochs."""


def _curves(left: Sequence[Measured], right: Sequence[Measured], console: Console) -> list[str]:
    """Each with its curve; two in a line where the terminal is wide enough."""
    long = min(_CURVE, (console.width - 55) // 2 if console.width >= _SIDE_BY_SIDE else _CURVE)

    def drawn(label: str, text: str, values: Sequence[float]) -> str:
        curve = "" if console.options.ascii_only else spark(values[-long:])
        return f"  {label:<10}{text:>13}  {curve:<{long}}"

    if console.width < _SIDE_BY_SIDE:
        return [drawn(*one).rstrip() for one in (*left, *right)]
    return [(drawn(*a) + drawn(*b)).rstrip() for a, b in zip(left, right, strict=True)]


def _sites(record: EpochRecord, console: Console, room: int) -> list[RenderableType]:
    every = record.stats.sites
    busy = [site.busy_seconds for site in every]
    shown = [every[site] for site in busiest(busy, room)]
    longest = max(busy, default=0.0) or 1.0
    yields = [Column("results/unit", [_count(site.results_per_unit) for site in shown], spare=5)]
    frozen = [
        Column("frozen", [_bytes(site.frozen_bytes) for site in shown], _SIZE, spare=1),
        Column("missing", [_count(site.missing_units) for site in shown], spare=4),
    ]
    drawn = table(
        [
            Column("site", [str(site.site) for site in shown]),
            Column("units", [_count(site.units) for site in shown], spare=3),
            Column(
                "busy",
                [SECONDS.text(site.busy_seconds) for site in shown],
                size=_SIZE - 1,
                shares=[site.busy_seconds / longest for site in shown],
            ),
            Column("rows in", [ROWS.text(site.rows_in) for site in shown]),
            *(yields if record.stats.units.results_produced.any() else []),
            Column(
                "memory",
                [BYTES.text(site.memory_bytes) for site in shown],
                size=_SIZE,
                shares=[site.memory_bytes / (site.memory_limit or 1) for site in shown],
                alarm=_NEARLY_FULL,
            ),
            Column("of", [BYTES.text(site.memory_limit) for site in shown], spare=5),
            Column("disk", [_bytes(site.disk_bytes) for site in shown], _SIZE, spare=2),
            *(frozen if any(site.frozen_units for site in every) else []),
            Column("backlog", [_count(site.pending_rows) for site in shown], spare=1),
            Column("spilled", [_count(site.spilled_units) for site in shown], spare=4),
            Column("executor", [one_line(site.executor) for site in shown], spare=6, words=True),
        ],
        console,
    )
    left = len(every) - len(shown)
    return [drawn, _line(f"  and {left:,} more sites that were less busy", console)] if left else [drawn]


def _queries(queries: Sequence[QueryProgress], console: Console, room: int) -> list[RenderableType]:
    shown = queries if len(queries) <= room else queries[: room - 1]
    longest = max((query.seconds for query in shown), default=0.0) or 1.0
    spare = {"sink": 6, "sites": 5, "shared": 2, "results": 3, "state": 1, "ratio": 4}
    columns = [
        Column(
            name,
            [_words(cell, console) for cell in cells],
            spare=spare.get(name, 0),
            shares=[query.seconds / longest for query in shown] if name == "time" else (),
            words=name in WORDS,
        )
        for name, cells in columns_of(shown)
    ]
    drawn = table(columns, console)
    rest = queries[len(shown) :]
    return [drawn, _line(f"  {rest_text(rest, queries)}", console)] if rest else [drawn]


def _hottest(lately: Sequence[EpochRecord]) -> list[UnitIndex]:
    """The places of units by the seconds they took lately, then by rows; those with nothing to do are left out."""
    seconds, rows = _by_unit(lately, "seconds"), _by_unit(lately, "rows")
    order = np.lexsort((-rows, -seconds))[:_UNITS].tolist()
    return [UnitIndex(place) for place in order if seconds[place] or rows[place]]


def _units(lately: Sequence[EpochRecord], places: Sequence[UnitIndex], console: Console) -> list[RenderableType]:
    last = lately[-1:]
    rows, results, seconds = (_by_unit(lately, column)[places] for column in ("rows", "results", "seconds"))
    memory, disk, pending = (_by_unit(last, column)[places] for column in ("memory", "disk", "pending"))
    routing = last[0].routing
    units = [routing.unit_at(place) for place in places]
    fragments = [Column("fragment", [str(routing.fragment_of(unit)) for unit in units], spare=4)]
    productivity = last[0].stats.units.productivity
    yields = [Column("productivity", [_productivity(p) for p in productivity[places]], spare=2)]
    put_away, missing = _frozen_bytes(last[0]), set(last[0].missing_units)
    frozen = [
        Column("frozen", [_bytes(n) for n in put_away[places]], _SIZE, spare=1),
        Column("missing", ["results" if unit in missing else "-" for unit in units], spare=3),
    ]
    drawn = table(
        [
            Column("unit", [str(unit) for unit in units]),
            *(fragments if len(routing.directories) > 1 else []),
            Column("site", [",".join(map(str, routing.holders_of(unit))) for unit in units]),
            Column("seconds", [SECONDS.text(s) for s in seconds], shares=(seconds / (max(seconds) or 1.0)).tolist()),
            Column("rows in", [ROWS.text(n) for n in rows]),
            Column("results", [ROWS.text(n) for n in results], spare=2),
            *(yields if productivity.any() else []),
            Column("memory", [_bytes(n) for n in memory], _SIZE, spare=1),
            Column("disk", [_bytes(n) for n in disk], _SIZE, spare=3),
            *(frozen if put_away.any() else []),
            Column("pending", [_count(n) for n in pending]),
        ],
        console,
    )
    return [drawn]


def _decisions(decisions: Sequence[DecisionSummary], console: Console) -> list[RenderableType]:
    drawn = table(
        [
            Column("epoch", [f"{one.epoch:,}" for one in decisions]),
            Column("by", [one_line(one.policy) for one in decisions], spare=1, words=True),
            Column("decision", [_words(one.action, console) for one in decisions], words=True),
            Column("done", [_done(one) for one in decisions]),
            Column("because", [_words(_why(one), console) for one in decisions], words=True),
        ],
        console,
    )
    return [drawn]


def _done(one: DecisionSummary) -> str:
    """With which epoch it was done, or that it was not."""
    return f"{one.ended:,}" if one.fate == "done" else one.fate


def _why(one: DecisionSummary) -> str:
    """Why it came to nothing, or what came of units, before why it was wanted."""
    outcome = one.why or one.new_units
    return f"{outcome}; {one.reason}" if outcome else one.reason


def _line(text: str, console: Console) -> Text:
    """A text that stays one line."""
    return Text(text, no_wrap=True, overflow="crop" if console.options.ascii_only else "ellipsis")


def _words(text: str, console: Console) -> str:
    return one_line(text.replace("…", "...") if console.options.ascii_only else text)


def _times(records: Sequence[EpochRecord]) -> list[float]:
    """Seconds that went by for each epoch but the oldest, of which nobody knows: since the one before it, or what it
    took itself. Of a single epoch, what it took."""
    ends = [record.stats.committed_at for record in records]
    elapsed = [record.stats.seconds.elapsed for record in records]
    gaps = [end - before for before, end in pairwise(ends)]
    return [*map(max, gaps, elapsed[1:])] or elapsed


def _column(records: Sequence[EpochRecord], column: str) -> list[float]:
    return [float(getattr(record.stats, column)) for record in records]


def _by_unit(records: Sequence[EpochRecord], column: str) -> np.ndarray:
    """A column of the units' statistics, summed over the epochs, for the units that there are in the last."""
    last = records[-1]
    weights = np.asarray(getattr(last.stats.units, column), dtype=float)
    total = np.zeros(last.routing.units)
    for record in records:
        values = getattr(record.stats.units, column)
        if record.routing.directories != last.routing.directories:
            values = spread_column(values, record.routing, last.routing, weights)
        total += values
    return total


def _frozen_bytes(record: EpochRecord) -> np.ndarray:
    """What of each unit's state is frozen."""
    return unit_bytes(
        (run for manifest in record.manifests for run in manifest if run.generation), record.routing.units
    )


def _productivity(number: float) -> str:
    return PRODUCTIVITY.text(number) if number else "-"


def _count(number: float) -> str:
    return ROWS.text(number) if number else "-"


def _bytes(number: float) -> str:
    return BYTES.text(number) if number else "-"


def _ago(record: EpochRecord, now: float) -> str:
    """How long ago an epoch committed; the other machine's clock may be a little ahead."""
    seconds = max(0.0, now - record.stats.committed_at)
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"
