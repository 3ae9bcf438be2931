"""The numbers of things as types of their own, so that a checker tells a unit from a site; when run, plain ints."""

from __future__ import annotations

from typing import NewType

Unit = NewType("Unit", int)
"""A fragment's state for one range of hashes; the units of all fragments are numbered through."""
Site = NewType("Site", int)
"""An executor slot that holds units."""
Level = NewType("Level", int)
"""Where operators stand in a plan: those of a level take rows of sources and of lower levels."""
InputNumber = NewType("InputNumber", int)
"""The place of an operator's input among those of all operators, `Plan.inputs`."""
Fragment = NewType("Fragment", int)
"""Operators that share units: the place of their directory in a routing."""
SiteKey = NewType("SiteKey", int)
"""A number whose Spark hash falls on a site's partition: what rows are sent to the site by."""
