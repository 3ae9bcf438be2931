"""Looking at something again and again while something else is at work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def sampling(look: Callable[[], None], period: float) -> Iterator[None]:
    """Have it looked at every so many seconds, in a thread that is over when this is."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(period):
            look()

    thread = threading.Thread(target=watch, name="sampling", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
