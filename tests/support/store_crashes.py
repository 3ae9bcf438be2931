"""Kills a query at its file operations, one after the other, with its checkpoint and output on an object store.

    python tests/support/store_crashes.py (s3 | azure) FIRST STEP [CRASHES]

It ends with the last operation, or after so many crashes. Every step runs in a fork of a process that has not talked to
the store itself: obstore's threads do not survive a fork.
"""

from __future__ import annotations

import math
import os
import pickle
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crash_flow import KEEP, PLAN, SPEC, epoch_rows, found_by
from engine_harness import DirectQuery
from forking import fork
from object_servers import SERVERS, NotAvailable
from oracle import batch_join, multiset

from sluice.state.files.storage import Storage, watch

Place = Callable[[str], str]
UNAVAILABLE = 77
"""The exit status that says that there is no such server here."""


def started(local: Path, place: Place | None, sites: int = 1) -> DirectQuery:
    return DirectQuery(PLAN, local, sites=sites, memory=8_000, partitions=4, spill="probe", place=place)


def forked(work: Callable[[], Any]) -> Any:
    """What a function returns in a process of its own; None if that process killed itself."""
    reading, writing = os.pipe()
    child = fork()
    if child == 0:
        os.close(reading)
        try:
            result = work()
            with os.fdopen(writing, "wb") as file:
                pickle.dump(result, file)
            os._exit(0)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        data = file.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 9), f"a child failed with {status}"
    return pickle.loads(data) if status == 0 else None


def run_undisturbed(local: Path, history: Path) -> list[Counter]:
    """What is found when nothing happens, on a local disk: where the checkpoint lies makes no difference. A copy of
    what is there before the epoch that will crash goes into `history`."""
    query = started(local, None)
    for epoch in range(KEEP):
        query.run(epoch_rows(epoch))
    query.close()
    shutil.copytree(local, history)
    query = started(local, None)
    for epoch in (KEEP, KEEP + 1):
        query.run(epoch_rows(epoch), number=epoch)
    answers = found_by(query)
    assert answers[0] == multiset(batch_join(SPEC, input_rows()))
    return answers


def input_rows() -> list[Any]:
    import pyarrow as pa

    return [pa.concat_tables([epoch_rows(e)[i] for e in range(KEEP + 2)]) for i in (0, 1)]


def upload_history(history: Path, place: Place) -> None:
    """Bring all but the local tiers to the store."""
    import obstore

    files = Storage(place(""))._files
    for entry in history.rglob("*"):
        name = str(entry.relative_to(history))
        if name.split("/")[0] in ("memory", "disk"):
            continue
        if entry.is_dir():
            files.make_dir(name)
        else:
            obstore.put(files.store, files._key(name), entry.read_bytes())


def crash_at(local: Path, place: Place, operation: int) -> bool:
    """Restart the query and run an epoch; die just before the given operation of it, if there are as many."""
    count = 0

    def watcher(name: str, path: str) -> None:
        nonlocal count
        if count == operation:
            os._exit(9)
        count += 1

    with watch(watcher):
        started(local, place).run(epoch_rows(KEEP))
    return False


def recover(local: Path, place: Place, sites: int) -> list[Counter]:
    query = started(local, place, sites)
    for epoch in (KEEP, KEEP + 1):
        query.run(epoch_rows(epoch), number=epoch)
    answers = found_by(query)
    durable = query.epochs.storage
    assert {f"state/{e.name}" for e in durable.files("state")} == query.epochs.record.files()
    for sink in query.sinks:
        assert not sink.storage.files(sink.staging.directory)
    query.close()
    return answers


def main(kind: str, first: int, step: int, most_crashes: float = math.inf) -> int:
    with SERVERS[kind]() as uri, tempfile.TemporaryDirectory() as directory:
        history = Path(directory) / "history"
        answers = forked(lambda: run_undisturbed(Path(directory) / "all", history))
        operation, crashes = first, 0
        while crashes < most_crashes:
            local = Path(directory) / str(operation)
            shutil.copytree(history, local)

            def place(path: str, operation: int = operation) -> str:
                return uri(f"{operation}/{path}")

            forked(lambda place=place: upload_history(history, place))
            crashed = forked(lambda place=place, at=operation, local=local: crash_at(local, place, at)) is None
            sites = 1 + operation % 2
            after = forked(lambda place=place, local=local, sites=sites: recover(local, place, sites))
            assert after == answers, f"after a crash at operation {operation}"
            shutil.rmtree(local)
            if not crashed:
                break
            crashes += 1
            operation += step
        print(f"{crashes} crashes on {kind}, the last at operation {operation - step}")
        return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1], *map(int, sys.argv[2:])))
    except NotAvailable as reason:
        print(reason)
        sys.exit(UNAVAILABLE)
