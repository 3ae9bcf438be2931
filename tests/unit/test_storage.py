"""The seam to files: what every operation does, on a local disk and on the servers of object stores."""

from __future__ import annotations

import http.server
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from object_servers import SERVERS, NotAvailable

from sluice.model.errors import StorageError
from sluice.state.files.object_uri import parse
from sluice.state.files.storage import Storage, watch

KINDS = ["local", "s3", "azure"]


@pytest.fixture(scope="module", params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path_factory) -> Iterator[Callable[[str], str]]:
    """From a path to its URI on one of the stores."""
    if request.param == "local":
        root = tmp_path_factory.mktemp("storage")
        yield lambda path: str(root / path)
        return
    try:
        with SERVERS[request.param]() as uri:
            yield uri
    except NotAvailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def storage(place, request) -> Storage:
    storage = Storage(place(re.sub(r"\W+", "-", request.node.name)))
    storage.make_dir()
    return storage


def names(storage: Storage, directory: str = "") -> list[str]:
    return sorted(e.name for e in storage.files(directory))


def test_a_file_is_written_read_listed_and_deleted(storage):
    pieces = [b"one", pa.py_buffer(b"two"), memoryview(b"three")]
    storage.make_dir("dir")
    assert storage.write("dir/a b%20ü#1", pieces) == 11
    assert storage.files("dir") == [("a b%20ü#1", 11)]
    assert storage.size("dir/a b%20ü#1") == 11
    assert storage.read("dir/a b%20ü#1").to_pybytes() == b"onetwothree"
    assert storage.read("dir/a b%20ü#1", 3).to_pybytes() == b"twothree"
    assert storage.read("dir/a b%20ü#1", 3, 3).to_pybytes() == b"two"
    assert storage.read("dir/a b%20ü#1", 3, 0).to_pybytes() == b""
    with pytest.raises(StorageError, match="ends too early: 5 of 6 bytes"):
        storage.read("dir/a b%20ü#1", 6, 6)
    storage.delete("dir/a b%20ü#1")
    storage.delete("dir/a b%20ü#1")
    assert storage.size("dir/a b%20ü#1") is None and storage.files("dir") == []
    with pytest.raises(StorageError, match=r"cannot read .*dir/a b%20ü#1"):
        storage.read("dir/a b%20ü#1")


def test_a_directory_that_was_made_is_seen_though_it_is_empty_and_goes_with_its_tree(storage):
    storage.make_dir("mark")
    storage.make_dir("state/deep")
    storage.write("state/deep/file", [b"1"])
    storage.write("state2", [b"2"])
    assert sorted(storage.names()) == ["mark", "state", "state2"]
    assert storage.files("mark") == storage.files("state") == storage.files("nowhere") == []
    storage.delete_tree("state")
    storage.delete_tree("nowhere")
    assert sorted(storage.names()) == ["mark", "state2"]
    storage.delete_tree()
    assert storage.names() == []
    storage.make_dir("mark")
    assert storage.names() == ["mark"]


@pytest.mark.parametrize("size", [0, 1000, 20 << 20])
def test_a_write_that_fails_leaves_nothing_and_one_that_ends_shows_the_whole(storage, size):
    data = np.random.default_rng(size).bytes(size)
    pieces = [data[i : i + (3 << 20)] for i in range(0, size, 3 << 20)]

    def breaking_off() -> Iterator[bytes]:
        yield from pieces
        raise ValueError("no more")

    def not_to_the_end(operation: str, path: str) -> None:
        if operation == "finish":
            assert storage.files() == [] or storage.local
            raise OSError(28, "No space left on device")

    with pytest.raises(ValueError, match="no more"):
        storage.write("file", breaking_off())
    with watch(not_to_the_end), pytest.raises(StorageError, match="no space left to write"):
        storage.write("file", pieces)
    assert storage.files() == []
    assert storage.write("file", pieces) == size
    assert storage.read("file").to_pybytes() == data


def test_pyarrow_writes_to_a_stream(storage):
    table = pa.table({"x": np.arange(100_000)})
    with storage.open_writer("part.parquet") as out, pq.ParquetWriter(out, table.schema) as writer:
        writer.write_table(table)
        assert storage.local or storage.files() == []
    assert pq.read_table(pa.BufferReader(storage.read("part.parquet"))) == table


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


