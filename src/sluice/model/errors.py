"""The errors Sluice raises, each worded for the person who wrote the flow."""

from __future__ import annotations

import errno

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
"""The errors of a file system, or a user's part of it, that is full."""


class SluiceError(Exception):
    """Anything Sluice itself refuses or cannot go on with."""


class FlowError(SluiceError, ValueError):
    """What was asked for is wrong: the flow, a stream, a column, an option or an argument. Nothing has run of it.

    >>> try:
    ...     raise FlowError("stream 'trades' has no column 'sym'")
    ... except ValueError as e:
    ...     print(e)
    stream 'trades' has no column 'sym'
    """


class SqlError(FlowError):
    """A part of a SQL text cannot be run; the message ends with the line it stands in and a caret under it."""


class QueryError(SluiceError):
    """A query that was started cannot do what it is asked for, or cannot go on."""


class ScenarioError(SluiceError, ValueError):
    """A scenario cannot be simulated as it is written, or at all; nothing has run yet."""


class CheckpointError(SluiceError):
    """The checkpoint belongs to another flow, version or driver, or cannot be read; it was left untouched."""


class StorageError(SluiceError):
    """State could not be written or read back: a full disk, a lost or damaged file."""

    @classmethod
    def of(cls, operation: str, path: str, problem: OSError) -> StorageError:
        """Why an operation on a path failed."""
        if problem.errno in NO_SPACE:
            return cls(f"no space left to {operation} {path}: free some or use another place")
        return cls(f"cannot {operation} {path}: {problem}")


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
