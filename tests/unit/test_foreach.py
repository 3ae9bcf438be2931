"""Writers of rows, as `foreach` takes them: when they are opened and closed, and what they are told."""

from __future__ import annotations

from typing import Any

import pytest

from sluice import FlowError
from sluice.spark.foreach import _Partition, write_each


class Writer:
    """Notes how it is called, and raises where it is asked to."""

    def __init__(self, raises: str = "", wants: bool = True) -> None:
        self.raises, self.wants = raises, wants
        self.calls: list[Any] = []

    def _note(self, *call: Any) -> None:
        self.calls.append(call)
        if call[0] == self.raises:
            raise ValueError(call[0])

    def open(self, partition: int, epoch: int) -> bool:
        self._note("open", partition, epoch)
        return self.wants

    def process(self, row: Any) -> None:
        self._note("process", row)

    def close(self, error: Exception | None) -> None:
        self._note("close", error and str(error))


def hand_rows(writer: Any) -> None:
    _Partition(writer, 7)(iter("ab"))


def test_a_writer_is_opened_and_closed_around_its_rows() -> None:
    writer = Writer()
    hand_rows(writer)
    assert writer.calls == [("open", 0, 7), ("process", "a"), ("process", "b"), ("close", None)]


def test_a_writer_that_wants_no_rows_is_closed_too() -> None:
    writer = Writer(wants=False)
    hand_rows(writer)
    assert writer.calls == [("open", 0, 7), ("close", None)]


@pytest.mark.parametrize(
    ("raises", "calls"),
    [
        ("open", ["open"]),
        ("process", ["open", "process", "close"]),
        ("close", ["open", "process", "process", "close"]),
    ],
)
def test_what_a_writer_raises_fails_the_epoch(raises: str, calls: list[str]) -> None:
    writer = Writer(raises)
    with pytest.raises(ValueError, match=raises):
        hand_rows(writer)
    assert [call[0] for call in writer.calls] == calls
    if raises == "process":
        assert writer.calls[-1] == ("close", "process"), "it is told why"


def test_a_function_has_each_row() -> None:
    seen: list[str] = []
    hand_rows(seen.append)
    assert seen == ["a", "b"]


class WithoutMethod:
    process = print
    close = "not a method"


@pytest.mark.parametrize("writer", [3, None, WithoutMethod()])
def test_what_is_no_writer_is_refused(writer: Any) -> None:
    with pytest.raises(FlowError, match="foreach takes a function of a row, or an object with process"):
        write_each(writer)
