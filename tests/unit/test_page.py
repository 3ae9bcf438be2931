"""The live page without a browser: what it knows, answers and refuses, from journals written by hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import numpy as np
import pytest
from epoch_factory import owned_journal, record
from moving_journal import MovingQuery, moving_journal
from page_server import ServedPage, served_page
from prometheus_client.parser import text_string_to_metric_families

from sluice import CheckpointError, FlowError, QueryError
from sluice.api.page_process import PageProcess
from sluice.cli.main import main
from sluice.control.advice import LATELY, advise
from sluice.control.asking import Answer, Question
from sluice.control.journal import KEPT, Journal
from sluice.dashboard.page.access import Access
from sluice.dashboard.page.driver import Driver
from sluice.dashboard.page.frames import STRIP_LINES
from sluice.dashboard.page.history import History
from sluice.dashboard.page.hot_units import MOST_UNITS
from sluice.dashboard.page.marks import MOST_MARKS
from sluice.dashboard.page.news import NewsFeed
from sluice.dashboard.page.plan_graph import MOST_DRAWN, plan_graph
from sluice.model.codec import decode, encode
from sluice.model.epoch.decision import Decision, Verb
from sluice.model.plan.recorded_plan import RecordedPlan, RecordedQuery
from sluice.policies import policy
from sluice.state.files.storage import Storage, watch
from sluice.verbs import Action
from sluice.verbs.move import Move


@pytest.fixture
def query(tmp_path: Path) -> MovingQuery:
    """A query of 4 sites and 48 units that has committed 30 epochs; a site is slow since the tenth."""
    return moving_journal(str(tmp_path / "ck"), epochs=30)


def history_of(query: MovingQuery) -> History:
    history = History(Journal(Storage(query.journal.storage.uri)))
    history.look()
    return history


class TestHistory:
    def test_it_has_what_the_journal_has(self, query: MovingQuery) -> None:
        history, records = history_of(query), query.journal.epochs()
        assert [one.point.epoch for one in history.snapshots] == [one.number for one in records] == list(range(30))
        for one, on_record in zip(history.snapshots, records, strict=True):
            assert one.point.rows_in == on_record.stats.rows_in and one.point.results == on_record.stats.rows_out
            assert one.units.site.tolist() == list(on_record.routing.holders)
            assert one.units.id.tolist() == on_record.routing.ids.array.tolist()
            assert one.sites.busy_seconds.tolist() == [site.busy_seconds for site in on_record.stats.sites]
            assert one.strip.load == pytest.approx([site.busy_seconds for site in on_record.stats.sites], rel=1e-3)
        lags = [stream.lag for stream in history.snapshots[-1].point.streams]
        assert lags == [3 + 5, 1 + 29 % 5 + 5]  # behind the commit, with the delay

    def test_an_epochs_whole_time_is_there_with_the_next(self, query: MovingQuery) -> None:
        *earlier, newest = history_of(query).snapshots
        assert all(one.point.phases["commit"] == 0.02 for one in earlier) and newest.point.phases["commit"] == 0

    def test_it_does_not_grow(self, query: MovingQuery) -> None:
        """A day of epochs: what it holds and what a browser gets at first is as much as after a hundred."""
        history = history_of(query)
        sizes = []
        for _ in range(3):
            for _ in range(KEPT):
                query.commit()
                history.look()
            first = NewsFeed(history).next()
            assert first is not None and len(first.points) == len(history.snapshots) == KEPT
            sizes.append(len(first.event()))
        assert max(sizes) < 1.02 * min(sizes)

    def test_a_browser_gets_each_epoch_once(self, query: MovingQuery) -> None:
        history = history_of(query)
        feed = NewsFeed(history)
        first = feed.next()
        assert first is not None and first.anew and len(first.points) == 30 and feed.next() is None
        query.commit()
        history.look()
        new = feed.next()
        assert new is not None and not new.anew
        assert [one.epoch for one in new.points] == [29, 30]  # the one before has all of its time now
        assert len(new.event()) < len(first.event()) / 8

    def test_each_entry_is_read_once(self, query: MovingQuery) -> None:
        reads: list[str] = []
        with watch(lambda operation, path: reads.append(path) if operation == "read" else None):
            history = history_of(query)
            history.look()
            query.commit()
            history.look()
        entries = [path for path in reads if "/journal/" in path]
        assert len(entries) == len(set(entries)) == 32  # 31 epochs, and the entry by which the driver took it over
        assert sum("/flow/" in path for path in reads) == 1

    def test_it_only_reads(self, query: MovingQuery) -> None:
        operations = set()
        with watch(lambda operation, path: operations.add(operation)):
            history = history_of(query)
            history.plan(), history.queries(), history.advice("load"), history.marks()
        assert operations <= {"size", "list", "read"}

    def test_a_damaged_entry_is_told_of_and_passed_by(self, query: MovingQuery) -> None:
        damaged = Path(query.journal.storage.uri) / "journal" / f"{10:012d}.json"
        damaged.write_bytes(damaged.read_bytes()[:-40])
        history = history_of(query)
        assert f"{damaged.name} is damaged" in history.problem
        assert [one.point.epoch for one in history.snapshots] == [n for n in range(30) if n != 9]
        history.look()
        assert f"{damaged.name} is damaged" in history.problem  # whoever opens the page now is told, too
        query.commit()
        history.look()
        assert history.problem == "" and history.snapshots[-1].point.epoch == 30

    def test_a_foreign_file_is_told_of(self, query: MovingQuery) -> None:
        history = history_of(query)
        (Path(query.journal.storage.uri) / "journal" / "notes.json").write_text("{}")
        history.look()
        assert "notes.json, which no epoch has written" in history.problem and len(history.snapshots) == 30

    def test_a_checkpoint_in_the_place_of_the_old(self, query: MovingQuery) -> None:
        history = history_of(query)
        feed = NewsFeed(history)
        feed.next()
        query.journal.storage.delete_tree()
        history.look()
        assert "holds no Sluice checkpoint" in history.problem and len(history.snapshots) == 30
        other = moving_journal(query.journal.storage.uri, sites=2, units=8, epochs=3)
        history.look()
        news = feed.next()
        assert news is not None and news.anew and [one.epoch for one in news.points] == [0, 1, 2]
        assert history.problem == "" and other.number == 3

    def test_before_the_first_epoch(self, tmp_path: Path) -> None:
        owned_journal(str(tmp_path / "ck"))
        history = History(Journal(Storage(str(tmp_path / "ck"))))
        history.look()
        news = NewsFeed(history).next()
        assert news is not None and news.points == () and news.problem == ""
        assert history.plan() is None and history.queries() is None and history.marks() == []
        assert "no statistics yet" in history.advice("load").why_nothing

    def test_an_epoch_that_is_gone(self, query: MovingQuery) -> None:
        with pytest.raises(FlowError, match="epoch 99 is not among the newest 100"):
            history_of(query).snapshot(99)


class TestViews:
    def test_marks_say_where_units_came_from_and_why(self, query: MovingQuery) -> None:
        marks = history_of(query).marks()
        moves = [mark for mark in marks if mark.verb == "move" and mark.fate == "done"]
        assert moves and all(mark.came_from == 1 != mark.site and "100 % busy" in mark.reason for mark in moves)
        refused = [mark for mark in marks if mark.fate == "refused"]
        assert [mark.epoch for mark in refused] == [13, 26]
        assert refused[0].outcome == "refused: there is no unit 1000000" and refused[0].policy == "you"

    def test_there_are_no_more_marks_than_a_page_can_draw(self, tmp_path: Path) -> None:
        journal = owned_journal(str(tmp_path / "ck"))
        moves = tuple(Decision(0, "you", Verb.MOVE, unit, 1, "to see", "no") for unit in range(MOST_MARKS + 50))
        journal.commit(record(0, decisions=moves))
        history = History(journal)
        history.look()
        assert len(history.marks()) == MOST_MARKS

    def test_the_hottest_units(self, query: MovingQuery) -> None:
        history, records = history_of(query), query.journal.epochs(LATELY)
        hot = history.hot_units(29)
        ids = records[-1].routing.ids.array.tolist()
        totals = dict.fromkeys(ids, 0.0)
        for one in records:
            for unit, spent in zip(one.routing.ids.array.tolist(), one.stats.units.seconds.tolist(), strict=True):
                if unit in totals:
                    totals[unit] += spent
        ranked = sorted(totals, key=lambda unit: -totals[unit])
        assert hot.epochs == LATELY and hot.unit[:5] == ranked[:5] and len(hot.unit) <= MOST_UNITS
        assert hot.seconds[0] == pytest.approx(totals[ranked[0]], rel=1e-4)

    def test_units_are_packed_for_the_map(self, query: MovingQuery) -> None:
        frame = history_of(query).snapshots[-1].units
        whole = np.frombuffer(frame.pack(), "<u4").reshape(6, -1)
        parts = np.frombuffer(frame.pack(), "<f4").reshape(6, -1)
        assert whole[0].tolist() == frame.id.tolist() and whole[1].tolist() == frame.site.tolist()
        assert (whole[2] > 1).sum() == 1  # the unit that is shared
        assert parts[3].tolist() == frame.seconds.tolist() and parts[5].tolist() == frame.pending.tolist()

    def test_many_sites_share_the_lines_of_the_map(self, tmp_path: Path) -> None:
        query = moving_journal(str(tmp_path / "ck"), sites=1000, units=1000, epochs=2)
        strip, sites = history_of(query).snapshots[-1].strip, query.journal.epochs()[-1].stats.sites
        assert strip.group == 4 and len(strip.load) == 250 <= STRIP_LINES
        assert strip.load[0] == pytest.approx(max(site.busy_seconds for site in sites[:4]), rel=1e-3)

    def test_the_plan_has_rows_and_bytes_on_its_edges(self, query: MovingQuery) -> None:
        graph = history_of(query).plan()
        assert graph is not None
        stats = query.journal.epochs(1)[-1].stats
        edges = {(edge.source, edge.target): edge for edge in graph.edges}
        assert set(edges) == {("s0", "o0"), ("s1", "o0"), ("o0", "o1"), ("o1", "q0"), ("o0", "q1"), ("s0", "q2")}
        orders = edges["s0", "o0"]
        assert orders.rows == stats.streams[0].rows
        assert orders.bytes == pytest.approx(orders.rows * 40)  # 4,000 bytes for 100 rows
        assert edges["o0", "o1"].rows == 3 * stats.rows_in and edges["o1", "q0"].bytes is None
        nodes = {node.id: node for node in graph.nodes}
        assert [nodes[name].level for name in ("s0", "o0", "o1", "q0")] == [0, 1, 2, 3]
        assert nodes["o0"].busy == pytest.approx(0.8, abs=0.01) and nodes["q0"].rows == 3 * stats.rows_in

    def test_of_many_queries_those_that_read_the_same_are_one_node(self, tmp_path: Path) -> None:
        history = history_of(moving_journal(str(tmp_path / "ck"), epochs=3, queries=300))
        graph, table = history.plan(), history.queries()
        assert graph is not None and graph.left_out == 0
        queries = [node for node in graph.nodes if node.kind == "queries"]
        assert [(node.id, node.name) for node in queries] == [(f"q{n}", "100 queries") for n in range(3)]
        assert queries[0].says.startswith("query-0, query-3, ") and queries[0].says.endswith(" and 88 more")
        rows = {edge.target: edge.rows for edge in graph.edges}
        assert all(rows[node.id] == node.rows > 0 for node in queries)
        assert table is not None and len(table.queries) == 300 and len(table.pieces) == 2
        assert table.queries[0].pieces == (0, 1) and table.queries[2].pieces == ()
        assert table.pieces[0].queries == 200 and table.pieces[0].sites == "0-3"
        assert len(encode(table)) < 300 * 400

    def test_of_many_that_read_different_things_those_with_most_results_are_drawn(self, query: MovingQuery) -> None:
        each = tuple(RecordedQuery(f"q{n}", f"q{n}", origins=(n,)) for n in range(MOST_DRAWN + 40))
        plan = RecordedPlan(each, sources=tuple(f"stream {n}" for n in range(len(each))))
        graph = plan_graph(plan, query.journal.epochs(1)[-1])
        assert graph.left_out == 40
        assert {"q0", "q1", "q2"} <= {node.id for node in graph.nodes} and len(graph.edges) == MOST_DRAWN


class TestAdvice:
    def test_a_policy_would_relieve_the_slow_site(self, tmp_path: Path) -> None:
        query = moving_journal(str(tmp_path / "ck"), epochs=12)
        advice = history_of(query).advice("load")
        assert advice.decisions and advice.why_nothing == "" and advice.epochs == LATELY
        first = advice.decisions[0]
        holder = query.routing.holder(first.unit)
        assert first.action == Verb.MOVE and first.refused is None and holder == 1 != first.site
        assert "site 1 is" in first.reason

    def test_why_nothing(self, tmp_path: Path) -> None:
        even = history_of(moving_journal(str(tmp_path / "even"), epochs=9))
        assert even.advice("static").why_nothing == "static never changes anything"
        why = even.advice("memory").why_nothing
        assert "finds nothing to improve" in why and why.endswith(" % of its memory")
        alone = history_of(moving_journal(str(tmp_path / "alone"), sites=1, epochs=9))
        assert alone.advice("load").why_nothing == "there is one site: nothing can go elsewhere"

    def test_statistics_begin_anew_with_other_units(self, tmp_path: Path) -> None:
        query = moving_journal(str(tmp_path / "ck"), epochs=18)  # the newest epoch has split a unit
        plan, records = query.journal.newest_plan(), query.journal.epochs()
        assert plan is not None and "no statistics yet" in advise(policy("load"), plan, records).why_nothing
        for _ in range(2):
            query.commit()
        assert advise(policy("load"), plan, query.journal.epochs()).epochs == 2

    def test_whom_one_cannot_ask(self, query: MovingQuery) -> None:
        with pytest.raises(FlowError, match="there is no policy 'elastic' to ask; these are: active-disk, hybrid"):
            history_of(query).advice("elastic")


@pytest.fixture
def page(query: MovingQuery) -> Iterator[ServedPage]:
    with served_page(query.journal.storage.uri) as served:
        yield served


class TestServer:
    def test_news_come_as_epochs_commit(self, query: MovingQuery, page: ServedPage) -> None:
        news = page.news()
        first = next(news)
        assert first["name"] == "desk" and len(first["points"]) == 30 and not first["control"]
        query.commit()
        assert [point["epoch"] for point in next(news)["points"]] == [29, 30]
        news.close()

    def test_nobody_looks_when_nobody_is_there(self, query: MovingQuery, page: ServedPage) -> None:
        news = page.news()
        next(news)
        news.close()
        operations: list[str] = []
        with watch(lambda operation, path: operations.append(operation)):
            for _ in range(50):  # until the server has seen that the browser has gone
                operations.clear()
                for _ in range(20):
                    page.get("/static/page.css").read()
                if not operations:
                    break
        assert operations == []

    def test_every_view_has_its_answer(self, page: ServedPage) -> None:
        next(page.news())
        assert page.get("/api/units/29").read() == page.history.snapshot(29).units.pack()
        assert len(page.value("/api/sites/29")["busy_seconds"]) == 4
        assert page.value("/api/hot/29")["unit"] and page.value("/api/marks") and page.value("/api/plan")["nodes"]
        assert len(page.value("/api/queries")["queries"]) == 3
        assert page.value("/api/advice/static")["why_nothing"] == "static never changes anything"

    def test_what_is_not_there(self, page: ServedPage) -> None:
        answer = page.get("/api/sites/4711")
        assert answer.status == 404 and b"epoch 4711 is not among the newest 100" in answer.read()
        assert page.get("/static/../access.py").status == 404

    def test_prometheus_scrapes_the_page(self, page: ServedPage) -> None:
        families = list(text_string_to_metric_families(page.get("/metrics").read().decode()))
        assert any(family.name == "sluice_epochs" for family in families)

    def test_a_page_for_this_machine_answers_to_its_names_alone(self, page: ServedPage) -> None:
        for name in ("localhost:80", "127.0.0.2:80", "[::1]:80"):
            assert page.get("/", host=name).status == 200
        for name in ("evil.example", "127.0.0.1.evil.example", "[::1"):
            assert page.get("/", host=name).status == 403
        assert page.get("/metrics", host="evil.example").status == 403

    def test_a_page_for_others_has_a_token(self, query: MovingQuery) -> None:
        access = Access.for_page("0.0.0.0")
        with served_page(query.journal.storage.uri, access) as page:
            for path in ("/", "/events", "/metrics", "/api/marks", "/static/main.js", "/?token=wrong"):
                answer = page.get(path)
                assert answer.status == 403 and b"open the link that was printed" in answer.read()
            invited = page.get(f"/?token={access.token}")
            cookie = invited.headers["set-cookie"]
            assert invited.status == 303 and invited.headers["location"] == "/"
            assert "HttpOnly" in cookie and "SameSite=strict" in cookie
            assert page.get("/", cookie=cookie.partition(";")[0]).status == 200
            assert page.get("/metrics", authorization=f"Bearer {access.token}").status == 200

    def test_pages_of_one_machine_do_not_lock_each_other_out(self, query: MovingQuery) -> None:
        """A browser gives the cookies of all of them, and those of other programs, to each."""
        uri, (one, other) = query.journal.storage.uri, (Access.for_page("0.0.0.0") for _ in range(2))
        with served_page(uri, one) as page, served_page(uri, other) as next_page:
            jar = {"notes": '{"open": 1}'}
            for each, access in ((page, one), (next_page, other)):
                cookie = each.get(f"/?token={access.token}").headers["set-cookie"].partition(";")[0]
                name, _, value = cookie.partition("=")
                jar[name] = value
            cookies = "; ".join(f"{name}={value}" for name, value in jar.items())
            assert page.get("/", cookie=cookies).status == next_page.get("/", cookie=cookies).status == 200

    def test_it_loads_nothing_from_elsewhere(self, page: ServedPage) -> None:
        answer = page.get("/")
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert b"//" not in answer.read().replace(b"http://www.w3.org", b"")


class TestControl:
    MOVE = b'{"type": "Move", "unit": 3, "site": 1, "reason": "x"}'

    def driver(self, *refusals: str | None) -> tuple[Driver, list[Question]]:
        """A driver that says this to one question after the other, and what it was asked."""
        asked: list[Question] = []
        answers = iter(refusals)

        class Pipe:
            def write(self, line: bytes) -> None:
                asked.append(decode(line, Question))

            def flush(self) -> None:
                driver.hear(encode(Answer(asked[-1].number, next(answers))))

        driver = Driver(Pipe())  # type: ignore[arg-type]
        return driver, asked

    def post(self, page: ServedPage, body: bytes, **headers: str) -> tuple[int, bytes]:
        own = {"origin": f"http://127.0.0.1:{page.port}", "content_type": "application/json"}
        answer = page.get("/api/requests", "POST", body, **{**own, **headers})
        return answer.status, answer.read()

    def test_what_is_asked_for_is_answered(self, query: MovingQuery) -> None:
        driver, asked = self.driver(None, "cannot move unit 3: it is at site 1")
        with served_page(query.journal.storage.uri, driver=driver) as page:
            assert self.post(page, self.MOVE) == (200, b'{"number":0,"refused":null}')
            status, told = self.post(page, self.MOVE)
            assert status == 200 and json.loads(told)["refused"] == "cannot move unit 3: it is at site 1"
        assert [one.action for one in asked] == [Move(3, 1, "asked for on the page")] * 2

    def test_nothing_is_written_without_control(self, page: ServedPage) -> None:
        status, told = self.post(page, self.MOVE)
        assert status == 403 and b"it was started without control" in told

    @pytest.mark.parametrize(
        ("body", "headers", "told"),
        [
            (MOVE, {"origin": "http://evil.example"}, b"from the page itself"),
            (MOVE, {"content_type": "text/plain"}, b"from the page itself"),
            (b'{"type": "CleanUpAll", "reason": ""}', {}, b"no action that can be asked for"),
            (b'{"type": "Move", "unit": "x", "site": 1, "reason": ""}', {}, b"no action that can be asked for"),
            (b"nonsense", {}, b"no action that can be asked for"),
        ],
    )
    def test_what_is_no_wish_of_the_page(
        self, query: MovingQuery, body: bytes, headers: dict[str, str], told: bytes
    ) -> None:
        driver, asked = self.driver()
        with served_page(query.journal.storage.uri, driver=driver) as page:
            status, answer = self.post(page, body, **headers)
        assert status == 400 and told in answer and not asked

    def test_a_page_that_acts_has_a_token_on_loopback_too(self) -> None:
        assert Access.for_page("127.0.0.1").token is None and Access.for_page("127.0.0.1", control=True).token


class TestCommand:
    def test_what_is_no_checkpoint(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["ui", str(tmp_path)]) == 2
        assert "holds no Sluice checkpoint" in capsys.readouterr().err

    def test_another_version(self, query: MovingQuery, capsys: pytest.CaptureFixture[str]) -> None:
        Path(query.journal.storage.uri, "flow.json").write_text('{"format": 3}')
        assert main(["ui", query.journal.storage.uri]) == 2
        assert "has format 3; this version of Sluice reads" in capsys.readouterr().err

    def test_what_it_refuses(self, query: MovingQuery, capsys: pytest.CaptureFixture[str]) -> None:
        uri = query.journal.storage.uri
        assert main(["ui", uri, "--interval", "1 ms"]) == 2
        assert "interval must be between 50 milliseconds and 1 hour" in capsys.readouterr().err
        assert main(["ui", uri, "--control"]) == 2
        assert "open the page there, with query.ui(control=True)" in capsys.readouterr().err
        assert main(["ui", uri, "--host", "203.0.113.7"]) == 2
        assert "cannot listen on 203.0.113.7" in capsys.readouterr().err

    def test_it_ends_with_the_process_that_started_it(self, query: MovingQuery) -> None:
        command = [sys.executable, "-m", "sluice.cli.main", "ui", query.journal.storage.uri, "--with-parent"]
        path = os.pathsep.join(sys.path)
        pipe = subprocess.PIPE
        with subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, env={**os.environ, "PYTHONPATH": path}
        ) as page:
            assert page.stdin and page.stdout and page.stderr
            link = page.stdout.readline().decode()
            assert link.startswith("desk: http://127.0.0.1:")
            with urlopen(link.split()[-1] + "events", timeout=120) as news:  # a browser is there
                assert news.readline() == b"event: epochs\n"
                page.stdin.close()
                assert page.wait(120) == 0 and page.stderr.read() == b""


def test_what_is_asked_for_reaches_the_process_that_opened_the_page(
    query: MovingQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Action] = []

    def ask(action: Action) -> None:
        asked.append(action)
        if action.subject == 4:
            raise QueryError("cannot move unit 4: it is at site 1")

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    process = PageProcess(query.journal.storage.uri, "127.0.0.1", 0, ask)
    link = urlsplit(process.link)
    assert link.port is not None and process.is_served
    page = ServedPage(link.port, history_of(query), Access())
    cookie = page.get(f"/?{link.query}").headers["set-cookie"].partition(";")[0]
    headers = {"cookie": cookie, "origin": f"http://{link.netloc}", "content_type": "application/json"}
    answers = []
    for unit in (3, 4):
        wish = encode({"type": "Move", "unit": unit, "site": 1, "reason": ""})
        answers.append(json.loads(page.get("/api/requests", "POST", wish, **headers).read())["refused"])
    assert answers == [None, "cannot move unit 4: it is at site 1"]
    assert asked == [Move(unit, 1, "asked for on the page") for unit in (3, 4)]
    process.close()
    assert not process.is_served


def test_a_journal_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="holds no Sluice checkpoint"):
        History(Journal(Storage(str(tmp_path))))
