"""A user's flow file: load it, call its `define`, and say what is wrong with it in terms of its own lines."""

from __future__ import annotations

import inspect
import linecache
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

from sluice.model.errors import SPARKS_ACCOUNT, FlowError, SluiceError

MODULE = "__flow__"
"""The file's name as a module: one that shadows no real module, whatever the file is called."""

_EXAMPLE = "return for example joined.writeStream.format('console')"
_ROOMS = ("sluice", "pyspark", "py4j")  # packages whose own lines say nothing about the user's mistake


class Choices(Protocol):
    """What a writer was told, as far as it matters here."""

    @property
    def name(self) -> str | None: ...
    @property
    def options(self) -> Mapping[str, Any]: ...


@runtime_checkable
class Writer(Protocol):
    """What `define` returns: a DataStreamWriter that is not started."""

    def choices(self) -> Choices: ...

    def option(self, key: str, value: Any) -> Any: ...

    def policy(self, name: str) -> Any: ...

    def trigger(self, *, availableNow: bool | None = None) -> Any: ...

    def start(self) -> Any: ...


Define = Callable[[Any], list[Writer]]


@contextmanager
def flow_file(path: str, arguments: Sequence[str]) -> Iterator[tuple[ModuleType, Define]]:
    """The file as a module, and its `define` ready to be called with a session; both while inside.

    As for a script, modules beside the file can be imported.
    """
    file = os.path.abspath(path)
    home = os.path.dirname(file)
    code = _compiled(file, path)
    module = ModuleType(MODULE)
    module.__file__ = file
    sys.modules[MODULE] = module  # dataclasses look their module up
    sys.path.insert(0, home)
    try:
        with _blamed(file, "is run"):
            exec(code, module.__dict__)
        yield module, _define(module, path, list(arguments))
    finally:
        sys.modules.pop(MODULE, None)
        if home in sys.path:
            sys.path.remove(home)


def _compiled(file: str, path: str) -> Any:
    if os.path.isdir(file):
        raise FlowError(f"{path} is a directory; give the file in it that defines the flow, such as {path}/flow.py")
    try:
        return compile(Path(file).read_bytes(), file, "exec")
    except FileNotFoundError:
        raise FlowError(f"there is no file {path}") from None
    except OSError as problem:
        raise FlowError(f"cannot read {path}: {problem.strerror or problem}") from None
    except SyntaxError as problem:
        text = (problem.text or "").rstrip("\n")
        caret = f"\n  {' ' * (problem.offset - 1)}^" if text and problem.offset else ""
        shown = f"\n  {text}{caret}" if text else ""
        raise FlowError(f"{path}, line {problem.lineno}: {problem.msg}{shown}") from None
    except ValueError as problem:  # null bytes, an unknown encoding
        raise FlowError(f"{path} is not a Python file: {problem}") from None


def _define(module: ModuleType, path: str, arguments: list[str]) -> Define:
    define = getattr(module, "define", None)
    if not callable(define):
        raise FlowError(
            f"{path} defines no function define(spark); write one that returns a writeStream that is not started"
        )
    takes = _parameters(define)
    if takes not in (1, 2):
        raise FlowError(f"define in {path} must take spark, or spark and args; it takes {takes} arguments")
    if arguments and takes == 1:
        raise FlowError(
            f"arguments were given after --, but define(spark) in {path} takes none; write define(spark, args)"
        )

    def call(spark: Any) -> list[Writer]:
        with _blamed(str(module.__file__), "defines its flow"):
            returned = define(spark) if takes == 1 else define(spark, arguments)
        return _writers(returned)

    return call


def _parameters(define: Callable[..., Any]) -> int:
    """With how many arguments it is called: two if it asks for `args` or for two."""
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [p for p in inspect.signature(define).parameters.values() if p.kind in plain]
    needed = sum(p.default is p.empty for p in parameters)
    if needed <= 2 and len(parameters) >= 2 and parameters[1].name == "args":
        return 2
    return needed if needed else min(1, len(parameters))


def _writers(returned: Any) -> list[Writer]:
    writers = list(returned) if isinstance(returned, (list, tuple)) else [returned]
    if not writers:
        raise FlowError(f"define() returned an empty list; {_EXAMPLE}")
    for one in writers:
        if not isinstance(one, Writer):
            raise FlowError(_not_a_writer(one))
    return writers


def _not_a_writer(one: Any) -> str:
    if one is None:
        return f"define() returned nothing; {_EXAMPLE}"
    if hasattr(one, "awaitTermination"):
        return "define() returned a query that runs already; leave out .start(), sluice run starts it"
    kind = type(one).__name__
    if type(one).__module__.partition(".")[0] == "pyspark":
        return f"define() returned Spark's own {kind}; register the stream with Flow(spark).readStream and {_EXAMPLE}"
    if hasattr(type(one), "writeStream"):
        return f"define() returned {one!r}; say where its results go: add .writeStream.format('console')"
    return f"define() returned {kind} {one!r}, not a writeStream or a list of them; {_EXAMPLE}"


@contextmanager
def _blamed(file: str, doing: str) -> Iterator[None]:
    """Anything raised inside becomes an error that points at the user's lines."""
    try:
        yield
    except Exception as problem:
        raise FlowError(_explained(problem, file, doing)) from problem


def _explained(problem: Exception, file: str, doing: str) -> str:
    """The user's own lines down to the error, and the error; inner lines of Sluice and Spark are left out."""
    linecache.checkcache(file)
    frames = [frame for frame in traceback.extract_tb(problem.__traceback__) if _is_users(frame.filename)]
    lines = [f"  {_short(at.filename)}, line {at.lineno}, in {at.name}\n    {at.line}" for at in frames]
    message = last_words(problem)
    name = os.path.basename(file)
    return "\n".join([f"{name} fails when it {doing}:", *lines, message]) if lines else f"{name}: {message}"


def _is_users(filename: str) -> bool:
    """Whether a line is neither Sluice's, nor Spark's, nor Python's own machinery."""
    path = Path(filename)
    installed = "site-packages" in path.parts and any(room in path.parts for room in _ROOMS)
    return not (filename.startswith("<") or installed or path.is_relative_to(Path(__file__).parents[1]))


def _short(filename: str) -> str:
    relative = os.path.relpath(filename)
    return filename if relative.startswith("..") else relative


def last_words(problem: BaseException) -> str:
    """An error in short: without the JVM's stack and the plan of the query, which Spark appends to some."""
    own = isinstance(problem, SluiceError)
    words = str(problem) if own else "".join(traceback.format_exception_only(problem)).strip()
    for rest in (f"\n{SPARKS_ACCOUNT}", "\nJVM stacktrace:", "\n=== Streaming Query ===", "\n\tat "):
        words = words.partition(rest)[0]
    return words.strip()
