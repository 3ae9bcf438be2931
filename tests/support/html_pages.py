"""Reads a report, and sees that it is well formed, loads nothing and runs nothing but the page's own files."""

from __future__ import annotations

import base64
import gzip
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from sluice.dashboard.page.files import STATIC

EMPTY = {"br", "hr", "img", "input", "link", "meta"}


class Tags(HTMLParser):
    """Every tag is closed by its own end tag; keeps what could load or run something."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [str(value) for name, value in attrs if name in ("src", "href") or name.startswith("on")]
        if tag not in EMPTY:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["script"]:
            kind, text = self.scripts[-1]
            self.scripts[-1] = kind, text + data


def read_answers(path: Path) -> dict[str, Any]:
    """What the views of a report are drawn from, by the paths that they ask for."""
    text = path.read_text(encoding="utf-8")
    tags = Tags()
    tags.feed(text)
    tags.close()
    assert tags.open == []
    assert all(address.startswith(("data:image/svg+xml;", "#view")) for address in tags.addresses)
    assert "url(" not in text and "@import" not in text
    kinds = [kind.get("type") for kind, _ in tags.scripts]
    assert kinds == [None, "importmap", "module", "application/gzip"]
    (_, chart_library), (_, imports), (_, main), (_, answers) = tags.scripts
    assert chart_library.strip() == (STATIC / "uplot" / "uPlot.iife.min.js").read_text(encoding="utf-8").strip()
    assert set(json.loads(imports)["imports"]) == {f"page/{file.name}" for file in STATIC.glob("*.js")}
    assert main == 'import "page/main.js"'
    read: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(answers)))
    return read
