"""A decision about units or sites, as the journal keeps it and users read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sluice.model.ids import Site, Unit

_NONE = -1
"""Stands, for users, for the unit and the site of a decision that is about none."""


@dataclass(frozen=True)
class Decision:
    """Who wanted what from which epoch on, why, and why not if it was refused.

    `policy` is the policy's name, "you" for what a user asked for, "sites" where executors came or went, "rotation"
    for what a site spilled and fetched. `unit` and `site` are None where it is not about one.

    >>> Decision(7, "sites", "resize", None, None, "executors joined: 1").as_dict()["unit"]
    -1
    """

    epoch: int
    policy: str
    action: str
    unit: Unit | None
    site: Site | None
    reason: str
    refused: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """As a user gets it: a plain dictionary."""
        numbers = {name: _NONE for name in ("unit", "site") if getattr(self, name) is None}
        return vars(self) | numbers
