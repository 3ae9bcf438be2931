"""One of a flow's queries for people: its operators and states, with whom it shares them, and where they are."""

from __future__ import annotations

from collections.abc import Sequence

from sluice.dashboard.quantity import BYTES, RATIO, ROWS, SECONDS
from sluice.model.errors import QueryError
from sluice.model.ids import Fragment, InputNumber
from sluice.model.option import suggest_name
from sluice.model.plan.plan import Plan
from sluice.model.plan.recorded_plan import RecordedPlan
from sluice.model.routing.unit_ids import list_units
from sluice.record.epoch import EpochRecord
from sluice.record.query_progress import LATELY, QueryProgress, sites_of, state_bytes

_NAMED = 5
"""Queries that are named where several share something."""
_LINES = 100
"""Lines about all queries that are printed at once."""
_LISTED = 8
"""Runs of units that are named."""


def first_lines(lines: Sequence[str]) -> list[str]:
    """Lines about all queries; of very many, the first, and how many more there are.

    >>> len(first_lines(["a"] * 100)), first_lines(["a"] * 1300)[-1]
    (100, '… and 1,200 more lines; explain(name) shows one query')
    """
    left = len(lines) - _LINES
    return list(lines) if left <= 0 else [*lines[:_LINES], f"… and {left:,} more lines; explain(name) shows one query"]


def find_query(names: Sequence[str], name: object) -> int:
    """The place of the query with this name among all, in any case."""
    for place, known in enumerate(names):
        if str(name).lower() == known.lower():
            return place
    listed = ", ".join(map(repr, names[:_LISTED])) + (f" and {len(names) - _LISTED} more" if names[_LISTED:] else "")
    raise QueryError(f"there is no query {name!r}{suggest_name(str(name), names)}; this flow has {listed}")


def describe_query(plan: Plan, recorded: RecordedPlan, record: EpochRecord, query: int, progress: QueryProgress) -> str:
    """What a query computes, what of it others use too, and where it is."""
    operators = recorded.operators_of(query)
    lines = begin_description(progress)
    for operator in operators:
        title, *details = "\n".join(plan.describe_node(operator)).split("\n")
        lines.append(f"Operator {operator + 1}: {title}{_sharing(recorded, query, recorded.users[operator])}")
        lines += [f"  {detail.strip()}" for detail in details]
    inflow = plan.outputs[query].inflow
    if not operators:
        streams = ", ".join(dict.fromkeys(plan.name_origin(feed) for feed in inflow))
        lines.append(f"{streams[:1].upper()}{streams[1:]}, read by map tasks; no state")
    steps = [step.describe() for step in inflow[0].steps] if len(inflow) == 1 else plan.describe_inflow(inflow)
    lines += [f"Result: {step}" for step in steps]
    lines += _describe_states(plan, recorded, record, query, operators)
    for fragment in sorted({plan.nodes[operator].fragment for operator in operators}):
        lines.append(_describe_units(record, fragment))
    return "\n".join([*lines, _describe_progress(progress)])


def begin_description(progress: QueryProgress) -> list[str]:
    """What there is to be said of a query whether or not it still runs."""
    aside = [progress.error[0].upper() + progress.error[1:]] if progress.error else []
    return [f"Query {progress.name!r}, to {progress.sink}", *aside]


def _describe_states(
    plan: Plan, recorded: RecordedPlan, record: EpochRecord, query: int, operators: Sequence[int]
) -> list[str]:
    sizes, lines = state_bytes(record), []
    for state in sorted({state for operator in operators for state in recorded.operators[operator].states}):
        shared = _sharing(recorded, query, recorded.readers[state])
        lines.append(f"State {_name_state(plan, state)}: {BYTES.text(sizes.get(state, 0))}{shared}")
    return lines


def _name_state(plan: Plan, state: InputNumber) -> str:
    """What a state is of: the stream, under the name that its first reader has for it, and its key."""
    node, number = plan.inputs[state].readers[0]
    spec = plan.nodes[node].spec
    input_ = spec.inputs[number]
    by = f" by ({', '.join(input_.keys)})" if input_.keys else ""
    return f"of {spec.streams[input_.stream].name!r}{by}"


def _describe_units(record: EpochRecord, fragment: Fragment) -> str:
    routing = record.routing
    units = list_units(routing.ids.array[slice(*routing.directories[fragment].range)], _LISTED)
    sites = sites_of(routing, fragment)
    return f"Units {units} at site{'s' if len(sites) > 1 else ''} {', '.join(map(str, sites))}"


def _sharing(recorded: RecordedPlan, query: int, users: Sequence[int]) -> str:
    """With whom something is shared, as a part of a line; nothing if it is this query's own."""
    others = [repr(recorded.queries[user].name) for user in users if user != query]
    if not others:
        return ""
    more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
    return f"; shared with {', '.join(others[:_NAMED])}{more}"


def _describe_progress(progress: QueryProgress) -> str:
    """What it did lately, in one line."""
    said = [f"{ROWS.text(progress.rows_in)} rows in", f"{ROWS.text(progress.results)} results"]
    if progress.delay is not None:
        said.append(f"delay {SECONDS.text(progress.delay)}")
    if progress.performance_ratio is not None:
        said.append(f"performance ratio {RATIO.text(progress.performance_ratio)}")
    return f"In the last {LATELY} epochs: {', '.join(said)}"
