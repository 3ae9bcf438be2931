"""Heat maps: every value is there, the greatest is framed, darkness follows the value, and words go along."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from sluice.dashboard.heat_map import Panel, Settings, heat_map

LOW, HIGH = Settings("low", ["0.1", "0.2"]), Settings("high", ["0.8", "0.9", "1"])
SVG = "{http://www.w3.org/2000/svg}"


def cells(drawing: str) -> list[tuple[float, float, float]]:
    """Left edge, top and shade of each cell."""
    found = re.findall(r'd="M([\d.]+),([\d.]+)h[^"]*" fill="#0072b2"(?: fill-opacity="([\d.]+)")?', drawing)
    return [(float(left), float(top), float(shade or 1)) for left, top, shade in found]


def test_every_cell_is_drawn_and_the_first_row_is_at_the_bottom():
    drawing = heat_map("Output", LOW, HIGH, [Panel("one", [[50, 100], [20, 30], [70, 80]])], "by threshold")
    numbers = [t.text for t in ElementTree.fromstring(drawing).iter(f"{SVG}text") if re.fullmatch(r"\d+", t.text or "")]
    assert [n for n in numbers if n != "1"] == ["50", "100", "20", "30", "70", "80"]
    tops = [top for _, top, _ in cells(drawing)]
    assert tops[0] == tops[1] > tops[2] == tops[3] > tops[4]
    assert "one: greatest at 0.2 and 0.8, least 20 % of it." in drawing


def test_the_darker_the_greater_by_one_scale_for_all_panels():
    drawing = heat_map("Output", LOW, HIGH, [Panel("one", [[5, 10]] * 3), Panel("two", [[900, 1000]] * 3)])
    shades = [shade for _, _, shade in cells(drawing)]
    half, whole, most, all_of_it = shades[0], shades[1], shades[6], shades[7]
    assert half < most < whole == all_of_it


def test_the_greatest_are_framed():
    drawing = heat_map("Output", LOW, HIGH, [Panel("one", [[1, 2], [2, 1], [1, 1]])])
    assert drawing.count('stroke="#1d2429"') - drawing.count('[stroke="#1d2429"]') == 2


@pytest.mark.parametrize("values", [[[0, 0]] * 3, [[7, 7]] * 3])
def test_values_that_are_all_the_same_can_be_drawn(values):
    assert len(cells(heat_map("a < b", LOW, HIGH, [Panel("one", values)]))) == 6


def test_a_panel_of_another_shape_is_refused():
    with pytest.raises(ValueError, match="panel 'one' needs 3 rows of 2 values"):
        heat_map("Output", LOW, HIGH, [Panel("one", [[1, 2]])])