def test_a_move_that_fails_while_its_source_is_there_is_no_move(storage, monkeypatch):
    storage.write("source", [b"new"])
    storage.write("target", [b"old"])

    def failing(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(storage._files, "move", failing)
    with pytest.raises(StorageError, match=r"cannot move .*source"):
        storage.move("source", "target")


@pytest.mark.parametrize("place", ["azure"], indirect=True)
def test_a_copy_that_azure_makes_in_the_background_is_waited_for_before_its_source_is_deleted(storage, monkeypatch):
    import obstore

    copy = obstore.copy

    def copy_later(store: object, source: str, target: str) -> None:
        obstore.put(store, target, b"")
        threading.Timer(0.3, copy, (store, source, target)).start()

    monkeypatch.setattr(obstore, "copy", copy_later)
    storage.write("source", [b"content"])
    storage.move("source", "target")
    assert storage.read("target").to_pybytes() == b"content"
    assert names(storage) == ["target"]


def test_many_files_are_deleted_and_what_is_gone_counts_as_deleted(storage):
    for name in ("a", "b", "c"):
        storage.write(name, [b"1"])
    seen = []
    with watch(lambda operation, path: seen.append((operation, path.rsplit("/", 1)[-1]))):
        storage.delete_all(name for name in ("a", "gone", "c"))
        storage.delete_all([])
    assert seen == [("delete", "a"), ("delete", "gone"), ("delete", "c")]
    assert names(storage) == ["b"]


def test_a_file_is_created_once(storage):
    storage.make_dir("journal")
    assert storage.put_if_absent("journal/1", b"first")
    assert not storage.put_if_absent("journal/1", b"second")
    assert storage.read("journal/1").to_pybytes() == b"first"
    assert names(storage, "journal") == ["1"]


def test_of_drivers_that_create_the_same_file_at_once_exactly_one_has_done_it(storage):
    """200 files, two threads on each, with the same content: only the put itself can tell who won."""
    drivers = [Storage(storage.uri) for _ in range(2)]
    storage.make_dir("journal")
    with ThreadPoolExecutor(len(drivers)) as pool:
        for number in range(200):
            together = threading.Barrier(len(drivers))

            def put(driver: Storage, number: int = number, together: threading.Barrier = together) -> bool:
                together.wait()
                return driver.put_if_absent(f"journal/{number}", b"mine")

            assert sum(pool.map(put, drivers)) == 1, number
    assert len(storage.files("journal")) == 200


RACER = """
import sys
from sluice.state.files.storage import Storage
storage = Storage(sys.argv[1])
storage.make_dir("journal")
sys.stdin.readline()
for number in range(200):
    print(int(storage.put_if_absent(f"journal/{number}", b"mine")), flush=True)
"""


def test_of_processes_that_create_the_same_file_at_once_exactly_one_has_done_it(storage):
    command = [sys.executable, "-c", RACER, storage.uri]
    racers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    wins = np.array([[int(line) for line in racer.communicate()[0].split()] for racer in racers])
    assert wins.shape == (2, 200)
    assert (wins.sum(axis=0) == 1).all()


def test_a_put_that_was_done_but_not_answered_finds_itself(storage, monkeypatch):
    """A connection that breaks after the store has taken the put: the second try meets the first one's object."""
    if storage.local:
        import os

        link = os.link
        monkeypatch.setattr(os, "link", lambda a, b: (link(a, b), link(a, b)))
    else:
        import obstore

        put = obstore.put
        monkeypatch.setattr(obstore, "put", lambda *a, **k: (put(*a, **k), put(*a, **k)))
        monkeypatch.setattr(storage, "_exclusive", True)
    assert storage.put_if_absent("journal-1", b"mine")
    assert storage.read("journal-1").to_pybytes() == b"mine"
    monkeypatch.undo()
    assert not storage.put_if_absent("journal-1", b"mine")


class Careless(http.server.BaseHTTPRequestHandler):
    """An S3 server that does not know conditional puts, as older ones do not, and says nothing about it."""

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("ETag", '"0"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class Refusing(Careless):
    """One that says that it does not."""

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b"<Error><Code>NotImplemented</Code><Message>A header is not implemented</Message></Error>"
        self.send_response(501)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.mark.parametrize("handler", [Careless, Refusing])
def test_a_store_without_conditional_puts_is_refused(handler):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        options = f"endpoint_override=127.0.0.1:{server.server_port}&scheme=http"
        storage = Storage(f"s3://key:secret@bucket/ck?{options}")
        with pytest.raises(StorageError, match=r"s3://bucket/ck cannot create an object only if it is absent"):
            storage.put_if_absent("flow.json", b"{}")
        server.shutdown()


class TestUris:
    def test_amazon(self, monkeypatch):
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://localhost:9000")
        monkeypatch.setenv("AWS_REGION", "eu-central-1")
        bucket, path = parse("s3a://data/ck/a%20b")
        assert (bucket.kind, bucket.name, path, bucket.plain_http) == ("s3", "data", "ck/a b", True)
        assert dict(bucket.config) == {"endpoint": "http://localhost:9000", "region": "eu-central-1"}
        bucket, _ = parse("s3://k:s%2F1@data/ck?endpoint_override=host:1&region=r&allow_bucket_creation=true")
        assert dict(bucket.config) == {
            "access_key_id": "k",
            "secret_access_key": "s/1",
            "endpoint": "https://host:1",
            "region": "r",
        }
        assert "s%2F1" not in bucket.uri and "s/1" not in bucket.uri

    def test_google(self):
        bucket, path = parse("gs://anonymous@data/ck?endpoint_override=localhost:4443&scheme=http")
        assert (bucket.kind, bucket.name, path, bucket.uri) == ("google", "data", "ck", "gs://data")
        assert dict(bucket.config) == {"skip_signature": "true", "base_url": "http://localhost:4443"}

    @pytest.mark.parametrize(
        "uri",
        [
            "abfss://box@account.dfs.core.windows.net/ck/desk",
            "abfs://account.blob.core.windows.net/box/ck/desk",
            "abfs://account@box/ck/desk",
        ],
    )
    def test_azure(self, uri):
        bucket, path = parse(uri)
        assert (bucket.kind, bucket.name, path) == ("azure", "box", "ck/desk")
        assert dict(bucket.config) == {"account_name": "account"}

    def test_azure_elsewhere(self):
        bucket, path = parse("abfs://account:key@localhost:10000/box/ck?enable_tls=false&tenant_id=t")
        assert (bucket.name, path, bucket.plain_http) == ("box", "ck", True)
        assert dict(bucket.config) == {
            "account_name": "account",
            "account_key": "key",
            "endpoint": "http://localhost:10000/account",
            "tenant_id": "t",
        }

    @pytest.mark.parametrize(
        ("uri", "problem"),
        [
            ("s3://bucket/ck?regoin=x&endpoint_override=h", "unknown option 'regoin'"),
            ("s3:///ck?endpoint_override=h", "names no bucket"),
            ("abfs://a@box/ck?credential_kind=luck", "unknown credential_kind 'luck'"),
            ("nowhere://a/b", "no file system called 'nowhere'"),
        ],
    )
    def test_what_means_nothing_is_refused(self, uri, problem):
        with pytest.raises(StorageError, match=f"cannot open .*{problem}"):
            Storage(uri)


def test_a_profile_needs_boto3_and_says_so(monkeypatch, tmp_path):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.setenv("AWS_PROFILE", "desk")
    monkeypatch.setitem(sys.modules, "obstore.auth.boto3", None)
    with pytest.raises(StorageError, match="'desk', and reading them needs boto3"):
        Storage("s3://profiled/ck?endpoint_override=localhost:1")


def test_a_fork_of_a_process_that_used_a_store_is_told_so():
    code = """
import os
from sluice.model.errors import StorageError
from sluice.state.files.storage import Storage
uri = "s3://k:s@bucket/ck?endpoint_override=localhost:1"
Storage(uri)
if os.fork() == 0:
    try:
        Storage(uri)
    except StorageError as problem:
        os._exit("forked" not in str(problem))
    os._exit(2)
raise SystemExit(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_local_checkpoint_does_not_import_what_object_stores_need(tmp_path):
    imports = "import sys; from sluice.state.files.storage import Storage"
    code = f"{imports}; Storage('ck'); sys.exit('obstore' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False).returncode == 0


HDFS = """
#include <errno.h>
#include <stdio.h>
#include <unistd.h>
void *hdfsNewBuilder(void) { return (void *)1; }
void hdfsBuilderSetNameNode(void *builder, const char *name) {}
void *hdfsBuilderConnect(void *builder) { return (void *)2; }
int hdfsRename(void *fs, const char *from, const char *to) {
    if (fs != (void *)2 || access(to, F_OK) == 0) { errno = EIO; return -1; }
    return rename(from, to);
}
"""


def test_hdfs_is_asked_for_a_rename_that_replaces_nothing(tmp_path, monkeypatch):
    """HDFS is not here: a library with libhdfs's names and the refusal of HDFS's rename stands in for it."""
    from pyarrow import fs

    from sluice.state.files.hadoop import HadoopFiles

    (tmp_path / "hdfs.c").write_text(HDFS)
    try:
        subprocess.run(["cc", "-shared", "-fPIC", "-o", "libhdfs.so", "hdfs.c"], cwd=tmp_path, check=True)
    except FileNotFoundError:
        pytest.skip("there is no C compiler to build the stand-in with")
    monkeypatch.setenv("ARROW_LIBHDFS_DIR", str(tmp_path))
    root = Path(tmp_path / "root")
    root.mkdir()
    files = HadoopFiles(fs.LocalFileSystem(), str(root), "hdfs://nn:8020")
    files.check_exclusive()
    assert files.put_if_absent("1", b"first", lambda: None)
    assert not files.put_if_absent("1", b"second", lambda: None)
    assert (root / "1").read_bytes() == b"first" and len(list(root.iterdir())) == 1
