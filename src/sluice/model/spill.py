"""What becomes of state that does not fit into a site's memory."""

from __future__ import annotations

from enum import Enum


class Spill(str, Enum):
    """The values of the option `spill`."""

    UNIT = "unit"
    """Whole units go to disk, and their input waits there for their turn."""
    PROBE = "probe"
    """The oldest segments go to disk, and are read there."""
