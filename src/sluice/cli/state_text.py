"""`sluice inspect --state`: what operators keep, for people."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from sluice.control.journal import Journal
from sluice.dashboard.quantity import BYTES
from sluice.dashboard.terminal_style import align_columns, one_line
from sluice.engine.state_table import CheckpointState, read_state
from sluice.state.files.storage import Storage

_ROWS = 20  # that are shown
_WIDEST = 40  # characters of a value


def describe_states(uri: str) -> str:
    """What there is by operator and input, without reading any of it."""
    state = CheckpointState.open(Journal(Storage(uri)))
    heads = ("operator", "rows of", "keys", "units", "rows", "frozen", "waiting", "bytes", "columns")
    words = {heads.index(name) for name in ("operator", "rows of", "keys", "columns")}
    rows = [heads]
    for one in state.summarize():
        rows.append(
            (
                str(one.operator),
                one.input,
                ", ".join(one.keys) or "-",
                f"{one.units:,}",
                f"{one.rows:,}",
                f"{one.frozen_rows:,}",
                f"{one.waiting_rows:,}",
                BYTES.text(one.bytes),
                ", ".join(one.columns),
            )
        )
    operators = [f"  operator {number}: {one.says}" for number, one in enumerate(state.plan.operators)]
    lines = [f"State      after epoch {state.record.number}", *operators, *align_columns(rows, words)]
    return "\n".join(map(one_line, lines))


def show_state(uri: str, operator: str, key: Mapping[str, str]) -> str:
    """The first rows of an operator's state, of a key if one is given."""
    texts = {column: pa.scalar(text) for column, text in key.items()}
    table = read_state(uri, operator, key=texts or None)
    shown = table.slice(0, _ROWS)
    rows = [tuple(shown.column_names)]
    rows += (tuple(_text(value) for value in row.values()) for row in shown.to_pylist())
    left = table.num_rows - shown.num_rows
    lines = [
        f"{table.num_rows:,} row{'s' * (table.num_rows != 1)}",
        *align_columns(rows, words=range(len(shown.column_names))),
    ]
    lines += [f"  … and {left:,} more: sluice.readState has all of them"] if left else []
    return "\n".join(map(one_line, lines))


def _text(value: object) -> str:
    text = "-" if value is None else str(value)
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"
