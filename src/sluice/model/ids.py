"""The numbers of things as types of their own, so that a checker tells a unit from a site; when run, plain ints."""

from __future__ import annotations

from typing import NewType

Unit = NewType("Unit", int)
"""The id of a unit, a fragment's state for one range of hashes. It is given once in a flow's checkpoint."""
UnitIndex = NewType("UnitIndex", int)
"""The place of a unit in one routing: fragment by fragment, in the order of their hashes. Arrays and ranges go by it.
After a split or a merge another unit has it: it never leaves the routing, or the epoch's record, that it is of."""
Site = NewType("Site", int)
"""An executor slot that holds units."""
Level = NewType("Level", int)
"""Where operators stand in a plan: those of a level take rows of sources and of lower levels."""
InputNumber = NewType("InputNumber", int)
"""The place of a state, what is kept of an operator's input, among those of all operators, `Plan.inputs`."""
Fragment = NewType("Fragment", int)
"""Operators that share units: the place of their directory in a routing."""
SiteKey = NewType("SiteKey", int)
"""What rows are sent to a site by; on Spark, the number of its partition."""
