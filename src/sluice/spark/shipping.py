"""How the tasks of an epoch get to the executors: what many epochs have in common is shipped once.

The plan, the routing and their like are a broadcast variable, made anew when one of them changes. What is pickled with
an epoch's job refers to them. A Python worker keeps the newest ones that it was sent: so what follows from a plan is
worked out there once, too.
"""

from __future__ import annotations

import io
import pickle
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pyspark import SparkContext
from pyspark.core.broadcast import Broadcast

from sluice.engine.site_task import SiteTask
from sluice.engine.split import SplitTask

T = TypeVar("T")
VERSIONS_KEPT = 4
"""How many sets of shared values a Python worker keeps: it may serve several queries."""
_versions: dict[str, Mapping[str, Any]] = {}


@dataclass(frozen=True)
class Shipment(Generic[T]):
    """A task on its way to the executors."""

    version: str
    shared: Broadcast[Mapping[str, Any]]
    rest: bytes

    def unpack(self) -> T:
        """The task, at an executor."""
        values = _versions.get(self.version)
        if values is None:
            while len(_versions) >= VERSIONS_KEPT:
                _versions.pop(next(iter(_versions)))
            values = _versions[self.version] = self.shared.value
        task: T = _Unpickler(io.BytesIO(self.rest), values).load()
        return task


class Shipping:
    """The tasks of one query's epochs."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._shared: Broadcast[Mapping[str, Any]] | None = None
        self._values: dict[str, Any] = {}
        self._version = ""

    def ship(self, split: SplitTask, site: SiteTask) -> tuple[Shipment[SplitTask], Shipment[SiteTask]]:
        """An epoch's tasks."""
        names = self._share(split)
        return self._pack(split, names), self._pack(site, names)

    def ship_split(self, split: SplitTask) -> Shipment[SplitTask]:
        """Map tasks alone."""
        return self._pack(split, self._share(split))

    def _share(self, split: SplitTask) -> dict[int, str]:
        """Have executors know what epochs have in common; under which names, by the values' ids."""
        values = {"plan": split.plan, "reading": split.reading, "routing": split.routing, "staging": split.staging}
        if self._shared is None or not _are_same(values, self._values):
            self.close()
            self._values, self._version = values, uuid.uuid4().hex
            self._shared = self._context.broadcast(values)
        return {id(value): name for name, value in values.items()}

    def _pack(self, task: T, names: dict[int, str]) -> Shipment[T]:
        assert self._shared is not None
        rest = io.BytesIO()
        _Pickler(rest, names).dump(task)
        return Shipment(self._version, self._shared, rest.getvalue())

    def close(self) -> None:
        """Remove what executors have of it; no job is running."""
        shared, self._shared = self._shared, None
        if shared is not None and self._context._jsc is not None:
            shared.destroy()


def _are_same(values: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Whether these can stand for those of the epoch before."""
    return values["plan"] is before["plan"] and all(
        value is before[name] or value == before[name] for name, value in values.items() if name != "plan"
    )


class _Pickler(pickle.Pickler):
    """Names the shared values in place of them."""

    def __init__(self, file: io.BytesIO, names: dict[int, str]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._names = names

    def persistent_id(self, value: Any) -> str | None:
        return self._names.get(id(value))


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, values: Mapping[str, Any]) -> None:
        super().__init__(file)
        self._values = values

    def persistent_load(self, name: str) -> Any:
        return self._values[name]
