"""Files of a checkpoint or an output that are cut, flipped or gone: refused by name, or of no account; never a wrong
answer. What was refused goes on as if nothing had happened once the file is whole again."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import spark_listing
import suspension
from suspension import problems, run_batch

from sluice.model.errors import SluiceError
from sluice.state.files import storage

BATCHES, AFTERWARDS = 12, 3
"""Before the damage, of which the last is asked for again after it; and those that follow."""


class PowerCut(Exception):
    """The driver is no more."""


def power_cut(name: str, path: str, count: int) -> storage.Watcher:
    """The driver dies before an operation on such a path, when it comes to it for the so manyth time."""
    seen = 0

    def watcher(operation: str, where: str) -> None:
        nonlocal seen
        seen += operation == name and path in where
        if seen == count > 0:
            raise PowerCut

    return watcher


MOMENTS = {
    "shown": ("", "", 0),
    "committed": ("move", "/out/", 1),
    "half renamed": ("move", "/out/", 2),
    "not listed": ("write", "/out/_spark_metadata/", 1),
    "half shown": ("move", "/out1/", 1),
}
"""When the driver died: at which operation, where, for the how manyth time."""
DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "gone": lambda data: None,
    "empty": lambda data: b"",
    "half": lambda data: data[: len(data) // 2],
    "one byte short": lambda data: data[:-1],
    "first bit": lambda data: flipped(data, 0),
    "middle bit": lambda data: flipped(data, len(data) // 2),
    "late bit": lambda data: flipped(data, len(data) * 9 // 10),
}


def flipped(data: bytes, at: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)


@dataclass(frozen=True)
class Wreck:
    """What a driver left that died, kept apart; it is damaged at the place where the driver ran."""

    kept: Path
    root: Path

    moment: str

    def files(self) -> list[str]:
        """All but results that are listed: those are the reader's. State and earlier records are the same whenever the
        driver died."""
        shown = {part for out in ("out", "out1") for part in spark_listing.by_metadata(self.kept / out)}
        names = sorted(str(p.relative_to(self.kept)) for p in self.kept.rglob("*") if p.is_file() and p not in shown)
        if self.moment == "shown":
            return names
        newest = max(n for n in names if n.startswith("checkpoint/journal/"))
        return [n for n in names if not n.startswith("checkpoint/") or n == newest]

    def problem(self, name: str, damage: Callable[[bytes], bytes | None]) -> str | None:
        """What is wrong after the restart with one file damaged; None if all is right."""
        whole = (self.kept / name).read_bytes()
        harmed = damage(whole) if whole else None
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.kept, self.root)
        if harmed is None:
            (self.root / name).unlink()
        else:
            (self.root / name).write_bytes(harmed)
        try:
            self.go_on()
        except SluiceError as refusal:
            if harmed is not None and not names(str(refusal), self.root / name):
                return f"does not name it: {refusal}"
            (self.root / name).write_bytes(whole)
            try:
                self.go_on()
            except Exception as failure:
                return f"refused, made whole, and then {type(failure).__name__}: {failure}"
            found = problems(self.root, BATCHES + AFTERWARDS)
            return f"refused, made whole, and then {found}" if found else None
        except Exception as failure:
            return f"{type(failure).__name__}: {failure}"
        found = problems(self.root, BATCHES + AFTERWARDS)
        return f"wrong: {found}" if found else None

    def go_on(self) -> None:
        query = suspension.start(self.root)
        try:
            for number in range(max(BATCHES - 1, query.epochs.record.batch), BATCHES + AFTERWARDS):
                run_batch(query, number)
            query.epochs.close()
        finally:
            query.close()


def names(message: str, file: Path) -> bool:
    """Whether somebody who reads it knows where to look."""
    return file.name in message or str(file.parent) in message


@pytest.fixture(scope="module", params=MOMENTS)
def wreck(request: pytest.FixtureRequest) -> Iterator[Wreck]:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as directory:
        root, kept = Path(directory) / "root", Path(directory) / "kept"
        query = suspension.start(root, sites=2)
        for number in range(BATCHES - 1):
            run_batch(query, number)
        with storage.watch(power_cut(*MOMENTS[request.param])), suppress(PowerCut):
            run_batch(query, BATCHES - 1)
        query.close()
        for tier in ("memory", "disk"):
            shutil.rmtree(root / tier)
        root.rename(kept)
        yield Wreck(kept, root, request.param)


def assert_right(wreck: Wreck, damages: list[str], every: int = 1) -> None:
    """All of them are looked at, so that a failure shows what they have in common."""
    cases = [(name, damage) for name in wreck.files() for damage in damages][::every]
    found = {(name, damage): wreck.problem(name, DAMAGES[damage]) for name, damage in cases}
    wrong = [f"{name} {damage}: {problem}" for (name, damage), problem in found.items() if problem]
    assert not wrong, f"{len(wrong)} of {len(cases)}\n" + "\n".join(wrong)


def test_a_wreck_without_damage_goes_on(wreck):
    assert wreck.problem("checkpoint/flow.json", lambda data: data) is None


def test_some_damages(wreck):
    assert_right(wreck, list(DAMAGES), every=23)


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_every_file_damaged(wreck, damage):
    assert_right(wreck, [damage])
