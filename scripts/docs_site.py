"""What mkdocs calls while it builds the site: pages lose what only their tests read."""

from __future__ import annotations

import re
from typing import Any

HIDDEN = re.compile(r"^<!-- (?:setup|check)\b.*?^-->\n", re.MULTILINE | re.DOTALL)
RAISES = re.compile(r"^(\s*```\w+) raises=\w+$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page without the code that runs unseen between its blocks, and without what its blocks must raise."""
    return RAISES.sub(r"\1", HIDDEN.sub("", markdown))
