"""Sluice: adaptive stateful streaming for PySpark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sluice.model.errors import CheckpointError, FlowError, SluiceError, StorageError
from sluice.model.version import VERSION

if TYPE_CHECKING:
    from sluice.api.flow import Flow

__all__ = ["CheckpointError", "Flow", "FlowError", "SluiceError", "StorageError"]
__version__ = VERSION


def __getattr__(name: str) -> Any:
    # Python workers import parts of this package only: they should not load the whole face
    if name == "Flow":
        from sluice.api.flow import Flow

        return Flow
    raise AttributeError(f"module 'sluice' has no attribute {name!r}")
