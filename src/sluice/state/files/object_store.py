"""Files of an object store (S3, Google Cloud Storage, Azure) by way of obstore.

An object appears whole or not at all: small ones by one put, large ones by parts that are joined in the last step.
Creating one only if nobody has is a condition of the put that the store itself decides on.
"""

from __future__ import annotations

import io
import os
import sys
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import obstore
import pyarrow as pa
from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError

from sluice.model.clock import Clock, SystemClock
from sluice.model.errors import StorageError
from sluice.state.files.backend import SIDE_BY_SIDE, Contents, FileEntry, Finish
from sluice.state.files.object_uri import Bucket

MARKER = ".sluice"
"""A hidden, empty object that stands for a directory: stores have none, and one that was made has to be seen."""
WRITER = "sluicewriter"
"""The metadata that tells one put from another; Azure allows letters and digits only."""
PART = 8 << 20
PARTS_AT_ONCE = 4
COPY_SECONDS = 120
"""How long a copy that Azure carries out in the background may take."""

_user: int | None = None
"""The process whose threads obstore runs in. They are not there in a fork of it, which would wait for them forever."""


class ObjectStoreFiles:
    """The objects of one bucket below a prefix."""

    local = False

    def __init__(self, bucket: Bucket, prefix: str, clock: Clock | None = None) -> None:
        global _user
        _user = _user or os.getpid()
        if _user != os.getpid():
            raise StorageError(
                f"{bucket.uri} cannot be opened in a process forked from one that used an object store before. "
                "Start it anew: with multiprocessing, by 'spawn' or 'forkserver'"
            )
        self.bucket, self.store, self.prefix = bucket, bucket.open(), prefix.strip("/")
        self.root = f"{bucket.uri}/{self.prefix}".rstrip("/")
        self._made: set[str] = set()
        self._clock = clock or SystemClock()

    def path(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root

    def make_dir(self, name: str) -> None:
        if name not in self._made:  # asked for in every epoch, and each time a request
            with _translate_errors():
                obstore.put(self.store, self._key(f"{name}/{MARKER}"), b"")
            self._made.add(name)

    def list(self, name: str) -> Contents:
        with _translate_errors():
            inside = obstore.list_with_delimiter(self.store, self._key(name) or None)
        files = [FileEntry(_last(o["path"]), o["size"]) for o in inside["objects"] if o["path"] != self._key(name)]
        return Contents([f for f in files if f.name != MARKER], [_last(p) for p in inside["common_prefixes"]])

    def size(self, name: str) -> int | None:
        try:
            with _translate_errors():
                return int(obstore.head(self.store, self._key(name))["size"])
        except FileNotFoundError:
            return None

    def read(self, name: str, offset: int, length: int | None) -> pa.Buffer:
        if length == 0:
            return pa.py_buffer(b"")
        with _translate_errors():
            if length is None:
                options: Any = {"range": {"offset": offset}} if offset else None
                return pa.py_buffer(obstore.get(self.store, self._key(name), options=options).bytes())
            return pa.py_buffer(obstore.get_range(self.store, self._key(name), start=offset, length=length))

    @contextmanager
    def open_writer(self, name: str, finish: Finish) -> Iterator[Any]:
        upload = obstore.open_writer(self.store, self._key(name), buffer_size=PART, max_concurrency=PARTS_AT_ONCE)
        try:
            yield _Output(upload)
            finish()
        except BaseException:
            with suppress(Exception):
                upload.__exit__(*sys.exc_info())  # which gives up what was uploaded
            raise
        with _translate_errors():
            upload.close()

    open_stream = open_writer

    def check_exclusive(self) -> None:
        """Put the root's marker twice: a store that lets both through would let two drivers through."""
        key = self._key(MARKER)
        try:
            with _translate_errors():
                for _ in range(2):
                    obstore.put(self.store, key, b"", mode="create")
            problem = "it ignores the condition of a put"
        except FileExistsError:
            return
        except NotImplementedError as refusal:
            problem = str(refusal)
        raise StorageError(
            f"{self.root} cannot create an object only if it is absent ({problem}), so two drivers could both commit. "
            "Sluice needs a store with conditional writes: docs/how-to/object-stores.md lists some"
        )

    def put_if_absent(self, name: str, data: bytes, finish: Finish) -> bool:
        key, writer = self._key(name), uuid.uuid4().hex
        finish()
        try:
            with _translate_errors():
                obstore.put(self.store, key, data, mode="create", attributes={WRITER: writer}, use_multipart=False)
            return True
        except FileExistsError:
            # A put whose answer was lost is sent again, and finds itself.
            with suppress(FileNotFoundError), _translate_errors():
                return obstore.get(self.store, key).attributes.get(WRITER) == writer
            return False

    def sync(self, names: Sequence[str]) -> None:
        """What is put is there for good."""

    def move(self, source: str, target: str, finish: Finish) -> None:
        with _translate_errors():
            obstore.copy(self.store, self._key(source), self._key(target))
            if self.bucket.copies_in_background:
                self._await_copy(source, target)
        finish()
        self.delete(source)

    def delete(self, name: str) -> None:
        with suppress(FileNotFoundError), _translate_errors():
            obstore.delete(self.store, self._key(name))

    def delete_all(self, names: Sequence[str]) -> None:
        try:
            with _translate_errors():
                obstore.delete(self.store, [self._key(name) for name in names])
        except FileNotFoundError:  # Azure and Google: some was gone already, and others may still be there
            with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
                list(pool.map(self.delete, names))

    def delete_tree(self, name: str) -> None:
        self._made.clear()
        below = self._key(name)
        with _translate_errors():
            keys = [o["path"] for chunk in obstore.list(self.store, below or None) for o in chunk]
        self.delete_all([key[len(self.prefix) :].lstrip("/") for key in keys if key != below])

    def _key(self, name: str) -> str:
        return "/".join(step for step in f"{self.prefix}/{name}".split("/") if step)

    def _await_copy(self, source: str, target: str) -> None:
        """Until the last byte can be read: the source must stay as long."""
        size = self.size(source)
        deadline = self._clock.monotonic() + COPY_SECONDS
        while self.size(target) != size or (size and len(self.read(target, size - 1, 1)) != 1):
            if self._clock.monotonic() > deadline:
                raise OSError(f"the copy to {self.path(target)} is not done after {COPY_SECONDS} seconds")
            self._clock.sleep(0.1)


class _Output(io.RawIOBase):
    """An upload as the file that pyarrow's writers expect."""

    def __init__(self, upload: Any) -> None:
        self._upload = upload

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        with _translate_errors():
            return int(self._upload.write(memoryview(data).cast("B")))


@contextmanager
def _translate_errors() -> Iterator[None]:
    """What obstore raises as the built-in errors that files raise, without the internals that it appends."""
    try:
        yield
    except (BaseError, FileNotFoundError, ValueError) as problem:
        words = str(problem).split("\n\nDebug source")[0]
        if isinstance(problem, FileNotFoundError):
            raise FileNotFoundError(words) from None
        if isinstance(problem, AlreadyExistsError):
            raise FileExistsError(words) from None
        if isinstance(problem, NotSupportedError) or "NotImplemented" in words:
            raise NotImplementedError(words) from None
        raise OSError(words) from None


def _last(path: str) -> str:
    return path.rsplit("/", 1)[-1]
