"""The seam to files: what every operation does, whatever is underneath."""

from __future__ import annotations

import pytest

from sluice.model.errors import StorageError
from sluice.state.storage import Storage, watch


@pytest.fixture
def storage(tmp_path) -> Storage:
    storage = Storage(str(tmp_path / "root"))
    storage.make_dir()
    return storage


def names(storage: Storage) -> list[str]:
    return sorted(e.name for e in storage.files())


def test_many_files_are_moved_and_what_was_moved_before_counts_as_done(storage):
    for name in ("a", "b", "c"):
        storage.write(name, [name.encode()])
    storage.move("a", "a-moved")
    seen = []
    with watch(lambda operation, path: seen.append((operation, path.rsplit("/", 1)[-1]))):
        storage.move_all([(name, f"{name}-moved") for name in ("a", "b", "c")])
    assert [s for s in seen if s[0] == "move"] == [("move", "a"), ("move", "b"), ("move", "c")]
    assert names(storage) == ["a-moved", "b-moved", "c-moved"]
    assert storage.read("b-moved").to_pybytes() == b"b"
    with pytest.raises(StorageError, match=r"cannot move .*nowhere"):
        storage.move_all([("a-moved", "a"), ("nowhere", "there")])


def test_many_files_are_deleted_and_what_is_gone_counts_as_deleted(storage):
    for name in ("a", "b", "c"):
        storage.write(name, [b"1"])
    seen = []
    with watch(lambda operation, path: seen.append((operation, path.rsplit("/", 1)[-1]))):
        storage.delete_all(name for name in ("a", "gone", "c"))
    assert seen == [("delete", "a"), ("delete", "gone"), ("delete", "c")]
    assert names(storage) == ["b"]
