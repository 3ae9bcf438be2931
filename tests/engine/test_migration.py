"""Checkpoints that older versions wrote go on in this one's format, exactly, whenever their migration is cut off."""

from __future__ import annotations

import json
import os
import tarfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from migrated_flow import FLOW, open_flow, write
from oracle import multiset

from sluice import CheckpointError
from sluice.cli.main import main
from sluice.control import migration
from sluice.control.journal import FORMAT, Journal, wrap
from sluice.control.migration import MIGRATIONS, Documents, is_alive, migrate
from sluice.model.codec import encode
from sluice.model.identity import Owner
from sluice.state.files.storage import Storage, watch

DATA = Path(__file__).parents[1] / "data"
WRITTEN, ALL = 4, 9
"""Epochs that the older version ran, and those that there are in all."""
NOW = 1.9e9


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Counter]:
    """The results of a flow that this version ran from its first epoch on."""
    before = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("right"))
    try:
        query = write(ALL)
        return {name: multiset(query.results_of(name)) for name in FLOW}
    finally:
        os.chdir(before)


@pytest.fixture(params=sorted(MIGRATIONS), ids=lambda number: f"format-{number}")
def journal(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Journal:
    """Of a checkpoint that an older version wrote, in the working directory."""
    monkeypatch.chdir(tmp_path)
    with tarfile.open(DATA / f"format-{request.param}.tar.gz") as packed:
        packed.extraction_filter = getattr(tarfile, "data_filter", None)  # Python before 3.10.12 and 3.11.4 has none
        packed.extractall()
    journal = Journal(Storage("checkpoint"))
    assert journal.format == request.param
    return journal


def files_of(directory: str) -> dict[str, bytes]:
    paths = (path for path in Path(directory).rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


def go_on(right: dict[str, Counter]) -> None:
    """Run the other epochs, and see that all results are right."""
    query = write(ALL, WRITTEN)
    assert {name: multiset(query.results_of(name)) for name in FLOW} == right


def test_every_format_has_a_migration_to_the_next_one() -> None:
    """Whoever changes the format writes one, and keeps a checkpoint of the one before in tests/data."""
    assert sorted(MIGRATIONS) == list(range(min(MIGRATIONS), FORMAT))
    assert all((DATA / f"format-{number}.tar.gz").exists() for number in MIGRATIONS)


def test_a_query_goes_on_exactly(journal: Journal, right: dict[str, Counter], capsys: pytest.CaptureFixture) -> None:
    before, old = files_of("checkpoint"), journal.format
    with pytest.raises(CheckpointError, match=r"has format \d+.*Nothing was touched. sluice migrate checkpoint brings"):
        open_flow()
    assert files_of("checkpoint") == before
    assert main(["migrate", "checkpoint"]) == 0
    assert f"has format {FORMAT} now; it had {old}" in capsys.readouterr().out
    kept = files_of(f"checkpoint/format-{old}")
    assert {name: before[name] for name in kept if name in before and name != "flow.json"}.items() <= kept.items()
    assert len(kept) == 1 + sum(name.startswith(("flow/", "journal/")) for name in before) + 1  # flow.json, the fence
    go_on(right)
    assert main(["migrate", "checkpoint"]) == 0
    assert "there is nothing to do" in capsys.readouterr().out


def test_it_may_be_cut_off_at_any_file_operation(journal: Journal, right: dict[str, Counter], tmp_path: Path) -> None:
    """It is gone through again; in between no version opens the checkpoint, unless nothing has changed in it."""
    old, before, cut = journal.format, files_of("."), 0

    class Cut(BaseException):
        pass

    while True:
        left = cut

        def stop(operation: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Cut

        for name in files_of("."):
            Path(name).unlink()
        for name, content in before.items():
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_bytes(content)
        try:
            with watch(stop):
                migrate(journal, "1" * 8, NOW)
            break
        except Cut:
            pass
        if journal.format == old:
            assert (
                files_of("checkpoint/flow").items()
                == {
                    name.removeprefix("checkpoint/flow/"): content
                    for name, content in before.items()
                    if name.startswith("checkpoint/flow/")
                }.items()
            )
        elif journal.format != FORMAT:
            with pytest.raises(CheckpointError, match="was cut off: sluice migrate checkpoint goes on"):
                journal.recognised()
        migrate(journal, "2" * 8, NOW, take_over=True)  # the one before was this process
        assert journal.recognised() and journal.newest_with_plan()
        cut += 1
    assert cut > 20
    go_on(right)


def test_one_whose_query_runs_is_refused(journal: Journal, right: dict[str, Counter]) -> None:
    newest = journal.indexes()[-1]
    content = json.loads(journal.read_content(f"journal/{newest:012d}.json")[0])
    alive = Owner.this_process("3" * 8, NOW, newest)
    data, _ = wrap(encode({**content, "owner": vars(alive)}))
    Path(f"checkpoint/journal/{newest:012d}.json").write_bytes(data)
    before = files_of("checkpoint")
    assert (
        is_alive(alive) and not is_alive(replace(alive, host="elsewhere")) and not is_alive(replace(alive, since=1.0))
    )
    with pytest.raises(CheckpointError, match="which is alive: stop its query"):
        migrate(journal, "4" * 8, NOW)
    assert files_of("checkpoint") == before
    assert migrate(journal, "4" * 8, NOW, take_over=True)
    go_on(right)


def test_a_driver_that_nobody_can_see_is_fenced_off(journal: Journal) -> None:
    """One on another machine: its next entry has no place."""
    newest = journal.indexes()[-1]
    migrate(journal, "5" * 8, NOW)
    assert not journal.storage.put_if_absent(f"journal/{newest + 1:012d}.json", b"{}")


def test_entries_behind_a_changed_one_have_its_checksum(
    journal: Journal, right: dict[str, Counter], monkeypatch: pytest.MonkeyPatch
) -> None:
    def move_clocks(documents: Documents) -> Documents:
        def later(entry: dict) -> dict:
            return {**entry, "owner": {**entry["owner"], "since": entry["owner"]["since"] + 1}}

        return replace(documents, entries={file: later(entry) for file, entry in documents.entries.items()})

    last = MIGRATIONS[FORMAT - 1]
    changed = {**MIGRATIONS, FORMAT - 1: lambda documents: move_clocks(last(documents))}
    monkeypatch.setattr(migration, "MIGRATIONS", changed)
    migrate(journal, "6" * 8, NOW)
    journal.newest()  # which refuses what does not fit
    go_on(right)


def test_what_is_not_as_its_format_has_it_stays_as_it_was(journal: Journal) -> None:
    (plan,) = Path("checkpoint/flow").iterdir()
    document = json.loads(plan.read_bytes())["content"]
    del document["queries"][0]["structure"]
    plan.write_bytes(wrap(json.dumps(document).encode())[0])
    old, before = journal.format, files_of("checkpoint/flow")
    with pytest.raises(CheckpointError, match=r"is not as format \d+ has it, and is as it was: .*structure"):
        migrate(journal, "7" * 8, NOW)
    assert journal.format == old and files_of("checkpoint/flow") == before


@pytest.mark.parametrize("says", ["First 2 rows of each (k) of 'a'", None], ids=["top", "last of a join"])
def test_a_state_that_is_kept_otherwise_is_named(journal: Journal, says: str | None) -> None:
    """Of format 17: first rows, and the newest rows of a join."""
    if journal.format != 17:
        pytest.skip("of format 17 alone")
    (plan,) = Path("checkpoint/flow").iterdir()
    document = json.loads(plan.read_bytes())["content"]
    newest = document["operators"][list(FLOW).index("newest")]
    if says is None:
        newest["origins"] = [len(document["sources"])]  # the join
    else:
        newest["says"] = says
    plan.write_bytes(wrap(json.dumps(document).encode())[0])
    before = files_of("checkpoint/flow")
    with pytest.raises(CheckpointError, match="cannot be migrated from format 17, and is as it was; its state is kept"):
        migrate(journal, "9" * 8, NOW)
    assert journal.format == 17 and files_of("checkpoint/flow") == before


@pytest.mark.parametrize(
    ("number", "words"),
    [(FORMAT + 1, "a newer one wrote it"), (min(MIGRATIONS) - 1, "from before the first release")],
)
def test_what_cannot_be_migrated_says_why(journal: Journal, number: int, words: str) -> None:
    Path("checkpoint/flow.json").write_bytes(wrap(json.dumps({"format": number}).encode())[0])
    before = files_of("checkpoint")
    with pytest.raises(CheckpointError, match=words):
        migrate(journal, "8" * 8, NOW)
    assert files_of("checkpoint") == before


def test_what_is_no_checkpoint_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["migrate", str(tmp_path)]) == 2
    assert "holds no Sluice checkpoint" in capsys.readouterr().err
