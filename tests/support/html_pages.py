"""Reads a page of HTML, and sees that it is well formed, loads nothing and runs nothing."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

EMPTY = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta"}


class Tags(HTMLParser):
    """Every tag is closed by its own end tag; keeps what could load or run something."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: set[str] = set()
        self.addresses: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self._note(attrs)
        if tag not in EMPTY and not self.get_starttag_text().endswith("/>"):  # type: ignore[union-attr]
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self._note(attrs)

    def _note(self, attrs: list[tuple[str, str | None]]) -> None:
        named = [str(v) for k, v in attrs if k in ("src", "href", "xlink:href") or k.startswith("on")]
        self.addresses += [address for address in named if not address.startswith("data:image/png;")]

    def handle_data(self, data: str) -> None:
        self.text += data


def read(path: Path) -> Tags:
    """A page that is well formed, loads nothing and runs nothing."""
    text = path.read_text(encoding="utf-8")
    tags = Tags()
    tags.feed(text)
    tags.close()
    assert tags.open == []
    assert not tags.addresses
    assert not tags.names & {"script", "link", "img", "iframe", "object"}
    assert "url(" not in text and "@import" not in text
    for picture in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ET.fromstring(picture)
    return tags
