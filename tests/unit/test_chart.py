"""Charts as SVG files: values lie where their axes say, gaps stay gaps, long lines stay small, nothing is trusted."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.dashboard.chart import Axis, Line, Mark, chart
from sluice.dashboard.quantity import BYTES, COUNT, LATENCY, ROWS, ROWS_PER_SECOND, SECONDS, SHARE, Quantity
from sluice.dashboard.scale import scale
from sluice.dashboard.text_layout import Box, place

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "</style><script>alert(1)</script>\"'&amp; \x00\x0b \ud800"
TIME, ROWS_AXIS = Axis("time", SECONDS), Axis("rows", ROWS)
NUMBERS = st.floats(-1e15, 1e15).map(lambda value: round(value, 6))

Place = tuple[float, float]


def read(svg: str) -> ET.Element:
    picture = ET.fromstring(svg)
    assert picture.tag == f"{SVG}svg"
    return picture


def paths(picture: ET.Element, kind: str) -> list[str]:
    """The shapes of a class, without those of the legend."""
    legend = {id(one) for key in picture.iter(f"{SVG}g") if key.get("class") == "key" for one in key.iter()}
    return [
        one.get("d", "")
        for one in picture.iter(f"{SVG}path")
        if kind in one.get("class", "").split() and id(one) not in legend
    ]


def corners(shape: str) -> list[Place]:
    return [(float(a), float(b)) for a, b in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", shape)]


def points(picture: ET.Element) -> list[Place]:
    groups = [g for g in picture.iter(f"{SVG}g") if "points" in g.get("class", "")]
    return [corners(p.get("d", ""))[0] for g in groups for p in g.iter(f"{SVG}path")]


def texts(picture: ET.Element) -> dict[str, Place]:
    return {
        "".join(t.itertext()): (float(t.get("x", "nan")), float(t.get("y", "nan"))) for t in picture.iter(f"{SVG}text")
    }


def diamond(picture: ET.Element, number: int = 0) -> Place:
    x, y = corners(paths(picture, "diamond")[number])[0]
    return x, y + 6


class TestLines:
    def test_places_follow_the_values(self) -> None:
        picture = read(chart("t", TIME, ROWS_AXIS, [Line("a", [0, 1, 2, 4], [1, 2, 3, 7])]))
        (line,) = [corners(shape) for shape in paths(picture, "line")]
        across, down = [p[0] for p in line], [p[1] for p in line]
        assert across == sorted(across) and down == sorted(down, reverse=True)
        assert (across[3] - across[2]) / (across[2] - across[1]) == pytest.approx(2, abs=0.01)
        assert (down[2] - down[3]) / (down[1] - down[2]) == pytest.approx(4, abs=0.05)

    def test_marks_of_an_axis_stand_at_their_values(self) -> None:
        picture = read(chart("t", TIME, ROWS_AXIS, [Line("a", [0, 10], [0, 40], points=True)]))
        (left, bottom), (right, top) = points(picture)
        said = texts(picture)
        assert said["10 s"][0] == right
        assert said["40"][1] - 4 == pytest.approx(top, abs=0.11)
        assert said["20"][1] - 4 == pytest.approx((top + bottom) / 2, abs=0.11)
        assert said["4 s"][0] == pytest.approx(left + 0.4 * (right - left), abs=0.11)

    @pytest.mark.parametrize("gap", [math.nan, math.inf, None])
    def test_what_is_no_number_breaks_the_line(self, gap: float) -> None:
        picture = read(chart("t", TIME, ROWS_AXIS, [Line("a", range(5), [1, 2, gap, 3, 4])]))
        (line,) = paths(picture, "line")
        assert line.count("M") == 2 and len(corners(line)) == 4

    def test_a_value_alone_between_gaps_is_a_point(self) -> None:
        alone = Line("a", [0, 1, 2, 3], [1, math.nan, 2, math.nan])
        assert len(points(read(chart("t", TIME, ROWS_AXIS, [alone])))) == 2
        assert len(points(read(chart("t", TIME, ROWS_AXIS, [Line("a", [5], [7])])))) == 1

    def test_nothing_to_draw_is_said(self) -> None:
        for line in (Line("a", [], []), Line("a", [1, 2], [math.nan, math.nan])):
            assert {"no values", "a (no values)"} <= set(texts(read(chart("t", TIME, ROWS_AXIS, [line]))))
        assert "no values" in texts(read(chart("t", TIME, ROWS_AXIS, [])))

    @pytest.mark.parametrize("value", [0.0, 5.0, -5.0, 1e12, 1e-9])
    @pytest.mark.parametrize("quantity", [ROWS, SECONDS, LATENCY, SHARE])
    def test_identical_values_are_a_level_line(self, value: float, quantity: Quantity) -> None:
        picture = read(chart("t", Axis("x"), Axis("y", quantity), [Line("a", [1, 2, 3], [value] * 3)]))
        (line,) = paths(picture, "line")
        assert len({y for _, y in corners(line)}) == 1
        same = read(chart("t", Axis("x", quantity), Axis("y"), [Line("a", [value] * 3, [1, 2, 3])]))
        (upright,) = paths(same, "line")
        assert len({x for x, _ in corners(upright)}) == 1

    def test_given_ends_cut_what_lies_beyond(self) -> None:
        line = Line("a", [0, 5, 10, 1e300], [0, 50, 100, -1e300], points=True)
        svg = chart("t", Axis("x", low=2, high=8), Axis("y", low=20, high=80), [line])
        assert len(points(read(svg))) == 1
        assert len(svg) < 6_000

    def test_dashes_and_points_are_in_the_legend_too(self) -> None:
        svg = chart("t", TIME, ROWS_AXIS, [Line("a", [0, 1], [1, 2], dashed=True), Line("b", [0, 1], [2, 3])])
        assert svg.count('class="line dashed c0"') == 2 and svg.count('class="line c1"') == 2


class TestLongLines:
    def test_a_long_line_keeps_its_peaks_and_little_else(self) -> None:
        x = np.linspace(0, 100, 10_000)
        y = np.sin(x) + 2
        y[[1234, 7777]] = 9.0, 0.5
        svg = chart("t", TIME, ROWS_AXIS, [Line("a", x.tolist(), y.tolist())])
        (line,) = [corners(shape) for shape in paths(read(svg), "line")]
        assert len(svg) < 60_000 and len(line) < 3_000
        every = read(chart("t", TIME, ROWS_AXIS, [Line("a", [x[1234], x[7777]], [9.0, 0.5], points=True)], note=""))
        assert {p[1] for p in points(every)} == {min(p[1] for p in line), max(p[1] for p in line)}

    def test_a_gap_in_a_long_line_stays(self) -> None:
        y = np.ones(10_000)
        y[4_000:6_000] = np.nan
        picture = read(chart("t", TIME, ROWS_AXIS, [Line("a", list(range(10_000)), y.tolist())]))
        assert paths(picture, "line")[0].count("M") == 2

    def test_points_of_a_long_line_do_not_fill_the_file(self) -> None:
        x = list(range(10_000))
        assert len(chart("t", TIME, ROWS_AXIS, [Line("a", x, x, points=True)])) < 100_000


class TestLogAxes:
    def test_decades_are_equally_far_apart_and_named(self) -> None:
        latency = Axis("latency", LATENCY, log=True, low=1e-5, high=1e2)
        said = texts(read(chart("t", Axis("x"), latency, [Line("a", [0, 1], [1e-5, 1e2])])))
        wanted = ["10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s", "10 s", "100 s"]
        gaps = [said[a][1] - said[b][1] for a, b in pairwise(wanted)]
        assert gaps == pytest.approx([gaps[0]] * 7, abs=0.21)

    def test_points_lie_at_their_decade(self) -> None:
        picture = read(
            chart("t", Axis("x"), Axis("l", LATENCY, log=True), [Line("a", [0, 1, 2], [1e-3, 1e-2, 1], points=True)])
        )
        said = texts(picture)
        for (_, y), text in zip(points(picture), ["1 ms", "10 ms", "1 s"], strict=True):
            assert said[text][1] - 4 == pytest.approx(y, abs=0.11)

    def test_zero_breaks_the_line(self) -> None:
        line = Line("a", range(5), [1, 2, 0, 3, -4])
        assert paths(read(chart("t", TIME, Axis("n", COUNT, log=True), [line])), "line")[0].count("M") == 1
        assert len(points(read(chart("t", TIME, Axis("n", COUNT, log=True), [line])))) == 1

    @given(
        st.sampled_from([ROWS, ROWS_PER_SECOND, BYTES, SECONDS, LATENCY, COUNT, SHARE]),
        st.floats(1e-9, 1e12),
        st.floats(1, 1e12),
        st.booleans(),
    )
    def test_marks_are_distinct_and_inside(self, quantity: Quantity, low: float, times: float, upright: bool) -> None:
        found = scale(Axis("a", quantity, log=True), [low, low * times], upright)
        values = [value for value, _ in found.marks]
        assert found.low <= low * (1 + 1e-8) and found.high >= low * times * (1 - 1e-8)
        assert values == sorted(set(values)) and all(found.holds(value) for value in values)
        assert len({text for _, text in found.marks}) == len(values)
        assert len(values) >= 2 or not upright

    def test_an_axis_within_a_decade_has_numbers(self) -> None:
        found = scale(Axis("a", LATENCY, log=True, low=2e-3, high=9e-3), [], upright=True)
        assert [text for _, text in found.marks] == ["2 ms", "4 ms", "6 ms", "8 ms"]


class TestMarks:
    LINES = (Line("a", [0, 10], [0, 100], points=True),)

    def test_both_values_are_a_diamond(self) -> None:
        picture = read(chart("t", TIME, ROWS_AXIS, self.LINES, [Mark("paper: 100", 10, 100), Mark("half", 5, 50)]))
        (left, bottom), (right, top) = points(picture)
        assert diamond(picture) == pytest.approx((right, top), abs=0.11)
        assert diamond(picture, 1) == pytest.approx(((left + right) / 2, (top + bottom) / 2), abs=0.11)
        assert {"paper: 100", "half"} <= set(texts(picture))

    def test_one_value_is_a_line_right_through(self) -> None:
        picture = read(chart("t", TIME, ROWS_AXIS, self.LINES, [Mark("when", x=5), Mark("how many", y=50)]))
        (left, bottom), (right, top) = points(picture)
        upright, level = (corners(shape) for shape in paths(picture, "told"))
        assert upright == [(pytest.approx((left + right) / 2, abs=0.11), y) for y in (top, bottom)]
        assert level == [(x, pytest.approx((top + bottom) / 2, abs=0.11)) for x in (left, right)]

    def test_an_axis_makes_room_for_what_was_published(self) -> None:
        picture = read(chart("t", TIME, ROWS_AXIS, self.LINES, [Mark("paper", 20, 300)]))
        assert diamond(picture)[1] == texts(picture)["300"][1] - 4
        assert "↑" not in chart("t", TIME, ROWS_AXIS, self.LINES, [Mark("paper", 20, 300)])

    def test_beyond_given_ends_it_stands_at_the_edge_with_an_arrow(self) -> None:
        axis = Axis("rows", ROWS, high=100)
        picture = read(chart("t", TIME, axis, self.LINES, [Mark("paper", 5, 300)]))
        assert "↑ paper" in texts(picture)
        assert diamond(picture)[1] == points(picture)[1][1]

    def test_texts_do_not_cover_each_other(self) -> None:
        marks = [Mark(f"published {i}", 5 + i / 50, 50) for i in range(6)]
        picture = read(chart("t", TIME, ROWS_AXIS, self.LINES, marks))
        said = {text: at for text, at in texts(picture).items() if text.startswith("published")}
        assert len(said) == 6
        assert len({at for at in said.values()}) == 6
        assert all(0 < x < 720 and 0 < y < 500 for x, y in said.values())

    def test_a_text_keeps_clear_of_texts_first_and_of_lines_then(self) -> None:
        within = Box(0, 0, 100, 100)
        left, right, outside = Box(0, 0, 20, 10), Box(30, 0, 50, 10), Box(95, 0, 115, 10)
        none, dot = np.empty((0, 2)), np.array([[5.0, 5.0]])
        assert place([left, right], [], none, within) == left
        assert place([left, right], [], dot, within) == right
        assert place([left, right], [right], dot, within) == left
        assert place([outside, left], [], dot, within) == left

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
        """Left edge, foot and head of every bar."""
        shapes = [re.findall(r"M([\d.]+) ([\d.]+)V([\d.]+)", shape) for shape in paths(read(svg), "fill")]
        return [(float(a), float(b), float(c)) for shape in shapes for a, b, c in shape]

    def test_bars_stand_side_by_side_over_their_names(self) -> None:
        svg = chart("t", self.POLICIES, ROWS_AXIS, self.LINES, bars=True)
        static, load, static_paper, load_paper, hybrid_paper = self.bars(svg)
        assert static[0] < static_paper[0] < load[0] < load_paper[0] < hybrid_paper[0]
        assert load[2] == load_paper[2] and static[1] == load[1]
        assert (hybrid_paper[1] - hybrid_paper[2]) / (load[1] - load[2]) == pytest.approx(2, abs=0.01)
        said = texts(read(svg))
        assert static[0] < said["static"][0] < load[0] < said["load"][0] < said["hybrid"][0]
        assert said["12"][1] < static_paper[2]

    def test_places_without_names_are_numbered(self) -> None:
        said = texts(read(chart("t", Axis("round"), ROWS_AXIS, [Line("ours", [0, 1], [100, 700])], bars=True)))
        assert said["0"][0] < said["1"][0]

    def test_below_zero_bars_hang(self) -> None:
        up, down = self.bars(
            chart("t", Axis("x"), Axis("y", low=-10, high=10), [Line("a", [0, 1], [5, -5])], bars=True)
        )
        assert up[1] == down[1] and up[1] - up[2] == pytest.approx(down[2] - down[1], abs=0.11)

    def test_on_a_log_axis_bars_stand_on_its_low_end(self) -> None:
        small, large = self.bars(
            chart("t", Axis("x"), Axis("y", log=True, low=1, high=100), [Line("a", [0, 1], [10, 100])], bars=True)
        )
        assert (large[1] - large[2]) / (small[1] - small[2]) == pytest.approx(2, abs=0.01)

    def test_a_published_value_stands_over_its_name(self) -> None:
        picture = read(chart("t", self.POLICIES, ROWS_AXIS, self.LINES, [Mark("paper's text", 1, 20)], bars=True))
        assert diamond(picture)[0] == texts(picture)["load"][0]

    @pytest.mark.parametrize("count", [1, 5, 14, 60])
    def test_names_of_any_length_stay_in_the_picture(self, count: int) -> None:
        names = [f"a_name_that_cannot_be_broken_{i}" for i in range(count)]
        svg = chart("t", Axis("x", names=names), ROWS_AXIS, [Line("a", range(count), range(count))], bars=True)
        picture = read(svg)
        tall = float(picture.get("viewBox", "").split()[3])
        for x, y in re.findall(r"translate\((\S+) (\S+)\)", svg):
            assert 190 * math.cos(math.radians(35)) < float(x) and float(y) + 100 < tall

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
        assert "prefers-color-scheme: dark" in picture.findtext(f"{SVG}style", "")
        assert picture.find(f"{SVG}rect").get("class") == "paper"  # type: ignore[union-attr]
        assert "id=" not in svg and "url(" not in svg and "href" not in svg

    def test_the_same_values_give_the_same_text(self) -> None:
        wanted = ("t", TIME, ROWS_AXIS, [Line("a", [0, 1, 2], [1, 2, 3], points=True)], [Mark("m", 1, 2)])
        assert chart(*wanted) == chart(*wanted)

    def test_no_text_is_trusted(self) -> None:
        lines = [Line(HOSTILE, [0, 1], [1, 2], points=True)]
        marks = [Mark(HOSTILE, 1, 1), Mark(HOSTILE, x=1)]
        for bars, names in ((False, ()), (True, (HOSTILE, HOSTILE * 3))):
            svg = chart(
                HOSTILE,
                Axis(HOSTILE, names=names),
                Axis(HOSTILE, Quantity(((1, HOSTILE),))),
                lines,
                marks,
                HOSTILE,
                bars,
            )
            assert {one.tag for one in read(svg).iter()} <= {
                SVG + tag for tag in ("svg", "title", "desc", "style", "rect", "text", "g", "path")
            }
            svg.encode("utf-8")

    def test_long_texts_are_broken_or_cut(self) -> None:
        line = Line("n" * 500, [0, 1], [1, 2])
        svg = chart("word " * 60, Axis("x" * 500), Axis("y" * 500), [line], [Mark("m" * 300, 0, 1)], "note " * 100)
        for one in read(svg).iter(f"{SVG}text"):
            assert len("".join(one.itertext())) < 120

    def test_wrong_input_is_refused_by_name(self) -> None:
        with pytest.raises(ValueError, match="line 'a' has 2 values of x and 1 of y"):
            chart("t", TIME, ROWS_AXIS, [Line("a", [1, 2], [1])])
        with pytest.raises(ValueError, match="axis 'rows' cannot go from 5 to 5"):
            Axis("rows", low=5, high=5)
        with pytest.raises(ValueError, match="axis 'rows' is logarithmic and cannot reach 0"):
            Axis("rows", log=True, low=0)

    @given(
        st.lists(st.tuples(NUMBERS, st.one_of(NUMBERS, st.just(math.nan))), max_size=12),
        st.lists(st.tuples(NUMBERS, NUMBERS), max_size=3),
        st.sampled_from([ROWS, BYTES, SECONDS, LATENCY, SHARE]),
    )
    def test_everything_drawn_lies_inside_the_picture(
        self, values: list[Place], told: list[Place], quantity: Quantity
    ) -> None:
        line = Line("a", [v[0] for v in values], [v[1] for v in values], points=True)
        svg = chart("t", Axis("x"), Axis("y", quantity), [line], [Mark("m", *at) for at in told])
        picture = read(svg)
        wide, tall = map(float, picture.get("viewBox", "").split()[2:])
        for shape in picture.iter(f"{SVG}path"):
            assert all(0 <= x <= wide and 0 <= y <= tall for x, y in corners(shape.get("d", "")))
        assert all(0 <= x <= wide and 0 <= y <= tall for x, y in texts(picture).values())


class TestMarksOfAnAxis:
    @given(st.sampled_from([ROWS, BYTES, SECONDS, SHARE]), st.floats(-1e9, 1e9), st.floats(1e-3, 1e9))
    def test_marks_between_any_ends_are_round_few_and_distinct(
        self, quantity: Quantity, low: float, more: float
    ) -> None:
        marks = quantity.marks(low + more, 4, low)
        values = [value for value, _ in marks]
        slack = 1e-6 * max(abs(low), more)
        assert values == sorted(values) and values[0] <= low + slack and values[-1] >= low + more - slack
        assert 2 <= len(marks) <= 7
        assert len({text for _, text in marks}) == len(marks)
