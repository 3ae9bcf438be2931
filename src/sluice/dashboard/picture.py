"""Pictures by Vega-Lite, as SVG text: one look for all, in light and dark, the same text for the same values."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any, TypeAlias

from sluice.model.extras import Extra, require

Spec: TypeAlias = dict[str, Any]
"""A part of what Vega-Lite draws, in its own words."""

VEGA_LITE = "6.4"
_THEME = json.loads(files("sluice.dashboard").joinpath("theme.json").read_text(encoding="utf-8"))
"""The colours, also those on dark screens, and the look of all parts of a picture, as Vega-Lite reads it.

Series have the colours of Okabe and Ito: colour-blind readers tell them apart. The first font comes with vl-convert, so
texts are measured alike on all machines; the others are as wide."""
PAPER, INK, COLOURS = _THEME["paper"], _THEME["ink"], _THEME["series"]
TEXT = _THEME["config"]["axis"]["labelFontSize"]
WIDTH = 620
"""Pixels of a chart between its axes."""
PLACES: Spec = {name: {"field": name, "type": "quantitative"} for name in ("x", "y")}
"""Values lie where the axes say."""
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_POINTED = re.compile(r'<path aria-label="([^"]*)"([^>]*)/>')
_NEEDLESS = re.compile(
    r'<path class="(?:fore|back)ground"[^>]*/>'
    r'| (?:opacity="1"|[xy]2="0"|(?:class|role|pointer-events|font-family|aria-hidden|aria-roledescription)="[^"]*")'
)
_SHAPE = re.compile(r' (?:d|transform)="[^"]*"')
_CLIP = re.compile(r'(?<=url\(#clip)\d+|(?<=id="clip)\d+')


def written(text: str) -> str:
    """Text that may stand in XML, within quotes too; characters that XML lacks are replaced.

    >>> written("a < b"), written("bell \\x07")
    ('a &lt; b', 'bell �')
    """
    return escape(printable(text))


def printable(text: str) -> str:
    """The text without characters that XML lacks: vl-convert ends the process over them."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def expression(value: str | Sequence[object]) -> str:
    """A text, or a list of texts, in an expression of Vega."""
    return json.dumps(_printable(value), ensure_ascii=False)


def _dark_style() -> str:
    """Style rules that turn the colours of pictures into those for dark screens."""
    rules = [f'[{part}="{a}"]{{{part}:{b}}}' for a, b in _THEME["dark"].items() for part in ("fill", "stroke")]
    return f"@media (prefers-color-scheme: dark) {{\n{''.join(rules)}\n}}"


def draw(spec: Mapping[str, Any], title: str, description: str) -> str:
    """The picture as an SVG file."""
    require(Extra.SIM, "a chart")
    import vl_convert  # 84 MB that few commands need

    whole = {"background": PAPER, "padding": 14, **spec, "config": _THEME["config"]}
    svg = vl_convert.vegalite_to_svg(_printable(whole), VEGA_LITE, allowed_base_urls=[])
    svg = _POINTED.sub(r"<path\2><title>\1</title></path>", _NEEDLESS.sub("", svg))
    svg = _SHAPE.sub(lambda shape: re.sub(r"(\.\d)\d+", r"\1", shape[0]), svg)  # a tenth of a pixel is fine enough
    clips = {number: str(place) for place, number in enumerate(dict.fromkeys(_CLIP.findall(svg)))}
    svg = _CLIP.sub(lambda number: clips[number[0]], svg)  # which Vega counts on from picture to picture
    font = _THEME["config"]["font"]
    named = f' font-family="{font}" role="img" aria-label="{written(title)}"><title>{written(title)}</title>'
    style = f"<style>\n{_dark_style()}\n</style>"
    return svg.replace(">", f"{named}<desc>{written(description)}</desc>{style}", 1) + "\n"


def heading(title: str, note: str) -> Spec:
    """A picture's title and what is said below it, in lines."""
    lines = {"text": textwrap.wrap(title, 78), "subtitle": textwrap.wrap(note, 110)}
    return {"title": {name: text for name, text in lines.items() if text}} if title else {}


def legend(names: Sequence[str], room: float, offset: int = 10) -> Spec:
    """A legend so far above the picture, of series that are numbered in the data."""
    widths = [text_width(name, 12) + 36 for name in names] or [room]
    columns = len(widths) if sum(widths) <= room else max(1, int(room / max(widths)))
    return {
        "title": None,
        "orient": "top",
        "direction": "horizontal",
        "columns": columns,
        "columnPadding": 18,
        "offset": offset,
        "labelExpr": f"{expression(names)}[datum.value]",
    }


def by_series(key: Spec, values: Sequence[object]) -> Spec:
    """How series look, each by its number."""
    looks = {"domain": list(range(len(values))), "range": list(values)}
    return {"field": "series", "type": "nominal", "scale": looks, "legend": key if values else None}


def series_colours(count: int) -> list[str]:
    """A colour for each of so many series."""
    return [COLOURS[number % len(COLOURS)] for number in range(count)]


def text_width(text: str, size: float) -> float:
    """About how wide a text is."""
    return 0.52 * size * len(text)


def _printable(part: Any) -> Any:
    if isinstance(part, str):
        return printable(part)
    if isinstance(part, Mapping):
        return {name: _printable(value) for name, value in part.items()}
    return [_printable(value) for value in part] if isinstance(part, list | tuple) else part
