"""A checkpoint has one owner at a time, and what is on record is what was put there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from arrivals import fingerprint
from engine_harness import DirectQuery, single
from epoch_factory import PLAN_FILE, owned_journal, record
from specs import SECOND, join, stream

from sluice.control.journal import FORMAT, KEPT, Journal, wrap
from sluice.model.codec import encode
from sluice.model.errors import CheckpointError, FlowError, SluiceError
from sluice.model.identity import BATCHES, FILES, CheckpointIdentity
from sluice.model.plan.planning import plan_of
from sluice.model.plan.relation import Applied, Relation
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
    @pytest.mark.parametrize("name", ["flow.json", "journal/000000000003.json", PLAN_FILE])
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
                journal.newest_plan()

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
        assert set(document) == {"format", "id", "name", "partitions", "streams", "input"}
        assert set(document["streams"][0]) == {"name", "columns", "eventTime", "delay"}
        assert self.identity(tmp_path) == identity

    @pytest.mark.parametrize("lost", ["id", "name", "partitions"])
    def test_what_is_none_is_refused(self, tmp_path: Path, lost: str) -> None:
        document = json.loads(encode(owned_journal(str(tmp_path)).identity())) | {"format": FORMAT}
        del document[lost]
        (tmp_path / "flow.json").write_bytes(wrap(json.dumps(document).encode())[0])
        with pytest.raises(CheckpointError, match=f"flow.json is damaged: .*`{lost}`"):
            Journal(Storage(str(tmp_path))).identity()

    def test_of_a_flow_that_is_fed_otherwise_is_refused_in_words(self, tmp_path: Path) -> None:
        journal = owned_journal(str(tmp_path))
        recorded = journal.identity()
        assert recorded is not None and recorded.input == BATCHES
        message = "all its streams are readFiles, .*; of the flow in the checkpoint, Structured Streaming drives it"
        with pytest.raises(CheckpointError, match=f"belongs to another flow: {message}.*Nothing was touched"):
            journal.claim(replace(recorded, input=FILES))

    def test_of_another_format_is_refused_by_that(self, tmp_path: Path) -> None:
        """Whatever else has changed in it."""
        owned_journal(str(tmp_path))
        (tmp_path / "flow.json").write_bytes(wrap(json.dumps({"format": 999}).encode())[0])
        journal = Journal(Storage(str(tmp_path)))
        assert journal.format == 999
        for read in (journal.identity, journal.recognised):
            with pytest.raises(CheckpointError, match="has format 999"):
                read()


def test_plans_of_drivers_that_died_before_their_first_epoch_are_removed(tmp_path: Path) -> None:
    """Whether or not the entry that names them was put."""
    plan = single(join([stream("a"), stream("b")], 5 * SECOND))

    def die(operation: str, path: str) -> None:
        if operation == "put" and "/journal/" in path:
            raise KeyboardInterrupt

    with watch(die), pytest.raises(KeyboardInterrupt):
        DirectQuery(plan, tmp_path, sites=1, partitions=4)
    left = {file.name for file in (tmp_path / "checkpoint" / "flow").iterdir()}
    assert len(left) == 1
    query = DirectQuery(plan, tmp_path, sites=1, partitions=4)
    query.run([stream.schema.empty_table() for stream in plan.sources])
    query.epochs.close()
    query.close()
    assert [f"flow/{file.name}" for file in (tmp_path / "checkpoint" / "flow").iterdir()] == [query.epochs.record.plan]
    assert left.isdisjoint({Path(query.epochs.record.plan).name})


class TestAnotherListOfWriters:
    """Which query differs is said in words, not as a plan."""

    def flow(self, root: Path, **within: int) -> None:
        """A join of the same streams for each of these windows, by its name."""
        a, b = stream("a"), stream("b")
        feeds = Relation(a, (), a), Relation(b, (), b)
        specs = [join([a, b], seconds * SECOND) for seconds in within.values()]
        results = [Stream("result", spec.output_schema(), spec.event_time, spec.delay) for spec in specs]
        applied = [Relation(Applied(spec, feeds), (), result) for spec, result in zip(specs, results, strict=True)]
        DirectQuery(plan_of(applied, list(within)), root, sites=1, partitions=4).close()

    @pytest.mark.parametrize(
        ("within", "message"),
        [
            ({"x": 5}, r"'y' would be dropped \(Window join; 'a' .* 9 seconds .*\)\. Nothing was touched"),
            ({"y": 9}, r"'x' would be dropped \(.* 5 seconds .*\)\."),
            ({"x": 5, "y": 9, "z": 7}, r"'z' would be added \(.* 7 seconds .*\)\."),
            ({"x": 5, "y": 7}, r"'y' would be changed \(it is .* 7 seconds.*, the checkpoint has .* 9 seconds.*\)\."),
            ({"z": 5, "y": 5}, r"'z' would be added \(.*\); 'x' would be dropped \(.*\); 'y' would be changed"),
        ],
    )
    def test_is_refused_with_the_query_that_differs(self, tmp_path: Path, within: dict[str, int], message: str) -> None:
        self.flow(tmp_path, x=5, y=9)
        before = fingerprint(tmp_path / "checkpoint")
        with pytest.raises(CheckpointError, match=f"has other queries than these writers: {message}") as refused:
            self.flow(tmp_path, **within)
        assert "{" not in str(refused.value), "no JSON"
        assert fingerprint(tmp_path / "checkpoint") == before
        self.flow(tmp_path, x=5, y=9)
