"""The live page in a real Chromium: every view, light and dark, on a phone, by keyboard, with epochs that come while it
is open, and with a thousand sites and ten thousand units."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from browser import chromium, find_chromium, overhear
from moving_journal import MovingQuery, moving_journal
from page_server import ServedPage, served_page
from playwright.sync_api import Browser, Page, expect

from sluice.control.asking import Answer, Question
from sluice.control.journal import KEPT
from sluice.dashboard.page.access import Access
from sluice.dashboard.page.driver import Driver
from sluice.dashboard.quantity import BYTES, ROWS
from sluice.dashboard.report import report_checkpoint
from sluice.model.codec import decode, encode
from sluice.model.epoch.decision import Decision, Verb
from sluice.verbs.split import Split

pytestmark = pytest.mark.skipif(find_chromium() is None, reason="there is no Chromium")

VIEWS = ("map", "charts", "sites", "plan", "queries", "decisions")
DESK = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
PATIENCE = 60_000
"""Milliseconds that a slow machine may take."""
expect.set_options(timeout=PATIENCE)
DRAWN = {
    "map": "canvas#units[data-epoch]",
    "charts": ".uplot canvas >> nth=11",
    "sites": "table[aria-label='Sites'] tbody tr >> nth=3",
    "plan": "svg.plan .node >> nth=6",
    "queries": "table[aria-label=Queries] tbody tr >> nth=2",
    "decisions": "table[aria-label=Decisions] tbody tr >> nth=5",
}
"""What is there when a view is drawn."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[MovingQuery, ServedPage]]:
    query = moving_journal(str(tmp_path_factory.mktemp("page") / "ck"), epochs=40)
    with served_page(query.journal.storage.uri) as page:
        yield query, page


def opened(browser: Browser, served_at: ServedPage, view: str = "map", **context: Any) -> Page:
    """A page with a view, drawn."""
    page = browser.new_context(**{"viewport": DESK, **context}).new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(f"{served_at.link}#{view}")
    page.wait_for_selector(DRAWN[view])
    return page


def chosen(page: Page) -> str:
    return page.locator("#chosen").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", ["desk", "phone"])
def test_every_view_is_drawn(browser: Browser, served: tuple[MovingQuery, ServedPage], scheme: Any, size: str) -> None:
    viewport = PHONE if size == "phone" else DESK
    page = browser.new_context(color_scheme=scheme, viewport=viewport).new_page()
    page.set_default_timeout(PATIENCE)
    complaints = overhear(page)
    hosts: set[str] = set()
    page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
    page.goto(served[1].link)
    for number, view in enumerate(VIEWS, 1):
        page.keyboard.press(str(number))
        page.wait_for_selector(DRAWN[view])
        assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth"), f"{view} is too wide"
        expect(page.locator(f"[data-view={view}]")).to_have_attribute("aria-selected", "true")
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    assert complaints == [] and hosts == {f"127.0.0.1:{served[1].port}"}
    page.context.close()


def test_a_report_shows_every_view_from_its_file(
    browser: Browser, served: tuple[MovingQuery, ServedPage], tmp_path: Path
) -> None:
    report_checkpoint(served[0].journal.storage.uri, str(tmp_path / "report.html"))
    page = browser.new_context(viewport=DESK, offline=True).new_page()
    page.set_default_timeout(PATIENCE)
    complaints = overhear(page)
    page.goto((tmp_path / "report.html").as_uri())
    for view in VIEWS:
        page.locator(f"[data-view={view}]").click()
        page.wait_for_selector(DRAWN[view])
    page.keyboard.press("1")
    page.keyboard.press("Home")
    page.wait_for_selector("canvas#units[data-epoch='0']")
    assert page.locator("#live").inner_text() == "Newest"
    assert complaints == []
    page.context.close()


def test_the_map_has_colour_for_what_is_hot(browser: Browser, served: tuple[MovingQuery, ServedPage]) -> None:
    page = opened(browser, served[1])
    distinct = """canvas => new Set(new Uint32Array(
        canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer)).size"""
    for canvas in ("#strip", "#units"):
        assert page.eval_on_selector(canvas, distinct) > 15
    page.context.close()


