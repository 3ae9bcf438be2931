"""The numbers of things as types of their own, so that a checker tells a unit from a site; when run, plain ints."""

from __future__ import annotations

from typing import NewType

SiteKey = NewType("SiteKey", int)
"""A number whose Spark hash falls on a site's partition: what rows are sent to the site by."""
