"""Blobs on their way to a site of the same host, a file each: written once, read once, and gone.

They lie in the local tiers of the executor that sends them, so that they go with these whatever happens to it. Their
names carry the job, and whom they are for: a site that has what it was sent removes all others that were for it, which
attempts have left that came to nothing. What a job has left, a later one of the run removes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from sluice.model.codec import checksum
from sluice.model.ids import SiteKey
from sluice.state.files.private import make_private_directory, open_private
from sluice.state.files.storage import about_to

_DIRECTORY = "exchange"
_NAME = re.compile(r"\d{12}-(?P<job>\d{8})-(?P<site>\d+)-(?P<number>\d+)-[0-9a-f]+\.blob")


@dataclass(frozen=True)
class BlobAddress:
    """Of which job a blob is, for which site, and its number there."""

    job: int
    site_key: SiteKey
    number: int


@dataclass(frozen=True)
class Extent:
    """Where a blob lies in its file, and what its bytes add up to."""

    offset: int
    length: int
    checksum: int


def open_directory(tier: str) -> str:
    """The directory of blobs in one of an executor's local tiers."""
    directory = Path(tier) / _DIRECTORY
    make_private_directory(directory)
    return str(directory)


def remove_blobs(tiers: Iterable[str], is_left: Callable[[BlobAddress], bool]) -> None:
    """Remove the blobs in some local tiers that nobody will read."""
    for tier in tiers:
        with suppress(FileNotFoundError), os.scandir(f"{tier}/{_DIRECTORY}") as entries:
            for entry in entries:
                match = _NAME.fullmatch(entry.name)
                if match and is_left(BlobAddress(int(match["job"]), SiteKey(int(match["site"])), int(match["number"]))):
                    _remove(entry.path)


def name_blob(epoch: int, address: BlobAddress, suffix: str) -> str:
    """The name of a blob's file; the suffix is given once."""
    return f"{epoch:012d}-{address.job:08d}-{address.site_key}-{address.number}-{suffix}.blob"


def write_blob(path: str, write: Callable[[pa.NativeFile], tuple[int, int]]) -> Extent:
    """Write a blob's file; `write` says where in it the blob begins, and how long it is. Nothing stays if it fails."""
    about_to("write", path)
    try:
        with open_private(path, os.O_RDWR | os.O_CREAT | os.O_EXCL) as descriptor:
            with pa.OSFile(f"/dev/fd/{descriptor}", "wb") as sink:
                offset, length = write(sink)
            about_to("finish", path)
            with pa.memory_map(f"/dev/fd/{descriptor}") as file:
                return Extent(offset, length, checksum(file.read_buffer().slice(offset, length)))
    except BaseException:
        _remove(path)
        raise


def take_blob(path: str, extent: Extent) -> pa.Buffer | None:
    """A blob's bytes, mapped; its file is gone from now on. None if it is missing, or does not have these bytes."""
    about_to("map", path)
    try:
        with open_private(path, os.O_RDONLY) as descriptor:
            if os.fstat(descriptor).st_size < extent.offset + extent.length:  # what is mapped beyond its end kills us
                return None
            with pa.memory_map(f"/dev/fd/{descriptor}") as file:
                data = file.read_buffer().slice(extent.offset, extent.length)
    except OSError:
        return None
    _remove(path)
    return data if checksum(data) == extent.checksum else None


def _remove(path: str) -> None:
    about_to("delete", path)
    with suppress(OSError):
        os.unlink(path)
