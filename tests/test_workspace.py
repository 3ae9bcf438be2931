"""Local tiers disappear when the query stops, when their owner dies, and at the next start after that."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from sluice.state.workspace import Places, close_workspaces, open_workspace, sweep

OPEN = """
import sys, time
from sluice.state.workspace import Places, open_workspace
print(*open_workspace(Places(sys.argv[1], sys.argv[2]), "abc"), flush=True)
time.sleep(100)
"""


def opened_elsewhere(root: Path) -> tuple[subprocess.Popen, list[Path]]:
    command = [sys.executable, "-c", OPEN, str(root / "memory"), str(root / "disk")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": "src"})
    assert process.stdout is not None
    return process, [Path(p) for p in process.stdout.readline().split()]


def gone(paths: list[Path], within: float = 10) -> bool:
    deadline = time.monotonic() + within
    while any(p.exists() for p in paths) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(p.exists() for p in paths)


def test_a_workspace_goes_with_its_owner(tmp_path):
    process, paths = opened_elsewhere(tmp_path)
    assert all(p.is_dir() for p in paths)
    process.kill()
    process.wait()
    assert gone(paths)


def test_the_next_start_sweeps_what_a_killed_owner_left(tmp_path):
    process, paths = opened_elsewhere(tmp_path)
    reapers = subprocess.run(["pgrep", "-f", f"sluice-reaper {process.pid} "], capture_output=True, text=True)
    for pid in reapers.stdout.split():
        os.kill(int(pid), 9)
    process.kill()
    process.wait()
    assert all(p.is_dir() for p in paths)
    sweep(tmp_path / "memory")
    sweep(tmp_path / "disk")
    assert not any(p.exists() for p in paths)


def test_what_a_living_owner_closed_it_can_open_again(tmp_path):
    process, paths = opened_elsewhere(tmp_path)
    find = ["pgrep", "-f", f"sluice-reaper {process.pid} "]
    assert subprocess.run(find, capture_output=True).stdout
    paths[0].rmdir()
    deadline = time.monotonic() + 10
    while subprocess.run(find, capture_output=True).stdout and time.monotonic() < deadline:
        time.sleep(0.05)
    assert paths[1].is_dir()  # opened again, say, while the first reaper was on its way out
    process.kill()
    process.wait()
    sweep(tmp_path / "disk")


def test_a_living_owner_is_left_alone_and_a_stopped_query_is_not(tmp_path):
    places = Places(str(tmp_path / "memory"), str(tmp_path / "disk"))
    mine = [Path(p) for p in open_workspace(places, "123")]
    other = [Path(p) for p in open_workspace(places, "456")]
    sweep(tmp_path / "memory")
    assert all(p.is_dir() for p in mine + other)
    close_workspaces(places, "123")
    assert not any(p.exists() for p in mine) and all(p.is_dir() for p in other)
    close_workspaces(places, "456")
