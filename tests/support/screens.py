"""What is on a terminal after a program has drawn in place."""

from __future__ import annotations

import re

CODES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
_ERASED = re.compile(r"\r?\x1b\[2K(?:\x1b\[1A\x1b\[2K)*")
"""What rich writes before it draws a picture over the one before."""


def pictures(written: str) -> list[str]:
    """Every picture that was drawn, without codes."""
    return [CODES.sub("", picture) for picture in _ERASED.split(written)]


def shown_last(written: str) -> list[str]:
    """The lines of the last picture."""
    return [line.rstrip() for line in pictures(written)[-1].splitlines()]
