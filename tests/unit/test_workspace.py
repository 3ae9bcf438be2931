"""Local tiers disappear when the query stops, when their owner dies, and at the next start after that."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sluice.model.errors import StorageError
from sluice.state.files import workspace
from sluice.state.files.workspace import Places, Workspace, identify_memory, scratch, sweep, temporary_directory

OPEN = """
import sys, time
from sluice.state.files.workspace import Places, Workspace
print(*Workspace(Places(sys.argv[1] or None, sys.argv[2] or None), "abc", "12").open(), flush=True)
time.sleep(100)
"""


def opened_elsewhere(memory: Path, disk: Path | None, **environment: str) -> tuple[subprocess.Popen, list[Path]]:
    command = [sys.executable, "-c", OPEN, str(memory), str(disk or "")]
    given = os.environ | {"PYTHONPATH": "src"} | environment
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=given)
    assert process.stdout is not None
    return process, [Path(p) for p in process.stdout.readline().split()]


def kill_without_a_reaper(process: subprocess.Popen) -> None:
    reapers = subprocess.run(["pgrep", "-f", f"sluice-reaper {process.pid} "], capture_output=True, text=True)
    for pid in reapers.stdout.split():
        os.kill(int(pid), 9)
    process.kill()
    process.wait()


def gone(paths: list[Path], within: float = 10) -> bool:
    deadline = time.monotonic() + within
    while any(p.exists() for p in paths) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(p.exists() for p in paths)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(str(tmp_path / "memory"), str(tmp_path / "disk"))


def test_a_workspace_goes_with_its_owner(tmp_path):
    process, paths = opened_elsewhere(tmp_path / "memory", tmp_path / "disk")
    assert all(p.is_dir() for p in paths)
    process.kill()
    process.wait()
    assert gone(paths)


def test_the_next_start_sweeps_what_a_killed_owner_left(tmp_path, places):
    process, paths = opened_elsewhere(tmp_path / "memory", tmp_path / "disk")
    kill_without_a_reaper(process)
    assert all(p.is_dir() for p in paths)
    Workspace(places, "def", "34").open()
    assert not any(p.exists() for p in paths)
    Workspace(places, "def", "34").close()


@pytest.mark.parametrize(
    "above", ["", "spark-{0}/executor-{0}/", "usercache/me/appcache/application_1_0001/"], ids=["local", "own", "yarn"]
)
def test_the_next_executor_of_the_host_sweeps_what_a_killed_one_left(tmp_path, monkeypatch, above):
    """Each is told of directories that are its own, named as Spark's cluster managers name them."""
    made = []
    for number in range(2):
        unique = f"0123abcd-0123-0123-0123-0123456789a{number}"
        made.append(tmp_path / "local" / above.format(unique) / f"blockmgr-{unique}")
        made[-1].mkdir(parents=True)
    process, paths = opened_elsewhere(tmp_path / "memory", None, SPARK_LOCAL_DIRS=f"{made[0]},{tmp_path}")
    kill_without_a_reaper(process)
    assert all(p.is_dir() for p in paths) and tmp_path / "local" in paths[1].parents
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},{made[1]}")
    second = Workspace(Places(str(tmp_path / "memory")), "def", "34")
    second.open()
    assert not any(p.exists() for p in paths)
    second.close()


def test_a_volume_is_not_left_for_what_is_around_it(tmp_path, monkeypatch):
    unique = "0123abcd-0123-0123-0123-0123456789ab"
    volume = tmp_path / f"spark-{unique}"
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path) == volume)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(volume / f"blockmgr-{unique}"))
    volume.mkdir()
    assert Places().roots()[1] == volume


def test_what_was_left_before_the_host_was_started_again_is_swept(tmp_path, places, monkeypatch):
    """Whoever has the pid now."""
    with monkeypatch.context() as before:
        before.setattr(workspace, "_boot", lambda: "123")
        before.setattr(subprocess, "Popen", lambda *args, **options: None)  # no reaper survives that
        left = [Path(p) for p in Workspace(places, "abc", "12").open()]
    Workspace(places, "def", "34").open()
    assert not any(p.exists() for p in left)
    Workspace(places, "def", "34").close()


def test_what_another_host_left_in_a_shared_directory_is_not_touched(tmp_path, places, monkeypatch):
    with monkeypatch.context() as there:
        there.setattr(workspace, "_host", lambda: "123")
        there.setattr(workspace, "_boot", lambda: "456")
        left = [Path(p) for p in Workspace(places, "abc", "12").open()]
    sweep(tmp_path / "memory")
    sweep(tmp_path / "disk")
    assert all(p.is_dir() for p in left)
    Workspace(places, "abc", "12").close()


def test_what_a_living_owner_closed_it_can_open_again(tmp_path):
    process, paths = opened_elsewhere(tmp_path / "memory", tmp_path / "disk")
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


def test_a_living_owner_is_left_alone_and_a_stopped_query_is_not(tmp_path, places):
    first, second = Workspace(places, "123", "ab"), Workspace(places, "456", "ab")
    mine, other = ([Path(p) for p in some.open()] for some in (first, second))
    sweep(tmp_path / "memory")
    assert all(p.is_dir() for p in mine + other)
    first.close()
    assert not any(p.exists() for p in mine) and all(p.is_dir() for p in other)
    second.close()


