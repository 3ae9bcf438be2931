"""The errors Sluice raises, each worded for the person who wrote the flow."""

from __future__ import annotations

import errno

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
"""The errors of a file system, or a user's part of it, that is full."""


class SluiceError(Exception):
    """Anything Sluice itself refuses or cannot go on with.

    >>> try:
    ...     raise StorageError("no space left to write /tmp/ck: free some or use another place")
    ... except SluiceError as problem:
    ...     print(problem)
    no space left to write /tmp/ck: free some or use another place
    """


class FlowError(SluiceError, ValueError):
    """What was asked for is wrong: the flow, a stream, a column, an option or an argument. Nothing has run of it.

    >>> try:
    ...     raise FlowError("stream 'trades' has no column 'sym'")
    ... except ValueError as e:
    ...     print(e)
    stream 'trades' has no column 'sym'
    """


class SqlError(FlowError):
    """A part of a SQL text cannot be run; the message ends with the line it stands in and a caret under it.

    >>> from sluice import Flow
    >>> flow = Flow()
    >>> trades = flow.readStream("trades", "symbol string, ts timestamp", eventTime="ts")
    >>> try:
    ...     flow.sql("SELECT symbol FROM trades ORDER BY symbol")
    ... except SqlError as problem:
    ...     print("ORDER BY" in str(problem))
    True
    """


class QueryError(SluiceError):
    """A query that was started cannot do what it is asked for, or cannot go on.

    >>> issubclass(QueryError, SluiceError), issubclass(QueryError, ValueError)
    (True, False)
    """


class ScenarioError(SluiceError, ValueError):
    """A scenario cannot be simulated as it is written, or at all; nothing has run yet.

    >>> issubclass(ScenarioError, ValueError)
    True
    """


class CheckpointError(SluiceError):
    """The checkpoint belongs to another flow, version or driver, or cannot be read; it was left untouched.

    >>> from sluice import readState
    >>> try:
    ...     readState("/nowhere")
    ... except CheckpointError as problem:
    ...     print("/nowhere" in str(problem))
    True
    """


class StorageError(SluiceError):
    """State could not be written or read back: a full disk, a lost or damaged file.

    >>> StorageError.of("write", "/tmp/ck", OSError(errno.ENOSPC, "full"))
    StorageError('no space left to write /tmp/ck: free some or use another place')
    """

    @classmethod
    def of(cls, operation: str, path: str, problem: OSError) -> StorageError:
        """Why an operation on a path failed."""
        if problem.errno in NO_SPACE:
            return cls(f"no space left to {operation} {path}: free some or use another place")
        return cls(f"cannot {operation} {path}: {problem}")


class MissingFile(StorageError):
    """A file of a stream is gone. With `ignoreMissingFiles` it is counted instead.

    >>> issubclass(MissingFile, StorageError)
    True
    """


class CorruptFile(StorageError):
    """A file of a stream has bytes that are no such file, or none. With `ignoreCorruptFiles` it is counted instead.

    >>> issubclass(CorruptFile, StorageError)
    True
    """


class ProtocolError(SluiceError):
    """A step of a protocol came out of order, twice, or from somebody who takes no part in it.

    >>> issubclass(ProtocolError, SluiceError)
    True
    """


class EvaluationError(SluiceError):
    """A row has no value under Spark's ANSI rules: a division by zero, an overflow, a text that is no number.

    >>> from sluice import Flow, testing
    >>> trades = Flow().readStream("trades", "ts timestamp, size int", eventTime="ts")
    >>> try:
    ...     testing.run(trades.select("1 / size AS part"), {"trades": [{"ts": "2026-01-01 09:30:00", "size": 0}]})
    ... except EvaluationError as problem:
    ...     print("zero" in str(problem))
    True
    """


SPARKS_ACCOUNT = "What Spark says of it:"
"""Stands in an error after the sentence that says what went wrong, and before Spark's own text, which is long."""
