"""The errors Sluice raises, each worded for the person who wrote the flow."""

from __future__ import annotations


class SluiceError(Exception):
    """Anything Sluice itself refuses or cannot go on with."""


class FlowError(SluiceError, ValueError):
    """The flow, a stream, a column or an option is wrong; nothing has run yet.

    >>> try:
    ...     raise FlowError("stream 'trades' has no column 'sym'")
    ... except ValueError as e:
    ...     print(e)
    stream 'trades' has no column 'sym'
    """


class ScenarioError(SluiceError, ValueError):
    """A scenario cannot be simulated as it is written, or at all; nothing has run yet."""


class CheckpointError(SluiceError):
    """The checkpoint belongs to another flow or version, or cannot be read; it was left untouched."""


class StorageError(SluiceError):
    """State could not be written or read back: a full disk, a lost or damaged file."""


class MissingFile(StorageError):
    """A file of a stream is gone."""


class CorruptFile(StorageError):
    """A file of a stream has bytes that are no such file, or none."""


class ProtocolError(SluiceError):
    """A step of a protocol came out of order, twice, or from somebody who takes no part in it."""


class EvaluationError(SluiceError):
    """A row has no value under Spark's ANSI rules: a division by zero, an overflow, a text that is no number."""


SPARKS_ACCOUNT = "What Spark says of it:"
"""Stands in an error after the sentence that says what went wrong, and before Spark's own text, which is long."""
