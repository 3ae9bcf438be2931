"""What ended a query, in words: one sentence that says what went wrong, before all that Spark has to say of it."""

from __future__ import annotations

import re

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import StreamingQueryException

from sluice.model.errors import SPARKS_ACCOUNT, QueryError, SluiceError

_OWN_ERROR = re.compile(r"^sluice\.[\w.]+: (.+)$", re.MULTILINE)
"""The last line of a Python traceback that ends in an error of Sluice's own."""
_SPARKS_CONDITION = re.compile(
    r"^(?:Caused by: )?org\.apache\.spark\.[\w.$]+: (\[(?!PYTHON_EXCEPTION\])[A-Z][A-Z0-9_.]*\] .+)$", re.MULTILINE
)
"""The line with which Spark says which of its known errors came up, as in an expression that it computes."""
_PYTHONS_ERROR = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)$", re.MULTILINE)
"""The line behind a Python traceback: what a function of the user's raised in a task."""


INTERRUPTED = "java.lang.InterruptedException"
"""What Spark raises in whatever a query is at when it is stopped."""


def is_interruption(failure: BaseException) -> bool:
    """Whether something failed because the query is being stopped; a user's function may have wrapped that."""
    return any(INTERRUPTED in str(one.java_exception) for one in _chain(failure) if isinstance(one, Py4JJavaError))


def _chain(failure: BaseException) -> list[BaseException]:
    """A failure, and those that led to it."""
    seen: list[BaseException] = []
    while failure not in seen:
        seen.append(failure)
        failure = failure.__cause__ or failure.__context__ or failure
    return seen


_CANCELLED = "cancelled"
"""Is in what Spark says of a job that was cancelled."""


def is_cancellation(failure: BaseException) -> bool:
    """Whether something failed because a job was cancelled; a user's function may have wrapped that."""
    return any(_CANCELLED in str(one.java_exception) for one in _chain(failure) if isinstance(one, Py4JJavaError))


class QueryFailed(QueryError, StreamingQueryException):
    """A query that failed while it ran. It is a StreamingQueryException, as from Spark's own queries, too.

    >>> issubclass(QueryFailed, QueryError), issubclass(QueryFailed, StreamingQueryException)
    (True, True)
    """


def in_words(whose: str, epoch: int, cause: BaseException, failure: BaseException) -> QueryFailed:
    """The error for whoever waits for a query. `cause` is what ended an epoch, `failure` what Spark makes of it, if it
    knows of it."""
    account = "" if isinstance(failure, SluiceError) else f"\n\n{SPARKS_ACCOUNT}\n{failure}"
    return QueryFailed(f"{whose} failed in epoch {epoch}: {sentence_of(cause)}{account}")


def sentence_of(cause: BaseException) -> str:
    """What went wrong, without any traceback: in an error of Spark's it is what a task said of it at last.

    >>> sentence_of(ValueError("no such account\\nin the ledger"))
    'ValueError: no such account'
    >>> sentence_of(RuntimeError("Traceback\\n  File x\\nsluice.model.errors.StorageError: it is gone\\n\\tat java.y"))
    'it is gone'
    >>> sentence_of(RuntimeError("o12.call\\n: x\\nCaused by: org.apache.spark.SparkArithmeticException: [BY_ZERO] No"))
    'Spark says [BY_ZERO] No'
    """
    if isinstance(cause, SluiceError):
        return str(cause)
    own = _OWN_ERROR.findall(str(cause))
    if own:
        return str(own[-1])
    sparks = _SPARKS_CONDITION.findall(str(cause))
    if sparks:
        return f"Spark says {sparks[-1]}"
    pythons = _PYTHONS_ERROR.findall(str(cause))
    if pythons:
        return str(pythons[-1])
    first = (str(cause).strip().splitlines() or [""])[0]
    return f"{type(cause).__name__}: {first}" if first else type(cause).__name__
