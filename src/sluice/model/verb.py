"""What can be decided about units and sites, as the journal keeps it and users read it."""

from __future__ import annotations

from enum import Enum


class Verb(str, Enum):
    """The verbs of decisions; each is its text, too.

    >>> Verb.PASS_TOKEN == "pass token", f"{Verb.MOVE} unit 3"
    (True, 'move unit 3')
    """

    MOVE = "move"
    FREEZE = "freeze"
    CLEAN_UP = "clean up"
    SHARE = "share"
    RELEASE = "release"
    PASS_TOKEN = "pass token"
    LAY_OUT = "lay out"
    SPLIT = "split"
    MERGE = "merge"
    SCALE = "scale"
    SPILL = "spill"
    """A site's own: a unit goes to disk, and its input waits."""
    FETCH = "fetch"
    """A site's own: a unit comes back to memory."""
    PLACE = "place"
    """Nobody asks for it: sites are elsewhere."""
    RESIZE = "resize"
    """Nobody asks for it: there is another number of sites."""

    def __str__(self) -> str:
        return str(self.value)
