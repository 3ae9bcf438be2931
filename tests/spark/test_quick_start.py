"""Spark starts in tests with its classes out of the archive: one that does not fit is passed over without a word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from quick_jvm import class_archive


@pytest.mark.spark
def test_the_session_has_its_classes_out_of_the_archive(spark: Any) -> None:
    archive = class_archive()
    if not archive.stat().st_size:
        pytest.skip("this Java makes no archive")
    pid = spark._jvm.java.lang.ProcessHandle.current().pid()
    assert str(archive) in Path(f"/proc/{pid}/maps").read_text()