def test_a_run_that_ends_removes_nothing_of_another_of_the_same_query(places):
    """A driver that was suspended, and shut out meanwhile, ends beside the one that took over."""
    zombie, living = Workspace(places, "123", "0a"), Workspace(places, "123", "0b")
    zombies, livings = ([Path(p) for p in some.open()] for some in (zombie, living))
    zombie.close()
    assert not any(p.exists() for p in zombies) and all(p.is_dir() for p in livings)
    living.close()


def test_an_executor_lets_go_of_sites_that_are_elsewhere(places):
    here = Workspace(places, "123", "0a")
    other = Workspace(places, "123", "0b")
    for some in (here, other):
        for root in some.open():
            for site in range(3):
                for level in range(2):
                    (Path(root) / f"site-{site:04d}-{level}").mkdir()
    here.let_go({1})
    for root in here.open():
        assert sorted(p.name for p in Path(root).iterdir()) == ["site-0001-0", "site-0001-1"]
    for root in other.open():
        assert len(list(Path(root).iterdir())) == 6
    here.close()
    other.close()


def test_directories_are_for_this_user_alone(tmp_path, places, monkeypatch):
    for path in Workspace(places, "123", "0a").open():
        assert os.stat(path).st_mode & 0o777 == 0o700
    monkeypatch.setattr(workspace.tempfile, "gettempdir", lambda: str(tmp_path))
    assert os.stat(scratch("1234")).st_mode & 0o777 == 0o700
    with pytest.raises(FileExistsError):
        scratch("1234")
    Workspace(places, "123", "0a").close()


def test_a_temporary_directory_goes_at_its_end_and_that_of_a_killed_process_with_the_next_one(tmp_path):
    program = (
        "import os, pathlib, sys\n"
        "from sluice.state.files.workspace import temporary_directory\n"
        "with temporary_directory(pathlib.Path(sys.argv[1])):\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", program, str(tmp_path)]).returncode == -9
    (left,) = tmp_path.iterdir()
    with temporary_directory(tmp_path) as directory:
        assert list(tmp_path.iterdir()) == [directory] != [left]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("tier", [0, 1])
def test_what_somebody_else_put_there_is_not_taken_and_not_removed(tmp_path, places, tier):
    """A link, say, to where they can read along."""
    victim = Workspace(places, "123", "0a")
    name = Path(victim.open()[tier])
    victim.close()
    theirs = tmp_path / "theirs"
    (theirs / "site-0000-0").mkdir(parents=True)
    name.symlink_to(theirs)
    with pytest.raises(StorageError, match=f"{name} is a link"):
        victim.open()
    victim.close()
    victim.let_go(())
    sweep(name.parent)
    assert name.is_symlink() and (theirs / "site-0000-0").is_dir()
    name.unlink()
    victim.close()


def test_directories_of_other_users_are_not_removed(places, monkeypatch):
    theirs = Workspace(places, "123", "0a")
    paths = [Path(p) for p in theirs.open()]
    with monkeypatch.context() as somebody_else:
        somebody_else.setattr(os, "geteuid", lambda: 4711)
        theirs.close()
        with pytest.raises(StorageError, match="belongs to another user"):
            theirs.open()
    assert all(p.is_dir() for p in paths)
    theirs.close()
    assert not any(p.exists() for p in paths)


def test_what_an_orphaned_worker_still_writes_goes_too(tmp_path):
    """A worker whose executor was killed makes its directory again after that was removed."""
    memory, disk = tmp_path / "memory", tmp_path / "disk"
    memory.mkdir()
    owner = subprocess.Popen(["sleep", "60"])
    reaper = subprocess.Popen(["sh", "-c", workspace._REAPER, "sluice-reaper", str(owner.pid), str(memory), str(disk)])
    owner.kill()
    owner.wait()
    while memory.is_dir():
        assert reaper.poll() is None
    disk.mkdir()
    (disk / "page.arrow").write_bytes(b"late")
    assert reaper.wait(timeout=30) == 0
    assert not disk.exists()


def test_two_tmpfs_at_one_path_are_two_memories(places):
    """Workers in mount namespaces of their own have one each, with the same host name and path."""
    here = identify_memory(places)
    program = "import sys; from sluice.state.files.workspace import *; print(identify_memory(Places(sys.argv[1])))"
    there = [sys.executable, "-c", program, str(places.memory)]
    environment = os.environ | {"PYTHONPATH": "src"}
    assert subprocess.run(there, capture_output=True, text=True, env=environment).stdout.strip() == here
    mounted = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$4" && exec "$@"', "sh", *there]
    told = subprocess.run(mounted, capture_output=True, text=True, env=environment)
    if told.returncode:
        pytest.skip(f"nothing can be mounted here: {told.stderr}")
    assert told.stdout.strip().rpartition(":")[2] == here.rpartition(":")[2] and told.stdout.strip() != here


def test_where_there_is_no_memory_tier_nobody_has_the_same(tmp_path):
    (tmp_path / "file").touch()
    assert identify_memory(Places(str(tmp_path / "file" / "below"))) == ""
