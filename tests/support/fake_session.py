"""A Spark session, its writers and their queries as fakes, with the part of their face that `sluice run` uses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from sluice.control.journal import Journal
from sluice.model.identity import CheckpointIdentity
from sluice.state.files.storage import Storage


class FakeQuery:
    """Stands for a Query; ends at once, or with an error."""

    def __init__(self, writer: FakeWriter) -> None:
        self.writer, self.name, self.stopped = writer, writer._name, False
        self.recentEpochs: list[Any] = []

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        if self.writer.fails is not None:
            raise self.writer.fails
        return True

    def stop(self) -> None:
        self.stopped = True


class FakeWriter:
    """Stands for a DataStreamWriter; starting it claims its checkpoint as the real one does."""

    def __init__(self, name: str | None = None, fails: BaseException | None = None, refuses: Any = None) -> None:
        self._name, self.fails, self.refuses = name, fails, refuses
        self._options: dict[str, Any] = {}
        self.policies: list[str] = []
        self.triggers: list[dict[str, Any]] = []
        self.query: FakeQuery | None = None

    def choices(self) -> SimpleNamespace:
        return SimpleNamespace(name=self._name, options=self._options)

    def option(self, key: str, value: Any) -> FakeWriter:
        self._options[key] = value
        return self

    def policy(self, wanted: str) -> FakeWriter:
        self.policies.append(wanted)
        return self

    def trigger(self, **kind: Any) -> FakeWriter:
        self.triggers.append(kind)
        return self

    def start(self) -> FakeQuery:
        if self.refuses:
            raise self.refuses
        if self._options.get("checkpointLocation"):
            storage = Storage(self._options["checkpointLocation"])
            storage.make_dir()
            Journal(storage).claim(CheckpointIdentity(id="0" * 16, name="desk", partitions=8))
        self.query = FakeQuery(self)
        return self.query


class FakeSpark:
    """Stands for a SparkSession; hands out writers and keeps them."""

    def __init__(self) -> None:
        self.sparkContext = SimpleNamespace(master="local[2]")
        self.writers: list[FakeWriter] = []
        self.stopped = False
        self.scratch = ""

    def writer(self, *given: Any, **more: Any) -> FakeWriter:
        self.writers.append(FakeWriter(*given, **more))
        return self.writers[-1]

    def stop(self) -> None:
        self.stopped = True
