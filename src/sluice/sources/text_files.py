"""Text files as blocks of whole lines, decompressed as Spark decompresses them and cut into lines where Spark cuts."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Protocol

import numpy as np
import pyarrow as pa

from sluice.model.errors import CorruptFile, StorageError
from sluice.sources.file_paths import Place

BLOCK = 16 << 20
READ_BY_SPARK = "or have Spark read these files: flow.readStream, and flow.table, take its DataFrame"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Spark goes by the end of a name; Arrow, left to itself, would take others for compressed.
_CODECS = {".gz": "gzip", ".gzip": "gzip", ".bz2": "bz2", ".zst": "zstd", ".zstd": "zstd"}
_ONLY_HADOOP = (".snappy", ".lz4")


class _Bytes(Protocol):
    def read(self, size: int, /) -> bytes: ...


def text_blocks(place: Place) -> Iterator[bytes]:
    """The file's lines in blocks: UTF-8 without a byte order mark, every line ended by a line feed."""
    rest, first = b"", True
    for chunk in _chunks(place):
        data = rest + chunk
        if first:
            if len(data) < 2 * len(BYTE_ORDER_MARK):
                rest = data
                continue
            data, first = _without_mark(data, place), False
        # of a carriage return at the end it is not known yet whether a line feed follows
        carried_over = data[-1:] if data.endswith(b"\r") else b""
        data = _line_feeds(data[: len(data) - len(carried_over)])
        end = data.rfind(b"\n") + 1
        if end:
            yield _check_text(data[:end], place)
        rest = data[end:] + carried_over
    rest = _line_feeds(_without_mark(rest, place) if first else rest)
    if rest:
        yield _check_text(rest if rest.endswith(b"\n") else rest + b"\n", place)


def lines_of(block: bytes) -> pa.Array:
    """The lines of a block, each with its line feed, without a copy."""
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + 1
    offsets = np.concatenate([[0], ends]).astype(np.int64)
    return pa.Array.from_buffers(pa.large_string(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(block)])


def bytes_of(lines: pa.Array) -> bytes:
    """The bytes of an array of text, one value after the other."""
    if len(lines) == 0:
        return b""
    wide = np.int64 if pa.types.is_large_string(lines.type) or pa.types.is_large_binary(lines.type) else np.int32
    offsets = np.frombuffer(lines.buffers()[1], wide)[lines.offset : lines.offset + len(lines) + 1]
    data = lines.buffers()[2]
    return b"" if data is None else data.slice(int(offsets[0]), int(offsets[-1] - offsets[0])).to_pybytes()


def _without_mark(data: bytes, place: Place) -> bytes:
    if data.startswith(2 * BYTE_ORDER_MARK):  # Spark takes away one for some formats, both for others
        raise StorageError(f"file {place.name!r} begins with two byte order marks; write it with one, or none")
    return data.removeprefix(BYTE_ORDER_MARK)


def _line_feeds(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in data else data


def _check_text(block: bytes, place: Place) -> bytes:
    if not block.isascii():
        try:
            block.decode()
        except UnicodeDecodeError as e:
            raise StorageError(
                f"file {place.name!r} is not text in UTF-8 ({e.reason}); give the option encoding=, " + READ_BY_SPARK
            ) from e
    return block


def _chunks(place: Place) -> Iterator[bytes]:
    name = place.inner.lower()
    if name.endswith(_ONLY_HADOOP):
        raise StorageError(
            f"file {place.name!r}: text compressed by Hadoop's snappy or lz4 cannot be read here; compress it with "
            f"gzip, bzip2, deflate or zstd, {READ_BY_SPARK}"
        )
    codec = next((codec for suffix, codec in _CODECS.items() if name.endswith(suffix)), None)
    total = 0
    with place.filesystem.open_input_stream(place.inner, compression=codec) as file:
        for chunk in _inflate(file) if name.endswith(".deflate") else iter(lambda: file.read(BLOCK), b""):
            total += len(chunk)
            yield chunk
    # Even nothing takes some bytes when compressed: without any, the file has lost its content.
    if total == 0 and place.filesystem.get_file_info(place.inner).size == 0:
        raise CorruptFile(f"file {place.name!r} has no bytes: it has lost its content, or is still being written")


def _inflate(file: _Bytes) -> Iterator[bytes]:
    inflater = zlib.decompressobj()
    fed = False
    for chunk in iter(lambda: file.read(BLOCK), b""):
        fed, data = True, chunk
        while data:
            if inflater.eof:
                inflater = zlib.decompressobj()
            try:
                yield inflater.decompress(data)
            except zlib.error as e:
                raise OSError(str(e)) from e
            data = inflater.unused_data
    if fed and not inflater.eof:
        raise OSError("the compressed text ends too early")
