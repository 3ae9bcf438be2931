"""The page of a checkpoint, frozen into one HTML file: all that its views ask for is inside. It needs no network."""

from __future__ import annotations

import base64
import gzip
import json
import re
from html import escape
from pathlib import Path

from sluice.control.journal import Journal
from sluice.dashboard.page.files import STATIC
from sluice.dashboard.page.history import History
from sluice.dashboard.page.news import NewsFeed
from sluice.dashboard.page.views import answer_all
from sluice.model.codec import encode
from sluice.model.errors import StorageError
from sluice.state.files.storage import Storage

_LINKED = re.compile(
    r'<link rel="stylesheet" href="/static/(?P<style>[^"]+)">'
    r'|<link rel="icon" href="/static/(?P<icon>[^"]+)"'
    r'|<script src="/static/(?P<script>[^"]+)" defer></script>'
    r'|<script type="module" src="/static/(?P<module>[^"]+)"></script>'
)
_COMPRESSION = 6
"""More makes numbers no smaller, and takes three times as long."""


def report_checkpoint(uri: str, path: str) -> None:
    """Write the report of the checkpoint at `uri`; the checkpoint is only read, its query may be running."""
    history = History(Journal(Storage(uri)))
    history.read_on()
    try:
        Path(path).write_text(freeze_page(history), encoding="utf-8")
    except OSError as problem:
        raise StorageError(f"cannot write the report to {path}: {problem.strerror or problem}") from problem


def freeze_page(history: History) -> str:
    """The page's text with what it links to, and with what its server would say to it."""
    answers = {"/events": NewsFeed(history).next(), **answer_all(history)}
    inside = base64.b64encode(gzip.compress(encode(answers), _COMPRESSION, mtime=0)).decode()
    index = (STATIC / "index.html").read_text(encoding="utf-8")
    page = index.replace("<title>Sluice</title>", f"<title>{escape(history.name)}: Sluice report</title>", 1)
    page = _LINKED.sub(_written_out, page)
    return page.replace("</body>", f'  <script type="application/gzip" id="answers">{inside}</script>\n</body>', 1)


def _written_out(link: re.Match[str]) -> str:
    """A file instead of the link to it."""
    file = STATIC / next(name for name in link.groups() if name is not None)
    match link.lastgroup:
        case "style":
            return f"<style>\n{file.read_text(encoding='utf-8')}</style>"
        case "icon":
            return f'<link rel="icon" href="{_address(file.read_bytes(), "image/svg+xml")}"'
        case "script":
            return f"<script>\n{file.read_text(encoding='utf-8')}</script>"
    modules = {f"page/{one.name}": _module_address(one) for one in sorted(STATIC.glob("*.js"))}
    return (
        f'<script type="importmap">{json.dumps({"imports": modules})}</script>\n'
        f'  <script type="module">import "page/{file.name}"</script>'
    )


def _module_address(file: Path) -> str:
    """A module whose imports go by the names of the import map: its own address leads nowhere."""
    return _address(file.read_text(encoding="utf-8").replace('from "./', 'from "page/').encode(), "text/javascript")


def _address(content: bytes, media_type: str) -> str:
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"
