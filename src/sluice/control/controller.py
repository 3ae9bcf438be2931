"""Between two epochs: show the policy the cluster, vet what it asks for, and turn that into the next routing."""

from __future__ import annotations

from typing import Any

import numpy as np

from sluice.model.epoch import EpochRecord
from sluice.model.errors import FlowError
from sluice.model.routing import Routing
from sluice.model.view import Action, ClusterView
from sluice.policies import Policy, policy

Decision = dict[str, Any]


def live(wanted: str | Policy) -> Policy:
    """A policy for a running query. Sites do not report per unit yet, so those that go by such figures are refused."""
    chosen = policy(wanted)
    if isinstance(wanted, str) and wanted != "static":
        raise FlowError(
            f"policy {wanted!r} does not run on Spark yet: try it with `sluice simulate`. A query takes 'static', or "
            "an object of your own with a decide(view) method"
        )
    return chosen


def collect(record: EpochRecord) -> ClusterView:
    """The view a policy gets of the epoch that has just committed; figures of units, and idle time, are zero so far."""
    sites = record.figures.get("sites", [])
    units = np.array(record.routing.owners)
    nothing = np.zeros(len(units), dtype=np.int64)
    return ClusterView(
        epoch=record.number,
        seconds=max((s["busySeconds"] for s in sites), default=0.0),
        unit_site=units,
        unit_rows=nothing,
        unit_bytes=nothing,
        unit_spilled=nothing.astype(bool),
        unit_pending=nothing,
        site_idle=np.zeros(len(sites)),
        site_memory=np.array([s["memoryBytes"] for s in sites]),
    )


def vet(action: Action, routing: Routing) -> str | None:
    """Why an action cannot be carried out, or None."""
    if not 0 <= action.unit < routing.units:
        return f"there is no unit {action.unit}"
    if not 0 <= action.site < routing.sites:
        return f"there is no site {action.site}"
    if routing.owners[action.unit] == action.site:
        return f"unit {action.unit} is at site {action.site} already"
    return None


def decide(policy: Policy, record: EpochRecord) -> tuple[Routing, tuple[Decision, ...]]:
    """The routing for the next epoch and every decision and refusal behind it."""
    routing, decisions = record.routing, []
    for action in policy.decide(collect(record)):
        refused = vet(action, routing)
        if refused is None:
            routing = routing.moved(action.unit, action.site, record.number + 1)
        decisions.append(
            {
                "epoch": record.number + 1,
                "policy": policy.name,
                "action": "move",
                "unit": action.unit,
                "site": action.site,
                "reason": action.reason,
                "refused": refused,
            }
        )
    return routing, tuple(decisions)
