"""The live page of a query, in a process of its own, which reads the checkpoint and ends with this one."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from typing import IO

from sluice.control.asking import Answer, Question, as_line
from sluice.model.codec import decode
from sluice.model.errors import QueryError, SluiceError
from sluice.model.extras import Extra, require
from sluice.verbs import Action

Ask = Callable[[Action], None]
"""Has something done, or refuses it."""


class PageProcess:
    """A page that is being served; `link` opens it."""

    def __init__(self, checkpoint: str, host: str, port: int, ask: Ask | None = None) -> None:
        """With `ask`, what people ask for on the page is handed to it."""
        require(Extra.UI, "query.ui()")
        options = ["--host", host, "--port", str(port), "--with-parent", *(["--control"] if ask else [])]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "sluice.cli.main", "ui", checkpoint, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the query: the page ends when its standard input does
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        first = self._process.stdout.readline().decode()
        if "http://" not in first:
            self.close()
            raise QueryError("the page did not start; its own message is above")
        self.link = first[first.index("http://") :].strip()
        if ask is not None:
            pipes = self._process.stdout, self._process.stdin
            threading.Thread(target=_answer_all, args=(*pipes, ask), name="sluice-page", daemon=True).start()

    @property
    def is_served(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def _answer_all(questions: IO[bytes], answers: IO[bytes], ask: Ask) -> None:
    """Have what the page asks for done, until the page ends."""
    for line in questions:
        question = decode(line, Question)
        try:
            ask(question.action)
            answer = Answer(question.number)
        except SluiceError as refused:
            answer = Answer(question.number, str(refused))
        try:
            answers.write(as_line(answer))
            answers.flush()
        except (OSError, ValueError):  # the page has ended meanwhile
            return
