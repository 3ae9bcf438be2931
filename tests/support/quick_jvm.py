"""How Spark is started in tests: compiled once and in haste, with its classes out of an archive.

Reading, checking and linking classes is most of what a short run of Spark costs. The JVM can keep classes as they are
in memory (class data sharing). `class_archive.py` makes that archive once for a Java and a Spark.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

COMPILED_IN_HASTE = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""For a few rows, Spark takes longer to compile a query than to run it."""
COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
CACHE = Path(__file__).parents[2] / ".pytest_cache"
JARS = Path(importlib.util.find_spec("pyspark").origin).parent / "jars"
CLASS_PATH = ":".join(map(str, [*JARS.glob("slf4j-api-*.jar"), JARS / "*"]))
"""As Spark's own scripts write it. The archive is for classes of these paths, in this order, and none before them."""


def quick_to_start() -> str:
    """The options of a JVM; the first call makes the archive, which takes as long as two starts of Spark."""
    archive = class_archive()
    if not archive.exists():
        CACHE.mkdir(exist_ok=True)
        with (CACHE / "spark-classes.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # several processes of a test run may need it first
            if not archive.exists():
                _make(archive)
    # an archive that does not fit (other jars) is passed over; without this, a JVM says so where its output is read
    return f"{COMPILED_IN_HASTE} -XX:SharedArchiveFile={archive} -Xlog:disable"


def class_archive() -> Path:
    """Where it is for this Java and these jars."""
    java = os.path.realpath(shutil.which("java", path=_java_home_bin()) or "java")
    fits = f"{java} {os.path.getmtime(java) if os.path.exists(java) else ''} {JARS} {JARS.stat().st_mtime}"
    return CACHE / f"spark-classes-{hashlib.sha256(fits.encode()).hexdigest()[:12]}.jsa"


def _java_home_bin() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin" if home else None


def _make(archive: Path) -> None:
    """An empty file, if this Java cannot make one."""
    for old in CACHE.glob("spark-classes-*"):
        old.unlink()
    draft = archive.with_suffix(".draft")
    program = Path(__file__).with_name("class_archive.py")
    # a Spark of another home has its jars at other paths, and an archive of theirs fits nobody else
    own = {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "JAVA_TOOL_OPTIONS")}
    subprocess.run([sys.executable, str(program), str(draft)], capture_output=True, check=False, env=own)
    if not draft.exists():
        draft.touch()
    draft.rename(archive)
