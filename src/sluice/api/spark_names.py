"""Names that PySpark's classes have and ours have not: who asks for one is told what it is, and what to do instead."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import NoReturn

from sluice.model.option import suggest_name

_ROLE = re.compile(r":\w+:\s*`~?\.?([^`]*)`")


def refuse_name(asked: object, name: str, counterpart: type, advice: str) -> NoReturn:
    """There is no such attribute; `counterpart` is the class of PySpark's that `asked` stands for."""
    own = f"{type(asked).__name__!r} object has no attribute {name!r}"
    if name.startswith("_") or not hasattr(counterpart, name):
        raise AttributeError(f"{own}{suggest_name(name, _public_names(asked))}")
    says = _first_sentence(inspect.getdoc(getattr(counterpart, name)) or "")
    raise AttributeError(f"{own}, which PySpark's {counterpart.__name__} has{says}; {advice}")


def _public_names(asked: object) -> Iterable[str]:
    return (name for name in dir(type(asked)) if not name.startswith("_"))


def _first_sentence(documentation: str) -> str:
    """What PySpark says of a method, in one sentence and in brackets.

    >>> _first_sentence("Returns a new :class:`DataFrame` that is sorted. Sorts.")
    ' ("Returns a new DataFrame that is sorted")'
    """
    paragraph = " ".join(documentation.split("\n\n")[0].split())
    plain = _ROLE.sub(lambda role: role[1].rpartition(".")[2], paragraph).replace("`", "")
    sentence = plain.partition(". ")[0].rstrip(".")
    return f' ("{sentence}")' if sentence else ""
