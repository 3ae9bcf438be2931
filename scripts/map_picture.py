"""A picture of state that moves: the map of a frozen page, light and dark, for the README.

python -m scripts.map_picture demo-page.html docs/images/state-moves --epoch 9
"""

from __future__ import annotations

import argparse
from pathlib import Path

from playwright.sync_api import Page

from tests.support.browser import chromium

SIZE = {"width": 800, "height": 1000}
SCHEMES = ("light", "dark")
DRAWN_MS = 1500
"""How long units may fly until they are where they belong."""


def take_pictures(report: Path, stem: Path, epoch: int | None) -> list[Path]:
    """The map at an epoch, the newest unless given, once for each scheme; returns the files."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        pictures = []
        for scheme in SCHEMES:
            context = browser.new_context(color_scheme=scheme, viewport=SIZE, device_scale_factor=2)  # type: ignore[arg-type]
            page = context.new_page()
            page.goto(f"{report.resolve().as_uri()}#map")
            page.wait_for_selector("canvas#units[data-epoch]")
            if epoch is not None:
                page.locator("#epoch").fill(str(epoch))
            page.wait_for_timeout(DRAWN_MS)
            path = stem.with_name(f"{stem.name}-{scheme}.png")
            _take(page, path)
            pictures.append(path)
            context.close()
        return pictures


def _take(page: Page, path: Path) -> None:
    """The two cards of the map, one below the other."""
    cards = [card.bounding_box() for card in page.locator("#view section.card").all()[:2]]
    boxes = [box for box in cards if box is not None]
    top, left = min(box["y"] for box in boxes), min(box["x"] for box in boxes)
    bottom, right = (max(box[at] + box[by] for box in boxes) for at, by in (("y", "height"), ("x", "width")))
    page.add_style_tag(content="footer { display: none !important }")
    page.screenshot(
        path=path, clip={"x": left - 8, "y": top - 8, "width": right - left + 16, "height": bottom - top + 16}
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path, help="what `sluice report` or `make demo` wrote")
    parser.add_argument("stem", type=Path, help="the pictures' path without -light.png and -dark.png")
    parser.add_argument("--epoch", type=int)
    args = parser.parse_args()
    for picture in take_pictures(args.report, args.stem, args.epoch):
        print(f"{picture}: {picture.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
