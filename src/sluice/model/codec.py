"""Columns of figures, an entry a unit, as text for the journal."""

from __future__ import annotations

import base64
import zlib

import numpy as np


def encode_column(column: np.ndarray) -> str:
    """A column as text that is short where most entries are small or alike.

    >>> decode_column(encode_column(np.array([3, 0, 7])))
    array([3, 0, 7])
    """
    kind = column.dtype.newbyteorder("<")
    return f"{kind.str}:{base64.b64encode(zlib.compress(column.astype(kind).tobytes(), 1)).decode()}"


def decode_column(text: str) -> np.ndarray:
    kind, _, data = text.partition(":")
    return np.frombuffer(zlib.decompress(base64.b64decode(data)), dtype=kind)