def test_a_move_from_an_epoch_that_is_gone_is_not_drawn_as_a_share(browser: Browser, tmp_path: Path) -> None:
    query = moving_journal(str(tmp_path / "ck"), epochs=KEPT + 11)  # the oldest epoch that is left has moved a unit
    with served_page(query.journal.storage.uri) as at:
        page = browser.new_context(viewport=DESK).new_page()
        page.set_default_timeout(PATIENCE)
        page.add_init_script("""
            window.drawn = {};
            for (const how of ["fillText", "strokeText"]) {
                const write = CanvasRenderingContext2D.prototype[how];
                CanvasRenderingContext2D.prototype[how] = function (text, ...rest) {
                    (window.drawn[how] ??= new Set()).add(text);
                    write.call(this, text, ...rest);
                };
            }
        """)
        page.goto(at.link)
        page.wait_for_selector(DRAWN["map"])
        oldest = at.history.marks()[0]
        assert (oldest.verb, oldest.fate, oldest.came_from) == ("move", "done", None)
        assert page.evaluate("window.drawn.fillText.has('↷')")
        assert page.evaluate("['↷', '◆', '▼'].every((glyph) => window.drawn.strokeText.has(glyph))")  # each has an edge
        page.context.close()


def test_a_move_that_waits_is_drawn_open(browser: Browser, tmp_path: Path) -> None:
    query = MovingQuery(str(tmp_path / "ck"), 4, 48)
    query.waiting = (Decision(5, "you", Verb.MOVE, 0, 3, "to see"),)
    for _ in range(18):  # from epoch 10 on others are done
        query.commit()
    with served_page(query.journal.storage.uri) as at:
        page = browser.new_context(viewport=DESK).new_page()
        page.set_default_timeout(PATIENCE)
        page.add_init_script("""
            window.ends = [];
            const fill = CanvasRenderingContext2D.prototype.fill;
            CanvasRenderingContext2D.prototype.fill = function () {
                window.ends.push(this.fillStyle);
                fill.call(this);
            };
        """)
        page.goto(at.link)
        page.wait_for_selector(DRAWN["map"])
        expect(page.get_by_text("hollow: waits")).to_be_visible()
        shades = "name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim()"
        assert set(page.evaluate("window.ends")) == {page.evaluate(shades, name) for name in ("ink", "card")}
        page.context.close()


def test_event_time_ahead_of_the_clock_is_said_to_be(browser: Browser, tmp_path: Path) -> None:
    query = MovingQuery(str(tmp_path / "ck"), 2, 8)
    query.lag = -30.0
    query.commit()
    with served_page(str(tmp_path / "ck")) as at:
        page = opened(browser, at)
        lag = page.locator(".tiles div", has_text="Watermark lag").locator("dd")
        expect(lag).to_have_text("23 sahead of the clock")  # rows may be 5 s late, and of one stream are 2 s older
        query.lag = 4.0
        query.commit()
        expect(lag).to_have_text("11 sbehind the clock")
        page.context.close()


def test_a_long_name_leaves_the_screen_to_the_rest(browser: Browser, tmp_path: Path) -> None:
    name = "orders-with-trades-of-the-last-twenty-minutes-" * 9
    MovingQuery(str(tmp_path / "ck"), 2, 8, name=name).commit()
    with served_page(str(tmp_path / "ck")) as at:
        page = opened(browser, at, viewport=PHONE)
        title = page.locator("h1")
        box = title.bounding_box()
        assert box is not None and box["height"] < 70
        expect(title).to_have_attribute("title", name)
        page.context.close()


def test_one_goes_back_through_the_epochs_by_keyboard(browser: Browser, served: tuple[MovingQuery, ServedPage]) -> None:
    page = opened(browser, served[1])
    newest = served[0].number - 1
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector(f"canvas#units[data-epoch='{newest - 2}']")
    assert chosen(page) == f"epoch {newest - 2}"
    expect(page.locator("#live")).to_have_attribute("aria-pressed", "false")
    page.keyboard.press("Home")
    page.wait_for_selector("canvas#units[data-epoch='0']")
    page.keyboard.press("End")
    page.wait_for_selector(f"canvas#units[data-epoch='{newest}']")
    page.keyboard.press("?")
    expect(page.locator("dialog")).to_be_visible()
    page.context.close()


def test_numbers_are_written_as_in_the_terminal(browser: Browser, served: tuple[MovingQuery, ServedPage]) -> None:
    page = opened(browser, served[1])
    written = """async ([quantity, values]) => {
        const text = await import("/static/format.js");
        return values.map(text[quantity]);
    }"""
    sizes = [0.5, 7, 1000, 1023, 1024, 2047, (1 << 20) - 1, 1 << 20, (1 << 30) - 1, 1 << 30, 1022 << 20, 3 << 40]
    assert page.evaluate(written, ["bytes", sizes]) == [BYTES.text(size) for size in sizes]
    counts = [1, 99.96, 999.4, 999.6, 1234, 99_960, 999_600, 1.5e9]
    assert page.evaluate(written, ["rows", counts]) == [ROWS.text(count) for count in counts]
    page.context.close()


