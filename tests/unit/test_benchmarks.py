"""The benchmarks start in a clean clone, and say what is missing or in the way."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks import contenders
from benchmarks.data import open_cache
from benchmarks.run import taking_part

ROOT = Path(__file__).resolve().parents[2]


def test_the_directory_for_rows_is_made(tmp_path: Path) -> None:
    for _ in range(2):
        cache = open_cache(tmp_path / "some" / ".bench")
        assert (cache / ".gitignore").read_text() == "*\n"


def test_a_gitignore_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("/.venv/\n")
    open_cache(tmp_path)
    assert (tmp_path / ".gitignore").read_text() == "/.venv/\n"


@pytest.mark.parametrize("kind", ["file", "link to nowhere", "file above"])
def test_something_else_in_its_place_is_named(tmp_path: Path, kind: str) -> None:
    cache = tmp_path / ".bench"
    if kind == "link to nowhere":
        cache.symlink_to(tmp_path / "nowhere")
    else:
        cache.write_text("")
    with pytest.raises(SystemExit, match=rf"{cache}.* is in the way.* no directory.* --cache"):
        open_cache(cache / "below" if kind == "file above" else cache)


def test_a_peer_asked_for_by_name_must_be_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(contenders, "missing", lambda peer: "it is not installed" if peer == "duckdb" else "")
    with pytest.raises(SystemExit, match="duckdb cannot take part: it is not installed"):
        taking_part(["spark-heap", "duckdb"])
    assert "duckdb" not in taking_part(None)
    assert "duckdb is left out: it is not installed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "made"),
    [("", True), ("--quick", True), ("--peers flink,duckdb", True), ("--quick --peers duckdb", False)],
)
def test_flink_is_prepared_only_if_it_may_take_part(tmp_path: Path, arguments: str, made: bool) -> None:
    for name in ("scripts/flink.sh", "benchmarks/flink-requirements.txt"):
        (tmp_path / name).parent.mkdir()
        shutil.copy(ROOT / name, tmp_path / name)
    done = subprocess.run(
        [str(tmp_path / "scripts/flink.sh"), *arguments.split()], env={"PATH": "/usr/bin:/bin", "PYTHON": "false"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert ("making .venv-flink" in done.stderr) == made
