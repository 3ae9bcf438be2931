"""The streams of a simulated join: the join value of every tuple, drawn before the run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sluice.sim.worlds.lazy_disk.scenario import LazyDiskScenario


@dataclass(frozen=True)
class Streams:
    """`values` has a row for each moment at which tuples come, and a column an input; join values are numbered through,
    those of a unit together: unit u has `first[u]` to `first[u + 1]`."""

    values: np.ndarray
    first: np.ndarray
    unit_of: np.ndarray

    @classmethod
    def draw(cls, scenario: LazyDiskScenario) -> Streams:
        """Each tuple falls on a unit by its share of the load, and has one of the unit's join values."""
        counts = scenario.values
        first = np.append(0, np.cumsum(counts))
        rng = np.random.default_rng(scenario.seed)
        moments = np.arange(1, scenario.tuples + 1) * scenario.arrival
        phases = np.searchsorted([surge.start for surge in scenario.surges], moments, side="right")
        values = np.empty((scenario.tuples, scenario.inputs), dtype=np.int32)
        for phase in range(len(scenario.surges) + 1):
            rows = np.flatnonzero(phases == phase)
            ends = np.cumsum(_weights(scenario, phase))
            drawn = rng.random((len(rows), scenario.inputs)) * ends[-1]
            units = np.minimum(np.searchsorted(ends, drawn, side="right"), scenario.units - 1)
            within = (rng.random(units.shape) * counts[units]).astype(np.int64)
            values[rows] = first[units] + within
        return cls(values, first, np.repeat(np.arange(scenario.units), counts).astype(np.int32))


def _weights(scenario: LazyDiskScenario, phase: int) -> np.ndarray:
    """What each unit gets of the tuples in the time after so many surges have begun."""
    weights = np.ones(scenario.units)
    if phase:
        surge = scenario.surges[phase - 1]
        weights[scenario.unit_sites == surge.site] = surge.factor
    return weights