def test_every_view_is_reached_by_the_tab_key(browser: Browser, served: tuple[MovingQuery, ServedPage]) -> None:
    """The arrow keys go through the epochs, wherever the focus is."""
    page = opened(browser, served[1])
    page.locator("[data-view=map]").focus()
    for view in VIEWS[1:]:
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.locator(f"[data-view={view}]")).to_have_attribute("aria-selected", "true")
        page.wait_for_selector(DRAWN[view])
    page.context.close()


def test_a_mark_tells_its_reason(browser: Browser, served: tuple[MovingQuery, ServedPage]) -> None:
    page = opened(browser, served[1])
    page.locator("#epoch").fill("11")
    page.wait_for_selector("canvas#units[data-epoch='11']")
    row = page.locator("table[aria-label=Decisions] tbody tr").first
    assert "move unit" in row.inner_text() and "100 % busy" in row.inner_text() and "done" in row.inner_text()
    page.context.close()


def test_a_tap_tells_what_pointing_tells(browser: Browser, served: tuple[MovingQuery, ServedPage]) -> None:
    page = opened(browser, served[1], viewport=PHONE, has_touch=True, is_mobile=True)
    tip = page.locator("#tip")
    page.locator("#units").tap(position={"x": 12, "y": 30})
    expect(tip).to_contain_text("unit 0 at site 0")
    page.locator("#strip").tap(position={"x": 60, "y": 10})
    expect(tip).to_contain_text("site 0: ")
    page.locator("main h3").first.tap()
    expect(tip).to_be_hidden()
    page.keyboard.press("4")
    page.locator(DRAWN["plan"]).tap()
    expect(tip).to_contain_text("rows out")
    page.context.close()


def test_epochs_come_while_it_is_open(browser: Browser, served: tuple[MovingQuery, ServedPage]) -> None:
    query, at = served
    page = opened(browser, at)
    new = query.commit().number
    page.wait_for_selector(f"canvas#units[data-epoch='{new}']")
    page.keyboard.press("ArrowLeft")
    before = chosen(page)
    newer = query.commit().number
    expect(page.locator("#standing")).to_contain_text(f"epoch {newer},")
    assert chosen(page) == before  # who looks back is left alone
    page.context.close()


def test_sorting_and_searching(browser: Browser, served: tuple[MovingQuery, ServedPage]) -> None:
    page = opened(browser, served[1], "sites")
    table = page.locator("table[aria-label=Sites]")
    table.get_by_role("button", name="site", exact=True).click()
    first = table.locator("tbody tr").first.locator("td").first
    assert first.inner_text() == "3"
    table.get_by_role("button", name="site", exact=True).click()
    assert first.inner_text() == "0"
    page.get_by_placeholder("site or executor").fill("host-0/2")
    assert table.locator("tbody tr").count() == 1
    page.context.close()


def test_the_order_of_decisions_stays_while_epochs_come(browser: Browser, tmp_path: Path) -> None:
    query = moving_journal(str(tmp_path / "ck"), epochs=20)
    with served_page(query.journal.storage.uri) as at:
        page = opened(browser, at, "decisions")
        table = page.locator("table[aria-label=Decisions]")
        outcome = table.get_by_role("button", name="outcome")
        outcome.click()
        sorted_by = table.locator("th[aria-sort=ascending]")
        expect(sorted_by).to_have_text("outcome")
        while query.number < 25:
            query.commit()
        expect(table.locator("tbody tr td:first-child", has_text="24")).to_have_count(1)
        expect(sorted_by).to_have_text("outcome")
        expect(outcome).to_be_focused()
        page.context.close()


def test_advice(browser: Browser, served: tuple[MovingQuery, ServedPage]) -> None:
    page = opened(browser, served[1], "decisions")
    page.get_by_label("Policy").select_option("static")
    expect(page.get_by_text("static would do nothing: static never changes anything")).to_be_visible()
    page.context.close()


def test_names_that_are_no_markup(browser: Browser, tmp_path: Path) -> None:
    query = MovingQuery(str(tmp_path / "ck"), 2, 8, name="<img src=x onerror=alert(1)>")
    query.commit()
    with served_page(str(tmp_path / "ck")) as at:
        page = opened(browser, at)
        expect(page.locator("h1")).to_have_text("<img src=x onerror=alert(1)>")
        page.context.close()


