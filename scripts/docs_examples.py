"""What Griffe calls while the site reads docstrings: their examples become blocks of code."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^( *)>>> .*(?:\n\1\S.*)*(?:\n+\1>>> .*(?:\n\1\S.*)*)*", re.MULTILINE)
"""Steps that follow each other, each up to an empty line."""


class FenceExamples(griffe.Extension):
    """Examples stand in docstrings as at Python's prompt; in Markdown these would be quotations."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Fence the examples of one object."""
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(r"\1```pycon\n\g<0>\n\1```", obj.docstring.value)
