"""Somebody else's text on a terminal: names of streams and files, and errors that quote them."""

from __future__ import annotations


def one_line(text: str) -> str:
    """The text without what would move the cursor.

    >>> one_line("first\\nthen\\x1b[2J")
    'first then [2J'
    """
    return "".join(c if c.isprintable() else " " for c in text)


def printable(text: str) -> str:
    """The same for a text of several lines, which it keeps.

    >>> printable("first\\nthen\\x1b[2J")
    'first\\nthen [2J'
    """
    return "\n".join(one_line(line) for line in text.split("\n"))