def test_a_damaged_journal_is_told_of(browser: Browser, tmp_path: Path) -> None:
    query = moving_journal(str(tmp_path / "ck"), epochs=5)
    with served_page(str(tmp_path / "ck")) as at:
        page = opened(browser, at)
        damaged = tmp_path / "ck" / "journal" / f"{query.number + 1:012d}.json"
        query.commit()
        damaged.write_bytes(b"{}")
        (tmp_path / "ck" / "journal" / "notes.json").write_text("{}")
        expect(page.get_by_role("alert")).to_contain_text("notes.json")
        page.context.close()


def test_before_the_first_epoch(browser: Browser, tmp_path: Path) -> None:
    query = MovingQuery(str(tmp_path / "ck"), 2, 8)
    with served_page(str(tmp_path / "ck")) as at:
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(at.link)
        expect(page.get_by_text("No epoch has committed yet")).to_be_visible()
        query.commit()
        page.wait_for_selector(DRAWN["map"])
        page.close()


def test_asking_for_something(browser: Browser, tmp_path: Path) -> None:
    query = moving_journal(str(tmp_path / "ck"), epochs=5)
    asked: list[Question] = []
    refusals = iter([None, "cannot split unit 3: it has one key"])

    class Pipe:
        def write(self, line: bytes) -> None:
            asked.append(decode(line, Question))

        def flush(self) -> None:
            driver.hear(encode(Answer(asked[-1].number, next(refusals))))

    driver = Driver(Pipe())  # type: ignore[arg-type]
    access = Access.for_page("127.0.0.1", control=True)
    with served_page(query.journal.storage.uri, access, driver=driver) as at:
        page = opened(browser, at)
        page.get_by_label("What to do").select_option("split")
        page.locator("input[name=unit]").fill("3")
        page.get_by_role("button", name="Ask").click()
        expect(page.locator(".control [role=status]")).to_contain_text("the next epochs carry it out")
        page.get_by_role("button", name="Ask").click()
        expect(page.locator(".control [role=status]")).to_have_text("Refused: cannot split unit 3: it has one key")
        page.context.close()
    assert [one.action for one in asked] == [Split(3, "asked for on the page")] * 2


def test_a_page_that_only_shows_has_no_form(browser: Browser, served: tuple[MovingQuery, ServedPage]) -> None:
    page = opened(browser, served[1])
    assert page.get_by_role("button", name="Ask").count() == 0
    page.context.close()


def test_thousands_of_units_are_drawn_once_each(browser: Browser, tmp_path: Path) -> None:
    """1,000 sites and 10,000 units: a picture takes a few operations a unit and a line, whatever else there is."""
    query = moving_journal(str(tmp_path / "ck"), sites=1000, units=10_000, epochs=12)
    with served_page(query.journal.storage.uri, interval=0.2) as at:
        page = browser.new_context(viewport=DESK).new_page()
        page.set_default_timeout(4 * PATIENCE)
        received: list[int] = []
        page.on("response", lambda response: received.append(int(response.headers.get("content-length", 0))))
        page.add_init_script("""
            window.cut = [];
            const write = CanvasRenderingContext2D.prototype.fillText;
            CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...rest) {
                const begin = this.textAlign === "right" ? x - this.measureText(text).width : x;
                if (begin < 0 || y < 5) window.cut.push(text);
                write.call(this, text, x, y, ...rest);
            };
        """)
        page.goto(at.link)
        page.wait_for_selector(DRAWN["map"])
        assert page.evaluate("window.cut.filter((text) => text.startsWith('site'))") == []
        assert page.eval_on_selector_all(".tiles div", "all => all.every((one) => one.scrollWidth <= one.clientWidth)")
        page.evaluate("""() => {
            window.rectangles = 0;
            const canvas = CanvasRenderingContext2D.prototype;
            const fill = canvas.fillRect;
            canvas.fillRect = function (...box) { window.rectangles += 1; fill.apply(this, box); };
        }""")
        page.keyboard.press("c")  # all is drawn anew, in another colour
        drawn = page.evaluate("window.rectangles")
        lines = 12 * 250
        assert 10_000 <= drawn <= 10_000 + lines + 100
        assert sum(received) < 3_000_000
        page.keyboard.press("3")
        page.wait_for_selector(DRAWN["sites"])
        assert page.locator("table[aria-label=Sites] tbody tr").count() == 200
        page.context.close()
