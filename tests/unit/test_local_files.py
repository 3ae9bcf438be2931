"""Local files are this user's alone, and are what was written when they are used."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest

from sluice.model.codec import checksum
from sluice.model.errors import StorageError
from sluice.state.files import local_files
from sluice.state.files.local_files import LocalFiles

DATA = pa.py_buffer(bytes(range(256)) * 40)
CHECKSUM = checksum(DATA)


@pytest.fixture
def files(tmp_path: Path) -> LocalFiles:
    made = LocalFiles(str(tmp_path / "site"))
    made.write("a", [DATA])
    return made


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of what is verified, as it happens."""
    sizes: list[int] = []

    def counted(data: pa.Buffer) -> int:
        sizes.append(len(data))
        return checksum(data)

    monkeypatch.setattr(local_files, "checksum", counted)
    return sizes


def grow_old(path: Path) -> None:
    """As if the file had been written a minute ago: only its owner's clock has moved on."""
    os.utime(path, ns=(0, time.time_ns() - 60_000_000_000))


def test_directories_and_files_are_for_this_user_alone(files, tmp_path):
    assert (tmp_path / "site").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "site" / "a").stat().st_mode & 0o777 == 0o600
    assert files.map("a", CHECKSUM) == DATA


@pytest.mark.parametrize("damage", [b"x", b"", bytes(DATA)[:-1], bytes(DATA) + b"x"])
def test_what_was_not_written_so_is_not_used(files, tmp_path, damage):
    assert files.map("a", CHECKSUM) == DATA
    (tmp_path / "site" / "a").write_bytes(damage)
    assert files.map("a", CHECKSUM) is None


def test_a_file_is_verified_once_a_process_and_again_when_it_was_written_to(files, tmp_path, verified, monkeypatch):
    monkeypatch.setattr(local_files, "SETTLED", -1)  # no clock's tick to wait for
    for _ in range(5):
        assert files.map("a", CHECKSUM) == DATA
    assert verified == [len(DATA)]
    with open(tmp_path / "site" / "a", "r+b") as file:
        file.write(b"\1")
    grow_old(tmp_path / "site" / "a")  # whatever the times say: they are others than before
    assert files.map("a", CHECKSUM) is None
    files.write("a", [DATA])
    assert files.map("a", CHECKSUM) == DATA


def test_a_file_just_written_is_verified_until_a_change_would_show(files, verified, monkeypatch):
    """Two changes within one tick of the clock leave the same times."""
    monkeypatch.setattr(local_files, "SETTLED", 10**18)
    for _ in range(3):
        assert files.map("a", CHECKSUM) == DATA
    assert len(verified) == 3


def test_what_a_process_remembers_is_bounded(files, monkeypatch):
    monkeypatch.setattr(local_files, "SETTLED", -1)
    monkeypatch.setattr(local_files, "MOST_VERIFIED", 3)
    for number in range(20):
        files.write(str(number), [DATA])
        assert files.map(str(number), CHECKSUM) == DATA
    assert len(local_files._verified) <= 3


def test_no_link_is_followed(files, tmp_path):
    (tmp_path / "other").write_bytes(bytes(DATA))
    (tmp_path / "site" / "b").symlink_to(tmp_path / "other")
    assert [entry.name for entry in files.files()] == ["a"]
    with pytest.raises(StorageError, match="cannot map"):
        files.map("b", CHECKSUM)
    files.write("b", [pa.py_buffer(b"mine")])
    files.delete("b")
    assert (tmp_path / "other").read_bytes() == bytes(DATA)


def test_a_file_of_another_user_is_not_read(files, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with pytest.raises(StorageError, match="no file of this user"):
        files.map("a", CHECKSUM)


def test_a_directory_that_is_not_ours_alone_is_refused_by_name(tmp_path, monkeypatch):
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").touch()
    (tmp_path / "open").mkdir(mode=0o755)
    for name, what in (("link", "is a link"), ("file", "is no directory"), ("open", "is open to other users")):
        with pytest.raises(StorageError, match=f"{name} {what}.*memoryDir"):
            LocalFiles(str(tmp_path / name))
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with pytest.raises(StorageError, match="real belongs to another user"):
        LocalFiles(str(tmp_path / "real"))
