"""A fork that always begins.

A thread of a library may be inside the interpreter's own locks when a process forks. Python 3.11 then leaves the child
waiting for a lock that nobody has. Such a child has run nothing yet: it is killed, and another one is made.
"""

from __future__ import annotations

import os
import select
import signal

BIRTH_SECONDS = 10
TRIES = 5


def fork() -> int:
    """As `os.fork`: 0 in the child, its number in the parent, which goes on when the child runs."""
    for _ in range(TRIES):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            os.write(writing, b"!")
            os.close(writing)
            return 0
        os.close(writing)
        begun, _, _ = select.select([reading], [], [], BIRTH_SECONDS)
        os.close(reading)
        if begun:
            return child
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    raise RuntimeError(f"no child has begun within {BIRTH_SECONDS} s, {TRIES} times")
