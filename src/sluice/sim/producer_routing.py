"""The producer's end of an exchange whose units can move: it knows where rows go and which of them have to wait."""

from __future__ import annotations

import numpy as np

from sluice.model.errors import ProtocolError
from sluice.model.ids import Site, Unit


class ProducerRouting:
    """One producer's routing: where each unit's rows go, and which units are stalled.

    It works in place on the arrays it is given, so that vectorised code reads the same routing row for row.

    >>> outlet = ProducerRouting(np.array([0, 1], np.int32), np.zeros(2, bool))
    >>> outlet.pause(1)
    >>> outlet.destination(0), outlet.destination(1)
    (0, None)
    >>> outlet.restart(1, site=0)
    >>> outlet.destination(1)
    0
    """

    def __init__(self, holders: np.ndarray, stalled: np.ndarray) -> None:
        if holders.ndim != 1 or holders.shape != stalled.shape:
            raise ProtocolError(f"holders {holders.shape} and stalled {stalled.shape} must have one entry a unit each")
        self.holders, self.stalled = holders, stalled

    def pause(self, unit: Unit) -> None:
        """Hold this unit's rows back from now on."""
        if self._is_stalled(unit):
            raise ProtocolError(f"unit {unit} is stalled already: a second pause came before its restart")
        self.stalled[unit] = True

    def restart(self, unit: Unit, site: Site) -> None:
        """Send this unit's rows to `site`, those first that were held back."""
        if not self._is_stalled(unit):
            raise ProtocolError(f"unit {unit} is not stalled: a restart came without a pause before it")
        self.holders[unit] = site
        self.stalled[unit] = False

    def destination(self, unit: Unit) -> Site | None:
        """The site that gets this unit's rows, or None while they have to wait."""
        return None if self._is_stalled(unit) else Site(int(self.holders[unit]))

    def _is_stalled(self, unit: Unit) -> bool:
        if not 0 <= unit < len(self.stalled):  # numpy would count a negative one from the end
            raise ProtocolError(f"there is no unit {unit}")
        return bool(self.stalled[unit])
