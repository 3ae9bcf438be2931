"""The process that runs the query, as the page asks it to act: questions go out, answers come in."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoAnswer
from typing import IO

from sluice.control.asking import Answer, Question, as_line
from sluice.model.codec import decode
from sluice.verbs import Action

PATIENCE = 30.0
"""Seconds for which an answer is waited for."""


class Driver:
    """Hands questions to the driver, one a line, and answers to whoever asked."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out, self._lock = out, threading.Lock()
        self._numbers = itertools.count()
        self._waiting: dict[int, Future[Answer]] = {}

    def ask(self, action: Action) -> Answer:
        """What the driver says to an action."""
        number, answer = next(self._numbers), Future[Answer]()
        self._waiting[number] = answer
        try:
            with self._lock:
                self._out.write(as_line(Question(number, action)))
                self._out.flush()
            return answer.result(PATIENCE)
        except NoAnswer:
            return Answer(number, "the driver has not answered yet; whatever it decides is going to be listed")
        except OSError as problem:
            return Answer(number, f"the driver is gone: {problem}")
        finally:
            del self._waiting[number]

    def hear(self, line: bytes) -> None:
        """Take an answer in."""
        answer = decode(line, Answer)
        waiting = self._waiting.get(answer.number)
        if waiting is not None:
            waiting.set_result(answer)
