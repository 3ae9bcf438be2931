"""What a policy would do after the newest epoch, from the journal alone, and why it would do nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sluice.control.controller import Controller
from sluice.model.epoch.decision import Decision
from sluice.model.plan.plan import Capabilities
from sluice.model.plan.recorded_plan import RecordedPlan
from sluice.model.view import ClusterView
from sluice.policies import NAMES, Policy, policy_class
from sluice.record.epoch import EpochRecord

LATELY = 10
"""Epochs over which statistics are taken."""
ADVISERS = tuple(name for name in NAMES if not policy_class(name).scales)
"""Policies that can be asked so: what others decide by, how much input may wait, is in no journal."""


@dataclass(frozen=True)
class Advice:
    """What a policy would want, each with why it would be refused, if it would; and why nothing, if there is nothing.
    `epochs` is over how many it looked."""

    policy: str
    epochs: int
    decisions: tuple[Decision, ...] = ()
    why_nothing: str = ""
    waits_for: str = ""
    """What a running policy would wait for before it is asked."""


def advise(policy: Policy, plan: RecordedPlan, records: Sequence[EpochRecord]) -> Advice:
    """Ask a policy about the newest of some epochs, oldest first, which went by a plan. Those before it count as far
    back as units and sites were the same."""
    comparable = _comparable(records)
    waits_for = _under_way(records[-1]) if records else ""
    if len(comparable) < 2:
        why = "there are no statistics yet: fewer than two epochs since units or sites changed last"
        return Advice(policy.name, 0, why_nothing=why, waits_for=waits_for)
    newest = comparable[-1]
    controller = Controller(policy, site_memory=0, advise=True, capabilities=_capabilities(plan, newest))
    for site in newest.stats.sites:
        controller.memory.set(site.site, site.memory_limit)
    for record in comparable:
        controller.collection.add(record, record.stats.committed_at)
    now, loop = newest.stats.committed_at, controller.loop
    loop.advance_to_epoch(newest.number + 1, newest.routing, newest)
    actions = loop.ask_policy(now)
    decisions = tuple(loop.describe(policy.name, one, loop.epoch, loop.refuse(one)) for one in actions)
    why = "" if actions else _why_nothing(policy, controller.collection.view(), newest)
    return Advice(policy.name, len(comparable) - 1, decisions, why, waits_for)


def _comparable(records: Sequence[EpochRecord]) -> list[EpochRecord]:
    """The last epochs with the plan, the units and the number of sites of the newest, and the one to count from."""
    if not records:
        return []
    newest, alike = records[-1], []
    for record in reversed(records[-LATELY - 1 :]):
        units, same = newest.routing, record.routing
        if record.plan != newest.plan or same.directories != units.directories or same.sites != units.sites:
            break
        if len(record.stats.sites) != units.sites:
            break
        alike.append(record)
    return alike[::-1]


def _capabilities(plan: RecordedPlan, newest: EpochRecord) -> Capabilities:
    target = newest.stats.scale_target
    able = plan.layout.capabilities
    return able if target is None else replace(able, scalable=True, least_sites=target.least, most_sites=target.most)


def _under_way(newest: EpochRecord) -> str:
    count = len(newest.under_way)
    if not count:
        return ""
    first = newest.under_way[0].decision
    unit = "" if first.unit is None else f" of unit {first.unit}"
    others = f" and {count - 1:,} more" if count > 1 else ""
    return f"{first.action}{unit}{others}"


def _why_nothing(policy: Policy, view: ClusterView, newest: EpochRecord) -> str:
    if policy.name == "static":
        return "static never changes anything"
    if len(view.sites) < 2:
        return "there is one site: nothing can go elsewhere"
    if not view.shows_load:
        return "only input that had waited was worked on: that does not show which units have most to do"
    fullest = float(view.saturation.max(initial=0.0))
    return (
        f"it finds nothing to improve: in the newest epoch the busiest site worked {newest.stats.imbalance:.2f} times "
        f"as long as the average one, and the fullest has state for {100 * fullest:.0f} % of its memory"
    )
