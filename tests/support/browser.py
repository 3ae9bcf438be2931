"""A real browser for the live page: the machine's Chromium, or Playwright's own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium() -> str | None:
    """The browser's program, None if there is none. The machine's is found without asking Playwright for its own."""
    installed = next((path for name in NAMES if (path := shutil.which(name))), None)
    if installed is not None:
        return installed
    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
    return own if os.path.exists(own) else None


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without a window."""
    program = find_chromium()
    assert program is not None
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


def overhear(page: Page) -> list[str]:
    """What a page complains about, as it does."""
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda line: complaints.append(line.text) if line.type in ("error", "warning") else None)
    page.on("requestfailed", lambda request: complaints.append(f"{request.url}: {request.failure}"))
    return complaints
