"""Values as bytes and back: what crosses a border (a blob, the journal) is a typed value, written and read here alone.

Dataclasses become JSON objects, named tuples and tuples lists, columns texts (`columns.py`). What does not fit the type
is refused.
"""

from __future__ import annotations

from typing import Any, TypeVar, get_origin

import msgspec
import numpy as np
from xxhash import xxh3_64, xxh3_64_intdigest

from sluice.model.columns import IntColumn, pack, unpack
from sluice.model.errors import FlowError

Value = TypeVar("Value")
DecodeError = msgspec.DecodeError

RunningChecksum, checksum = xxh3_64, xxh3_64_intdigest
"""What bytes add up to, so that damage is noticed when they are read again. XXH3: every byte of state is summed when it
is written and when it is read, and six times as fast as by CRC-32."""


def encode(value: object) -> bytes:
    """A value as JSON.

    >>> encode((1, None, "x")), decode(b"[1,2]", tuple[int, int])
    (b'[1,null,"x"]', (1, 2))
    """
    try:
        return msgspec.json.encode(value, enc_hook=_encode_column)
    except UnicodeEncodeError as problem:
        raise FlowError(f"{problem.object!r}, a name or text of the flow, is no Unicode text: {problem}") from problem


def decode(data: bytes, type_: type[Value]) -> Value:
    """A value of a type from its JSON; `DecodeError` where it is none."""
    try:
        return msgspec.json.decode(data, type=type_, dec_hook=_decode_column)
    except UnicodeDecodeError as problem:
        raise DecodeError(str(problem)) from problem


def _encode_column(value: Any) -> Any:
    """
    >>> decode(encode(np.array([3, 0, 7])), np.ndarray), decode(encode(IntColumn([3, 0, 7])), IntColumn)
    (array([3, 0, 7]), (3, 0, 7))
    """
    if isinstance(value, IntColumn):
        return value.text
    if isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, np.ndarray):
        raise NotImplementedError(f"a {type(value).__name__} has no form as JSON")
    return pack(value)


def _decode_column(type_: Any, value: Any) -> np.ndarray | IntColumn[int]:
    if (get_origin(type_) or type_) is IntColumn:
        return IntColumn.from_text(value)
    if type_ is not np.ndarray:
        raise NotImplementedError(f"a {type_.__name__} has no form as JSON")
    return unpack(value)
