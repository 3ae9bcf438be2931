"""Charts as SVG files: values lie where their axes say, gaps stay gaps, long lines stay small, nothing is trusted."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import numpy as np
import pytest

from sluice.dashboard.chart import Axis, Line, Mark, chart
from sluice.dashboard.picture import COLOURS, INK
from sluice.dashboard.quantity import BYTES, COUNT, LATENCY, ROWS, SECONDS, SHARE, Quantity

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "</style><script>alert(1)</script>\"'&amp; \x00\x0b \ud800"
TIME, ROWS_AXIS = Axis("time", SECONDS), Axis("rows", ROWS)

Place = tuple[float, float]


def read(svg: str) -> ET.Element:
    picture = ET.fromstring(svg)
    assert picture.tag == f"{SVG}svg"
    return picture


def moved(one: ET.Element) -> Place:
    across, down = re.search(r"translate\(([^,]+),([^)]+)\)", one.get("transform", "translate(0,0)")).groups()  # type: ignore[union-attr]
    return float(across), float(down)


def parts(picture: ET.Element) -> list[tuple[ET.Element, Place]]:
    """Every element that is drawn, and where its place zero lies."""
    found, todo = [], [(picture, (0.0, 0.0))]
    while todo:
        one, (x, y) = todo.pop()
        across, down = moved(one)
        at = x + across, y + down
        found.append((one, at))
        todo += [(child, at) for child in reversed(one)]
    return found


def lines(picture: ET.Element, colour: str = COLOURS[0]) -> list[list[Place]]:
    """The corners of the lines of a colour, without those of the legend."""
    out = []
    for one, (x, y) in parts(picture):
        shape = one.get("d", "")
        if one.get("stroke") == colour and re.search(r"[ML].*L", shape) and "Z" not in shape:
            for run in filter(None, shape.split("M")):
                places = (tuple(map(float, place.split(","))) for place in run.split("L"))
                out.append([(x + a, y + b) for a, b in places])
    return [line for line in out if len(line) > 2 or abs(line[0][0] - line[1][0]) > 30]


def points(picture: ET.Element) -> list[Place]:
    """Where values can be pointed at."""
    return [at for one, at in parts(picture) if one.find(f"{SVG}title") is not None and one.tag == f"{SVG}path"]


def texts(picture: ET.Element) -> dict[str, Place]:
    return {"".join(one.itertext()): at for one, at in parts(picture) if one.tag == f"{SVG}text"}


def diamonds(picture: ET.Element) -> list[Place]:
    return [at for one, at in parts(picture) if one.get("stroke") == INK and one.tag == f"{SVG}path"]


class TestLines:
    def test_places_follow_the_values(self) -> None:
        ((*line,),) = lines(read(chart("t", TIME, ROWS_AXIS, [Line("a", [0, 1, 2, 4], [1, 2, 3, 7])])))
        across, down = [p[0] for p in line], [p[1] for p in line]
        assert across == sorted(across) and down == sorted(down, reverse=True)
        assert (across[3] - across[2]) / (across[2] - across[1]) == pytest.approx(2, abs=0.01)
        assert (down[2] - down[3]) / (down[1] - down[2]) == pytest.approx(4, abs=0.05)

    def test_marks_of_an_axis_stand_at_their_values(self) -> None:
        picture = read(chart("t", TIME, ROWS_AXIS, [Line("a", [0, 10], [0, 40], points=True)]))
        (left, bottom), (right, top) = points(picture)
        said = texts(picture)
        assert said["20"][1] - said["40"][1] == pytest.approx((bottom - top) / 2, abs=1.1)
        assert said["8 s"][0] - said["4 s"][0] == pytest.approx(0.4 * (right - left), abs=1.1)

    @pytest.mark.parametrize("gap", [math.nan, math.inf, None])
    def test_what_is_no_number_breaks_the_line(self, gap: float) -> None:
        first, second = lines(read(chart("t", TIME, ROWS_AXIS, [Line("a", range(5), [1, 2, gap, 3, 4])])))
        assert len(first) == len(second) == 2

    def test_a_value_alone_between_gaps_is_a_point(self) -> None:
        alone = Line("a", [0, 1, 2, 3], [1, math.nan, 2, math.nan])
        svg = chart("t", TIME, ROWS_AXIS, [alone])
        assert len(points(read(svg))) == 2
        assert len(re.findall(r'd="M3,0A[^"]*"[^>]*><title>a: ', svg)) == 2
        assert len(points(read(chart("t", TIME, ROWS_AXIS, [Line("a", [5], [7])])))) == 1

    def test_nothing_to_draw_is_said(self) -> None:
        for line in (Line("a", [], []), Line("a", [1, 2], [math.nan, math.nan])):
            assert {"no values", "a (no values)"} <= set(texts(read(chart("t", TIME, ROWS_AXIS, [line]))))
        assert "no values" in texts(read(chart("t", TIME, ROWS_AXIS, [])))

    @pytest.mark.parametrize(("value", "quantity"), [(0.0, ROWS), (5.0, SECONDS), (-5.0, SHARE), (1e12, LATENCY)])
    def test_identical_values_are_a_level_line(self, value: float, quantity: Quantity) -> None:
        (line,) = lines(read(chart("t", Axis("x"), Axis("y", quantity), [Line("a", [1, 2, 3], [value] * 3)])))
        assert len({y for _, y in line}) == 1
        (upright,) = lines(read(chart("t", Axis("x", quantity), Axis("y"), [Line("a", [value] * 3, [1, 2, 3])])))
        assert len({x for x, _ in upright}) == 1

    def test_given_ends_cut_what_lies_beyond(self) -> None:
        line = Line("a", [0, 5, 10, 1e300], [0, 50, 100, -1e300], points=True)
        svg = chart("t", Axis("x", low=2, high=8), Axis("y", low=20, high=80), [line])
        assert "clip-path" in svg and len(svg) < 12_000

    def test_dashes_are_in_the_legend_too(self) -> None:
        svg = chart("t", TIME, ROWS_AXIS, [Line("a", [0, 1], [1, 2], dashed=True), Line("b", [0, 1], [2, 3])])
        assert svg.count('stroke-dasharray="7,5"') == 2

    def test_lines_of_one_name_stay_two(self) -> None:
        picture = read(chart("t", TIME, ROWS_AXIS, [Line("a", [0, 1], [1, 2]), Line("a", [0, 1], [2, 3])]))
        assert len(lines(picture)) == len(lines(picture, COLOURS[1])) == 1


class TestLongLines:
    def test_a_long_line_keeps_its_peaks_and_little_else(self) -> None:
        x = np.linspace(0, 100, 10_000)
        y = np.sin(x) + 2
        y[[1234, 7777]] = 9.0, 0.5
        svg = chart("t", TIME, ROWS_AXIS, [Line("a", x.tolist(), y.tolist())])
        (line,) = lines(read(svg))
        assert len(svg) < 60_000 and len(line) < 3_000
        (peaks,) = lines(read(chart("t", TIME, ROWS_AXIS, [Line("a", [0, x[1234], x[7777], 100], [2, 9.0, 0.5, 2])])))
        assert {max(p[1] for p in line), min(p[1] for p in line)} == {peaks[1][1], peaks[2][1]}

    def test_a_gap_in_a_long_line_stays(self) -> None:
        y = np.ones(10_000)
        y[4_000:6_000] = np.nan
        assert len(lines(read(chart("t", TIME, ROWS_AXIS, [Line("a", list(range(10_000)), y.tolist())])))) == 2

    def test_points_of_a_long_line_do_not_fill_the_file(self) -> None:
        x = list(range(10_000))
        assert len(chart("t", TIME, ROWS_AXIS, [Line("a", x, x, points=True)])) < 100_000


class TestLogAxes:
    def test_decades_are_equally_far_apart_and_named(self) -> None:
        latency = Axis("latency", LATENCY, log=True, low=1e-5, high=1e2)
        said = texts(read(chart("t", Axis("x"), latency, [Line("a", [0, 1], [1e-5, 1e2])])))
        wanted = ["10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s", "10 s", "100 s"]
        gaps = [said[a][1] - said[b][1] for a, b in pairwise(wanted)]
        assert gaps == pytest.approx([gaps[0]] * 7, abs=1.1)

    def test_zero_breaks_the_line(self) -> None:
        line = Line("a", range(5), [1, 2, 0, 3, -4])
        picture = read(chart("t", TIME, Axis("n", COUNT, log=True), [line]))
        assert len(lines(picture)) == 1 and len(points(picture)) == 1


class TestMarks:
    LINES = (Line("a", [0, 10], [0, 100], points=True),)

    def test_both_values_are_a_diamond(self) -> None:
        picture = read(chart("t", TIME, ROWS_AXIS, self.LINES, [Mark("paper: 100", 10, 100), Mark("half", 5, 50)]))
        (left, bottom), (right, top) = points(picture)
        whole, half = diamonds(picture)
        assert whole == pytest.approx((right, top), abs=0.11)
        assert half == pytest.approx(((left + right) / 2, (top + bottom) / 2), abs=0.11)
        assert {"paper: 100", "half"} <= set(texts(picture))

    def test_one_value_is_a_line_right_through(self) -> None:
        picture = read(chart("t", TIME, ROWS_AXIS, self.LINES, [Mark("when", x=5), Mark("how many", y=50)]))
        (left, bottom), (right, top) = points(picture)
        upright, level = (at for one, at in parts(picture) if one.get("stroke-dasharray") == "1.5,3.5")
        assert upright[0] == pytest.approx((left + right) / 2, abs=0.6)
        assert level[1] == pytest.approx((top + bottom) / 2, abs=0.6)

    def test_an_axis_makes_room_for_what_was_published(self) -> None:
        picture = read(chart("t", TIME, ROWS_AXIS, self.LINES, [Mark("paper", 20, 300)]))
        assert diamonds(picture)[0][1] == pytest.approx(texts(picture)["300"][1] - 4, abs=1.1)

    @pytest.mark.parametrize(("line", "above"), [([50, 50], True), ([50, 130], False), ([50, 0], True)])
    def test_a_text_keeps_clear_of_lines(self, line: list[float], above: bool) -> None:
        marks = [Mark("published by somebody", 0, 50)]
        picture = read(chart("t", TIME, ROWS_AXIS, [Line("a", [0, 10], line), Line("b", [0, 10], [100, 100])], marks))
        ((_, diamond),), text = diamonds(picture), texts(picture)["published by somebody"][1]
        assert text < diamond - 8 if above else text > diamond + 8

    def test_texts_of_times_do_not_cover_each_other(self) -> None:
        marks = [Mark(f"published {i}", x=5 + i / 50) for i in range(6)]
        picture = read(chart("t", TIME, ROWS_AXIS, self.LINES, marks))
        heights = {at[1] for text, at in texts(picture).items() if text.startswith("published")}
        assert len(heights) == 6 and max(heights) < points(picture)[1][1] and min(heights) > texts(picture)["a"][1]

    def test_a_mark_that_lies_nowhere_is_refused(self) -> None:
        with pytest.raises(ValueError, match="'paper' lies nowhere"):
            Mark("paper")
        with pytest.raises(ValueError, match="lies nowhere"):
            Mark("paper", x=math.nan)
        with pytest.raises(ValueError, match=r"'paper' is at 0, which the log axis 'rows' cannot show"):
            chart("t", TIME, Axis("rows", log=True), self.LINES, [Mark("paper", y=0)])


class TestBars:
    POLICIES = Axis("policy", names=["static", "load", "hybrid"])
    LINES = (Line("ours", [0, 1, 2], [10, 20, math.nan]), Line("paper", [0, 1, 2], [12, 20, 40]))

    def bars(self, svg: str) -> list[tuple[float, float, float]]:
        """Left edge, top and height of every bar."""
        shapes = [
            re.match(r"M([\d.]+),([\d.]+)h[\d.]+v([\d.]+)", d) for d in re.findall(r' d="([^"]*)"[^>]*><title', svg)
        ]
        return [tuple(map(float, shape.groups())) for shape in shapes if shape]  # type: ignore[misc]

    def test_bars_stand_side_by_side_over_their_names(self) -> None:
        svg = chart("t", self.POLICIES, ROWS_AXIS, self.LINES, bars=True)
        static, load, static_paper, load_paper, hybrid_paper = self.bars(svg)
        assert static[0] < static_paper[0] < load[0] < load_paper[0] < hybrid_paper[0]
        assert load[1:] == load_paper[1:] and hybrid_paper[2] / load[2] == pytest.approx(2, abs=0.01)
        said = texts(read(svg))
        assert said["static"][0] < said["load"][0] < said["hybrid"][0]
        assert "12" in said

    def test_places_without_names_are_numbered(self) -> None:
        said = texts(read(chart("t", Axis("round"), ROWS_AXIS, [Line("ours", [0, 1], [100, 700])], bars=True)))
        assert said["0"][0] < said["1"][0]

    def test_below_zero_bars_hang(self) -> None:
        svg = chart("t", Axis("x"), Axis("y", low=-10, high=10), [Line("a", [0, 1], [5, -5])], bars=True)
        up, down = self.bars(svg)
        assert up[1] + up[2] == pytest.approx(down[1]) and up[2] == pytest.approx(down[2])

    def test_on_a_log_axis_bars_stand_on_its_low_end(self) -> None:
        axis = Axis("y", log=True, low=1, high=100)
        small, large = self.bars(chart("t", Axis("x"), axis, [Line("a", [0, 1], [10, 100])], bars=True))
        assert large[2] / small[2] == pytest.approx(2, abs=0.01)

    @pytest.mark.parametrize("count", [1, 14, 60])
    def test_names_of_any_length_stay_in_the_picture(self, count: int) -> None:
        names = [f"a_name_that_cannot_be_broken_{i}" for i in range(count)]
        axis = Axis("x", names=names)
        picture = read(chart("t", axis, ROWS_AXIS, [Line("a", range(count), range(count))], bars=True))
        tall = float(picture.get("height", ""))
        assert all(y < tall for _, y in texts(picture).values())

    def test_a_bar_over_no_name_is_refused(self) -> None:
        for at in (3, -1, 0.5, math.nan):
            with pytest.raises(ValueError, match="'ours' stand over 0 to 2"):
                chart("t", self.POLICIES, ROWS_AXIS, [Line("ours", [at], [1])], bars=True)


class TestFile:
    def test_it_stands_alone(self) -> None:
        svg = chart("Throughput", TIME, ROWS_AXIS, [Line("a", [0, 1], [1, 2])], note="four sites")
        picture = read(svg)
        assert picture.get("role") == "img" and picture.get("aria-label") == "Throughput"
        assert picture.findtext(f"{SVG}title") == "Throughput"
        assert picture.findtext(f"{SVG}desc") == "rows over time. four sites a: 1 to 2."
        assert "href" not in svg.replace("xmlns:xlink", "") and "<script" not in svg

    def test_every_colour_has_one_for_dark_screens(self) -> None:
        lines = [Line(str(n), [0, 1], [n, n + 1], points=True) for n in range(len(COLOURS))]
        svg = chart("t", TIME, ROWS_AXIS, lines, [Mark("m", 1, 1), Mark("n", x=0.5)], "note")
        style = read(svg).findtext(f"{SVG}style", "")
        assert style.strip().startswith("@media (prefers-color-scheme: dark)")
        used = set(re.findall(r'(?:fill|stroke)="(#[^"]*)"', svg.partition("</style>")[2]))
        assert used and all(f'[fill="{colour}"]' in style and f'[stroke="{colour}"]' in style for colour in used)

    def test_the_same_values_give_the_same_text(self) -> None:
        wanted = ("t", TIME, ROWS_AXIS, [Line("a", [0, 1, 2], [1, 2, 3], points=True)], [Mark("m", 1, 2)])
        assert chart(*wanted) == chart(*wanted)

    def test_values_are_shown_when_pointed_at(self) -> None:
        svg = chart("t", TIME, Axis("state", BYTES), [Line("a < b", [1], [3 << 20])])
        assert "<title>a &lt; b: 1 s, 3 MiB</title>" in svg

    def test_no_text_is_trusted(self) -> None:
        lines = [Line(HOSTILE, [0, 1], [1, 2], points=True)]
        marks = [Mark(HOSTILE, 1, 1), Mark(HOSTILE, x=1)]
        for bars, names in ((False, ()), (True, (HOSTILE, HOSTILE * 3))):
            x, y = Axis(HOSTILE, names=names), Axis(HOSTILE, Quantity(((1, HOSTILE),)))
            svg = chart(HOSTILE, x, y, lines, marks, HOSTILE, bars)
            assert {one.tag for one in read(svg).iter()} <= {
                SVG + tag
                for tag in (
                    "svg",
                    "title",
                    "desc",
                    "style",
                    "rect",
                    "text",
                    "g",
                    "path",
                    "line",
                    "defs",
                    "clipPath",
                    "tspan",
                )
            }
            svg.encode("utf-8")

    def test_long_texts_are_broken_or_cut(self) -> None:
        line = Line("n" * 500, [0, 1], [1, 2])
        svg = chart("word " * 60, Axis("x" * 500), Axis("y" * 500), [line], [Mark("m" * 300, 0, 1)], "note " * 100)
        for one in read(svg).iter(f"{SVG}text"):
            assert len("".join(one.itertext())) < 150 or one.find(f"{SVG}tspan") is not None
        assert float(read(svg).get("width", "")) < 800

    def test_wrong_input_is_refused_by_name(self) -> None:
        with pytest.raises(ValueError, match="line 'a' has 2 values of x and 1 of y"):
            chart("t", TIME, ROWS_AXIS, [Line("a", [1, 2], [1])])
        with pytest.raises(ValueError, match="axis 'rows' cannot go from 5 to 5"):
            Axis("rows", low=5, high=5)
        with pytest.raises(ValueError, match="axis 'rows' is logarithmic and cannot reach 0"):
            Axis("rows", log=True, low=0)
