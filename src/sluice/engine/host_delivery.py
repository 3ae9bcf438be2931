"""Blobs between tasks of one host: only where they lie crosses the exchange, their bytes stay in a local tier.

Whether a site is on the sender's host is told by the place of its memory tier, the mounted file system and the
directory in it, as the site's executor saw it when the site was placed. If the site then runs elsewhere, or a blob is
missing or damaged, the site does nothing but say so, and the epoch is run again as a whole.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from sluice.engine.blobs import (
    REFERENCE,
    Blob,
    InputUnusable,
    Payload,
    ReceivedBlob,
    SentBlob,
    put_together,
)
from sluice.engine.compiled_plan import compiled
from sluice.model.codec import decode, encode
from sluice.model.errors import NO_SPACE
from sluice.model.ids import InputNumber, Level, SiteKey
from sluice.model.plan.plan import Plan
from sluice.state.files.blob_files import (
    BlobAddress,
    Extent,
    name_blob,
    open_directory,
    remove_blobs,
    take_blob,
    write_blob,
)
from sluice.state.files.workspace import Workspace, identify_memory

LEAST_BYTES = 64 << 10
"""Bytes from which on a blob gets a file of its own: making, mapping and removing one has a price whatever its size."""


@dataclass(frozen=True)
class BlobReference:
    """Where a blob of a `number` lies."""

    number: int
    memory: str
    """The memory tier of its sender's host."""
    path: str
    extent: Extent


@dataclass(frozen=True)
class HostDelivery:
    """How the tasks of one job send blobs to sites of their own host. A task has at most `limit` bytes of them in
    memory, the others on disk."""

    workspace: Workspace
    epoch: int
    job: int
    memories: tuple[str, ...]
    """The memory tier of each site's host; "" if it gets no references."""
    limit: int

    def is_like(self, other: HostDelivery | None) -> bool:
        """Whether another job, for the same epoch, sends blobs in the same way."""
        return other is not None and replace(other, job=self.job) == self

    def send(self, blobs: Iterable[Blob]) -> Iterator[SentBlob]:
        """Blobs as they cross the exchange, those for this host as references, unless they are small."""
        here = identify_memory(self.workspace.places)
        sender: _FileSender | None = None
        for blob in blobs:
            site_key, number, payload = blob
            is_message = number < 0
            if is_message or payload.size < LEAST_BYTES or not here or self.memories[site_key] != here:
                yield from put_together([blob])
                continue
            sender = sender or _FileSender(self)
            written = sender.write(site_key, number, payload)
            if written is None:
                yield from put_together([blob])
                continue
            reference = BlobReference(number, here, *written)
            yield site_key, REFERENCE, pa.py_buffer(encode(reference))

    def receive(
        self, blobs: Iterable[ReceivedBlob], plan: Plan, level: Level, site_key: SiteKey
    ) -> Iterator[ReceivedBlob]:
        """The blobs that reach a site, references to those for this level in the blobs' place; `InputUnusable` if one
        cannot be read. In the end no file is left for the site at this level, nor any of earlier jobs."""
        here = identify_memory(self.workspace.places)
        try:
            for number, payload in blobs:
                if number == REFERENCE:
                    reference = decode(payload.to_pybytes(), BlobReference)
                    if is_for_level(plan, level, reference.number):
                        yield reference.number, _take(reference, here)
                        continue
                yield number, payload
        finally:
            self._remove_rest(plan, level, site_key)

    def _remove_rest(self, plan: Plan, level: Level, site_key: SiteKey) -> None:
        def is_left(blob: BlobAddress) -> bool:
            is_own = blob.job == self.job and blob.site_key == site_key and is_for_level(plan, level, blob.number)
            return is_own or blob.job < self.job

        remove_blobs(map(str, self.workspace.directories()), is_left)


def is_for_level(plan: Plan, level: Level, number: int) -> bool:
    """Whether blobs of a number are for operators of a level, and not of one above."""
    of_plan = compiled(plan)
    readers = of_plan.readers[level]
    probing = number - plan.probe_only_number(InputNumber(0))
    return number in readers or number in of_plan.joint_ways_to[level] or probing in readers


def _take(reference: BlobReference, here: str) -> pa.Buffer:
    if reference.memory != here:
        raise InputUnusable("a site runs on another host than it was placed on")
    data = take_blob(reference.path, reference.extent)
    if data is None:
        raise InputUnusable(f"{reference.path} is missing or damaged")
    return data


class _FileSender:
    """The files of one task: in memory as long as there is room, then on disk."""

    def __init__(self, delivery: HostDelivery) -> None:
        self._delivery, self._attempt, self._count = delivery, uuid.uuid4().hex[:16], 0
        self._memory, self._disk = (open_directory(tier) for tier in delivery.workspace.open())
        self._left = delivery.limit

    def write(self, site_key: SiteKey, number: int, payload: Payload) -> tuple[str, Extent] | None:
        """Where a blob lies now; None if there is room for it nowhere."""
        self._count += 1
        address = BlobAddress(self._delivery.job, site_key, number)
        name = name_blob(self._delivery.epoch, address, f"{self._attempt}{self._count:06x}")
        fits = payload.size <= self._left and payload.size <= _half_of_free_space(self._memory)
        for directory in (self._memory, self._disk) if fits else (self._disk,):
            path = f"{directory}/{name}"
            try:
                extent = write_blob(path, payload.write_to)
            except OSError as problem:
                if problem.errno not in NO_SPACE:
                    raise
                continue
            self._left -= payload.size if directory == self._memory else 0
            return path, extent
        return None


def _half_of_free_space(directory: str) -> int:
    """What blobs may take of a tier that state lies in, too."""
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize // 2
