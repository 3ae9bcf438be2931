"""Sluice: adaptive stateful streaming for PySpark.

from sluice import Flow

flow = Flow(spark, name="desk")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from sluice.model.errors import (
    CheckpointError,
    CorruptFile,
    EvaluationError,
    FlowError,
    MissingFile,
    ProtocolError,
    QueryError,
    ScenarioError,
    SluiceError,
    SqlError,
    StorageError,
)
from sluice.version import VERSION

if TYPE_CHECKING:
    from sluice import testing
    from sluice.api.flow import Flow
    from sluice.api.query import Query
    from sluice.api.state import readState
    from sluice.api.stream import DataStream
    from sluice.api.writer import DataStreamWriter
    from sluice.model.epoch.decision import Decision, DecisionOutcome, Verb
    from sluice.model.ids import Site, Unit
    from sluice.model.view import ClusterView
    from sluice.policies import (
        ActiveDisk,
        Elastic,
        Freezing,
        Hybrid,
        LazyDisk,
        LoadBalancing,
        MemoryBalancing,
        NoRelocation,
        Policy,
        Static,
        Tokens,
    )
    from sluice.spark.failures import QueryFailed
    from sluice.verbs import Action
    from sluice.verbs.freeze import CleanUp, Freeze
    from sluice.verbs.move import Move
    from sluice.verbs.scale import Scale
    from sluice.verbs.share import LayOut, PassToken, Release, Share
    from sluice.verbs.split import Merge, Split

__all__ = [
    "Action",
    "ActiveDisk",
    "CheckpointError",
    "CleanUp",
    "ClusterView",
    "CorruptFile",
    "DataStream",
    "DataStreamWriter",
    "Decision",
    "DecisionOutcome",
    "Elastic",
    "EvaluationError",
    "Flow",
    "FlowError",
    "Freeze",
    "Freezing",
    "Hybrid",
    "LayOut",
    "LazyDisk",
    "LoadBalancing",
    "MemoryBalancing",
    "Merge",
    "MissingFile",
    "Move",
    "NoRelocation",
    "PassToken",
    "Policy",
    "ProtocolError",
    "Query",
    "QueryError",
    "QueryFailed",
    "Release",
    "Scale",
    "ScenarioError",
    "Share",
    "Site",
    "SluiceError",
    "Split",
    "SqlError",
    "Static",
    "StorageError",
    "Tokens",
    "Unit",
    "Verb",
    "__version__",
    "readState",
    "testing",
]
__version__ = VERSION

_MODULES = {
    "ClusterView": "sluice.model.view",
    "DataStream": "sluice.api.stream",
    "DataStreamWriter": "sluice.api.writer",
    "Flow": "sluice.api.flow",
    **dict.fromkeys(
        ("Action", "CleanUp", "Freeze", "LayOut", "Merge", "Move", "PassToken", "Release", "Scale", "Share", "Split"),
        "sluice.verbs",
    ),
    **dict.fromkeys(("Decision", "DecisionOutcome"), "sluice.model.epoch.decision"),
    **dict.fromkeys(("Site", "Unit"), "sluice.model.ids"),
    "Verb": "sluice.model.epoch.decision",
    **dict.fromkeys(
        (
            "ActiveDisk",
            "Elastic",
            "Freezing",
            "Hybrid",
            "LazyDisk",
            "LoadBalancing",
            "MemoryBalancing",
            "NoRelocation",
            "Policy",
            "Static",
            "Tokens",
        ),
        "sluice.policies",
    ),
    "Query": "sluice.api.query",
    "QueryFailed": "sluice.spark.failures",
    "readState": "sluice.api.state",
}
"""Where the names are that load more than the errors: Python workers import parts of this package, not its face."""


def __getattr__(name: str) -> object:
    if name == "testing":
        return import_module("sluice.testing")
    if name not in _MODULES:
        raise AttributeError(f"module 'sluice' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
