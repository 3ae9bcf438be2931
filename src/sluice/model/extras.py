"""What an installation may leave out: packages of this package's extras, and the words when one is missing."""

from __future__ import annotations

import importlib.util
from enum import Enum

from sluice.model.errors import SluiceError


class Extra(Enum):
    """An extra of `sluice-streaming`: its name, and the modules that come with it by the packages that have them."""

    DELTA = "delta", {"deltalake": "deltalake"}
    METRICS = "metrics", {"prometheus-client": "prometheus_client"}
    SIM = "sim", {"numba": "numba", "vl-convert-python": "vl_convert"}
    UI = "ui", {"starlette": "starlette", "uvicorn": "uvicorn"}


class MissingPackage(SluiceError):
    """A command needs a package that is not installed."""


def require(extra: Extra, user: str) -> None:
    """Refuse to go on without the packages of an extra, in words that name who needs them and how to get them."""
    name, modules = extra.value
    missing = [package for package, module in modules.items() if importlib.util.find_spec(module) is None]
    if missing:
        packages = f"package{'s' * (len(missing) > 1)} {' and '.join(missing)}"
        raise MissingPackage(f"{user} needs the {packages}: pip install 'sluice-streaming[{name}]'")
