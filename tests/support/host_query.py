"""A query whose tasks are all on one host, in this process: their blobs go by reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from engine_harness import DirectQuery

from sluice.engine.blobs import REFERENCE, Blob, ReceivedBlob, SentBlob
from sluice.engine.host_delivery import HostDelivery, InputUnusable
from sluice.engine.site_task import SiteTask
from sluice.state.files.workspace import Workspace, identify_memory


class HostQuery(DirectQuery):
    """A query whose tasks are all on one host; a job that has lost blobs is run again without references."""

    limit = 1 << 30
    at_other_hosts: tuple[int, ...] = ()
    """Sites that are known to be elsewhere."""
    between: Callable[[list[Path]], object] = staticmethod(lambda files: None)
    """What happens to the files of a job before its sites run."""

    def __init__(self, plan, root: Path, **options) -> None:
        super().__init__(plan, root, **options)
        self.site_keys = tuple(range(len(self.site_keys)))
        self.jobs = self.references = self.number = 0
        self.delivery: HostDelivery | None = None
        self.read_from = self.places

    def _exchange(self, *of):
        exchange = super()._exchange(*of)

        def run(split, site: SiteTask):
            self.jobs += 1
            here = identify_memory(self.places)
            memories = tuple("elsewhere" if s in self.at_other_hosts else here for s in self.site_keys)
            self.delivery = HostDelivery(self.workspace(self.places), site.number, self.jobs, memories, self.limit)
            try:
                return exchange(split, site)
            except InputUnusable:
                self.jobs += 1
                self.delivery = replace(self.delivery, job=self.jobs, memories=("",) * len(memories))
                return exchange(split, site)

        return run

    def send(self, blobs: Iterable[Blob]) -> Iterator[SentBlob]:
        for sent in super().send(blobs) if self.delivery is None else self.delivery.send(blobs):
            self.references += sent[1] == REFERENCE
            yield sent

    def split(self, split, rows) -> list[SentBlob]:
        sent = super().split(split, rows)
        self.between(self.files())
        return sent

    def at_site(self, task: SiteTask, level: int, site_key: int, blobs: list[ReceivedBlob]) -> list[SentBlob]:
        received: Iterable[ReceivedBlob] = blobs
        if self.delivery is not None:
            there = Workspace(self.read_from, self.delivery.workspace.query, self.delivery.workspace.run)
            of_reader = HostDelivery(there, task.number, self.jobs, self.delivery.memories, self.limit)
            received = of_reader.receive(blobs, task.plan, level, site_key)
        return super().at_site(task, level, site_key, received)

    def files(self) -> list[Path]:
        """The blobs that lie on the host."""
        return sorted(self.root.glob("*/sluice-*/exchange/*"))
