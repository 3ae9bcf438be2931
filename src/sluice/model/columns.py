"""Columns with an entry a unit, as short texts: most of their entries are small or alike."""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TypeVar, cast, overload

import numpy as np

Number = TypeVar("Number", bound=int)
_WIDTHS = tuple(
    (np.dtype(kind), int(np.iinfo(kind).min), int(np.iinfo(kind).max)) for kind in ("u1", "<u2", "<u4", "<i8")
)
"""Kinds of whole numbers, the narrowest first, with their bounds."""
_HEAD = re.compile(r"\d+\*(u1|<u2|<u4|<i8):")


def pack(array: np.ndarray) -> str:
    """An array as text: how many entries there are, of which kind, and these. Whole numbers take as many bytes each as
    the greatest needs; runs of equal ones are short.

    >>> pack(np.zeros(1000, dtype=np.int64))[:8], unpack(pack(np.array([3, 0, 700])))
    ('1000*u1:', array([  3,   0, 700]))
    """
    whole = array.dtype.kind in "iu"
    kind = _narrowest(array) if whole else array.dtype.newbyteorder("<")
    entries = array.astype(kind).tobytes()
    # zlib's tables as wide as the entries need: for a short column, making them takes longer than packing it
    window_bits = min(max(len(entries).bit_length(), 9), zlib.MAX_WBITS)
    strategy = zlib.Z_RLE if whole else zlib.Z_DEFAULT_STRATEGY
    packer = zlib.compressobj(1, zlib.DEFLATED, window_bits, min(window_bits - 5, 8), strategy)
    data = packer.compress(entries) + packer.flush()
    return f"{len(array)}*{kind.str.lstrip('|')}:{base64.b64encode(data).decode()}"


def unpack(text: str) -> np.ndarray:
    """An array from its text; whole numbers have 64 bits. `ValueError` where it is no such text."""
    try:
        count, _, packed = text.partition("*")
        kind, _, data = packed.partition(":")
        array = np.frombuffer(zlib.decompress(base64.b64decode(data)), dtype=kind)
    except (zlib.error, AttributeError, TypeError) as problem:
        raise ValueError(str(problem)) from problem
    if len(array) != int(count):
        raise ValueError(f"a column has {len(array)} entries, and says that it has {count}")
    return array.astype(np.int64) if array.dtype.kind in "iu" else array


def pack_texts(texts: Sequence[str]) -> str:
    """Texts of one line each as one: those of many names, most of which begin alike.

    >>> names = [f"000000000012-0003-ab12-{number}" for number in range(1000)]
    >>> len(pack_texts(names)) < 6000, unpack_texts(pack_texts(names)) == names, unpack_texts(pack_texts([]))
    (True, True, [])
    """
    return f"{len(texts)}:{base64.b64encode(zlib.compress(chr(10).join(texts).encode(), 6)).decode()}"


def unpack_texts(packed: str) -> list[str]:
    """The texts again. `ValueError` where it is no such text."""
    count, _, data = packed.partition(":")
    try:
        texts = zlib.decompress(base64.b64decode(data)).decode().split("\n") if int(count) else []
    except zlib.error as problem:
        raise ValueError(str(problem)) from problem
    if len(texts) != int(count):
        raise ValueError(f"there are {len(texts)} texts, and it says that there are {count}")
    return texts


def _narrowest(array: np.ndarray) -> np.dtype:
    """The narrowest kind of whole numbers that has all entries of an array."""
    low, high = (int(array.min()), int(array.max())) if len(array) else (0, 0)
    return next(kind for kind, least, greatest in _WIDTHS if least <= low and high <= greatest)


class IntColumn(Sequence[Number]):
    """Whole numbers, an entry a unit, that do not change. It travels as its text, and is an array where it is used.

    >>> column = IntColumn([0, 0, 7])
    >>> column, column[2], column == (0, 0, 7), column.array
    ((0, 0, 7), 7, True, array([0, 0, 7]))
    """

    def __init__(self, entries: Iterable[Number] | np.ndarray = ()) -> None:
        array = entries if isinstance(entries, np.ndarray) else np.fromiter(entries, np.int64)
        self.__dict__["array"] = _unchangeable(array.astype(np.int64))

    @classmethod
    def of(cls, entries: Sequence[Number]) -> IntColumn[Number]:
        """Numbers as a column, if they are none yet."""
        return entries if isinstance(entries, IntColumn) else cls(entries)

    @classmethod
    def from_text(cls, text: str) -> IntColumn[Number]:
        """From its `text`, which is not unpacked before the numbers are needed."""
        if not _HEAD.match(text):
            raise ValueError(f"{text[:20]!r} is not how a column begins")
        column = cls.__new__(cls)
        column.__dict__["text"] = text
        return column

    def without_array(self) -> IntColumn[Number]:
        """The same numbers, to be kept and hardly looked at."""
        return IntColumn.from_text(self.text)

    @cached_property
    def array(self) -> np.ndarray:
        return _unchangeable(unpack(self.text))

    @cached_property
    def text(self) -> str:
        return pack(self.array)

    def __reduce__(self) -> tuple[Callable[[str], IntColumn[Number]], tuple[str]]:
        return IntColumn.from_text, (self.text,)

    def __array__(self, dtype: np.dtype | None = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.array, dtype) if copy or dtype else self.array

    def __len__(self) -> int:
        return len(self.array) if "array" in vars(self) else int(self.text.partition("*")[0])

    @overload
    def __getitem__(self, index: int) -> Number: ...
    @overload
    def __getitem__(self, index: slice) -> IntColumn[Number]: ...
    def __getitem__(self, index: int | slice) -> Number | IntColumn[Number]:
        return IntColumn(self.array[index]) if isinstance(index, slice) else cast(Number, int(self.array[index]))

    def __iter__(self) -> Iterator[Number]:
        return iter(self.array.tolist())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, IntColumn):
            packed = "text" in vars(self) and "text" in vars(other)
            return self is other or (packed and self.text == other.text) or np.array_equal(self.array, other.array)
        return tuple(self) == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


def _unchangeable(array: np.ndarray) -> np.ndarray:
    array.setflags(write=False)
    return array
