"""The files that the page is made of."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

STATIC = Path(str(files("sluice.dashboard.page").joinpath("static")))
