"""What a page asks the process that runs its query, and the answer: a line each, through the pipe between them."""

from __future__ import annotations

from dataclasses import dataclass

from sluice.model.codec import encode
from sluice.verbs import Action


@dataclass(frozen=True)
class Question:
    """Something that is to be done."""

    number: int
    action: Action


@dataclass(frozen=True)
class Answer:
    """Why it is refused; None if it is begun, or will be looked at with the next epoch."""

    number: int
    refused: str | None = None


def as_line(value: Question | Answer) -> bytes:
    """
    >>> as_line(Answer(3, "there is no unit 7"))
    b'{"number":3,"refused":"there is no unit 7"}\\n'
    """
    return encode(value) + b"\n"
