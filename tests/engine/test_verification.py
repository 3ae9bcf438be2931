"""`sluice inspect --verify` tells of everything that a checkpoint names and that is gone or damaged."""

from __future__ import annotations

import json
from itertools import count, islice
from pathlib import Path

import pytest
from arrivals import fingerprint
from crash_flow import SPEC, epoch_rows
from engine_harness import DirectQuery

from sluice.cli.main import main
from sluice.cli.verification import verify
from sluice.model.errors import StorageError
from sluice.spark.sparks_part import SparksPart
from sluice.state.files.storage import watch

EPOCHS = 3


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A query of some epochs that has ended, with Spark's part of its checkpoint as far as it is looked at."""
    query = DirectQuery(SPEC, tmp_path, sites=1, partitions=4)
    spark = tmp_path / "checkpoint" / "spark"
    for directory in ("offsets", "commits"):
        (spark / directory).mkdir(parents=True)
    for epoch in range(EPOCHS):
        (spark / "offsets" / str(epoch)).write_text(f"v1\n{{}}\n{epoch}")
        (spark / "commits" / str(epoch)).write_text("v1\n{}")
        query.run(epoch_rows(epoch), batch_input=_described(query, epoch))
    query.epochs.close()
    query.close()
    return tmp_path


def _described(query: DirectQuery, epoch: int) -> str:
    return SparksPart(query.epochs.storage).describe_batch(epoch)


def problems(root: Path) -> str:
    return "\n".join(verify(str(root / "checkpoint")).problems)


def test_a_whole_one(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert problems(root) == ""
    assert main(["inspect", "--verify", str(root / "checkpoint")]) == 0
    assert "all are there, and as they were written" in capsys.readouterr().out
    verified = verify(str(root / "checkpoint"))
    assert verified.segments > 0 and verified.parts == len(list((root / "out").glob("*.parquet"))) > 0


def test_results_that_were_shown_and_are_gone_or_changed(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Readers that list the directory would not notice."""
    gone, changed, *_ = sorted((root / "out").glob("*.parquet"))
    gone.unlink()
    changed.write_bytes(changed.read_bytes()[:-1] + b"?")
    assert problems(root) == f"results: {gone} is gone\nresults: {changed} is not what was shown"
    assert main(["inspect", "--verify", str(root / "checkpoint")]) == 1
    assert f"{gone} is gone" in capsys.readouterr().out


def test_results_whose_epoch_is_no_longer_on_record(root: Path) -> None:
    """The lists for Spark's readers have them."""
    first = min((root / "out").glob("*.parquet"))
    for entry in sorted((root / "checkpoint" / "journal").glob("*.json"))[:2]:
        entry.unlink()
    assert problems(root) == ""
    first.unlink()
    assert problems(root) == f"results: {first} is gone"


def test_results_that_wait_to_be_shown_are_no_problem(root: Path) -> None:
    query = DirectQuery(SPEC, root, sites=1, partitions=4)

    def no_moves(operation: str, path: str) -> None:
        if operation == "move":
            raise KeyboardInterrupt

    offsets = root / "checkpoint" / "spark" / "offsets" / str(EPOCHS)
    offsets.write_text(f"v1\n{{}}\n{EPOCHS}")
    with watch(no_moves), pytest.raises(KeyboardInterrupt):
        query.run(epoch_rows(EPOCHS), batch_input=_described(query, EPOCHS))
    query.close()
    assert problems(root) == ""
    waiting = next((root / "out").glob("_sluice-*/*.parquet"))
    waiting.unlink()
    assert f"{waiting.name} is gone" in problems(root)
    before = fingerprint(root)
    with pytest.raises(StorageError, match=rf"{waiting.name} is gone: these are results of epoch 3, .* not shown yet"):
        DirectQuery(SPEC, root, sites=1, partitions=4)
    assert fingerprint(root) == before


def test_state_that_is_gone_or_damaged(root: Path) -> None:
    first, *others = sorted((root / "checkpoint" / "state").iterdir())
    data = bytearray(first.read_bytes())
    data[len(data) // 2] ^= 1
    first.write_bytes(data)
    for other in others[:1]:
        other.unlink()
    assert "is damaged" in problems(root)
    assert not others or str(others[0]) in problems(root)


def test_a_journal_that_is_damaged(root: Path) -> None:
    entry = sorted((root / "checkpoint" / "journal").glob("*.json"))[1]
    text = json.loads(entry.read_text())
    text["content"]["record"]["batch"] = 99
    entry.write_text(json.dumps(text, separators=(",", ":")))
    assert f"{entry} is damaged: its checksum differs" in problems(root)


def test_the_newest_entry_is_damaged(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = max((root / "checkpoint" / "journal").glob("*.json"))
    entry.write_bytes(entry.read_bytes()[:-9])
    assert main(["inspect", "--verify", str(root / "checkpoint")]) == 1
    _, _, verified = capsys.readouterr().out.partition("Verified")
    assert f"{entry} is damaged: it has no checksum" in verified and "parts of results were looked at" in verified


def test_sparks_part_that_lacks_something(root: Path) -> None:
    (root / "checkpoint" / "spark" / "offsets" / str(EPOCHS - 1)).unlink()
    assert "lacks spark/offsets/2" in problems(root)


def test_a_query_that_goes_on_meanwhile_has_no_problems(root: Path) -> None:
    """State that was named at first is deleted by then, and both parts of the checkpoint are further on."""
    query = DirectQuery(SPEC, root, sites=1, partitions=4)
    spark = root / "checkpoint" / "spark"
    epochs, running = count(EPOCHS), False

    def go_on(operation: str, path: str) -> None:
        nonlocal running
        if running or operation != "read" or "/state/" not in path:
            return
        running = True
        for epoch in islice(epochs, 2):
            (spark / "offsets" / str(epoch)).write_text(f"v1\n{{}}\n{epoch}")
            query.run(epoch_rows(epoch), batch_input=_described(query, epoch))
            (spark / "commits" / str(epoch)).write_text("v1\n{}")
        running = False

    with watch(go_on):
        verified = verify(str(root / "checkpoint"))
    query.close()
    assert verified.problems == ()
    assert query.epochs.record.number > EPOCHS
    assert problems(root) == ""
