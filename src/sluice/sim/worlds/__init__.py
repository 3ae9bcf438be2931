"""The worlds of the simulator, one a paper. To add one, write its scenario and its world, and name it here."""

from __future__ import annotations

from collections.abc import Mapping

from sluice.sim.scenario import Scenario
from sluice.sim.worlds.flux.scenario import FluxScenario
from sluice.sim.worlds.lazy_disk.scenario import LazyDiskScenario
from sluice.sim.worlds.placement.scenario import PlacementScenario
from sluice.sim.worlds.replication.scenario import ReplicationScenario
from sluice.sim.worlds.window_joins.scenario import WindowJoinScenario

WORLDS: Mapping[str, type[Scenario]] = {
    "flux": FluxScenario,
    "lazy-disk": LazyDiskScenario,
    "placement": PlacementScenario,
    "replication": ReplicationScenario,
    "window-joins": WindowJoinScenario,
}
"""By the names that scenario files have for them."""
