"""A query that cannot be started leaves nothing behind, whichever step fails: each undoes the ones before it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sluice.spark import locations, query_checkpoint, starting
from sluice.spark.checked_query import CheckedQuery
from sluice.spark.query_checkpoint import take_checkpoint

STEPS = ("take the checkpoint", "place the sites", "run")


class Refused(Exception):
    """What a step says that fails."""


class Steps:
    """The steps of a start as fakes, which note what is done and undone."""

    def __init__(self, failing: str | None, patch: pytest.MonkeyPatch) -> None:
        self.failing, self.notes = failing, list[str]()
        patch.setattr(starting, "take_checkpoint", self.take_checkpoint)
        patch.setattr(starting, "place_sites", self.place_sites)
        patch.setattr(starting, "RunningQuery", self.make_running_query)
        self.is_closed = False

    def do(self, step: str) -> None:
        if step == self.failing:
            raise Refused(step)
        self.notes.append(step)

    def take_checkpoint(self, query: Any, clock: Any) -> Any:
        self.do("take the checkpoint")
        return SimpleNamespace(
            location="ck", workspace="tiers", discard=lambda: self.notes.append("discard the checkpoint")
        )

    def place_sites(self, query: Any) -> Any:
        self.do("place the sites")
        return SimpleNamespace(close=lambda workspace: self.notes.append(f"let go of the sites and their {workspace}"))

    def make_running_query(self, query: Any, checkpoint: Any, sites: Any, clock: Any) -> Any:
        return self

    def start(self) -> None:
        self.do("run")

    def stop(self) -> None:
        self.notes.append("stop")


def query_at(location: str | None, **more: Any) -> Any:
    context = SimpleNamespace(master="spark://there")
    return SimpleNamespace(spark=SimpleNamespace(sparkContext=context), name=None, location=location, **more)


@pytest.mark.parametrize("failing", STEPS)
def test_a_step_that_fails_undoes_those_before_it_the_last_first(failing, monkeypatch):
    steps = Steps(failing, monkeypatch)
    with pytest.raises(Refused, match=failing):
        starting.start(query_at("ck"))
    done = STEPS.index(failing)
    undoing = ["discard the checkpoint", "let go of the sites and their tiers"]
    assert steps.notes == [*STEPS[:done], *reversed(undoing[:done])]
    assert "ck" not in starting._running


def test_what_is_started_stays_and_ends_when_it_is_started_again(monkeypatch):
    first = Steps(None, monkeypatch)
    assert starting.start(query_at("ck")) is first
    assert first.notes == list(STEPS)
    again = Steps(None, monkeypatch)
    starting.start(query_at("ck"))
    assert first.notes == [*STEPS, "stop"] and again.notes == list(STEPS)
    again.is_closed = True
    starting.start(query_at("ck"))
    assert "stop" not in again.notes


@pytest.mark.parametrize("failing", ["directories_of_lists", "open_checkpoint"])
def test_a_temporary_checkpoint_that_cannot_be_opened_goes(failing, monkeypatch, tmp_path):
    def refuse(*arguments: Any) -> Any:
        raise Refused(failing)

    before = set(locations._temporary)
    monkeypatch.setattr(locations, "scratch", lambda name: str(made_in(tmp_path, name)))
    monkeypatch.setattr(query_checkpoint, "directories_of_lists", lambda frame: ())
    monkeypatch.setattr(query_checkpoint, failing, refuse)
    plan = SimpleNamespace(outputs=())
    unused = {"frame": "sources", "identity": {}, "first": None, "relations": (), "streams": (), "time_zone": ""}
    chosen = {"sinks": (), "tables": {}, "made_for": "", "change_queries": False, "fails_fast": False}
    query: CheckedQuery = query_at(None, plan=plan, **chosen, **unused)
    with pytest.raises(Refused, match=failing):
        take_checkpoint(query, clock=SimpleNamespace())
    assert not list(tmp_path.iterdir()) and set(locations._temporary) == before


def made_in(root: Path, name: str) -> Path:
    (root / name).mkdir()
    return root / name
