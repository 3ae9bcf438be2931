"""What every scenario has, and how a world's own is told apart, read and described."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from sluice.policies import Policy
from sluice.sim.event_queue import EventQueue
from sluice.sim.notation import Natural, RunSeconds, check_numbers
from sluice.sim.section import Section
from sluice.sim.world import World


@dataclass(frozen=True)
class Scenario:
    """A cluster, a workload and what happens to them. What a world needs beside this is in its own scenario."""

    name: str = "scenario"
    seconds: RunSeconds = 60.0
    seed: Natural = 1

    sections: ClassVar[Mapping[str, tuple[str, ...]]]
    """The sections of a scenario file, with the fields that each has."""
    tables: ClassVar[Mapping[str, str]] = {}
    """What there can be several of in a file, in double brackets, with the field that has them."""
    own_keys: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Keys of sections, and of what there can be several of, that `variants` reads."""
    policies: ClassVar[tuple[str, ...]]
    """What is compared unless a file says otherwise."""
    effort: ClassVar[float] = 1.0
    """About how long a simulated second takes, compared with other worlds."""
    smallest: ClassVar[Mapping[str, Any] | None] = None
    """The values that make a run short by which Numba compiles the world, if it needs Numba."""
    freezes: ClassVar[bool] = False
    """Whether its world has state that a policy can freeze."""

    def __post_init__(self) -> None:
        check_numbers(self)

    @property
    def decides(self) -> bool:
        """Whether there is anything for a policy to decide about."""
        return True

    @property
    def summary(self) -> str:
        """The cluster in a few words."""
        raise NotImplementedError

    @property
    def incidents(self) -> Mapping[str, Iterable[float]]:
        """What happens to the cluster, and when."""
        return {}

    @abstractmethod
    def world(self, events: EventQueue, policy: Policy) -> World:
        """The world in which it happens."""

    @classmethod
    def variants(cls, values: Mapping[str, Any], file: Mapping[str, Section]) -> Mapping[str, Scenario]:
        """The scenarios that a file compares, by name: these values, and what else its sections say."""
        return {"": cls(**values)}
