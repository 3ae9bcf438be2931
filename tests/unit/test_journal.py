"""A checkpoint has one owner at a time, and what is on record is what was put there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from engine_harness import DirectQuery, single
from epoch_factory import owned_journal, record
from specs import SECOND, join, stream

from sluice.control.journal import FORMAT, KEPT, Journal, _wrap
from sluice.model.codec import encode
from sluice.model.errors import CheckpointError, FlowError, SluiceError
from sluice.model.identity import CheckpointIdentity
from sluice.model.plan.relation import Applied, Relation, plan_of
from sluice.model.plan.stream import Stream
from sluice.state.files.storage import Storage, watch


def numbers(journal: Journal) -> list[int]:
    return [r.number for r in journal.epochs()]


class TestOwner:
    def test_who_was_there_before_commits_no_more(self, tmp_path: Path) -> None:
        first = owned_journal(str(tmp_path))
        first.commit(record(0))
        second = owned_journal(str(tmp_path))
        with pytest.raises(CheckpointError, match=r"belongs to process \d+ on \S+ \(since .* UTC\); this is process"):
            first.commit(record(1))
        second.commit(record(1))
        assert not first.is_owned() and second.is_owned()
        assert numbers(second) == [0, 1]

    @pytest.mark.parametrize("ahead", [1, 2, KEPT - 1, KEPT, KEPT + 1, 3 * KEPT])
    def test_nor_when_its_place_in_the_journal_is_free_again(self, tmp_path: Path, ahead: int) -> None:
        """Old entries are deleted; the one that the first driver was about to put may be among them."""
        first = owned_journal(str(tmp_path))
        first.commit(record(0))
        second = owned_journal(str(tmp_path))
        for number in range(1, 1 + ahead):
            second.commit(record(number))
        on_record = numbers(second)
        with pytest.raises(CheckpointError, match="was taken over"):
            first.commit(record(1))
        assert numbers(second) == on_record
        assert second.newest() is not None and second.newest().record.number == ahead

    def test_an_entry_put_too_late_by_a_driver_that_died_is_no_ones(self, tmp_path: Path) -> None:
        first = owned_journal(str(tmp_path))
        first.commit(record(0))
        second = owned_journal(str(tmp_path))
        for number in range(1, KEPT + 10):
            second.commit(record(number))

        def die(operation: str, path: str) -> None:
            if operation == "list":
                raise KeyboardInterrupt

        with watch(die), pytest.raises(KeyboardInterrupt):
            first.commit(record(1))
        stray = second.indexes()[0]
        assert stray == 2
        third = owned_journal(str(tmp_path))
        assert third.head is not None and third.head.record.number == KEPT + 9
        third.commit(record(KEPT + 10))
        assert stray not in third.indexes()
        assert len(third.indexes()) == KEPT

    def test_two_that_go_on_from_the_same_entry(self, tmp_path: Path) -> None:
        newest = owned_journal(str(tmp_path)).newest()
        drivers = [Journal(Storage(str(tmp_path))) for _ in range(2)]
        assert newest is not None
        assert [d.take_over(run, 0.0, newest, newest.record) for run, d in zip("ab", drivers, strict=True)] == [
            True,
            False,
        ]

    def test_owners_that_never_commit_leave_no_trail(self, tmp_path: Path) -> None:
        owned_journal(str(tmp_path)).commit(record(0))
        for _ in range(3):
            journal = owned_journal(str(tmp_path))
        assert numbers(journal) == [0]
        for number in range(1, 2 * KEPT):
            journal.commit(record(number))
        assert len(journal.indexes()) == KEPT


def damaged(data: bytes, how: str, at: int) -> bytes:
    if how == "cut":
        return data[:at]
    return data[:at] + bytes([data[at] ^ (1 << (at % 8))]) + data[at + 1 :]


class TestDamage:
    @pytest.mark.parametrize("how", ["cut", "flip"])
    @pytest.mark.parametrize("name", ["flow.json", "journal/000000000003.json"])
    def test_no_byte_can_change_unnoticed(self, tmp_path: Path, name: str, how: str) -> None:
        journal = owned_journal(str(tmp_path))
        for number in range(3):
            journal.commit(record(number))
        file = tmp_path / name
        whole = file.read_bytes()
        for at in range(0, len(whole), 7):
            file.write_bytes(damaged(whole, how, at))
            with pytest.raises(SluiceError, match=file.name):
                journal.recognised()
                journal.newest()

    def test_an_entry_of_another_checkpoint(self, tmp_path: Path) -> None:
        mine, other = owned_journal(str(tmp_path / "mine")), owned_journal(str(tmp_path / "other"))
        for number in range(3):
            mine.commit(record(number))
            other.commit(record(number, rows=50))
        name = "journal/000000000003.json"
        (tmp_path / "mine" / name).write_bytes((tmp_path / "other" / name).read_bytes())
        with pytest.raises(CheckpointError, match="does not continue"):
            mine.newest()


def test_a_name_that_is_no_text_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(FlowError, match="is no Unicode text"):
        owned_journal(str(tmp_path / "ck"), name="desk \ud800")
    assert not list((tmp_path / "ck" / "journal").iterdir()) and not (tmp_path / "ck" / "flow.json").exists()


class TestIdentity:
    """It is a value, and stands in the checkpoint under the names that older versions gave it."""

    def identity(self, root: Path) -> CheckpointIdentity:
        DirectQuery(single(join([stream("a"), stream("b")], 5 * SECOND)), root, sites=1, partitions=4).close()
        identity = Journal(Storage(str(root / "checkpoint"))).recognised()
        assert isinstance(identity, CheckpointIdentity)
        return identity

    def test_what_was_written_is_read(self, tmp_path: Path) -> None:
        identity = self.identity(tmp_path)
        assert [s.name for s in identity.streams] == ["a", "b"] and identity.partitions == 4
        document = json.loads((tmp_path / "checkpoint" / "flow.json").read_bytes())["content"]
        assert set(document) == {
            *("format", "id", "name", "partitions", "shown", "says", "queries"),
            *("streams", "operators", "outputs", "timeZone"),
        }
        assert set(document["streams"][0]) == {"name", "columns", "eventTime", "delay"}
        assert self.identity(tmp_path) == identity

    @pytest.mark.parametrize("lost", ["id", "name", "partitions"])
    def test_what_is_none_is_refused(self, tmp_path: Path, lost: str) -> None:
        document = json.loads(encode(owned_journal(str(tmp_path)).identity())) | {"format": FORMAT}
        del document[lost]
        (tmp_path / "flow.json").write_bytes(_wrap(json.dumps(document).encode())[0])
        with pytest.raises(CheckpointError, match=f"flow.json is damaged: .*`{lost}`"):
            Journal(Storage(str(tmp_path))).identity()

    def test_of_another_format_is_refused_by_that(self, tmp_path: Path) -> None:
        """Whatever else has changed in it."""
        owned_journal(str(tmp_path))
        (tmp_path / "flow.json").write_bytes(_wrap(json.dumps({"format": 999}).encode())[0])
        journal = Journal(Storage(str(tmp_path)))
        assert journal.format == 999
        for read in (journal.identity, journal.recognised):
            with pytest.raises(CheckpointError, match="has format 999"):
                read()


class TestAnotherListOfWriters:
    """Which query differs is said in words, not as a plan."""

    def flow(self, root: Path, *within: int) -> None:
        """A join of the same streams for each of these windows."""
        a, b = stream("a"), stream("b")
        feeds = Relation(a, (), a), Relation(b, (), b)
        specs = [join([a, b], seconds * SECOND) for seconds in within]
        results = [Stream("result", spec.output_schema(), spec.event_time, spec.delay) for spec in specs]
        applied = [Relation(Applied(spec, feeds), (), result) for spec, result in zip(specs, results, strict=True)]
        DirectQuery(plan_of(applied), root, sites=1, partitions=4).close()

    @pytest.mark.parametrize(
        ("within", "message"),
        [
            ((5,), r"there is 1 query, the checkpoint has 2: its query 2 \(Window join; 'a' .* 9 seconds .*\) is gone"),
            ((9,), r"there is 1 query, the checkpoint has 2: its query 1 \(.* 5 seconds .*\) is gone"),
            ((5, 9, 7), r"there are 3 queries, the checkpoint has 2: query 3 \(.* 7 seconds .*\) is not in it"),
            ((5, 7), r"query 2: operators\[1\]\.within\[0\]\[1\] is 7000000, the checkpoint has 9000000"),
            ((9, 5), r"query 1, 2: operators\[0\]\.within"),
        ],
    )
    def test_is_refused_with_the_query_that_differs(
        self, tmp_path: Path, within: tuple[int, ...], message: str
    ) -> None:
        self.flow(tmp_path, 5, 9)
        with pytest.raises(CheckpointError, match=rf"another flow: {message}") as refused:
            self.flow(tmp_path, *within)
        assert "{" not in str(refused.value), "no JSON"
        self.flow(tmp_path, 5, 9)
