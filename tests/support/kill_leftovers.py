"""What is on record of a job that was killed, and what is left of it: processes, local files, durable ones."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import psutil
from kill_rows import OUTPUTS

from sluice.control.journal import Journal
from sluice.record.epoch import EpochRecord
from sluice.state.files.storage import Storage


def records(root: Path) -> list[EpochRecord]:
    journal = Journal(Storage(str(root / "ck")))
    return journal.epochs()


def rows_on_record(root: Path) -> int:
    return sum(r.stats.rows_in for r in records(root))


def processes(root: Path) -> list[psutil.Process]:
    """Every process started by the job: driver, JVMs, Python workers, reapers. Their environment names the root."""
    found = []
    for process in psutil.process_iter(["name"]):  # asked for once: it may end while we look
        try:
            if str(root) in " ".join(process.cmdline()) or process.environ().get("SPARK_HOME") == f"{root}/spark":
                found.append(process)
        except psutil.Error:
            pass
    return found


def local_leftovers(root: Path) -> list[str]:
    """What must vanish when the processes have ended, however they ended."""
    left = [f"process {p.pid} {p.info['name']}" for p in processes(root)]
    for directory in (root / "mem", root / "disk", root / "tmp"):
        left += [str(p) for p in directory.glob("sluice-*")]
    identity = Journal(Storage(str(root / "ck"))).identity()
    query = "none" if identity is None else identity.id
    return left + [str(p) for p in Path("/dev/shm").glob(f"sluice-*-{query}-*")]


def durable_leftovers(root: Path) -> list[str]:
    """What must be gone when the query has ended in good order: everything the newest record does not refer to."""
    found = records(root)
    left = {f"state/{p.name}" for p in (root / "ck" / "state").iterdir()} ^ found[-1].files()
    left |= {f"input/{p.name}" for p in (root / "ck" / "input").glob("*")} ^ found[-1].file_lists()
    drafts = [p for top in ("ck", *OUTPUTS) for p in (root / top).rglob("*.tmp")]
    left |= {str(p) for p in drafts if root / "ck" / "spark" not in p.parents}  # there Spark's own drafts may be
    for number, output in enumerate(OUTPUTS):
        left |= {str(p) for p in (root / output).glob("_sluice-*/*")}
        shown = {p.name for p in (root / output).glob("*.parquet")}
        left |= shown ^ {p.name for r in found for p in r.results_of(number).parts}
    return sorted(left)


def assert_nothing_left(root: Path, look: Callable[[Path], list[str]], seconds: float = 10) -> None:
    """Nothing, or nothing any more within a few seconds."""
    deadline = time.monotonic() + seconds
    while (left := look(root)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left
